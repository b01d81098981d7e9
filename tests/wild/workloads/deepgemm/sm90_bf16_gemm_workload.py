"""DeepGEMM's bfloat16 product of Hopper, `d = a @ b.T`: one warp copies, two warpgroups multiply."""

import torch
from cuda.bindings import driver

CASES = [{"m": 192, "n": 256, "k": 320}, {"m": 1024, "n": 1024, "k": 1024}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
BM, BN, BK, STAGES, BLOCKS = 128, 128, 64, 4, 2


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    return torch.randn(m, k, **kind), torch.randn(n, k, **kind)


def reference(a, b):
    return a @ b.T


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[0]
    d = torch.empty(m, n, device=a.device, dtype=a.dtype)
    major = "(cute::UMMA::Major)0"
    name = (
        f"deep_gemm::sm90_bf16_gemm_impl<{major}, {major}, 0, 0, 0, 1, {BM}, {BN}, {BK}, 128, 128, 128, {STAGES}, 128, "
        f"256, 1, false, {BLOCKS}, (deep_gemm::GemmType)0, false, cutlass::bfloat16_t>"
    )
    shared = 2 * BM * BN + STAGES * (2 * BK * (BM + BN) + 16)
    module[name][BLOCKS, 384, shared](0, m, n, k, boxes_of(a, BM), boxes_of(b, BN), boxes_of(d, BM))
    return d


def boxes_of(matrix, rows):
    """A tensor map of boxes of 64 columns, with a swizzle of 128 bytes."""
    height, width = matrix.shape
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(width), driver.cuuint64_t(height)],
        [driver.cuuint64_t(2 * width)],
        [driver.cuuint32_t(64), driver.cuuint32_t(rows)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {height} x {width}: {status}")
    return made
