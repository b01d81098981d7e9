"""DeepGEMM's 8-bit product of Hopper: `a @ b.T` with a scale for 128 elements of a row of `a` and 128 x 128 of `b`."""

import torch
from cuda.bindings import driver

CASES = [{"m": 192, "n": 256, "k": 384}, {"m": 1024, "n": 1024, "k": 1024}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "listed_sizes": True}
TOLERANCE = {"atol": 0.5, "rtol": 2e-2}  # the tensor cores keep 14 bits of a sum
BM, BN, BK, STAGES, BLOCKS = 128, 128, 128, 3, 2


def inputs(m, n, k):
    a = torch.randn(m, k, device="cuda").to(torch.float8_e4m3fn)
    b = torch.randn(n, k, device="cuda").to(torch.float8_e4m3fn)
    return a, torch.rand(k // BK, m, device="cuda") + 0.5, b, torch.rand(n // BN, k // BK, device="cuda") + 0.5


def reference(a, scales_a, b, scales_b):
    wide = a * scales_a.T.repeat_interleave(BK, 1)
    return wide @ (b * scales_b.repeat_interleave(BN, 0).repeat_interleave(BK, 1)).T


def launch(module, a, scales_a, b, scales_b):
    (m, k), n = a.shape, b.shape[0]
    d = torch.empty(m, n, device=a.device, dtype=torch.bfloat16)
    name = (
        f"deep_gemm::sm90_fp8_gemm_1d2d_impl<(cute::UMMA::Major)0, 0, 0, 0, 1, {BM}, {BN}, {BK}, 128, 128, 128, "
        f"{STAGES}, 128, 256, 1, false, {BLOCKS}, (deep_gemm::GemmType)0, cutlass::bfloat16_t, "
        "deep_gemm::epilogue::transform::EpilogueIdentity>"
    )
    shared = 2 * BM * BN + STAGES * ((BM + BN) * BK + 4 * BM + 16) + -(-(k // BK) // 2) * 8
    maps = boxes_of(a, BK, BM), boxes_of(b, BK, BN), boxes_of(d, 64, BM), boxes_of(scales_a, BM, 1, "NONE")
    module[name][BLOCKS, 384, shared](scales_b, 0, m, n, k, *maps)
    return d


def boxes_of(matrix, width, height, swizzle="128B"):
    """A tensor map of boxes of a matrix."""
    rows, columns = matrix.shape
    kind = {1: "UINT8", 2: "BFLOAT16", 4: "FLOAT32"}[matrix.element_size()]
    status, made = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(columns), driver.cuuint64_t(rows)],
        [driver.cuuint64_t(columns * matrix.element_size())],
        [driver.cuuint32_t(width), driver.cuuint32_t(height)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {rows} x {columns}: {status}")
    return made
