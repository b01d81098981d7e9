"""Tracks values from unwritten memory bit by bit, until they matter (taint analysis).

Worker-only: imports numpy. A load of unwritten bytes is no mistake as long as nothing depends on them: compilers load
first and select afterwards, and vectors bring neighbours along. So the unknown bits of each register are kept, passed
on by what computes with them, and reported, at the load, when they reach memory, an address, a branch or a neighbour.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.program import (
    Address,
    Arguments,
    Immediate,
    Negated,
    Operand,
    Pair,
    PtxInstruction,
    Register,
    Vector,
)
from kernel_lsp.emulate.registers import Activation

if TYPE_CHECKING:
    from kernel_lsp.emulate.decode import Decoded, Step
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

# Bits of the result come from single bits of these sources, selected by the values of the others.
_MOVED = {"mov": None, "shl": (0,), "shr": (0,), "prmt": (0, 1), "bfe": (0,)}
_PASSED = {"ld", "ldu"}  # loaded values are known or not by themselves; only the address matters
_NO_RESULT = {"st", "red", "bra", "brx", "call", "ret", "exit", "bar", "barrier", "cp", "trap", "membar", "fence"}
_USES = _NO_RESULT | {
    "atom",
    "shfl",
    "vote",
    "match",
    "redux",
    "mma",
    "wmma",
    "ldmatrix",
    "stmatrix",
    "movmatrix",
    "elect",
    "mbarrier",
    "wgmma",
}


@dataclass(eq=False)
class Origin:
    """A load of unwritten bytes: its threads, and a function to report some of them."""

    threads: Array
    report: Callable[[Array], None]
    reported: Array = field(init=False)

    def __post_init__(self) -> None:
        self.reported = np.zeros(self.threads.shape, np.bool_)

    def used_by(self, threads: Array) -> None:
        """Report the load, since something depends on its value in these threads."""
        new = threads & self.threads & ~self.reported
        if new.any():
            self.reported |= new
            self.report(new)


@dataclass(frozen=True, slots=True)
class Taint:
    """The unknown bits of a register, for all threads, and the loads that they may come from."""

    bits: Array
    origins: frozenset[Origin]


@dataclass(frozen=True, slots=True)
class Flow:
    """The register slots that an instruction reads and writes; `results` are read as its first operand."""

    sources: tuple[int, ...]
    results: tuple[int, ...]
    operands: tuple[tuple[int, ...], ...]
    guard: int | None


def flow(instruction: PtxInstruction, slots: dict[str, int]) -> Flow:
    """Return the registers that an instruction reads and writes."""
    name = instruction.parts[0]
    operands = list(instruction.operands)
    results: tuple[int, ...] = ()
    takes = not operands or isinstance(operands[0], Address) or name in _NO_RESULT | {"stmatrix"}
    if not takes and not (name == "wmma" and "store" in instruction.parts):
        results = tuple(_slots(operands.pop(0), slots))
    groups = tuple(tuple(_slots(operand, slots)) for operand in operands)
    guard = None if instruction.guard is None else slots[instruction.guard.register.name]
    return Flow(tuple(slot for group in groups for slot in group), results, groups, guard)


def _slots(operand: Operand, slots: dict[str, int]) -> list[int]:
    if isinstance(operand, Register):
        return [slots[operand.name]]
    if isinstance(operand, Address):
        return _slots(operand.base, slots)
    if isinstance(operand, Negated):
        return _slots(operand.operand, slots)
    if isinstance(operand, Pair):
        return _slots(operand.first, slots) + _slots(operand.second, slots)
    if isinstance(operand, Vector | Arguments):
        return [slot for item in operand.items for slot in _slots(item, slots)]
    return []


def propagate(resident: Resident, activation: Activation, lanes: Lanes, position: int) -> None:
    """Propagate the unknown bits through an instruction that is about to be executed."""
    decoded: Decoded = activation.function
    moves = decoded.flow(position)
    taint = activation.taint
    tainted = [slot for slot in moves.sources if slot in taint]
    if moves.guard is not None:
        if moves.guard in taint:
            _use([taint[moves.guard]], lanes)
        value = activation.registers[moves.guard]
        guard = decoded.function.code[position].guard
        assert guard is not None
        if value is None:
            value = np.zeros((1, 1), np.bool_)
        condition = lanes.read(value)
        taken, _ = lanes.where(~condition if guard.negated else condition)
        if taken is None:
            return
        lanes = taken
    if not tainted:
        for slot in moves.results:
            _clear(taint, slot, lanes)
        return
    instruction = decoded.function.code[position]
    name = instruction.parts[0]
    held = [taint[slot] for slot in dict.fromkeys(tainted)]
    if name in _USES or name in _PASSED:
        _use(held, lanes)
        for slot in moves.results:
            _clear(taint, slot, lanes)
        return
    origins = frozenset(origin for each in held for origin in each.origins)
    step = decoded.steps[position]
    for slot, bits in _through(resident, activation, lanes, instruction, moves, step):
        _mark(activation, slot, bits, lanes, origins)


def arrived(resident: Resident, activation: Activation, position: int) -> None:
    """Mark the registers that a load has just filled with unwritten bytes."""
    decoded: Decoded = activation.function
    results = decoded.flow(position).results
    follows = decoded.function.code[position].parts[0] in _PASSED
    for missing, lanes, origin in resident.missing:
        if not follows:
            origin.used_by(origin.threads)
            continue
        for slot, bits in zip(results, missing, strict=False):
            _mark(activation, slot, bits, lanes, frozenset((origin,)))
    resident.missing.clear()


def _use(held: list[Taint], lanes: Lanes) -> None:
    active = lanes.to_mask()
    for each in held:
        threads = (each.bits != 0) & active
        if threads.any():
            for origin in each.origins:
                origin.used_by(threads)


def _through(
    resident: Resident, activation: Activation, lanes: Lanes, instruction: PtxInstruction, moves: Flow, step: Step
) -> list[tuple[int, Array]]:
    """Return the unknown bits of the results."""
    name, taint = instruction.parts[0], activation.taint
    if name in _MOVED or (name == "cvt" and not {"f", "b"} & {part[0] for part in instruction.parts[-2:]}):
        return _moved(resident, activation, lanes, moves, step, _MOVED.get(name, (0,)))

    def bits(slot: int) -> Array:
        return lanes.read(taint[slot].bits) if slot in taint else np.zeros((1, 1), np.uint8)

    groups = [[bits(slot) for slot in group] for group in moves.operands]
    if name == "selp":
        chosen = _read(activation, moves.operands[2][0], lanes)
        one, two = (group[0] if group else np.zeros((1, 1), np.uint8) for group in groups[:2])
        unknown = np.where(chosen, one != 0, two != 0) | (groups[2][0] != 0)
    else:
        unknown = np.zeros((1, 1), np.bool_)
        for group in groups:
            for each in group:
                unknown = unknown | (each != 0)
    found: list[tuple[int, Array]] = []
    for slot in moves.results:
        whole = np.where(unknown, np.uint64(2**64 - 1), np.uint64(0))
        if name == "and" and instruction.parts[-1] != "pred":
            whole = whole & _mask_of_and(activation, moves, groups, lanes, instruction)
        found.append((slot, whole))
    return found


def _mask_of_and(
    activation: Activation, moves: Flow, groups: list[list[Array]], lanes: Lanes, instruction: PtxInstruction
) -> Array:
    """Return the unknown bits after `and`: a bit is known where the other operand is known to be zero."""
    keep = np.full((1, 1), 2**64 - 1, np.uint64)
    for operand, group, unknown in zip(instruction.operands[1:], moves.operands, groups, strict=True):
        if group:
            keep = keep & (_read(activation, group[0], lanes).astype(np.uint64) | unknown[0].astype(np.uint64))
        elif isinstance(operand, Immediate):
            keep = keep & np.uint64(operand.bits & (2**64 - 1))
    return keep


def _read(activation: Activation, slot: int, lanes: Lanes) -> Array:
    value = activation.registers[slot]
    return np.zeros((1, 1), np.uint32) if value is None else lanes.read(value)


def _moved(
    resident: Resident, activation: Activation, lanes: Lanes, moves: Flow, step: Step, which: tuple[int, ...] | None
) -> list[tuple[int, Array]]:
    """Return the unknown bits after a permutation of bits, by executing the instruction on them."""
    registers, owned = activation.registers, activation.owned
    activation.registers, activation.owned = list(registers), [False] * len(owned)
    sources = moves.operands if which is None else [moves.operands[n] for n in which if n < len(moves.operands)]
    for group in sources:
        for slot in group:
            value = registers[slot]
            kind = np.dtype(np.uint32) if value is None else value.dtype
            held = activation.taint.get(slot)
            activation.registers[slot] = np.zeros((1, 1), kind) if held is None else held.bits.astype(kind)
    try:
        step(resident, activation, lanes)
        results = [(slot, activation.registers[slot]) for slot in moves.results]
    finally:
        activation.registers, activation.owned = registers, owned
    return [(slot, lanes.read(value)) for slot, value in results if value is not None]


def _mark(activation: Activation, slot: int, bits: Array, lanes: Lanes, origins: frozenset[Origin]) -> None:
    taint = activation.taint
    old = taint.get(slot)
    if old is None and not bits.any():
        return
    whole = np.zeros(lanes.extent, np.uint64)
    if old is not None:
        whole[...] = old.bits
        origins = origins | old.origins
    lanes.write(whole, bits.astype(np.uint64))
    if whole.any():
        taint[slot] = Taint(whole, origins)
    else:
        taint.pop(slot, None)


def _clear(taint: dict[int, Any], slot: int, lanes: Lanes) -> None:
    held = taint.get(slot)
    if held is None:
        return
    bits = held.bits.copy()
    lanes.write(bits, np.zeros((1, 1), np.uint64))
    if bits.any():
        taint[slot] = Taint(bits, held.origins)
    else:
        del taint[slot]
