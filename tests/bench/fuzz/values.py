"""Operand values where arithmetic goes wrong: zeros, subnormals, infinities, NaN payloads, extremes, near ties."""

import numpy as np

from kernel_lsp.emulate.arithmetic.formats import FORMATS, FloatFormat, encode
from kernel_lsp.emulate.arithmetic.opcode import TYPES, Type
from tests.bench.fuzz.instance import LANES, Array

Random = np.random.Generator


def operand(rng: Random, kind: str, lanes: int = LANES) -> Array:
    """Raw bits of random values of a PTX type, or of `n` (any amount of shift, mostly small), `byte` or `carry`.

    `byte` is a position or length from 0 to 255, which is all the ISA allows there; `carry` is 0 or 1.
    """
    if kind == "byte":
        return np.where(rng.random(lanes) < 0.8, rng.integers(0, 70, lanes), rng.integers(0, 256, lanes)).astype(
            np.uint32
        )
    if kind == "n":
        small = rng.integers(0, 70, lanes)
        return np.where(rng.random(lanes) < 0.8, small, integers(rng, TYPES["u32"], lanes)).astype(np.uint32)
    if kind == "carry":
        return rng.integers(0, 2, lanes).astype(np.uint32)
    found = TYPES[kind]
    if found.kind == "p":
        return rng.random(lanes) < 0.5
    if found.kind != "f":
        return integers(rng, found, lanes)
    if found.element not in FORMATS:
        return integers(rng, TYPES[f"b{found.bits}"], lanes)
    form = FORMATS[found.element]
    return _packed([floats(rng, form, lanes) for _ in range(found.lanes)], found)


def operands(rng: Random, kinds: list[str], lanes: int = LANES) -> list[Array]:
    """Operands of one instruction; floating-point ones are in part related, so that sums cancel and round."""
    values = [operand(rng, kind, lanes) for kind in kinds]
    related = [i for i, kind in enumerate(kinds) if kind == kinds[0] and kind in FORMATS]
    if len(related) < 2:
        if len(values) > 1 and values[0].dtype == values[1].dtype and kinds[1] not in ("n", "byte"):
            values[1] = np.where(rng.random(lanes) < 0.1, values[0], values[1])
        return values
    form = FORMATS[kinds[0]]
    near = values[0] + rng.integers(-2, 3, lanes).astype(form.raw)
    near ^= np.where(rng.random(lanes) < 0.5, form.sign, form.raw(0))
    values[1] = np.where(rng.random(lanes) < 0.2, near, values[1])
    with np.errstate(all="ignore"):
        a, b = (form.numbers(x).astype(np.float64) for x in values[:2])
        # Products and quotients next to the smallest normal number.
        edge = np.ldexp(rng.choice([1.0, 1.0 - 2.0**-12, 1.0 + 2.0**-23]), -14 if form.name == "f16" else -126)
        tiny = encode(edge / a * rng.choice([1.0, 1.0 - 2.0**-8, 1.0 - 2.0**-24, 0.5], lanes), form, "rn")
        values[1] = np.where(rng.random(lanes) < 0.1, tiny, values[1])
        if len(related) > 2:
            b = form.numbers(values[1]).astype(np.float64)
            minus = encode(-(a * b), form, "rn") + rng.integers(-1, 2, lanes).astype(form.raw)
            values[2] = np.where(rng.random(lanes) < 0.3, minus, values[2])
    return values


def integers(rng: Random, kind: Type, lanes: int) -> Array:
    """Small numbers, powers of two and their neighbours, extremes, anything."""
    bits = kind.bits
    power = np.uint64(1) << rng.integers(0, bits, lanes).astype(np.uint64)
    around = power + rng.integers(-1, 2, lanes).astype(np.uint64)
    signed = np.where(rng.random(lanes) < 0.5, around, -around)
    small = rng.integers(-16, 17, lanes).astype(np.uint64)
    anything = rng.integers(0, 2**64, lanes, dtype=np.uint64)
    shortened = anything >> rng.integers(0, bits, lanes).astype(np.uint64)
    chosen = rng.integers(0, 5, lanes)
    return np.choose(chosen, [signed, small, anything, anything, shortened]).astype(kind.raw)


def floats(rng: Random, form: FloatFormat, lanes: int) -> Array:
    """Specials and their neighbours, numbers of ordinary size, integers and halves, any bits."""
    limits = [0, 1, int(form.smallest_normal), int(form.one), int(form.infinity), int(form.canonical) & ~int(form.sign)]
    middle = int(form.smallest_normal) >> 1  # the largest subnormals' top bit; on infinity it makes a quiet NaN
    limits += [int(form.infinity) + middle, int(form.infinity) + 1, middle]
    special = rng.choice(np.array(limits, np.uint64), lanes).astype(form.raw)
    neighbour = special + rng.integers(-3, 4, lanes).astype(form.raw)
    signs = np.where(rng.random(lanes) < 0.5, form.sign, form.raw(0))
    ordinary = rng.standard_normal(lanes) * np.exp2(rng.choice([0, 0, 0, 3, 8, -8], lanes))
    halves = rng.integers(-600, 600, lanes) / 2
    powers = np.exp2(rng.integers(0, 66, lanes).astype(np.float64)) * rng.choice([-1, 1, 1 - 2.0**-20, 1.5], lanes)
    ranged = np.exp2(rng.uniform(-160, 140, lanes)) * rng.choice([-1.0, 1.0], lanes)
    anything = rng.integers(0, 2**64, lanes, dtype=np.uint64).astype(form.raw)
    subnormal = anything & (form.smallest_normal - form.raw(1)) | signs
    with np.errstate(all="ignore"):
        numbers = [encode(x, form, "rn") for x in (ordinary, halves, powers, ranged)]
    choices = [special ^ signs, neighbour ^ signs, *numbers, anything, numbers[0], numbers[0], subnormal]
    return np.choose(rng.integers(0, len(choices), lanes), choices).astype(form.raw)


def _packed(parts: list[Array], kind: Type) -> Array:
    result = parts[0].astype(kind.raw)
    for i, part in enumerate(parts[1:], start=1):
        result |= part.astype(kind.raw) << kind.raw(i * kind.bits // kind.lanes)
    return result


def literal(value: Array, kind: Type) -> str:
    """One raw value as a PTX constant of a type."""
    if kind.name == "f32":
        return f"0f{int(value):08X}"
    if kind.name == "f64":
        return f"0d{int(value):016X}"
    number = int(value)
    if kind.kind == "s" and number >= 1 << kind.bits - 1:
        number -= 1 << kind.bits
    return str(number) + ("U" if number >= 1 << 63 else "")
