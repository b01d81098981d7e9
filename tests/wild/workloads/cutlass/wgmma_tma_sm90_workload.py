"""CUTLASS' tutorial of Hopper in CuTe, C = A^T B of half-precision matrices that are stored by columns: `gemm_tn`."""

import struct

import numpy
import torch
from cuda.bindings import driver

CASES = [{"m": 256, "n": 128, "k": 320}, {"m": 1024, "n": 1024, "k": 1024}]
CONTRACT = {"contiguous": True, "aligned": 16, "listed_sizes": True}
TOLERANCE = {"atol": 0.3, "rtol": 2e-2}  # its sums are of 16 bits


def inputs(m, n, k):
    kind = {"device": "cuda", "dtype": torch.float16}
    return torch.randn(m, k, **kind), torch.randn(n, k, **kind)


def reference(a, b):
    return b @ a.T


def launch(module, a, b):
    (m, k), n = a.shape, b.shape[0]
    c = torch.empty(n, m, device=a.device, dtype=a.dtype)  # by columns
    maps = [numpy.void(bytes_of(matrix)) for matrix in (a, b)]
    shared = 2 * 3 * 64 * (128 + 128) + 2 * 3 * 8
    shape = numpy.void(struct.pack("<3i", m, n, k))
    adds = 1  # the only field of the product's type: it adds to its sums
    module[kernel()][(m // 128, n // 128), 128, shared](shape, 0, a, maps[0], b, maps[1], c, m, adds, 1.0, 0.0)
    return c


def kernel():
    """The instance that `gemm_tn` launches, whose types its host code has from `decltype`."""
    ones, half = tuple_of("cute::C<1>", "cute::C<1>", "cute::C<1>"), "cutlass::half_t"
    zeros, swizzle = ones.replace("<1>", "<0>"), "cute::Swizzle<3, 4, 3>"
    rows = tuple_of(*(tuple_of(f"cute::C<{one}>", f"cute::C<{two}>") for one, two in ((8, 16), (64, 1), (1, 3))))
    steps = tuple_of(*(tuple_of(f"cute::C<{one}>", f"cute::C<{two}>") for one, two in ((64, 512), (1, 0), (0, 8192))))
    stages = f"cute::ComposedLayout<{swizzle}, cute::smem_ptr_flag_bits<16>, {layout(rows, steps)}>"
    basis = tuple_of("cute::ScaledBasis<cute::C<1>, 1>", "cute::ScaledBasis<cute::C<1>, 0>")
    box = layout(tuple_of("cute::C<64>", "cute::C<128>"), basis)
    traits = f"cute::SM90_TMA_LOAD, cute::C<131072>, cute::AuxTmaParams<{basis}, {box} const&, {swizzle} const&>"
    atom = f"cute::Copy_Atom<cute::Copy_Traits<{traits}>, {half}>"
    major, scale = "(cute::SM90::GMMA::Major)0", "(cute::SM90::GMMA::ScaleIn)1"
    product = f"cute::SM90::GMMA::MMA_64x64x16_F16F16F16_SS<{major}, {major}, {scale}, {scale}>"
    order = tuple_of("cute::Underscore", "cute::Underscore", "cute::Underscore")
    arguments = (
        tuple_of("int", "int", "int"),
        tuple_of("cute::C<128>", "cute::C<128>", "cute::C<64>"),
        *(half, stages, atom),
        *(half, stages, atom),
        *(half, tuple_of("cute::C<1>", "int")),
        f"cute::TiledMMA<cute::MMA_Atom<{product}>, {layout(ones, zeros)}, {order}>",
        *(half, half),
    )
    return f"gemm_device<{', '.join(arguments)}>"


def tuple_of(*parts):
    return f"cute::tuple<{', '.join(parts)}>"


def layout(shape, stride):
    return f"cute::Layout<{shape}, {stride}>"


def bytes_of(matrix):
    """The map of boxes of 64 columns and 128 rows, with a swizzle of 128 bytes."""
    height, width = matrix.shape
    status, made = driver.cuTensorMapEncodeTiled(
        driver.CUtensorMapDataType.CU_TENSOR_MAP_DATA_TYPE_FLOAT16,
        2,
        matrix.data_ptr(),
        [driver.cuuint64_t(width), driver.cuuint64_t(height)],
        [driver.cuuint64_t(2 * width)],
        [driver.cuuint32_t(64), driver.cuuint32_t(128)],
        [driver.cuuint32_t(1), driver.cuuint32_t(1)],
        driver.CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE,
        driver.CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B,
        driver.CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_NONE,
        driver.CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE,
    )
    if status != driver.CUresult.CUDA_SUCCESS:
        raise ValueError(f"the driver makes no tensor map of {height} x {width}: {status}")
    return b"".join(int(word).to_bytes(8, "little") for word in made.opaque).ljust(256, b"\0")
