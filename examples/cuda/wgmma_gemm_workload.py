"""Half-precision `a @ b.T`, the product of a linear layer, on the tensor cores of Hopper (sm_90a).

Limited by the tensor cores (2 M N K flops); see `wgmma_gemm.cu`. The kernel takes its matrices as tensor maps, which
the CUDA driver makes.
"""

import torch
from cuda.bindings import driver

CASES = [
    dict(m=130, n=120, k=328),
    dict(m=4096, n=4096, k=4096),
    dict(m=2048, n=2048, k=2048),
]
CONTRACT = dict(contiguous=True, aligned=16, listed_sizes=True)  # the driver wants n and k to be multiples of 8
TOLERANCE = dict(atol=1e-2, rtol=1e-2)


def inputs(m, n, k):
    a = torch.randn(m, k, device="cuda", dtype=torch.float16)
    b = torch.randn(n, k, device="cuda", dtype=torch.float16)
    return a, b


def reference(a, b):
    return a @ b.T


def launch(module, a, b):
    BM, BN, BK, STAGES = 128, 256, 64, 4  # as in wgmma_gemm.cu
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(m, n, device=a.device, dtype=a.dtype)
    tiles = ((n + BN - 1) // BN) * ((m + BM - 1) // BM)
    grid = min(tiles, torch.cuda.get_device_properties(a.device).multi_processor_count)
    shared = STAGES * (2 * (BM + BN) * BK + 16) + 4 * 64 * 64 * 2  # stages, their barriers, boxes of c
    module.wgmma_gemm[grid, 288, shared](boxes_of(a, BM, BK), boxes_of(b, BN, BK), boxes_of(c, 64, 64), m, n, k)
    return c


def boxes_of(matrix, rows, columns):
    """A tensor map that cuts a matrix in boxes, with a swizzle of 128 bytes."""
    height, width = matrix.shape
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(width), driver.cuuint64_t(height)],
        [driver.cuuint64_t(2 * width)],
        [driver.cuuint32_t(columns), driver.cuuint32_t(rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_128B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {height} x {width}: {status}")
    return made
