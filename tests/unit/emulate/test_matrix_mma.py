"""mma.sync held to the fragment tables of the PTX ISA and to products computed in numpy."""

from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kernel_lsp.emulate.matrix import MatrixOperation, bind

WARPS = 3
LANES = 32 * WARPS
EVERY = np.ones(LANES, np.bool_)

# The tables of the ISA, a case for each shape and size of element, with the conditions of its text: (row, column) of
# element i of a lane's fragment of A, and the row of element i of B, whose column is always the group.
A: dict[tuple[str, int], Callable[[int, int, int], tuple[int, int]]] = {
    ("m8n8k4", 64): lambda g, t, i: (g, t),
    ("m8n8k16", 8): lambda g, t, i: (g, t * 4 + i),
    ("m8n8k32", 4): lambda g, t, i: (g, t * 8 + i),
    ("m8n8k128", 1): lambda g, t, i: (g, t * 32 + i),
    ("m16n8k4", 32): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k4", 64): lambda g, t, i: (g if i == 0 else g + 8, t),
    ("m16n8k8", 16): lambda g, t, i: (g if i in (0, 1) else g + 8, t * 2 + (i & 1)),
    ("m16n8k8", 32): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k8", 64): lambda g, t, i: (g if i in (0, 2) else g + 8, t if i in (0, 1) else t + 4),
    ("m16n8k16", 64): lambda g, t, i: (g if i % 2 == 0 else g + 8, i * 2 + t if i % 2 == 0 else i * 2 - 2 + t),
    ("m16n8k16", 16): lambda g, t, i: (g if i < 2 or 4 <= i < 6 else g + 8, t * 2 + (i & 1) + (8 if i >= 4 else 0)),
    ("m16n8k16", 8): lambda g, t, i: (g if i < 4 else g + 8, t * 4 + (i & 3)),
    ("m16n8k32", 4): lambda g, t, i: (g if i < 8 else g + 8, t * 8 + (i & 7)),
    ("m16n8k32", 8): lambda g, t, i: (g if i < 4 or 8 <= i < 12 else g + 8, t * 4 + (i & 3) + (16 if i >= 8 else 0)),
    ("m16n8k64", 4): lambda g, t, i: (g if i < 8 or 16 <= i < 24 else g + 8, t * 8 + (i & 7) + (32 if i >= 16 else 0)),
    ("m16n8k128", 1): lambda g, t, i: (g if i < 32 else g + 8, t * 32 + (i & 31)),
    ("m16n8k256", 1): lambda g, t, i: (
        g if i < 32 or 64 <= i < 96 else g + 8,
        t * 32 + (i & 31) + (128 if i >= 64 else 0),
    ),
}
B_ROW: dict[tuple[str, int], Callable[[int, int], int]] = {
    ("m8n8k4", 64): lambda t, i: t,
    ("m8n8k16", 8): lambda t, i: t * 4 + i,
    ("m8n8k32", 4): lambda t, i: t * 8 + i,
    ("m8n8k128", 1): lambda t, i: t * 32 + i,
    ("m16n8k4", 32): lambda t, i: t,
    ("m16n8k4", 64): lambda t, i: t,
    ("m16n8k8", 16): lambda t, i: t * 2 + i,
    ("m16n8k8", 32): lambda t, i: t if i == 0 else t + 4,
    ("m16n8k8", 64): lambda t, i: t if i == 0 else t + 4,
    ("m16n8k16", 64): lambda t, i: t + i * 4,
    ("m16n8k16", 16): lambda t, i: t * 2 + (i & 1) + (8 if i >= 2 else 0),
    ("m16n8k16", 8): lambda t, i: t * 4 + i,
    ("m16n8k32", 4): lambda t, i: t * 8 + i,
    ("m16n8k32", 8): lambda t, i: t * 4 + (i & 3) + (16 if i >= 4 else 0),
    ("m16n8k64", 4): lambda t, i: t * 8 + (i & 7) + (32 if i >= 8 else 0),
    ("m16n8k128", 1): lambda t, i: t * 32 + i,
    ("m16n8k256", 1): lambda t, i: t * 32 + (i & 31) + (128 if i >= 32 else 0),
}
BITS = {"f64": 64, "tf32": 32, "f16": 16, "bf16": 16, "e4m3": 8, "e5m2": 8, "s8": 8, "u8": 8, "s4": 4, "u4": 4, "b1": 1}


def shape_sizes(shape: str) -> tuple[int, int, int]:
    m, rest = shape[1:].split("n")
    n, k = rest.split("k")
    return int(m), int(n), int(k)


def c_place(m: int, g: int, t: int, i: int) -> tuple[int, int]:
    return (g if m == 8 or i < 2 else g + 8), t * 2 + (i & 1)


