"""fast.cu's bfloat16 matrix products for Hopper, C = B A^T, from one tile at a time to persistent blocks."""

import torch
from cuda.bindings import driver

VERSION = 2
SMALL = {"m": 256, "n": 512, "k": 192} if VERSION not in (6, 8) else {"m": 2048, "n": 2048, "k": 192}  # 16 x 8 tiles
CASES = [SMALL, {"m": 2048, "n": 2048, "k": 1024}]
CONTRACT = {"contiguous": True, "aligned": 16, "finite": True, "listed_sizes": True}
SPACE = 128  # tiles that a block of version 11 may have


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.bfloat16}
    return torch.randn(m, k, **kind), torch.randn(n, k, **kind)


def reference(a, b):
    return b @ a.T


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(n, m, device=a.device, dtype=a.dtype)
    if VERSION == 2:
        kernel, maps = module["M2::matmulKernel2<64, 64, 64, 64, 64, 16, 128>"], tensors(flat(a, 64), flat(b, 64))
        kernel[m // 64 * (n // 64), 128](m, n, k, c, *maps)
    elif VERSION == 4:
        kernel, maps = module["M4::matmulKernel4<128, 128, 64, 256, 5>"], tensors(flat(a, 128), flat(b, 128))
        kernel[m // 128 * (n // 128), 256, stages(128, 5)](m, n, k, c, *maps)
    elif VERSION == 6:
        kernel = module["M6::matmulKernel6<128, 256, 64, 384, 3, 4>"]
        kernel[4, 384, stages(256, 3)](m, n, k, c, flat(a, 128), flat(b, 256))
    elif VERSION == 8:
        kernel = module["M8::matmulKernel8<128, 256, 64, 384, 4, 4, 2, 1>"]
        kernel[4, 384, stages(256, 4)](m, n, k, c, deep(a, 128), deep(b, 256))
    else:
        kernel = module["M11::matmulKernel11<128, 256, 64, 384, 3, 4, 2, 1>"]
        shared = stages(256, 3) + 2 * 128 * 256 + 16 * 3 + 4 * SPACE
        maps, shared = (deep(c, 256, 128, 0), deep(a, 128), deep(b, 256)), shared + -shared % 128
        kernel[4, 384, shared](m, n, k, *maps, order(m, n, c.device))
    return c


def stages(columns, count):
    """Bytes of the tiles of A and B, of 64 elements each."""
    return 2 * 64 * (128 + columns) * count


def order(m, n, device):
    """The tiles of each cluster of version 11, which goes through them until a -1: row << 16 | column."""
    tiles = [row << 16 | column for row in range(m // 256) for column in range(n // 256)]
    lists = [tiles[cluster::2] for cluster in range(2)]
    return torch.tensor([each + [-1] * (SPACE - len(each)) for each in lists], dtype=torch.int32, device=device)


def flat(matrix, rows):
    """A map of boxes of 64 columns."""
    height, width = matrix.shape
    return encoded(matrix, [width, height], [2 * width], [64, rows], 3)


def deep(matrix, rows, columns=64, swizzle=3):
    """A map of boxes in columns of 64: (64, height, width / 64)."""
    height, width = matrix.shape
    return encoded(matrix, [64, height, width // 64], [2 * width, 128], [64, rows, columns // 64], swizzle)


def encoded(matrix, shape, strides, box, swizzle):
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_BFLOAT16,
        len(shape),
        matrix.data_ptr(),
        [driver.cuuint64_t(each) for each in shape],
        [driver.cuuint64_t(each) for each in strides],
        [driver.cuuint32_t(each) for each in box],
        [driver.cuuint32_t(1)] * len(shape),
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle(swizzle),
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {shape}: {status}")
    return made


def tensors(*maps):
    """Maps in the device's memory."""
    numbers = [[int(word) - (int(word) >> 63 << 64) for word in each.opaque] for each in maps]
    return torch.tensor(numbers, dtype=torch.int64, device="cuda").unbind()
