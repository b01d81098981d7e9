"""DeepGEMM's thin product in TF32, `d = a @ b.T`, and the sums of squares of rows of `a`; parts of k add up."""

import torch
from cuda.bindings import driver

CASES = [{"m": 100, "n": 24, "k": 640}, {"m": 4096, "n": 24, "k": 7168}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
TOLERANCE = {"atol": 5e-2, "rtol": 5e-3}  # `b` is cut to TF32
BM, BN, BK, SPLITS, STAGES = 64, 32, 64, 2, 4


def inputs(m, n, k):
    return torch.randn(m, k, device="cuda", dtype=torch.bfloat16), torch.randn(n, k, device="cuda")


def reference(a, b):
    return a @ b.T, (a * a).sum(1)


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[0]
    parts = torch.empty(SPLITS, m, n, device=a.device)
    squares = torch.empty(SPLITS, m, device=a.device)
    name = f"deep_gemm::sm90_tf32_hc_prenorm_gemm_impl<{n}, {k}, {BM}, {BN}, {BK}, {SPLITS}, 128, {STAGES}, 128, 128>"
    shared = STAGES * (2 * BM + 4 * BN) * BK + 128 * BM + 16 * STAGES
    maps = boxes_of(a, BM), boxes_of(b, BN, "TFLOAT32"), boxes_of(parts, BM)
    module[name][-(-m // BM) * SPLITS, 256, shared](m, *maps, squares)
    return parts.sum(0), squares.sum(0)


def boxes_of(tensor, rows, kind=None):
    """A tensor map of boxes of 128 bytes in each of some rows, swizzled as widely."""
    kind = kind or ("BFLOAT16" if tensor.element_size() == 2 else "FLOAT32")
    rank, shape = tensor.dim(), tensor.shape[::-1]
    strides = [stride * tensor.element_size() for stride in tensor.stride()[-2::-1]]
    box = (128 // tensor.element_size(), rows, 1)[:rank]
    status, made = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
        rank,
        tensor.data_ptr(),
        [driver.cuuint64_t(extent) for extent in shape],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(extent) for extent in box],
        [driver.cuuint32_t(1)] * rank,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {tuple(tensor.shape)}: {status}")
    return made
