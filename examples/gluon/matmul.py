"""Matrix product in float16 in Gluon, as it is written for Hopper: bulk copies into a ring of tiles, and `wgmma`.

The first thread of a block asks for tiles of A and B through tensor maps, up to `STAGES` - 1 steps ahead; the copies
tell the stage's mbarrier when their bytes have come. Four warps wait for the phase, multiply the tiles from shared
memory, and then give the stage free for the step that is `STAGES` - 1 ahead. The tensor maps fill with zeros outside of
the matrices and drop what is stored there, so that sizes need not be multiples of a tile; rows must be multiples of 16
bytes. It is limited by the tensor cores once the products of a step take longer than its copies.
"""

import torch
import triton
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    mbarrier,
    tma,
    warpgroup_mma,
    warpgroup_mma_wait,
)
from triton.experimental.gluon.nvidia.hopper import TensorDescriptor

BLOCK_M, BLOCK_N, BLOCK_K = 128, 128, 64


@gluon.jit
def ask_for_tiles(a_desc, b_desc, row, column, step, steps, full, a_tiles, b_tiles, STAGES: gl.constexpr):
    """Start the copies of a step's tiles into its stage, if there is such a step."""
    stage, wanted = step % STAGES, step < steps
    inner = step * a_desc.block_type.shape[1]
    mbarrier.expect(full.index(stage), a_desc.block_type.nbytes + b_desc.block_type.nbytes, pred=wanted)
    tma.async_copy_global_to_shared(a_desc, [row, inner], full.index(stage), a_tiles.index(stage), wanted)
    tma.async_copy_global_to_shared(b_desc, [inner, column], full.index(stage), b_tiles.index(stage), wanted)


@gluon.jit
def matmul_kernel(a_desc, b_desc, c_desc, K, STAGES: gl.constexpr):
    BLOCK_M: gl.constexpr = c_desc.block_type.shape[0]
    BLOCK_N: gl.constexpr = c_desc.block_type.shape[1]
    row, column = gl.program_id(0) * BLOCK_M, gl.program_id(1) * BLOCK_N
    steps = gl.cdiv(K, a_desc.block_type.shape[1])

    # Lists are joined by `+`, as Triton's compiler takes no `*` in them.
    a_tiles = gl.allocate_shared_memory(a_desc.dtype, [STAGES] + a_desc.block_type.shape, a_desc.layout)  # noqa: RUF005
    b_tiles = gl.allocate_shared_memory(b_desc.dtype, [STAGES] + b_desc.block_type.shape, b_desc.layout)  # noqa: RUF005
    full = gl.allocate_shared_memory(gl.int64, [STAGES, 1], mbarrier.MBarrierLayout())
    for stage in gl.static_range(STAGES):
        mbarrier.init(full.index(stage), count=1)
    fence_async_shared()

    for ahead in gl.static_range(STAGES - 1):
        ask_for_tiles(a_desc, b_desc, row, column, ahead, steps, full, a_tiles, b_tiles, STAGES)
    layout: gl.constexpr = gl.NVMMADistributedLayout([3, 0], [gl.num_warps(), 1], [16, BLOCK_N, 16])
    total = gl.zeros((BLOCK_M, BLOCK_N), gl.float32, layout)
    for step in range(steps):
        used = step % STAGES
        mbarrier.wait(full.index(used), step // STAGES & 1)
        total = warpgroup_mma(a_tiles.index(used), b_tiles.index(used), total, is_async=True)
        total = warpgroup_mma_wait(num_outstanding=0, deps=(total,))
        ask_for_tiles(a_desc, b_desc, row, column, step + STAGES - 1, steps, full, a_tiles, b_tiles, STAGES)
    for stage in gl.static_range(STAGES):
        mbarrier.invalidate(full.index(stage))

    c_tile = gl.allocate_shared_memory(c_desc.dtype, c_desc.block_type.shape, c_desc.layout)
    c_tile.store(total.to(c_desc.dtype))
    fence_async_shared()
    tma.async_copy_shared_to_global(c_desc, [row, column], c_tile)
    tma.store_wait(pendings=0)


def described(x, block):
    """Return a tensor descriptor of blocks of a matrix, in the layout that `wgmma` reads best."""
    return TensorDescriptor.from_tensor(x, block, gl.NVMMASharedLayout.get_default_for(block, gl.float16))


def matmul(a, b):
    """Return the product of matrices of float16 whose rows are multiples of 16 bytes."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty((m, n), dtype=a.dtype, device=a.device)
    grid = triton.cdiv(m, BLOCK_M), triton.cdiv(n, BLOCK_N)
    tiles = described(a, [BLOCK_M, BLOCK_K]), described(b, [BLOCK_K, BLOCK_N]), described(c, [BLOCK_M, BLOCK_N])
    matmul_kernel[grid](*tiles, k, STAGES=4, num_warps=4)
    return c
