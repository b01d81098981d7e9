"""CUTLASS' tutorial of Hopper in CuTe without tensor maps, C = A^T B of half-precision matrices stored by columns."""

import struct

import numpy
import torch

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
    shared, shape = 2 * 3 * 64 * (128 + 128), numpy.void(struct.pack("<3i", m, n, k))
    blocks = (m // 128, n // 128)
    adds = 1  # the only field of the product's type: it adds to its sums
    module[kernel()][blocks, 128, shared](shape, 0, a, k, 0, 0, b, k, 0, 0, c, m, adds, 1.0, 0.0)
    return c


def kernel():
    """The instance that `gemm_tn` launches, whose types its host code has from `decltype`."""
    ones, half = tuple_of("cute::C<1>", "cute::C<1>", "cute::C<1>"), "cutlass::half_t"
    zeros, vector = ones.replace("<1>", "<0>"), "cutlass::uint128_t"
    rows = tuple_of(*(tuple_of(f"cute::C<{one}>", f"cute::C<{two}>") for one, two in ((8, 16), (64, 1), (1, 3))))
    steps = tuple_of(*(tuple_of(f"cute::C<{one}>", f"cute::C<{two}>") for one, two in ((64, 512), (1, 0), (0, 8192))))
    swizzle = "cute::Swizzle<3, 4, 3>, cute::smem_ptr_flag_bits<16>"
    threads = tuple_of(tuple_of("cute::C<8>", "cute::C<16>"), "cute::C<8>")
    values = tuple_of(tuple_of("cute::C<128>", "cute::C<1>"), "cute::C<16>")
    atom = f"cute::Copy_Atom<cute::SM80_CP_ASYNC_CACHEALWAYS<{vector}, {vector}>, {half}>"
    copy = f"cute::TiledCopy<{atom}, {layout(threads, values)}, {tuple_of('cute::C<16>', 'cute::C<64>')}>"
    major, scale = "(cute::SM90::GMMA::Major)0", "(cute::SM90::GMMA::ScaleIn)1"
    product = f"cute::SM90::GMMA::MMA_64x64x16_F16F16F16_SS<{major}, {major}, {scale}, {scale}>"
    order = tuple_of("cute::Underscore", "cute::Underscore", "cute::Underscore")
    stages = f"cute::ComposedLayout<{swizzle}, {layout(rows, steps)}>"
    operand = (half, tuple_of("int", "cute::C<1>"), stages, copy)
    arguments = (
        tuple_of("int", "int", "int"),
        tuple_of("cute::C<128>", "cute::C<128>", "cute::C<64>"),
        *operand,
        *operand,
        *(half, tuple_of("cute::C<1>", "int")),
        f"cute::TiledMMA<cute::MMA_Atom<{product}>, {layout(ones, zeros)}, {order}>",
        *(half, half),
    )
    return f"gemm_device<{', '.join(arguments)}>"


def tuple_of(*parts):
    return f"cute::tuple<{', '.join(parts)}>"


def layout(shape, stride):
    return f"cute::Layout<{shape}, {stride}>"
