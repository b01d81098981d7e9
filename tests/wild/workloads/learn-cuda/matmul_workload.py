"""A course's bfloat16 product with one warp that copies by tensor maps and eight that multiply by `mma`: `a @ b.T`."""

import torch
from cuda.bindings import driver

VERSION = 2
CASES = [{"m": 512, "n": 256, "k": 320}, {"m": 2048, "n": 2048, "k": 2048}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
BM, BN, BK, STAGES = 256, 128, 64, 2
BLOCKS = 3  # of version 3, which is persistent: fewer than tiles


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    return torch.randn(m, k, **kind), torch.randn(n, k, **kind)


def reference(a, b):
    return a @ b.T


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    name = f"matmul_v{VERSION}_kernel<{BM}, {BN}, {BK}, 4, 2, {STAGES}, nv_bfloat16, nv_bfloat16>"
    blocks, warps = (-(-m // BM) * -(-n // BN), 9) if VERSION == 2 else (BLOCKS, 12)
    shared = STAGES * (2 * BK * (BM + BN) + 16)
    module[name][blocks, 32 * warps, shared](boxes_of(a, BM), boxes_of(b, BN), c, m, n, k)
    return c


def boxes_of(matrix, rows):
    """A tensor map of boxes of 64 columns, with a swizzle of 128 bytes."""
    height, width = matrix.shape
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(width), driver.cuuint64_t(height)],
        [driver.cuuint64_t(2 * width)],
        [driver.cuuint32_t(BK), driver.cuuint32_t(rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {height} x {width}: {status}")
    return made
