"""What PTX defines by itself: its constant and its special registers."""

import numpy as np
import pytest
from emulator_kit import compiled, launch

WARP_SIZE = """
extern "C" __global__ void k(int* y) {
    y[threadIdx.x] = threadIdx.x / warpSize * 100 + warpSize;
}
"""
READS = """
extern "C" __global__ void k(unsigned long long* y) {{
    {kind} value;
    asm volatile("mov.{type} %0, {register};" : "={letter}"(value));
    y[threadIdx.x] = value;
}}
"""
WHERE = """
extern "C" __global__ void k(unsigned* y) {
    unsigned value;
    asm volatile("mov.u32 %0, %%smid;" : "=r"(value));
    y[blockIdx.x] = value;
}
"""
WORDS = [
    ("%laneid", 5),
    ("%warpid", 1),
    ("%nwarpid", 64),
    ("%nsmid", 132),
    ("%lanemask_eq", 1 << 5),
    ("%lanemask_lt", (1 << 5) - 1),
    ("%lanemask_le", (1 << 6) - 1),
    ("%lanemask_gt", 2**32 - 2**6),
    ("%lanemask_ge", 2**32 - 2**5),
    ("%clusterid.x", 0),
    ("%nclusterid.x", 1),
    ("%cluster_ctaid.x", 0),
    ("%cluster_nctaid.x", 1),
    ("%cluster_ctarank", 0),
    ("%cluster_nctarank", 1),
    ("%dynamic_smem_size", 48),
    ("%total_smem_size", 48),
    ("%envreg7", 0),
    ("%pm3", 0),
]


def read(register, bits=32):
    names = {"kind": "unsigned", "letter": "r"} if bits == 32 else {"kind": "unsigned long long", "letter": "l"}
    ptx = compiled(READS.format(register=f"%{register}", type=f"u{bits}", **names), "sm_90")
    return launch(ptx, "k", 1, 64, np.zeros(64, np.uint64), shared=48).arrays[0]


def test_the_size_of_a_warp():
    made = launch(compiled(WARP_SIZE), "k", 1, 96, np.zeros(96, np.int32)).arrays[0]
    assert made.tolist() == [lane // 32 * 100 + 32 for lane in range(96)]


@pytest.mark.parametrize(("register", "value"), WORDS)
def test_registers_of_a_thread(register, value):
    assert int(read(register)[37]) == value


@pytest.mark.parametrize("register", ["%clock64", "%globaltimer", "%gridid", "%pm3_64", "%current_graph_exec"])
def test_registers_of_64_bits(register):
    assert len(set(read(register, 64).tolist())) == 1


def test_each_launch_has_another_number_and_begins_later():
    numbers, times = ([int(read(register, 64)[0]) for _ in range(2)] for register in ("%gridid", "%globaltimer"))
    assert numbers[0] < numbers[1]
    assert times[0] < times[1]


def test_blocks_run_on_other_multiprocessors_in_each_launch():
    ptx = compiled(WHERE)
    runs = [launch(ptx, "k", 300, 32, np.zeros(300, np.uint32)).arrays[0] for _ in range(8)]
    assert all(set(run.tolist()) == set(range(132)) for run in runs)
    assert len({int(run[0]) for run in runs}) > 1


@pytest.mark.parametrize("clock", ["%clock", "%globaltimer"])
def test_a_clock_is_read_in_halves(clock):
    whole = read("%globaltimer", 64)[0]
    assert int(read(f"{clock}_hi")[0]) - (int(whole) >> 32) in (0, 1)
