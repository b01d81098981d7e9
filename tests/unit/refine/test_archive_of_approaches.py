"""The approach of a candidate, and the archive that keeps the best of each."""

import random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.refine.approach import Approach, approach_of
from kernel_lsp.refine.strategies.elites import Archive, Elite
from tests.unit.emulate.emulator_kit import compiled

KERNEL = """#include <cuda_fp16.h>
#include <mma.h>
extern "C" __global__ void k(float* x, const float4* v, __half2* h, int* sums, int n) {{
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    {line}
}}
"""
PLAIN = Approach("single accesses", "threads by themselves", "scalar arithmetic")
MMA = """using namespace nvcuda::wmma;
    fragment<matrix_a, 16, 16, 16, __half, row_major> a;
    fragment<matrix_b, 16, 16, 16, __half, row_major> b;
    fragment<accumulator, 16, 16, 16, float> c;
    load_matrix_sync(a, (const __half*)h, 16); load_matrix_sync(b, (const __half*)h, 16);
    fill_fragment(c, 0.0f); mma_sync(c, a, b, c); store_matrix_sync(x, c, 16, mem_row_major);"""
COPY = 'asm volatile("cp.async.ca.shared.global [%0], [%1], 16;" :: "r"(i), "l"(v));'


def built(*texts: str | None) -> Built:
    return cast(Built, SimpleNamespace(images=[SimpleNamespace(ptx=text) for text in texts]))


@pytest.mark.parametrize(
    ("line", "changed"),
    [
        ("if (i < n) x[i] = 3.0f * x[i];", {}),
        ("float4 f = v[i]; x[i] = f.x + f.y + f.z + f.w;", {"memory": "wide accesses"}),
        (
            "__shared__ float s[64]; s[threadIdx.x] = x[i]; __syncthreads(); x[i] = s[63 - threadIdx.x];",
            {"memory": "shared memory", "threads": "threads of a block together"},
        ),
        (COPY, {"memory": "asynchronous copies"}),
        ("x[i] += __shfl_xor_sync(~0u, x[i], 1);", {"threads": "warps together"}),
        ("atomicAdd(sums, n);", {"threads": "blocks together"}),
        ("h[i] = __hfma2(h[i], h[i], h[i]);", {"arithmetic": "packed arithmetic"}),
        (MMA, {"arithmetic": "tensor cores"}),
    ],
)
def test_machine_code_tells_how_a_candidate_works(line: str, changed: dict[str, str]) -> None:
    assert approach_of(built(compiled(KERNEL.format(line=line)))) == PLAIN._replace(**changed)


def test_all_kernels_count_and_without_any_nothing_is_known() -> None:
    one, other = (compiled(KERNEL.format(line=line)) for line in ("atomicAdd(sums, n);", "x[i] = v[i].x;"))
    assert approach_of(built(other, one)) == PLAIN._replace(threads="blocks together")
    assert approach_of(built(other, None)) == PLAIN
    assert approach_of(built(None)) is approach_of(built()) is None
    assert str(PLAIN) == "single accesses, threads by themselves, scalar arithmetic"


def elite(ratio: float, memory: str | None = None) -> Elite:
    return Elite(PLAIN if memory is None else PLAIN._replace(memory=memory), ratio, cast(Any, (ratio,)))


def test_the_best_of_each_approach_is_kept() -> None:
    archive = Archive(random.Random(0))
    assert [archive.add(elite(*one)) for one in ((0.9,), (0.8,), (0.8,), (1.2, "shared memory"), (0.85,))] == [
        True,
        True,
        False,
        True,
        False,
    ]
    assert [one.ratio for one in archive.elites] == [0.8, 1.2]
    assert len(archive.elites) == 2
    assert archive.add(Elite(None, 0.7, ()))
    assert archive.elites[0].approach is None


def test_the_fastest_is_gone_on_from_and_any_other() -> None:
    archive = Archive(random.Random(0))
    assert archive.draw(4) == []
    for ratio, memory in ((0.5, "a"), (0.9, "b"), (3.0, "c")):
        archive.add(elite(ratio, memory))
    drawn = [archive.draw(4) for _ in range(60)]
    assert all(len(one) == 4 and one[0].ratio == 0.5 for one in drawn)
    others = [one.ratio for few in drawn for one in few[1:]]
    assert all(40 < others.count(ratio) < 80 for ratio in (0.5, 0.9, 3.0)), "each has the same chance"
