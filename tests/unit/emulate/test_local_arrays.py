"""Arrays of a thread's own, indexed by lanes of which some take no part."""

import numpy as np
from emulator_kit import compiled, launch

SOURCE = r"""
extern "C" __global__ void pick(const float* x, float* y) {
    int lane = threadIdx.x % 32, warp = blockIdx.x * 2 + threadIdx.x / 32;
    for (int turn = 0; turn <= warp; turn++) {  // warps go different ways
        float own[8] = {0.f};
        for (int i = 0; i < 8; i++)
            for (int j = 0; j <= turn; j++) own[i] += x[i * 8 + j];
        if (lane < 8) y[warp * 8 + lane] = own[lane];  // the others have no such element
    }
}
"""


def test_lanes_that_take_no_part_may_hold_any_index() -> None:
    x = np.arange(64, dtype=np.float32)
    done = launch(compiled(SOURCE), "pick", 2, 64, x, np.zeros(32, np.float32))
    assert done.findings == ()
    assert list(done.arrays[1]) == [sum(i * 8 + j for j in range(warp + 1)) for warp in range(4) for i in range(8)]
