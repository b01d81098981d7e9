"""What one atomic does to the memory cell it names: `atom` and `red` as pure functions of old value and operands.

Worker-only: imports numpy. The machine finds the cells, applies lanes that share one in lane order and writes back. The
meaning is that of the PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

Bits: TypeAlias = NDArray[Any]
Update: TypeAlias = Callable[..., Bits]

_ORDER = {"relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys"}
_SPACES = {"global", "shared", "shared::cta"}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_UNSIGNED = {"b16": np.uint16, "b32": np.uint32, "b64": np.uint64, "u32": np.uint32, "u64": np.uint64}
_INTEGERS = {**_UNSIGNED, "s32": np.int32, "s64": np.int64}
_WIDTHS = {"f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32": 4, "f64": 8, "b128": 16} | {
    name: np.dtype(integer).itemsize for name, integer in _INTEGERS.items()
}


@dataclass(frozen=True)
class Atomic:
    """One `atom` or `red` instruction.

    Attributes:
        update: `update(old, b)`, or `update(old, compare, new)` for `cas`: the raw bits the cell then holds. Operands
            are in the order of the instruction; all arrays have the width of the cell and an element for each lane.
        operands: how many operands follow the address, one or two; a cache policy may follow, without meaning here.
        width: bytes of one cell.
        count: cells of a vector access (`.v2`, `.v4`, `.v8`), each updated alone; 1 for a scalar.
    """

    update: Update
    operands: int
    width: int
    count: int = 1


@cache
def bind(opcode: str, shared: bool | None = None) -> Atomic | None:
    """The meaning of an opcode such as `atom.global.gpu.acq_rel.add.f32`; None if it is not one that can be emulated.

    Args:
        opcode: the instruction's name with all its modifiers.
        shared: whether the cell lies in shared memory, where the opcode (a generic address) does not say so. The L2
            cache's float32 add flushes subnormals to zero, shared memory's keeps them.
    """
    name, *modifiers = opcode.split(".")
    if name not in ("atom", "red") or not modifiers:
        return None
    *modifiers, kind = modifiers
    words = [word for word in modifiers if word not in _ORDER and word not in _SPACES and word not in ("noftz",)]
    count = 1
    for word in ("L2::cache_hint", *_VECTORS):
        if word in words:
            words.remove(word)
            count = _VECTORS.get(word, count)
    if len(words) != 1 or kind not in _WIDTHS:
        return None
    if shared is None:
        shared = not {"shared", "shared::cta"}.isdisjoint(modifiers)
    update = _update(words[0], kind, flush=not shared)
    return update and Atomic(update, 2 if words[0] == "cas" else 1, _WIDTHS[kind], count)


def _update(operation: str, kind: str, flush: bool) -> Update | None:
    match operation:
        case "exch":
            return lambda old, b: b
        case "cas":
            return _compare_and_swap
        case "and" | "or" | "xor":
            return getattr(np, f"bitwise_{operation}") if kind in _INTEGERS else None
        case "inc":
            return lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1))
        case "add" | "min" | "max" if kind in _INTEGERS:
            function = {"add": np.add, "min": np.minimum, "max": np.maximum}[operation]
            integer = _INTEGERS[kind]
            return lambda old, b: function(old.view(integer), b.view(integer)).view(old.dtype)
        case "add" if kind in ("f32", "f64"):
            return lambda old, b: _add_float(old, b, kind, flush)
        case "add" | "min" | "max" if kind in ("f16", "bf16", "f16x2", "bf16x2"):
            return lambda old, b: _by_halves(operation, kind, old, b)
        case _:
            return None


def _compare_and_swap(old: Bits, compare: Bits, new: Bits) -> Bits:
    same = old == compare
    return np.where(same.all(axis=1)[:, None], new, old) if old.ndim == 2 else np.where(same, new, old)


def _add_float(old: Bits, b: Bits, kind: str, flush: bool) -> Bits:
    """Rounded to nearest even; a NaN is canonical in float32, and in float64 that of an operand, made quiet."""
    with np.errstate(all="ignore"):
        if kind == "f64":
            return (old.view(np.float64) + b.view(np.float64)).view(np.uint64)
        if flush:
            old, b = _flushed(old), _flushed(b)
        total = old.view(np.float32) + b.view(np.float32)
        bits = np.where(np.isnan(total), np.uint32(0x7FFFFFFF), total.view(np.uint32))
    return _flushed(bits) if flush else bits


def _flushed(bits: Bits) -> Bits:
    """Subnormal float32 numbers as zeros of their sign."""
    return np.where(bits & 0x7F800000 == 0, bits & np.uint32(0x80000000), bits)


def _by_halves(operation: str, kind: str, old: Bits, b: Bits) -> Bits:
    """16-bit floats, one or two in a cell. Rounding sums in float32 first changes nothing: 24 >= 2 * 11 + 2 bits."""
    brain = kind.startswith("bf16")
    x, y = old.view(np.uint16), b.view(np.uint16)
    wide_x, wide_y = (
        ((v.astype(np.uint32) << 16).view(np.float32) if brain else v.view(np.float16).astype(np.float32))
        for v in (x, y)
    )
    with np.errstate(all="ignore"):
        if operation == "add":
            total = wide_x + wide_y
            result = _to_brain(total) if brain else total.astype(np.float16).view(np.uint16)
            nan = np.isnan(total)
        else:
            lower = (wide_x < wide_y) | ((wide_x == wide_y) & np.signbit(wide_x)) | np.isnan(wide_y)
            upper = (wide_x > wide_y) | ((wide_x == wide_y) & np.signbit(wide_y)) | np.isnan(wide_y)
            result = np.where(lower if operation == "min" else upper, x, y)
            nan = np.isnan(wide_x) & np.isnan(wide_y)
    return np.where(nan, np.uint16(0x7FFF), result).view(old.dtype)


def _to_brain(x: NDArray[np.float32]) -> NDArray[np.uint16]:
    bits = x.view(np.uint32)
    return ((bits + 0x7FFF + (bits >> 16 & 1)) >> 16).astype(np.uint16)
