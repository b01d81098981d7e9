"""ThunderKittens' attention on H100 with heads of 64: softmax(q k^T / 8) v, and -8 times the logarithms of the sums."""

import struct

import numpy
import torch
from cuda.bindings import driver

CASES = [{"batch": 1, "heads": 1, "length": 768}, {"batch": 2, "heads": 8, "length": 3072}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "listed_sizes": True}
TOLERANCE = {"atol": 2e-2, "rtol": 2e-2}  # weights are rounded to bfloat16
DEPTH, ROWS, KEYS, GROUPS = 64, 64, 128, 3


def inputs(batch, heads, length):
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    return tuple(torch.randn(batch, heads, length, DEPTH, **kind) for _ in range(3))


def reference(q, k, v):
    scores = q @ k.transpose(-1, -2) / 8
    return scores.softmax(-1) @ v, -8 * scores.logsumexp(-1, keepdim=True).transpose(-1, -2)


def launch(module, q, k, v):
    batch, heads, length, _ = q.shape
    o, sums = torch.empty_like(q), torch.empty(batch, heads, 1, length, device=q.device)
    tiles = layout_of(q, ROWS), layout_of(k, KEYS), layout_of(v, KEYS), layout_of(sums, 0), layout_of(o, ROWS)
    given = numpy.void(b"".join(tiles) + struct.pack("<2i120x", length, 1))
    module["fwd_attend_ker<64, false>"][(length // (GROUPS * ROWS), heads, batch), 512, 231424](given)
    return o, sums


def layout_of(tensor, rows):
    """A `kittens::gl` of four extents: address, extents, and a map of tiles of so many rows, or of vectors for none."""
    batch, depth, height, width = tensor.shape
    whole = [2 * width * height * each for each in (1, depth)]
    if rows:
        shape, strides = (64, height, width // 64, depth, batch), (2 * width, 128, *whole)
        made = map_of(tensor, shape, strides, (64, rows, 1, 1, 1), "BFLOAT16", "128B")
    else:
        shape, strides = (width, height, depth, batch), (4 * width, *(2 * each for each in whole))
        made = map_of(tensor, shape, strides, (ROWS, 1, 1, 1), "FLOAT32", "NONE")
    return struct.pack("<5Q88x", tensor.data_ptr(), batch, depth, height, width) + made + bytes(128)


def map_of(tensor, shape, strides, box, kind, swizzle):
    """A tensor map as 128 bytes."""
    status, made = driver.cuTensorMapEncodeTiled(
        getattr(driver.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{kind}"),
        len(shape),
        tensor.data_ptr(),
        [driver.cuuint64_t(extent) for extent in shape],
        [driver.cuuint64_t(stride) for stride in strides],
        [driver.cuuint32_t(extent) for extent in box],
        [driver.cuuint32_t(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        getattr(driver.CUtensorMapSwizzle, f"CU_TENSOR_MAP_SWIZZLE_{swizzle}"),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {tuple(tensor.shape)}: {status}")
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)
