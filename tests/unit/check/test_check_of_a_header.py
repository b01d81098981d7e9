"""A header with a workload, of which only a file that includes it says what it needs."""

from pathlib import Path

from check_support import checking

PROGRAM = '#include <cuda.h>\ntypedef float real;\n#define FACTOR real(2)\n#include "twice.cuh"\n'
HEADER = """\
template <int EACH> __global__ void twice(const real* x, real* y) {
  y[threadIdx.x] = FACTOR * x[threadIdx.x];
}
"""
WORKLOAD = """\
import torch

CASES = [dict(n=64)]


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module["twice<1>"][1, x.numel()](x, y)
    return y
"""


def test_a_header_with_a_workload_is_compiled_after_what_stands_before_its_include(tmp_path: Path) -> None:
    """As fast.cu's `matmul_2.cuh`, whose types come from `matmul.cu`."""
    header, program = tmp_path / "twice.cuh", tmp_path / "program.cu"
    header.write_text(HEADER)
    program.write_text(PROGRAM)
    (tmp_path / "twice_workload.py").write_text(WORKLOAD)

    def steps(check) -> None:
        report = check(header)
        assert report.ok, report.diagnostics
        assert report.emulation is not None
        assert report.emulation.runs
        program.write_text(PROGRAM.replace("real(2)", "real(3)"))
        assert not check(header).ok, "a change of what includes it counts"

    checking(tmp_path, steps)
