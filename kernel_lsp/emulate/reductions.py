"""`cp.reduce.async.bulk`: bulk copies to global memory that add to what is there, or change it by another operation.

Worker-only: imports numpy. The meaning is that of the PTX ISA, "Data Movement and Conversion Instructions:
cp.reduce.async.bulk" and "cp.reduce.async.bulk.tensor": each element is updated as by a relaxed `red` of its type, but
float32 sums keep subnormals, which other reductions in global memory flush (an H200, `tests/bench/ptx_fuzz_warp.py`).
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import atomics
from kernel_lsp.emulate.atomic import apply
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.memory import raw_type

Array: TypeAlias = NDArray[Any]

_OPERATIONS = ("add", "min", "max", "inc", "dec", "and", "or", "xor")
_LOGIC = frozenset(("and", "or", "xor"))
_OF_MAPS = {2: "u32", 3: "s32", 4: "u64", 5: "s64", 6: "f16", 7: "f32", 8: "f64", 9: "bf16"}
"""`CUtensorMapDataType` -> the type that elements are reduced as."""


@dataclass(frozen=True, slots=True)
class Reduction:
    """How a bulk copy changes global memory.

    Attributes:
        kind: raw type of an element.
        change: `change(cells, where, values)` updates `cells[where]`, one element after the other.
    """

    kind: np.dtype[Any]
    change: Callable[[Array, Array, Array], Array]


def is_reduction(parts: Collection[str]) -> bool:
    """Return True for the parts of a reducing copy's opcode."""
    return "reduce" in parts


def plain(parts: tuple[str, ...]) -> tuple[str, ...]:
    """Return the parts of an opcode without the word that makes a copy a reducing one."""
    return tuple(part for part in parts if part != "reduce")


def reduction(parts: Collection[str], kind: str) -> Reduction:
    """Return what a reducing copy of elements of a PTX type does.

    Raises:
        NeedsGpu: the operation has no meaning here for that type.
    """
    name = next((part for part in parts if part in _OPERATIONS), "")
    operation = atomics.bind(f"red.global.{name}.{kind}", shared=(name, kind) == ("add", "f32"))
    if operation is None:
        raise NeedsGpu(f"a bulk copy that reduces by {name or 'an unknown operation'} of {kind}")
    found, integer = operation, kind[0] in "us"
    return Reduction(
        raw_type(found.width), lambda cells, where, values: apply(found, name, integer, cells, where, [values])
    )


def tensor_reduction(parts: Collection[str], kind: int) -> Reduction:
    """Return what a reducing copy of a tensor with this `CUtensorMapDataType` does.

    Raises:
        NeedsGpu: see `reduction`; or elements of the type are never reduced.
    """
    if kind not in _OF_MAPS:
        raise NeedsGpu("a bulk copy that reduces elements of 8 or 16 bits without a sign")
    name = _OF_MAPS[kind]
    if name[0] in "us" and not _LOGIC.isdisjoint(parts):
        name = f"b{name[1:]}"
    return reduction(parts, name)