def pack(elements: list[list[int]], bits: int) -> tuple[np.ndarray, ...]:
    """Each lane's elements into its registers, the first one in the lowest bits."""
    size = max(bits, 32)
    each = size // bits
    count = len(elements[0]) // each
    registers = np.zeros((count, len(elements)), np.dtype(f"u{size // 8}"))
    for lane, own in enumerate(elements):
        for i, element in enumerate(own):
            registers[i // each, lane] |= registers.dtype.type(element << (i % each * bits))
    return tuple(registers)


def fragments(shape: str, kind: str, a: np.ndarray, b: np.ndarray) -> tuple[tuple[np.ndarray, ...], ...]:
    """Matrices (warps, ...) of raw elements into the registers of A and B, lane by lane."""
    m, n, k = shape_sizes(shape)
    bits = BITS[kind]
    where_a, where_b = A[shape, bits], B_ROW[shape, bits]
    lanes_a, lanes_b = [], []
    for lane in range(LANES):
        warp, g, t = lane // 32, lane % 32 >> 2, lane % 4
        lanes_a.append([int(a[warp][where_a(g, t, i)]) for i in range(m * k // 32)])
        lanes_b.append([int(b[warp][where_b(t, i), g]) for i in range(k * n // 32)])
    return pack(lanes_a, bits), pack(lanes_b, bits)


def accumulators(shape: str, c: np.ndarray) -> tuple[np.ndarray, ...]:
    m, n, _ = shape_sizes(shape)
    lanes = [
        [int(c[lane // 32][c_place(m, lane % 32 >> 2, lane % 4, i)]) for i in range(m * n // 32)]
        for lane in range(LANES)
    ]
    return pack(lanes, c.dtype.itemsize * 8)


def matrices(shape: str, registers: tuple[np.ndarray, ...], dtype: type) -> np.ndarray:
    m, n, _ = shape_sizes(shape)
    own = np.stack(registers, axis=-1).view(dtype)
    result = np.zeros((WARPS, m, n), dtype)
    for lane in range(LANES):
        for i in range(own.shape[1]):
            result[lane // 32][c_place(m, lane % 32 >> 2, lane % 4, i)] = own[lane, i]
    return result


def run(opcode: str, *operands: tuple[np.ndarray, ...], arch: int = 90) -> tuple[np.ndarray, ...]:
    operation = bind(opcode, arch)
    assert isinstance(operation, MatrixOperation)
    return operation.run(EVERY, *operands)


INTEGERS = [
    (shape, kind)
    for shape, kinds in (
        ("m8n8k16", ("s8", "u8")),
        ("m16n8k16", ("s8", "u8")),
        ("m16n8k32", ("s8", "u8", "s4", "u4")),
        ("m8n8k32", ("s4", "u4")),
        ("m16n8k64", ("s4", "u4")),
    )
    for kind in kinds
]


@pytest.mark.parametrize(("shape", "kind"), INTEGERS)
@pytest.mark.parametrize("other", ["same", "mixed"])
def test_integer_products_are_exact_and_wrap(shape: str, kind: str, other: str) -> None:
    rng = np.random.default_rng(1)
    m, n, k = shape_sizes(shape)
    kind_b = kind if other == "same" else {"s": "u", "u": "s"}[kind[0]] + kind[1:]
    bits = BITS[kind]
    a, b = rng.integers(0, 2**bits, (WARPS, m, k)), rng.integers(0, 2**bits, (WARPS, k, n))
    c = rng.integers(-(2**31), 2**31, (WARPS, m, n), dtype=np.int32)
    c[0, 0, :2] = 2**31 - 1, -(2**31)

    def signed(x: np.ndarray, of: str) -> np.ndarray:
        return np.where(x >= 2 ** (bits - 1), x - 2**bits, x) if of[0] == "s" else x

    exact = signed(a, kind) @ signed(b, kind_b) + c
    registers = (*fragments(shape, kind, a, b), accumulators(shape, c.view(np.uint32)))
    d = run(f"mma.sync.aligned.{shape}.row.col.s32.{kind}.{kind_b}.s32", *registers)
    np.testing.assert_array_equal(matrices(shape, d, np.int32), exact.astype(np.int32))
    d = run(f"mma.sync.aligned.{shape}.row.col.satfinite.s32.{kind}.{kind_b}.s32", *registers)
    np.testing.assert_array_equal(matrices(shape, d, np.int32), exact.clip(-(2**31), 2**31 - 1))


@pytest.mark.parametrize("shape", ["m8n8k128", "m16n8k128", "m16n8k256"])
@pytest.mark.parametrize("operation", ["xor", "and"])
def test_bits_are_counted(shape: str, operation: str) -> None:
    rng = np.random.default_rng(2)
    m, n, k = shape_sizes(shape)
    a, b = rng.integers(0, 2, (WARPS, m, k)), rng.integers(0, 2, (WARPS, k, n))
    c = rng.integers(-100, 100, (WARPS, m, n), dtype=np.int32)
    pairs = a[:, :, :, None] ^ b[:, None] if operation == "xor" else a[:, :, :, None] & b[:, None]
    d = run(
        f"mma.sync.aligned.{shape}.row.col.s32.b1.b1.s32.{operation}.popc",
        *fragments(shape, "b1", a, b),
        accumulators(shape, c.view(np.uint32)),
    )
    np.testing.assert_array_equal(matrices(shape, d, np.int32), pairs.sum(axis=2) + c)


@pytest.mark.parametrize("shape", ["m8n8k4", "m16n8k4", "m16n8k8", "m16n8k16"])
def test_float64_is_a_chain_of_fused_multiply_adds(shape: str) -> None:
    rng = np.random.default_rng(3)
    m, n, k = shape_sizes(shape)
    a, b, c = rng.normal(size=(WARPS, m, k)), rng.normal(size=(WARPS, k, n)), rng.normal(size=(WARPS, m, n))
    d = run(
        f"mma.sync.aligned.{shape}.row.col.f64.f64.f64.f64",
        *fragments(shape, "f64", a.view(np.uint64), b.view(np.uint64)),
        accumulators(shape, c.view(np.uint64)),
    )
    got = matrices(shape, d, np.float64)
    for warp, row, column in ((0, 0, 0), (1, m - 1, 3), (2, 5, 7)):
        total = float(c[warp, row, column])
        for i in range(k):
            total = float(Fraction(a[warp, row, i]) * Fraction(b[warp, i, column]) + Fraction(total))
        assert got[warp, row, column] == total
    np.testing.assert_allclose(got, a @ b + c, rtol=0, atol=1e-14 * k)


FLOATS = [
    (shape, kind)
    for shape, kinds in (
        ("m16n8k4", ("tf32",)),
        ("m16n8k8", ("f16", "bf16", "tf32")),
        ("m16n8k16", ("f16", "bf16", "e4m3", "e5m2")),
        ("m16n8k32", ("e4m3", "e5m2")),
    )
    for kind in kinds
]


def small_numbers(kind: str, shape: tuple[int, ...], seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Whole numbers from -3 to 3, whose sums every adder has exactly, and their bits in a type."""
    x = np.random.default_rng(seed).integers(-3, 4, shape).astype(np.float32)
    sign, size = (x < 0).astype(np.uint8), np.abs(x).astype(np.int64)
    match kind:
        case "f16":
            bits = x.astype(np.float16).view(np.uint16)
        case "bf16":
            bits = (x.view(np.uint32) >> 16).astype(np.uint16)
        case "tf32":
            bits = x.view(np.uint32)
        case "e4m3":  # 1 is 7 << 3, 2 is 8 << 3, 3 = 2 * 1.5
            bits = np.array([0, 0x38, 0x40, 0x44], np.uint8)[size] | sign << 7
        case _:
            bits = np.array([0, 0x3C, 0x40, 0x42], np.uint8)[size] | sign << 7
    return x, bits


@pytest.mark.parametrize(("shape", "kind"), FLOATS)
@pytest.mark.parametrize("arch", [80, 89, 90, 120])
def test_sums_that_need_no_rounding_are_exact(shape: str, kind: str, arch: int) -> None:
    m, n, k = shape_sizes(shape)
    a, a_bits = small_numbers(kind, (WARPS, m, k), 4)
    b, b_bits = small_numbers(kind, (WARPS, k, n), 5)
    c = np.random.default_rng(6).integers(-9, 10, (WARPS, m, n)).astype(np.float32)
    sums = ["f32"] if kind in ("bf16", "tf32") else ["f32", "f16"]
    for wide in sums:
        c_bits = c.view(np.uint32) if wide == "f32" else c.astype(np.float16).view(np.uint16)
        d = run(
            f"mma.sync.aligned.{shape}.row.col.{wide}.{kind}.{kind}.{wide}",
            *fragments(shape, kind, a_bits, b_bits),
            accumulators(shape, c_bits),
            arch=arch,
        )
        got = matrices(shape, d, np.float32 if wide == "f32" else np.float16)
        np.testing.assert_array_equal(got.astype(np.float32), a @ b + c)


def dot(a: list[float], b: list[float], c: float, arch: int = 90, wide: str = "f32") -> float:
    """A product of float16 vectors by m16n8k16, element (0, 0)."""
    left, right = np.zeros((WARPS, 16, 16), np.float16), np.zeros((WARPS, 16, 8), np.float16)
    left[0, 0, : len(a)], right[0, : len(b), 0] = a, b
    total = np.zeros((WARPS, 16, 8), np.float32 if wide == "f32" else np.float16)
    total[0, 0, 0] = c
    d = run(
        f"mma.sync.aligned.m16n8k16.row.col.{wide}.f16.f16.{wide}",
        *fragments("m16n8k16", "f16", left.view(np.uint16), right.view(np.uint16)),
        accumulators("m16n8k16", total.view(np.dtype(f"u{total.itemsize}"))),
        arch=arch,
    )
    return float(matrices("m16n8k16", d, total.dtype.type)[0, 0, 0])


def test_sums_are_truncated_toward_zero() -> None:
    assert dot([1.5], [2.0**-23], 1.0) == 1.0 + 2.0**-23  # nearest would be 1 + 2**-22
    assert dot([-1.5], [2.0**-23], -1.0) == -1.0 - 2.0**-23


@pytest.mark.parametrize(("arch", "extra"), [(70, 0), (80, 1), (90, 2)])
def test_terms_lose_what_lies_below_the_kept_bits(arch: int, extra: int) -> None:
    # Two terms of 2**-23-j add up to a visible bit only if each of them is kept.
    small = 2.0 ** -(23 + extra)
    assert dot([2.0**-12] * 2**extra, [small * 2.0**12] * 2**extra, 1.0, arch) == 1.0 + 2.0**-23
    assert dot([2.0**-12] * 4, [small * 2.0**11] * 4, 1.0, arch) == 1.0


@pytest.mark.parametrize(("arch", "block"), [(80, 8), (90, 16)])
def test_products_are_added_in_blocks(arch: int, block: int) -> None:
    # What is lost beside 2.0**14 comes through where that is cancelled in its own block, before the small term.
    for position in range(2, 16):
        a, b = [0.0] * 16, [1.0] * 16
        a[0], a[1], a[position] = 2.0**14, -(2.0**14), 2.0**-14
        assert dot(a, b, 0.0, arch) == (0.0 if position < block else 2.0**-14)


def test_float16_sums_are_rounded_to_nearest_even() -> None:
    assert dot([1.5], [2.0**-10], 1.0, wide="f16") == 1.0 + 2.0**-9
    assert dot([1.0], [2.0**-11], 1.0, wide="f16") == 1.0
    assert dot([255.0], [255.0], 512.0, wide="f16") == np.inf


def test_infinities_and_nans_come_through() -> None:
    assert dot([np.inf, 1.0], [1.0, 1.0], 0.0) == np.inf
    assert dot([1.0], [1.0], -np.inf) == -np.inf
    assert np.isnan(dot([np.inf, np.inf], [1.0, -1.0], 0.0))
    assert np.isnan(dot([np.inf], [0.0], 0.0))
    operands = [(np.full(LANES, 0x7C017C01, np.uint32),) * 4, (np.full(LANES, 0x3C003C00, np.uint32),) * 2]
    (d, *_) = run("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32", *operands, (np.full(LANES, 0, np.uint32),) * 4)
    assert set(d.tolist()) == {0x7FFFFFFF}


def test_only_warps_that_execute_are_computed() -> None:
    ones = np.full(LANES, 0x3C003C00, np.uint32)
    operation = bind("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32")
    assert isinstance(operation, MatrixOperation)
    active = np.arange(LANES) // 32 == 1
    d = operation.run(active, (ones,) * 4, (ones,) * 2, (np.zeros(LANES, np.uint32),) * 4)
    np.testing.assert_array_equal(d[3].view(np.float32), np.where(active, 16.0, 0.0))


@pytest.mark.parametrize(
    "opcode",
    [
        "mma.sync.aligned.m8n8k4.row.col.f32.f16.f16.f32",
        "mma.sp.sync.aligned.m16n8k32.row.col.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k32.row.col.kind::f8f6f4.f32.e3m2.e2m3.f32",
        "mma.sync.aligned.m16n8k64.row.col.kind::mxf4.block_scale.f32.e2m1.e2m1.f32.ue8m0",
        "mma.sync.aligned.m16n8k16.row.row.f32.f16.f16.f32",
        "mma.sync.aligned.m16n8k16.row.col.f32.f16.bf16.f32",
        "wgmma.mma_async.sync.aligned.m64n8k16.f32.f16.f16",
        "add.f32",
    ],
)
def test_what_is_not_emulated_has_no_meaning(opcode: str) -> None:
    assert bind(opcode) is None
