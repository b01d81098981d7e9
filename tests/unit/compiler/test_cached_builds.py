"""The address of a build: what must change it and what must not, and that an unchanged file starts no process."""

import asyncio
import zlib
from pathlib import Path

import msgspec
import pytest

from kernel_lsp.compiler.builds.answers import cached_build
from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.builds.key import build_keys
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.judge.building import Builders
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.imports import local_imports
from kernel_lsp.source.kernel import Language
from kernel_lsp.workload.spec import WorkloadFile

KERNEL = (
    '#include "scale.cuh"\n__global__ void scale(float* x) { x[threadIdx.x] *= FACTOR; }\nint main() { return 0; }\n'
)
WORKLOAD = """
import torch
from shapes import LENGTH

CASES = [{}]

def inputs():
    return torch.zeros(LENGTH, device="cuda")

def reference(x):
    return x * 2

def launch(module, x):
    module.scale[1, LENGTH](x)
    return x
"""
KEPT = Built(Build(None, (), "none", 0.0), ())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "scale.cuh").write_text("#define FACTOR 2.0f\n")
    (tmp_path / "shapes.py").write_text("LENGTH = 64\n")
    return tmp_path


def keys(folder: Path, text: str = KERNEL, workload: str = WORKLOAD, arch: str = "sm_90", flag: str = "-DX"):
    file = SourceFile(folder / "scale_workload.py", workload)
    kernel = SourceFile(folder / "scale.cu", text)
    found = WorkloadFile(file, kernel.path, in_kernel_file=False, has_launch=True)
    return build_keys(Candidate(Language.CUDA, kernel, file, "baseline", "baseline"), found, device_named(arch), [flag])


def test_build_scripts_count_where_macros_are_taken_from_them(folder: Path) -> None:
    (folder / ".git").mkdir()
    kernel = SourceFile(folder / "scale.cu", KERNEL)
    alone = Candidate(Language.CUDA, kernel, None, "baseline", "baseline")
    seen: list[object] = []
    launched: set[object] = set()
    for width in (4, 16):
        (folder / "Makefile").write_text(f"all:\n\tnvcc -DWIDTH={width} scale.cu\n")
        seen.append(build_keys(alone, None, device_named("sm_90")))
        launched.add(keys(folder))
    assert seen[0] != seen[1]
    assert len(launched) == 1, "a workload's options are given"


def test_all_that_goes_into_a_build_changes_its_address(folder: Path) -> None:
    seen = [
        keys(folder),
        keys(folder, arch="sm_80"),
        keys(folder, flag="-DY"),
        keys(folder, text=KERNEL.replace("*=", "+=")),
        keys(folder, workload=WORKLOAD.replace("* 2", "* 3")),
    ]
    (folder / "scale.cuh").write_text("#define FACTOR 3.0f\n")
    seen.append(keys(folder))
    (folder / "shapes.py").write_text("LENGTH = 128\n")
    seen.append(keys(folder))
    assert len({key for pair in seen for key in pair or ()}) == 2 * len(seen)


def test_host_code_changes_the_address_of_whole_file_builds_only(folder: Path) -> None:
    before, after = keys(folder), keys(folder, text=KERNEL.replace("return 0", "return 7777"))
    assert before is not None
    assert after is not None
    assert before[0] == after[0]
    assert before[1] != after[1]


def test_there_is_no_address_where_an_import_cannot_be_followed(folder: Path) -> None:
    assert keys(folder, workload=f"import somebody_elses\n{WORKLOAD}") is None
    assert keys(folder, workload="def broken(") is None


