"""Whose local memory a kernel uses, told from its PTX."""

from pathlib import Path

import pytest

from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.ptx.local_memory import entries_with_own_stack
from kernel_lsp.source.candidate import SourceFile

HEAD = 'extern "C" __global__ void k(const float* x, double* y, int n) { '


@pytest.mark.parametrize(
    ("body", "own"),
    [
        ("for (int i = 0; i < n; ++i) y[i] = sinf(x[i]) * cosf(x[i]);", False),
        ("for (int i = 0; i < n; ++i) y[i] = sin(y[i]) + tan(y[i]);", False),
        ('printf("%d %d %f\\n", n, n + 1, x[0]);', False),
        ("float v[8]; for (int i = 0; i < n; ++i) v[i] = x[i]; y[0] = v[n % 5] + sinf(x[0]);", True),
    ],
)
def test_a_library_functions_array_is_not_the_kernels(body: str, own: bool, tmp_path: Path) -> None:
    build = build_cuda(SourceFile(tmp_path / "k.cu", HEAD + body + " }"), "sm_90")
    assert build.binary is not None, build.diagnostics
    assert build.binary.ptx is not None
    assert entries_with_own_stack(build.binary.ptx, 16) == ({"k"} if own else frozenset())
