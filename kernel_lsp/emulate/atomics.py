"""The update of a memory cell by `atom` and `red`, as pure functions of old value and operands.

Worker-only: imports numpy. The machine finds the cells, applies lanes that share one in lane order and writes back. The
meaning is that of the PTX ISA, "Parallel Synchronization and Communication Instructions: atom, red".
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeAlias, cast

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import arithmetic

Bits: TypeAlias = NDArray[Any]
Update: TypeAlias = Callable[..., Bits]

_ORDER = {"relaxed", "acquire", "release", "acq_rel", "cta", "gpu", "sys"}
_SPACES = {"global", "shared", "shared::cta", "shared::cluster"}
_VECTORS = {"v2": 2, "v4": 4, "v8": 8}
_WIDTHS = {"b16": 2, "f16": 2, "bf16": 2, "f16x2": 4, "bf16x2": 4, "f32": 4, "f64": 8, "b128": 16} | {
    f"{sign}{8 * width}": width for sign in "bus" for width in (4, 8)
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
    """Return the update for an opcode such as `atom.global.gpu.acq_rel.add.f32`; None if it is not emulated.

    Args:
        opcode: the instruction's name with all its modifiers.
        shared: whether the cell lies in shared memory, where the opcode (a generic address) does not say so. The L2
            cache's float32 add flushes subnormals to zero, shared memory's keeps them; of two float64 NaNs the former
            keeps the operand's, the latter the cell's.
    """
    name, *modifiers = opcode.split(".")
    if name not in ("atom", "red") or not modifiers:
        return None
    *modifiers, kind = modifiers
    words = [word for word in modifiers if word not in _ORDER and word not in _SPACES and word != "noftz"]
    count = 1
    for word in ("L2::cache_hint", *_VECTORS):
        if word in words:
            words.remove(word)
            count = _VECTORS.get(word, count)
    if len(words) != 1 or kind not in _WIDTHS:
        return None
    if shared is None:
        shared = not {"shared", "shared::cta", "shared::cluster"}.isdisjoint(modifiers)
    update = _update(words[0], kind, shared)
    return update and Atomic(update, 2 if words[0] == "cas" else 1, _WIDTHS[kind], count)


def _update(operation: str, kind: str, shared: bool) -> Update | None:
    match operation:
        case "exch":
            return lambda old, b: b
        case "cas":
            return _compare_and_swap
        case "inc":
            return lambda old, b: np.where(old >= b, old.dtype.type(0), old + old.dtype.type(1))
        case "dec":
            return lambda old, b: np.where((old == 0) | (old > b), b, old - old.dtype.type(1))
        case "add" if kind == "f32" and not shared:
            instruction = "add.ftz.f32"
        case "add" if kind == "f64":
            return _add_in_shared_memory if shared else _add_in_cache
        case "add" | "min" | "max" | "and" | "or" | "xor":
            instruction = f"{operation}.{kind}"
        case _:
            return None
    found = arithmetic.bind(instruction)
    return cast(Update, found.run) if found else None


def _compare_and_swap(old: Bits, compare: Bits, new: Bits) -> Bits:
    same = old == compare
    return np.where(same.all(axis=1)[:, None], new, old) if old.ndim == 2 else np.where(same, new, old)


def _add_in_shared_memory(old: Bits, b: Bits) -> Bits:
    """Add in shared memory, by a loop of compare-and-swap: of two float64 NaNs the old one stays, made quiet."""
    return _add_double(b, old)


def _add_in_cache(old: Bits, b: Bits) -> Bits:
    """Add in the L2 cache's own adder: of two float64 NaNs the new one is stored, and none is made quiet."""
    total = _add_double(old, b)
    return np.where(np.isnan(b.view(np.float64)), b, np.where(np.isnan(old.view(np.float64)), old, total))


def _add_double(a: Bits, b: Bits) -> Bits:
    add = arithmetic.bind("add.f64")
    assert add is not None
    return cast(Bits, add.run(a, b))
