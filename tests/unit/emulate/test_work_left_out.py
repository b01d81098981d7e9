"""PTX without a line's work is still a kernel: it computes the rest, and the assembler takes it."""

import numpy as np
import pytest

from kernel_lsp.compiler.machine_code.cubin import read_cubin
from kernel_lsp.compiler.ptx.assembler import assemble
from kernel_lsp.compiler.ptx.left_out import LeftOut, leave_out_each_line
from kernel_lsp.compiler.ptx.lines import files_of
from kernel_lsp.errors import CannotJudgeError
from tests.unit.emulate.emulator_kit import compiled, launch

Versions = dict[tuple[int, str], LeftOut]
SOURCE = """extern "C" __global__ void sums(const float* x, const short* steps, float* y, int* hits, int cols) {
    __shared__ float part[32];
    float sum = 0.0f;
    for (int i = threadIdx.x; i < cols; i += 32) {
        sum += x[blockIdx.x * cols + i];
    }
    part[threadIdx.x] = sum + 1.0f;
    __syncthreads();
    double wide = part[31 - threadIdx.x] + steps[threadIdx.x];
    atomicAdd(hits, 1);
    y[blockIdx.x * 32 + threadIdx.x] = (float)wide;
}
"""
X, STEPS = np.ones((2, 96), np.float32), np.full(32, 5, np.int16)


@pytest.fixture(scope="module")
def without() -> Versions:
    ptx = compiled(SOURCE, "sm_90")
    return {(one.line, one.what): one for one in leave_out_each_line(ptx, "sums", *files_of(ptx).values())}


def run(ptx: str) -> tuple[np.ndarray, int, set[str]]:
    """The outputs, the hits, and the kinds of findings."""
    given = X, STEPS, np.full(64, -1, np.float32), np.zeros(1, np.int32)
    done = launch(ptx, "sums", 2, 32, *given, np.int32(96))
    return done.arrays[2], int(done.arrays[3][0]), {finding.kind.value for finding in done.findings}


def test_each_line_with_work_is_left_out_once(without: Versions) -> None:
    wanted = [(4, "loop"), (5, "loads"), (7, "stores"), (8, "barrier"), (9, "loads"), (10, "atomics"), (11, "stores")]
    assert list(without) == wanted


@pytest.mark.parametrize(
    ("work", "y", "hits"),
    [
        ((4, "loop"), 1 + 1 + 5, 64),  # one turn: 32 of 96 columns
        ((5, "loads"), 0 + 1 + 5, 64),
        ((9, "loads"), 0, 64),
        ((10, "atomics"), 3 + 1 + 5, 0),
        ((11, "stores"), -1, 64),
    ],
)
def test_the_rest_is_computed(without: Versions, work: tuple[int, str], y: float, hits: int) -> None:
    assert run(compiled(SOURCE, "sm_90"))[:2] == (pytest.approx(np.full(64, 9.0)), 64)
    got, hit, _ = run(without[work].ptx)
    assert (got.tolist(), hit) == ([y] * 64, hits)


def test_nobody_waits_at_a_barrier_that_is_left_out(without: Versions) -> None:
    assert run(compiled(SOURCE, "sm_90"))[2] == set()
    assert "shared-race" in run(without[8, "barrier"].ptx)[2]


def test_the_assembler_takes_all_of_them_also_if_it_is_older(without: Versions) -> None:
    for one in without.values():
        (kernel,) = read_cubin(assemble(one.ptx, "sm_90"))
        assert kernel.entry == "sums"
    with pytest.raises(CannotJudgeError, match="ptxas"):
        assemble(".version 8.0\n.target sm_90\n.address_size 64\nnonsense;\n", "sm_90")


def test_the_assembler_cannot_see_that_the_rest_is_for_nothing(without: Versions) -> None:
    """A kernel whose result is never stored would be empty if the condition were known."""
    stored = assemble(compiled(SOURCE, "sm_90"), "sm_90")
    for work in ((11, "stores"), (9, "loads"), (4, "loop")):
        assert len(assemble(without[work].ptx, "sm_90")) > 0.8 * len(stored), work


def test_a_kernel_that_waits_for_copies_is_left_alone() -> None:
    waiting = compiled(SOURCE, "sm_90").replace("bar.sync", "mbarrier.init.shared.b64 [%r1], 1;\n\tbar.sync", 1)
    assert leave_out_each_line(waiting, "sums", *files_of(waiting).values()) == ()


def test_triton_s_guarded_vector_loads_are_zeros_too() -> None:
    text = """.version 8.5
.target sm_90
.address_size 64
.visible .entry k(.param .u64 a)
{
\t.reg .pred %p<3>;
\t.reg .b32 %r<9>;
\t.reg .b16 %rs<3>;
\t.reg .b64 %rd<3>;
\t.loc\t1 7 3
\t@%p1 ld.global.L1::evict_first.v2.b32 { %r1, %r2 }, [ %rd1 + 0 ];
\t@!%p1 ld.global.v2.b16 { %rs1, %rs2 }, [ %rd1 + 8 ];
\t.loc\t1 8 3
\t@%p2 st.global.b64 [ %rd1 + 0 ], { %rd2 };
\tret;
}
\t.file\t1 "/a/k.py"
"""
    loads, stores = leave_out_each_line(text, "k", "/a/k.py")
    assert "\t@%p1 mov.b32 %r1, %kl_zero;\n\t@%p1 mov.b32 %r2, %kl_zero;" in loads.ptx
    assert "\t@!%p1 cvt.u16.u32 %rs2, %kl_zero;" in loads.ptx
    assert "\t@%kl_never st.global.b64 [ %rd1 + 0 ], { %rd2 };" in stores.ptx
