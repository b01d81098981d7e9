"""DeepGEMM's scores of an indexer: sums over heads of `weight * relu(q . k) * scale`, for a query's stretch of keys."""

import torch
from cuda.bindings import driver

CASES = [{"queries": 13, "keys": 600}, {"queries": 1024, "keys": 4096}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "listed_sizes": True, "fixed": ("first", "last")}
TOLERANCE = {"atol": 5e-2, "rtol": 1e-2}  # the tensor cores keep 14 bits of a sum
HEADS, DEPTH, BQ, BK, STAGES, BLOCKS = 32, 64, 4, 256, 3, 2


def inputs(queries, keys):
    q = torch.randn(queries, HEADS, DEPTH, device="cuda").to(torch.float8_e4m3fn)
    k = torch.randn(keys, DEPTH, device="cuda").to(torch.float8_e4m3fn)
    scales = torch.rand(keys, device="cuda") + 0.5
    weights = torch.randn(queries, HEADS, device="cuda")
    first = torch.randint(0, keys // 2, (queries,), device="cuda", dtype=torch.int32)
    last = torch.randint(keys // 2, keys + 1, (queries,), device="cuda", dtype=torch.int32)
    return q, k, scales, weights, first, last


def reference(q, k, scales, weights, first, last):
    scores = torch.einsum("qhd,kd->qhk", q, k).relu()
    scores = torch.einsum("qhk,qh,k->qk", scores, weights, scales)
    at = first[:, None] + torch.arange(len(k), device=k.device)
    return torch.where(at < last[:, None], scores.gather(1, at.clamp(max=len(k) - 1).long()), 0)


def launch(module, q, k, scales, weights, first, last):
    queries, keys = len(q), len(k)
    rows = -(-queries // BQ) * BQ  # the last block writes all of its rows, as its host code allows for
    scores = torch.zeros(rows, keys, device=q.device)
    sizes = f"{HEADS}, {DEPTH}, true, {BQ}, {BK}, {STAGES}, {STAGES}, {BLOCKS}, 128, 512"
    kernel = module[f"deep_gemm::sm90_fp8_mqa_logits<{sizes}, float>"]
    shared = STAGES * (BQ * HEADS * (DEPTH + 4) + BK * (DEPTH + 4)) + (4 * STAGES + 8) * 8 + 4
    maps = (
        boxes_of(q.view(-1, DEPTH), DEPTH, BQ * HEADS, "64B"),
        boxes_of(k, DEPTH, BK, "64B"),
        boxes_of(scales.view(1, -1), BK, 1),
        boxes_of(weights, HEADS, BQ),
    )
    kernel[BLOCKS, 640, shared](queries, keys, keys, keys, first, last, scores, *maps)
    return scores[:queries]


def boxes_of(matrix, width, height, swizzle="NONE"):
    """A tensor map of boxes of a matrix."""
    rows, columns = matrix.shape
    kind = "UINT8" if matrix.element_size() == 1 else "FLOAT32"
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
