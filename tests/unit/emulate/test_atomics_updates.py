"""Atomics held to the PTX ISA, one cell at a time in Python's own numbers."""

import math
import struct
from collections.abc import Callable
from fractions import Fraction

import numpy as np
import pytest

from kernel_lsp.emulate import atomics

N = 500


def operation(opcode: str, shared: bool | None = None) -> atomics.Atomic:
    found = atomics.bind(opcode, shared)
    assert found is not None
    return found


def interesting(width: int, seed: int) -> np.ndarray:
    """Random bits among which the edges are common."""
    rng = np.random.default_rng(seed)
    bits = width * 8
    dtype = np.dtype(f"u{width}")
    x = rng.integers(0, 2**bits, N, dtype=dtype, endpoint=False)
    edges = np.array([0, 1, 2, 2 ** (bits - 1) - 1, 2 ** (bits - 1), 2**bits - 1], dtype)
    return np.where(rng.random(N) < 0.4, rng.choice(edges, N), x)


def signed(x: int, bits: int) -> int:
    return x - 2**bits if x >= 2 ** (bits - 1) else x


INTEGERS: dict[str, Callable[[int, int, int], int]] = {
    "add.u32": lambda old, b, bits: old + b,
    "add.s32": lambda old, b, bits: old + b,
    "add.u64": lambda old, b, bits: old + b,
    "min.u32": lambda old, b, bits: min(old, b),
    "max.u64": lambda old, b, bits: max(old, b),
    "min.s32": lambda old, b, bits: min(signed(old, bits), signed(b, bits)),
    "max.s32": lambda old, b, bits: max(signed(old, bits), signed(b, bits)),
    "min.s64": lambda old, b, bits: min(signed(old, bits), signed(b, bits)),
    "and.b32": lambda old, b, bits: old & b,
    "or.b64": lambda old, b, bits: old | b,
    "xor.b32": lambda old, b, bits: old ^ b,
    "exch.b64": lambda old, b, bits: b,
    "inc.u32": lambda old, b, bits: 0 if old >= b else old + 1,
    "dec.u32": lambda old, b, bits: b if old == 0 or old > b else old - 1,
}


