"""Kernels in CuTe DSL: found in text always, compiled without a GPU where the package is installed."""

from importlib.util import find_spec
from pathlib import Path

import pytest
from typer.testing import CliRunner

from kernel_lsp.cli.main import app
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.language import source_part
from kernel_lsp.workload.draft import draft_for

KERNEL = """\
import cutlass
import cutlass.cute as cute


@cute.kernel
def scale_kernel(x: cute.Tensor, y: cute.Tensor, s: cutlass.Float32):
    t, _, _ = cute.arch.thread_idx()
    b, _, _ = cute.arch.block_idx()
    i = b * 128 + t
    if i < cute.size(x):
        y[i] = x[i] * s


@cute.jit
def scale(x: cute.Tensor, y: cute.Tensor, s: cutlass.Float32):
    scale_kernel(x, y, s).launch(grid=((cute.size(x) + 127) // 128, 1, 1), block=(128, 1, 1))
"""
WORKLOAD = """\
import torch
from cutlass.cute.runtime import from_dlpack

CASES = [dict(n=1000)]


def inputs(n):
    return torch.randn(n, device="cuda"), 2.0


def reference(x, s):
    return x * s


def launch(module, x, s):
    y = torch.empty_like(x)
    module.scale(from_dlpack(x), from_dlpack(y), s)
    return y
"""
FILE = Path("scale.py")
installed = pytest.mark.skipif(find_spec("cutlass") is None, reason="needs it: pip install 'kernel-lsp[cute]'")
missing = pytest.mark.skipif(find_spec("cutlass") is not None, reason="is of machines without CuTe DSL")


def written(folder: Path, kernel: str) -> str:
    (folder / FILE).write_text(kernel)
    (folder / "scale_workload.py").write_text(WORKLOAD)
    return str(folder / FILE)


@pytest.mark.parametrize(
    "text",
    [
        KERNEL,
        KERNEL.replace("import cutlass.cute as cute", "from cutlass import cute"),
        KERNEL.replace("import cutlass.cute as cute", "from cutlass.cute import kernel").replace(
            "@cute.kernel", "@kernel"
        ),
    ],
)
def test_a_kernel_is_found_however_cute_is_imported(text: str):
    (kernel,) = find_kernels(text, FILE)
    assert (kernel.name, kernel.language, language_of(FILE, text)) == ("scale_kernel", Language.CUTE, Language.CUTE)
    assert [parameter.type for parameter in kernel.parameters] == ["cute.Tensor", "cute.Tensor", "cutlass.Float32"]
    assert source_part(Language.CUTE).head(kernel).startswith("@cute.kernel\ndef scale_kernel(x: cute.Tensor, ")


def test_what_another_package_calls_a_kernel_is_none():
    text = KERNEL.replace("import cutlass.cute as cute", "import other as cute")
    assert (find_kernels(text, FILE), language_of(FILE, text)) == ((), None)


def test_a_draft_calls_what_launches_the_kernel():
    text = draft_for(SourceFile(FILE, KERNEL))
    assert "module.scale(from_dlpack(x), from_dlpack(y), s)" in text


@missing
def test_a_missing_package_is_told_with_what_to_install(tmp_path: Path):
    result = CliRunner().invoke(app, ["facts", written(tmp_path, KERNEL)])
    assert result.exit_code == 1
    assert "kernel-lsp[cute]" in result.output


@installed
def test_facts_need_no_gpu(tmp_path: Path):
    result = CliRunner().invoke(app, ["facts", "--arch", "sm_90", "--sass", written(tmp_path, KERNEL)])
    assert result.exit_code == 0, result.output
    assert "scale_kernel" in result.output
    assert "y[i] = x[i] * s" in result.output
    assert "FMUL" in result.output


@installed
def test_the_compilers_words_stand_at_their_line(tmp_path: Path):
    path = written(tmp_path, KERNEL.replace("x[i] * s", "x[i] * q"))
    result = CliRunner().invoke(app, ["facts", path])
    assert result.exit_code == 1
    assert "scale.py:11" in result.output.replace("\n", "")
