import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_lsp.errors import SourceError
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.files import LARGEST_BYTES, encoded, find_kernels, language_of, pick_kernel, read_source
from kernel_lsp.source.kernel import Language

TRITON = "import triton\n@triton.jit\ndef kernel(x):\n    pass\n"


@pytest.mark.parametrize(
    ("name", "text", "language"),
    [
        ("k.cu", "", Language.CUDA),
        ("k.cuh", "int x;", Language.CUDA),
        ("k.h", "__global__ void k() {}", Language.CUDA),
        ("k.hpp", "int x;", None),
        ("k.py", TRITON, Language.TRITON),
        ("k.py", "import triton\n", None),
        ("k.cpp", "__global__ void k() {}", None),
        ("k.txt", TRITON, None),
    ],
)
def test_language(name: str, text: str, language: Language | None) -> None:
    assert language_of(Path(name), text) is language


def test_kernels_by_file_name() -> None:
    assert [k.name for k in find_kernels(TRITON, Path("a.py"))] == ["kernel"]
    assert [k.name for k in find_kernels("__global__ void k() {}", Path("a.cu"))] == ["k"]
    assert find_kernels("__global__ void k() {}", Path("a.cpp")) == ()


def test_read_keeps_line_ends(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes("a\r\nü\n".encode())
    assert read_source(path).text == "a\r\nü\n"


def failure(path: Path) -> SourceError:
    with pytest.raises(SourceError) as caught:
        read_source(path)
    assert caught.value.path == path
    assert caught.value.fix
    return caught.value


def test_a_byte_order_mark_is_no_part_of_a_python_text(tmp_path: Path) -> None:
    path = tmp_path / "k.py"
    path.write_bytes(b"\xef\xbb\xbfimport torch\n")
    assert read_source(path).text == "import torch\n"


def test_missing_file_names_the_nearest(tmp_path: Path) -> None:
    (tmp_path / "rmsnorm.cu").touch()
    error = failure(tmp_path / "rmsnrom.cu")
    assert error.fix == f"Did you mean {tmp_path / 'rmsnorm.cu'}?"


def test_missing_folder(tmp_path: Path) -> None:
    assert "folder" in (failure(tmp_path / "no" / "k.cu").fix or "")


def test_directory(tmp_path: Path) -> None:
    assert "directory" in failure(tmp_path).message


def test_not_utf8_tells_the_line(tmp_path: Path) -> None:
    for name, data in (("k.py", b"a = 1\n# gr\xf6sser\n"), ("k.cu", b"int a;\n\xf6\0\0")):
        path = tmp_path / name
        path.write_bytes(data)
        error = failure(path)
        assert error.line == 2
        assert "0xf6" in error.message


def test_comments_of_older_cuda_files_are_latin_1(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(before := b"// Copyright \xa9 2013\n__global__ void k() {}\n")
    text = read_source(path).text
    assert text.splitlines()[0] == "// Copyright © 2013"
    assert encoded(text.replace("k()", "kernel()"), before) == before.replace(b"k()", b"kernel()")
    assert encoded("// Ω\n", before) == "// Ω\n".encode()


def test_too_large(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    path.write_bytes(b" " * (LARGEST_BYTES + 1))
    assert "8 MiB" in failure(path).message


KERNELS = find_cuda_kernels(
    "namespace a { __global__ void add() {} __global__ void scale() {} } namespace b { __global__ void add() {} }",
    Path("k.cu"),
)


@pytest.mark.parametrize(("name", "found"), [("a::add", "a::add"), ("b::add", "b::add"), ("scale", "a::scale")])
def test_pick(name: str, found: str) -> None:
    assert pick_kernel(KERNELS, name).name == found


@pytest.mark.parametrize(
    ("name", "fix"),
    [
        ("add", "Write one of: a::add, b::add."),
        ("scael", "Did you mean a::scale? The file defines: a::add, a::scale, b::add."),
        ("zzz", "The file defines: a::add, a::scale, b::add."),
    ],
)
def test_pick_tells_what_there_is(name: str, fix: str) -> None:
    with pytest.raises(SourceError) as caught:
        pick_kernel(KERNELS, name)
    assert caught.value.fix == fix


def test_pick_from_nothing() -> None:
    with pytest.raises(SourceError, match="defines none"):
        pick_kernel((), "k")


def test_importing_the_room_loads_no_parser() -> None:
    code = (
        "import sys, kernel_lsp.source.files, kernel_lsp.source.slicing, kernel_lsp.source.editing\n"
        "print([m for m in sys.modules if m.split('.')[0].startswith(('tree_sitter', 'torch', 'triton', 'numpy'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "k.cu")
    assert "pipe" in failure(tmp_path / "k.cu").message
    assert "device" in failure(Path("/dev/zero")).message


def test_a_name_that_is_not_utf8(tmp_path: Path) -> None:
    path = tmp_path / os.fsdecode(b"caf\xe9.cu")
    path.touch()
    assert "UTF-8" in failure(path).message