@pytest.mark.parametrize("opcode", INTEGERS)
@pytest.mark.parametrize("prefix", ["atom.global.", "red.shared.", "atom.relaxed.gpu.global.", "atom.acq_rel.sys."])
def test_integers(opcode: str, prefix: str) -> None:
    found = operation(prefix + opcode)
    bits = int(opcode[-2:])
    assert (found.width, found.operands, found.count) == (bits // 8, 1, 1)
    old, b = interesting(found.width, 1), interesting(found.width, 2)
    b[::7] = old[::7]
    for got, x, y in zip(found.update(old, b), old, b, strict=True):
        assert int(got) == INTEGERS[opcode](int(x), int(y), bits) % 2**bits


@pytest.mark.parametrize("width", [2, 4, 8])
def test_compare_and_swap(width: int) -> None:
    found = operation(f"atom.global.acquire.gpu.cas.b{8 * width}")
    assert (found.width, found.operands) == (width, 2)
    old, compare, new = (interesting(width, seed) for seed in (3, 4, 5))
    compare[::2] = old[::2]
    np.testing.assert_array_equal(found.update(old, compare, new), np.where(old == compare, new, old))


def test_compare_and_swap_of_sixteen_bytes_compares_both_words() -> None:
    found = operation("atom.global.cas.b128")
    old = np.array([[1, 2], [1, 2], [1, 2]], np.uint64)
    compare = np.array([[1, 2], [1, 3], [0, 2]], np.uint64)
    new = np.full((3, 2), 9, np.uint64)
    assert found.width == 16
    np.testing.assert_array_equal(found.update(old, compare, new), [[9, 9], [1, 2], [1, 2]])


def nearest(exact: Fraction, digits: int, smallest: int, largest: int) -> float:
    """Rounded to nearest even with a significand of `digits` bits and exponents `smallest` to `largest`."""
    if exact == 0:
        return 0.0
    exponent = max(math.frexp(float(exact))[1] - 1, smallest)
    unit = Fraction(2) ** (exponent - digits + 1)
    rounded = round(exact / unit) * unit  # Python rounds halves to even
    return math.copysign(math.inf, exact) if abs(rounded) >= Fraction(2) ** (largest + 1) else float(rounded)


HALVES = {"f16": (11, -14, 15), "bf16": (8, -126, 127)}


def half_value(kind: str, bits: int) -> float:
    return struct.unpack(
        "<e" if kind == "f16" else "<f",
        struct.pack("<H" if kind == "f16" else "<I", bits if kind == "f16" else bits << 16),
    )[0]


@pytest.mark.parametrize("kind", ["f16", "bf16"])
@pytest.mark.parametrize("packed", [False, True])
def test_sixteen_bit_sums_are_rounded_once(kind: str, packed: bool) -> None:
    found = operation(f"red.global.add.noftz.{kind}{'x2' if packed else ''}")
    old, b = interesting(2, 6), interesting(2, 7)
    near = np.random.default_rng(8).random(N) < 0.5  # of like size, where rounding is hardest
    b = np.where(near, old ^ b & np.uint16(0x83FF), b).astype(np.uint16)
    got = found.update(old.view(np.uint32), b.view(np.uint32)).view(np.uint16) if packed else found.update(old, b)
    for result, x, y in zip(got, old, b, strict=True):
        left, right = half_value(kind, int(x)), half_value(kind, int(y))
        if not (math.isfinite(left) and math.isfinite(right)):
            total = left + right
            assert (int(result) == 0x7FFF) if math.isnan(total) else half_value(kind, int(result)) == total
        else:
            assert half_value(kind, int(result)) == nearest(Fraction(left) + Fraction(right), *HALVES[kind])


@pytest.mark.parametrize("kind", ["f16", "bf16"])
def test_sixteen_bit_minimum_and_maximum(kind: str) -> None:
    minimum, maximum = (operation(f"red.global.{name}.noftz.v2.{kind}") for name in ("min", "max"))
    assert minimum.count == 2
    one, two, nan = (0x3C00, 0x4000, 0x7E00) if kind == "f16" else (0x3F80, 0x4000, 0x7FC0)
    old = np.array([one, two, nan, one, nan, 0x8000, 0x0000], np.uint16)
    b = np.array([two, one, one, nan, nan, 0x0000, 0x8000], np.uint16)
    np.testing.assert_array_equal(minimum.update(old, b), [one, one, one, one, 0x7FFF, 0x8000, 0x8000])
    np.testing.assert_array_equal(maximum.update(old, b), [two, two, one, one, 0x7FFF, 0x0000, 0x0000])


def bits(*numbers: float) -> np.ndarray:
    return np.array(numbers, np.float32).view(np.uint32)


def test_float32_sums_flush_subnormals_in_global_memory_only() -> None:
    tiny, smallest = 1e-40, 1.1754943508222875e-38
    old, b = bits(tiny, -tiny, smallest, 1.0, np.inf), bits(tiny, 0.0, -smallest * 1.5, 2.0**-24, -np.inf)
    flushed = bits(0.0, 0.0, -0.0, 1.0, 0.0)
    flushed[4] = 0x7FFFFFFF
    np.testing.assert_array_equal(operation("red.global.add.f32").update(old, b), flushed)
    np.testing.assert_array_equal(operation("red.add.f32", shared=False).update(old, b), flushed)
    kept = (old.view(np.float32)[:4] + b.view(np.float32)[:4]).view(np.uint32)
    np.testing.assert_array_equal(operation("atom.shared.add.f32").update(old, b)[:4], kept)
    np.testing.assert_array_equal(operation("atom.add.f32", shared=True).update(old, b)[:4], kept)


def test_float64_sums() -> None:
    old, b = np.array([0.1, 1e308, 5e-324]), np.array([0.2, 1e308, 5e-324])
    got = operation("atom.global.add.f64").update(old.view(np.uint64), b.view(np.uint64)).view(np.float64)
    assert got.tolist() == [0.1 + 0.2, math.inf, 1e-323]


def test_of_two_float64_nans_global_memory_stores_the_new_one_and_shared_memory_keeps_the_old_one() -> None:
    one, old, b = 0x3FF0000000000000, 0xFFFFFFFFFFFFFFFF, 0x7FF0000000000001
    cells, operands = np.array([old, old, one], np.uint64), np.array([b, one, b], np.uint64)
    stored = operation("atom.global.add.f64").update(cells, operands)
    assert stored.tolist() == [b, old, b]
    kept = operation("atom.shared.add.f64").update(cells, operands)
    assert kept.tolist() == [old, old, b | 1 << 51]


def test_vectors_update_each_element() -> None:
    found = operation("red.relaxed.gpu.global.add.L2::cache_hint.v4.f32")
    assert (found.count, found.width, found.operands) == (4, 4, 1)


@pytest.mark.parametrize(
    "opcode",
    [
        "red.async.relaxed.cluster.add.u32",
        "multimem.red.add.f32",
        "atom.add.q7",
        "ld.u32",
    ],
)
def test_what_is_no_atomic_has_no_meaning(opcode: str) -> None:
    assert atomics.bind(opcode) is None
