"""`atom` and `red`: threads that access the same cell do so in lane order.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import access, atomics, spaces
from kernel_lsp.emulate.atomics import Atomic
from kernel_lsp.emulate.barriers import release
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import SHARED_WINDOW, raw_type
from kernel_lsp.emulate.program import Address, Operand, PtxInstruction, Vector
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.transfers import locator, space_of

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_NAMES = {"add", "min", "max", "and", "or", "xor", "exch", "cas", "inc", "dec"}
_PAIRS = ("f16x2", "bf16x2")
_MISCOMPILED = "ptxas 12.8 to 13.0 makes a plain load, a sum of integers and a plain store of it"
"""Seen in its machine code and, with 13.0, in what an H200 adds (`tests/bench/ptx_fuzz_warp.py`)."""


def bind_atomics(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind read-modify-write accesses of global and shared memory."""
    parts = instruction.parts
    space = space_of(parts)
    if parts[0] not in ("atom", "red") or "async" in parts:
        return None
    near, far = atomics.bind(instruction.opcode, shared=True), atomics.bind(instruction.opcode, shared=False)
    if near is None or far is None or near.width == 16:
        return None
    operands = list(instruction.operands)
    target = operands.pop(0) if parts[0] == "atom" else None
    address, *sources = operands
    if not isinstance(address, Address):
        return None
    kind = parts[-1]
    fetches = [[decoder.fetch(each, kind) for each in _items(source)] for source in sources[: near.operands]]
    stores = [decoder.store(each, kind[0] == "s") for each in _items(target)] if target is not None else []
    locate = locator(decoder, address)
    releases = not {"release", "acq_rel", "sc"}.isdisjoint(parts)

    def step(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        if releases and resident.check:
            release(resident, lanes, "cta" in parts)
        addresses = locate(resident, activation, lanes)
        cell = raw_type(near.width)
        values = [
            [np.broadcast_to(fetch(resident, activation, lanes), lanes.shape).astype(cell) for fetch in group]
            for group in fetches
        ]
        old = [np.zeros(lanes.extent, cell) for _ in range(near.count)]
        places = spaces.by_space(addresses, lanes) if space == "" else [(space, lanes)]
        for name, part in places:
            mine, given = addresses, values
            if part is not lanes:
                mine = access.part_of(addresses, lanes, part)
                given = [[access.part_of(each, lanes, part) for each in group] for group in values]
            if name == "local":
                raise NeedsGpu("an atomic access of local memory")
            if name == "cluster" and kind in _PAIRS:
                raise NeedsGpu(f"an atomic addition of {kind} in another block's shared memory: {_MISCOMPILED}")
            operation = near if name in ("shared", "cluster") else far
            shift = SHARED_WINDOW if space == "" and name in ("shared", "cluster") else 0
            for number in range(near.count):
                each = [group[number] for group in given]
                at = mine - shift + number * near.width
                found = _update(resident, name, at, operation, each, part, site, parts)
                part.write(old[number], found)
        for store, value in zip(stores, old, strict=False):
            store(activation, lanes.read(value), lanes)

    return step


def _items(operand: Operand) -> tuple[Operand, ...]:
    return operand.items if isinstance(operand, Vector) else (operand,)


def _update(
    resident: Resident,
    space: str,
    addresses: Array,
    operation: Atomic,
    values: list[Array],
    lanes: Lanes,
    site: Site,
    words: tuple[str, ...],
) -> Array:
    """Update the cells of all lanes; return their old contents, (rows, columns)."""
    site.counters.atomic_requests += lanes.warps if space == "global" else 0
    found = np.zeros(lanes.extent, raw_type(operation.width))
    name, integer = next(word for word in words if word in _NAMES), words[-1][0] in "us"
    for part, cells, where in spaces.cells(resident, space, addresses, operation.width, lanes, site):
        mine = [part.select(access.part_of(value, lanes, part)) for value in values]
        before = apply(operation, name, integer, cells, where.reshape(-1), [value.reshape(-1) for value in mine])
        part.write(found, part.spread(before.reshape(where.shape)))
        if resident.launch.waits:
            resident.progress(before, cells[where.reshape(-1)])
    return lanes.read(found)


def apply(operation: Atomic, name: str, integer: bool, cells: Array, where: Array, values: list[Array]) -> Array:
    """Update `cells[where]`, one element after the other.

    Returns:
        The content of its cell that each element saw.
    """
    order = np.argsort(where, kind="stable")
    sorted_where = where[order]
    starts = np.flatnonzero(np.concatenate(([True], sorted_where[1:] != sorted_where[:-1])))
    places = sorted_where[starts]
    lengths = np.diff(np.append(starts, len(where)))
    sorted_values = [value[order] for value in values]
    longest = int(lengths.max())
    if name == "cas" and longest > 1:
        found = _compare_and_swap(cells, places, starts, lengths, sorted_values)
    elif name == "add" and integer and longest > 8:
        found = _add(cells, places, starts, lengths, sorted_values[0])
    else:
        found = np.empty(len(where), cells.dtype)
        for turn in range(longest):
            here = starts[lengths > turn]
            at = places[lengths > turn] if turn else places
            old = cells[at]
            found[here + turn] = old
            cells[at] = operation.update(old, *(value[here + turn] for value in sorted_values))
    result = np.empty_like(found)
    result[order] = found
    return result


def _add(cells: Array, places: Array, starts: Array, lengths: Array, values: Array) -> Array:
    """Add integers to cells; the order does not matter."""
    running = np.cumsum(values, dtype=values.dtype)
    before = running - values
    base = np.repeat(before[starts], lengths)
    old = cells[places]
    cells[places] = old + (running[starts + lengths - 1] - before[starts])
    return np.repeat(old, lengths) + (before - base)


def _compare_and_swap(cells: Array, places: Array, starts: Array, lengths: Array, values: list[Array]) -> Array:
    """Execute `cas`: a cell changes only for an element whose comparand equals it; one pass for each change."""
    compare, new = values
    cell_of = np.repeat(np.arange(len(places)), lengths)
    position = np.arange(len(compare))
    done = starts.copy()  # elements before these are done
    current = cells[places]
    found = np.empty(len(compare), cells.dtype)
    while True:
        left = position >= done[cell_of]
        hit = left & (compare == current[cell_of])
        first = np.full(len(places), len(compare))
        np.minimum.at(first, cell_of[hit], position[hit])
        # All elements up to the first hit see the current value.
        sees = left & (position <= first[cell_of])
        found[sees] = current[cell_of[sees]]
        swapped = first < len(compare)
        if not swapped.any():
            break
        current = current.copy()
        current[swapped] = new[first[swapped]]
        done = np.where(swapped, first + 1, starts + lengths)
    cells[places] = current
    return found
