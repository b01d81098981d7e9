"""A header with a workload, of which only a file that includes it says what it needs."""

from pathlib import Path

import pytest
from check_support import checking

from kernel_lsp.check.files import find_kernel_files, kernel_files_among
from kernel_lsp.errors import SourceError

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


@pytest.mark.parametrize("name", ["twice.cuh", "twice.h"])
def test_a_header_with_a_workload_is_compiled_after_what_stands_before_its_include(tmp_path: Path, name: str) -> None:
    """As fast.cu's `matmul_2.cuh`, whose types come from `matmul.cu`."""
    header, program = tmp_path / name, tmp_path / "program.cu"
    header.write_text(HEADER)
    program.write_text(PROGRAM.replace("twice.cuh", name))
    (tmp_path / "twice_workload.py").write_text(WORKLOAD)

    def steps(check) -> None:
        report = check(header)
        assert report.ok, report.diagnostics
        assert report.emulation is not None
        assert report.emulation.runs
        program.write_text(program.read_text().replace("real(2)", "real(3)"))
        assert not check(header).ok, "a change of what includes it counts"

    checking(tmp_path, steps)


def test_a_program_without_kernels_names_the_header_that_has_them(tmp_path: Path) -> None:
    header, program = tmp_path / "twice.h", tmp_path / "program.cu"
    header.write_text(HEADER)
    (tmp_path / "sizes.h").write_text("#define SIZE 64\n")
    program.write_text(PROGRAM.replace("twice.cuh", "twice.h") + '#include "sizes.h"\n')
    with pytest.raises(SourceError) as caught:
        find_kernel_files([program])
    assert caught.value.fix == f"Its kernels are in {header}: name that."
    assert [file.path for file in find_kernel_files([tmp_path])] == [header]
    changed = kernel_files_among([tmp_path / "sizes.h"], related=True)
    assert [file.path for file in changed] == [program], "a header without kernels is none to check"
