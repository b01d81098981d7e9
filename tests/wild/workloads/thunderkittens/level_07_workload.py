"""ThunderKittens' bfloat16 product of square matrices on H100, `c = a @ b`: a warpgroup copies, another multiplies."""

import struct

import numpy
import torch
from cuda.bindings import driver

CASES = [{"n": 256}, {"n": 1024}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
TOLERANCE = {"atol": 2e-2, "rtol": 2e-2}
TILE = 64


def inputs(n):
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    return torch.randn(n, n, **kind), torch.randn(n, n, **kind)


def reference(a, b):
    return a @ b


def launch(module, a, b):
    n = a.shape[0]
    c = torch.empty_like(a)
    given = b"".join(map(layout_of, (a, b, c))) + struct.pack("<i124x", n)
    module.kernel[(n // TILE, n // TILE), 256, 100000](numpy.void(given))
    return c


def layout_of(matrix):
    """A `kittens::gl<bf16, 1, 1, -1, -1, st_bf<64, 64>>`: address, rows and columns, and a map of its tiles."""
    rows, columns = matrix.shape
    return struct.pack("<Q8xQQ96x", matrix.data_ptr(), rows, columns) + map_of(matrix) + bytes(128)


def map_of(matrix):
    """The map that `create_tensor_map` of ThunderKittens makes, in five dimensions for the swizzle, as 128 bytes."""
    rows, columns = matrix.shape
    row, all_rows = 2 * columns, 2 * rows * columns
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        5,
        matrix.data_ptr(),
        [driver.cuuint64_t(extent) for extent in (64, rows, columns // 64, 1, 1)],
        [driver.cuuint64_t(stride) for stride in (row, 128, all_rows, all_rows)],
        [driver.cuuint32_t(extent) for extent in (64, TILE, 1, 1, 1)],
        [driver.cuuint32_t(1)] * 5,
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {rows} x {columns}: {status}")
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque)
