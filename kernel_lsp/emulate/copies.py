"""`cp.async`: copies from global to shared memory that are under way until they are waited for.

Worker-only: imports numpy. The bytes arrive at once; that they could arrive later shows in the shadow of shared memory,
where the copy is a write of its thread at the time of the wait.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate import access, spaces
from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step
from kernel_lsp.emulate.lanes import Lanes
from kernel_lsp.emulate.memory import raw_type
from kernel_lsp.emulate.program import Address, Immediate, PtxInstruction, Register
from kernel_lsp.emulate.registers import Activation
from kernel_lsp.emulate.transfers import locator

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]


@dataclass(slots=True)
class _Copy:
    addresses: Array
    size: int
    lanes: Lanes
    group: Array


class Copies:
    """The resident threads' copies that have not been waited for."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._under_way: list[_Copy] = []
        self._committed = np.zeros((1, 1), np.int64)  # groups that each thread has closed

    def start(self, addresses: Array, size: int, lanes: Lanes) -> None:
        """Add a copy into shared memory at `addresses` to its threads' open group."""
        self._under_way.append(_Copy(addresses, size, lanes, lanes.read(self._committed)))

    def commit(self, lanes: Lanes) -> None:
        """Close the group of these threads."""
        if lanes.full:
            self._committed = self._committed + 1
            return
        whole = np.zeros(lanes.extent, np.int64)
        whole[...] = self._committed
        lanes.write(whole, lanes.read(whole) + 1)
        self._committed = whole

    def wait(self, pending: int | None, lanes: Lanes) -> None:
        """Wait for all groups but the last `pending`; for all copies, with None."""
        limit = None if pending is None else self._committed - pending
        left: list[_Copy] = []
        for copy in self._under_way:
            arrived, stays = self._arrived(copy, limit, lanes)
            if arrived is not None:
                at = copy.addresses
                if arrived is not copy.lanes:
                    whole = np.zeros(copy.lanes.extent, np.int64)
                    copy.lanes.write(whole, at)
                    at = arrived.read(whole)
                self._resident.shared_shadow.land(arrived.select(at), copy.size, arrived)
            if stays is copy.lanes:
                left.append(copy)
            elif stays is not None:
                whole, groups = np.zeros(copy.lanes.extent, np.int64), np.zeros(copy.lanes.extent, np.int64)
                copy.lanes.write(whole, copy.addresses)
                copy.lanes.write(groups, copy.group)
                left.append(_Copy(stays.read(whole), copy.size, stays, stays.read(groups)))
        self._under_way = left

    def _arrived(self, copy: _Copy, limit: Array | None, lanes: Lanes) -> tuple[Lanes | None, Lanes | None]:
        done: Lanes | None = copy.lanes
        stays: Lanes | None = None
        if limit is not None:
            done, stays = copy.lanes.where(copy.group < copy.lanes.read(limit))
        if done is None or lanes.full:
            return done, stays
        waiting, others = done.where(done.read(lanes.to_mask()))
        if others is not None:
            stays = others if stays is None else stays.joined(others)
        return waiting, copy.lanes if waiting is None else stays


def bind_copies(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind `cp.async` without bulk, and its waits."""
    parts = instruction.parts
    if parts[:2] != ("cp", "async") or len(parts) < 3:
        return None
    if parts[2] == "commit_group":

        def commit(resident: Resident, _: Activation, lanes: Lanes) -> None:
            resident.copies.commit(lanes)

        return commit
    if parts[2] in ("wait_group", "wait_all"):
        pending = None
        if parts[2] == "wait_group":
            (count,) = instruction.operands
            assert isinstance(count, Immediate)
            pending = count.bits

        def wait(resident: Resident, _: Activation, lanes: Lanes) -> None:
            if resident.check:
                resident.copies.wait(pending, lanes)

        return wait
    if parts[2] not in ("ca", "cg"):
        return None
    return _bind_copy(decoder, instruction, site)


def _bind_copy(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    target, source, size, *rest = instruction.operands
    if not (isinstance(target, Address) and isinstance(source, Address) and isinstance(size, Immediate)):
        return None
    hint = "L2::cache_hint" in instruction.parts
    if hint:
        rest = rest[:-1]
    to, origin, width = locator(decoder, target), locator(decoder, source), size.bits
    # The next operand is the number of bytes to read, zeros filling the rest, or a predicate to ignore the source.
    extra = rest[0] if rest else None
    predicate = isinstance(extra, Register) and decoder.function.registers[extra.name] == "pred"
    amount = decoder.fetch(extra, "pred" if predicate else "u32") if extra is not None else None
    element = min(width, 8)
    kind, words = raw_type(element), width // element

    def copy(resident: Resident, activation: Activation, lanes: Lanes) -> None:
        at, source_at = to(resident, activation, lanes), origin(resident, activation, lanes)
        zero = [np.zeros((1, 1), kind) for _ in range(words)]
        if amount is None:
            _put(resident, at, _read(resident, source_at, lanes), lanes)
            return
        wanted = amount(resident, activation, lanes)
        taking = ~wanted if predicate else wanted >= width
        whole, other = lanes.where(taking)
        if whole is not None:
            same = whole is lanes
            there, here = (at, source_at) if same else (_part(at, lanes, whole), _part(source_at, lanes, whole))
            _put(resident, there, _read(resident, here, whole), whole)
        if other is None:
            return
        there = at if other is lanes else _part(at, lanes, other)
        if predicate or not lanes.select(wanted).any() or not other.select(_part(wanted, lanes, other)).any():
            _put(resident, there, zero, other)
            return
        # Only some of the bytes are wanted: they are read one by one.
        counts, here = _part(wanted, lanes, other), _part(source_at, lanes, other)
        values = [value.copy() for value in zero]
        for byte in range(width):
            some, _ = other.where(counts > byte)
            if some is None:
                break
            at_byte = _part(here, other, some) + byte
            loaded = spaces.load(resident, "global", at_byte, np.dtype("u1"), 1, some, site)[0]
            spread = np.zeros(lanes.extent, kind)
            some.write(spread, loaded.astype(kind) << kind.type(8 * (byte % element)))
            values[byte // element] = values[byte // element] | other.read(spread)
        _put(resident, there, values, other)

    def _read(resident: Resident, addresses: Array, lanes: Lanes) -> list[Array]:
        return spaces.load(resident, "global", addresses, kind, words, lanes, site)

    def _put(resident: Resident, addresses: Array, values: list[Array], lanes: Lanes) -> None:
        sound = access.store_shared(resident, addresses, values, lanes, site, pending=resident.check)
        if resident.check and sound is not None:
            resident.copies.start(sound[0], width, sound[1])

    return copy


def _part(value: Array, lanes: Lanes, part: Lanes) -> Array:
    whole = np.zeros(lanes.extent, value.dtype)
    lanes.write(whole, value)
    return part.read(whole)