def test_imports_are_followed_through_packages_and_neighbours(tmp_path: Path) -> None:
    (tmp_path / "pack" / "deep").mkdir(parents=True)
    for name, text in {
        "pack/__init__.py": "",
        "pack/deep/__init__.py": "from ..other import y\n",
        "pack/deep/leaf.py": "import math, one\n",
        "pack/other.py": "y = 1\n",
        "one.py": "import two\n",
        "two.py": "import one\n",
        "unused.py": "",
    }.items():
        (tmp_path / name).write_text(text)
    main = SourceFile(tmp_path / "main.py", "import os.path, numpy as np\nfrom pack.deep import leaf\n")
    found = local_imports(main, [tmp_path], {"numpy"})
    assert found is not None
    names = [str(file.path.relative_to(tmp_path)) for file in found]
    assert names == [
        "one.py",
        "pack/__init__.py",
        "pack/deep/__init__.py",
        "pack/deep/leaf.py",
        "pack/other.py",
        "two.py",
    ]
    assert local_imports(main, [tmp_path], ()) is None


def settings(folder: Path) -> Settings:
    return load_settings(None, overrides={"paths.cache": str(folder / "cache")})[0]


def test_an_unchanged_file_is_known_and_a_changed_one_is_not(folder: Path) -> None:
    file = SourceFile(folder / "scale_workload.py", WORKLOAD)
    source = SourceFile(folder / "scale.cu", KERNEL)
    workload = WorkloadFile(file, source.path, in_kernel_file=False, has_launch=True)
    candidate = Candidate(Language.CUDA, source, file, "baseline", "baseline")

    async def build():
        async with Pool() as pool:
            return await Builders(pool, settings(folder), device_named("sm_80")).build(workload, candidate)

    assert cached_build(settings(folder), device_named("sm_80"), workload, candidate) is None
    built = asyncio.run(build())
    known = cached_build(settings(folder), device_named("sm_80"), workload, candidate)
    assert known is not None
    assert known.build.cached
    assert (known.build.binary, known.plans) == (built.build.binary, built.plans)
    assert known.plans[0].launches[0].block == (64, 1, 1)
    changed = Candidate(
        Language.CUDA, SourceFile(source.path, KERNEL.replace("*=", "-=")), file, "baseline", "baseline"
    )
    assert cached_build(settings(folder), device_named("sm_80"), workload, changed) is None
    assert cached_build(settings(folder), device_named("sm_90"), workload, candidate) is None


@pytest.mark.parametrize(
    "stored",
    [
        b"not what it was",
        zlib.compress(b"no msgpack"),
        zlib.compress(msgspec.msgpack.encode({"format": 0, "built": KEPT})),
        zlib.compress(msgspec.msgpack.encode({"format": 1, "built": {"build": 5}})),
    ],
    ids=["not compressed", "garbage", "an older format", "another shape"],
)
def test_a_stored_answer_of_another_shape_is_dropped(folder: Path, stored: bytes) -> None:
    pair = keys(folder, flag="-DX")
    assert pair is not None
    cache = FileCache(folder / "cache" / "builds", 1 << 20, ".answer")
    cache.write(pair[0], stored)
    source = SourceFile(folder / "scale.cu", KERNEL)
    file = SourceFile(folder / "scale_workload.py", WORKLOAD)
    workload = WorkloadFile(file, source.path, in_kernel_file=False, has_launch=True)
    candidate = Candidate(Language.CUDA, source, file, "baseline", "baseline")
    overrides = {"paths.cache": str(folder / "cache"), "build.options": ["-DX"]}
    assert cached_build(load_settings(None, overrides=overrides)[0], device_named("sm_90"), workload, candidate) is None
    assert cache.read(pair[0]) is None


@pytest.mark.parametrize(
    ("text", "compiles"),
    [
        (KERNEL.replace("}\n", "}  // as in the paper\n", 1), False),
        (KERNEL.replace("return 0;", "return 1; // host"), False),
        (KERNEL.replace("{ x", "{ /* */ x"), True),  # what follows has another column
        (KERNEL.replace("__global__", "// above\n__global__"), True),  # and here another line
        (KERNEL.replace("*=", "/=").replace("FACTOR;", "FACTOR; // *="), True),
    ],
)
def test_a_comment_that_moves_nothing_compiles_nothing(folder: Path, text: str, compiles: bool) -> None:
    before, after = keys(folder), keys(folder, text=text)
    assert before is not None
    assert after is not None
    assert (before[0] != after[0]) is compiles
