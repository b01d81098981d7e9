"""Barriers of a block: which threads wait at each, and when they continue; and fences.

Worker-only: imports numpy.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.decode import Decoder, Step, Successors
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.program import Negated, PtxInstruction, Register
from kernel_lsp.emulate.registers import Activation, Store

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]


@dataclass(slots=True)
class _Waiting:
    """A group of threads at a barrier; `values` are the predicates of a reduction."""

    activation: Activation
    following: int
    lanes: Lanes
    site: Site
    arrives_only: bool
    values: Array | None
    store: Store | None
    operation: str


class Barriers:
    """The barriers of the resident blocks."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._waiting: dict[int, list[_Waiting]] = {}
        self._counts: dict[int, int] = {}
        self._expected: dict[int, Array] = {}

    def __bool__(self) -> bool:
        """Return True if any thread waits."""
        return any(not each.arrives_only for waiting in self._waiting.values() for each in waiting)

    def arrive(self, number: int, count: int | None, waiting: _Waiting, whole_warps: bool) -> Successors:
        """Let threads arrive at barrier `number`; return the threads that can now continue."""
        resident = self._resident
        self._counts[number] = count or 0
        expected = self._expected.setdefault(number, np.zeros(resident.extent, np.bool_))
        if count is None and whole_warps:
            rows = np.zeros(resident.extent[0], np.bool_)
            rows[waiting.lanes.to_mask().any(axis=1)] = True
            first = rows & ~expected.any(axis=1)
            expected[first] = resident.alive[first]
        self._waiting.setdefault(number, []).append(waiting)
        going = self.release()
        if waiting.arrives_only:
            going.append((waiting.activation, waiting.following, waiting.lanes, False))
        return going

    def release(self) -> Successors:
        """Release and return the threads whose barrier is complete."""
        going: Successors = []
        for number in list(self._waiting):
            going += self._release(number)
        return going

    def _release(self, number: int) -> Successors:
        resident, waiting = self._resident, self._waiting[number]
        masks = [each.lanes.to_mask() for each in waiting]
        arrived = np.logical_or.reduce(masks)
        count = self._counts[number]
        if count:
            # Arrivals are counted, not threads: a warp that has arrived may wait as well, and counts twice.
            times = np.zeros((resident.extent[0], -(-resident.extent[1] // WARP) * WARP), np.int64)
            times[:, : resident.extent[1]] = np.sum(masks, axis=0)
            complete = times.reshape(len(times), -1, WARP).max(axis=2).sum(axis=1) * WARP >= count
        else:
            complete = arrived.any(axis=1) & ~(resident.alive & ~arrived).any(axis=1)
        if not complete.any():
            return []
        through = arrived & complete[:, None]
        self._judge(number, waiting, masks, through, complete)
        if resident.check:
            resident.shared_shadow.clocks.barrier(through)
        reduced = _reduced(waiting, masks, through) if waiting[0].store is not None else None
        going: Successors = []
        left: list[_Waiting] = []
        for each, mask in zip(waiting, masks, strict=True):
            goes = Lanes.of(mask & complete[:, None])
            stays = Lanes.of(mask & ~complete[:, None])
            if goes is not None and not each.arrives_only:
                if each.store is not None and reduced is not None:
                    each.store(each.activation, goes.read(reduced), goes)
                going.append((each.activation, each.following, goes, False))
            if stays is not None:
                each.lanes = stays
                left.append(each)
        if left:
            self._waiting[number] = left
        else:
            del self._waiting[number]
        self._expected[number][complete] = False
        return going

    def _judge(self, number: int, waiting: list[_Waiting], masks: list[Array], through: Array, complete: Array) -> None:
        """Report threads that did not arrive although they were awaited, and warps split over different barriers."""
        expected = self._expected[number] & complete[:, None]
        missing = Lanes.of(expected & ~through) if expected.any() else None
        first = next(each for each, mask in zip(waiting, masks, strict=True) if mask[complete].any())
        if missing is not None:
            message = "{who} ends without the barrier at which other threads of its block wait"
            self._resident.reports.about_lanes(FindingKind.DIVERGENT_BARRIER, first.site, message, missing)
            return
        places = {each.site.index for each, mask in zip(waiting, masks, strict=True) if mask[complete].any()}
        if len(places) < 2 or not expected.any():
            return
        columns = np.arange(through.shape[1]) // WARP
        at = np.zeros(through.shape, np.int64)
        for each, mask in zip(waiting, masks, strict=True):
            at[mask & complete[:, None]] = each.site.index + 1
        for warp in range(int(columns[-1]) + 1):
            mine = at[:, columns == warp]
            split = ((mine > 0) & (mine != mine.max(axis=1, keepdims=True))).any(axis=1)
            if split.any():
                row = int(split.argmax())
                lower = int(at[row, columns == warp].min())
                site = next(each.site for each in waiting if each.site.index + 1 >= lower)
                mask = np.zeros(through.shape, np.bool_)
                mask[row, columns == warp] = mine[row] > 0
                lanes = Lanes.of(mask)
                assert lanes is not None
                message = "the warp of {who} waits at different barriers"
                self._resident.reports.about_lanes(FindingKind.DIVERGENT_BARRIER, site, message, lanes)
                return

    def give_up(self) -> None:
        """Report and end the waiting threads, since no other can arrive any more."""
        for number, waiting in self._waiting.items():
            for each in waiting:
                if each.arrives_only:
                    continue
                message = f"{{who}} waits at barrier {number} for threads that never come"
                self._resident.reports.about_lanes(FindingKind.DEADLOCK, each.site, message, each.lanes)
                self._resident.leave(each.lanes)
        self._waiting.clear()


def _reduced(waiting: list[_Waiting], masks: list[Array], through: Array) -> Array:
    """Return the result of `bar.red` for each block, (blocks, 1)."""
    values = np.zeros(through.shape, np.bool_)
    for each, mask in zip(waiting, masks, strict=True):
        if each.values is not None:
            whole = np.zeros(through.shape, np.bool_)
            each.lanes.write(whole, each.values)
            values |= whole & mask
    operation = waiting[0].operation
    if operation == "popc":
        return (values & through).sum(axis=1, keepdims=True).astype(np.uint32)
    if operation == "and":
        return np.asarray((values | ~through).all(axis=1, keepdims=True))
    return np.asarray((values & through).any(axis=1, keepdims=True))


def bind_barriers(decoder: Decoder, instruction: PtxInstruction, site: Site) -> Step | None:
    """Bind barriers of a block and memory fences."""
    parts = instruction.parts
    if parts[0] in ("membar", "fence"):
        if "proxy" in parts:
            return _bind_proxy_fence(parts)
        return _bind_fence(parts[-1])
    if parts[0] not in ("bar", "barrier") or "warp" in parts or "cluster" in parts:
        return None
    words = [part for part in parts[1:] if part not in ("cta", "aligned")]
    whole_warps = parts[0] == "bar" or "aligned" in parts
    if words[0] == "sync":
        return _bind_barrier(decoder, instruction, site, whole_warps, False, "")
    if words[0] == "arrive":
        return _bind_barrier(decoder, instruction, site, whole_warps, True, "")
    if words[0] == "red":
        return _bind_barrier(decoder, instruction, site, whole_warps, False, words[1])
    return None


def _bind_barrier(
    decoder: Decoder, instruction: PtxInstruction, site: Site, whole_warps: bool, arrives_only: bool, operation: str
) -> Step:
    operands = list(instruction.operands)
    store = decoder.store(operands.pop(0)) if operation else None
    predicate = None
    if operation:
        last = operands.pop()
        assert isinstance(last, Register | Negated)
        predicate = decoder.fetch(last, "pred")
    fetches = [decoder.fetch(each, "u32") for each in operands]
    following = decoder.position + 1

    def barrier(resident: Resident, activation: Activation, lanes: Lanes) -> Successors | None:
        read = [fetch(resident, activation, lanes) for fetch in fetches]
        number, *counts = (int(lanes.select(value).flat[0]) for value in read)
        alike = np.ones((1, 1), np.bool_)
        for value, first in zip(read, (number, *counts), strict=True):
            alike = alike & (value == first)
        mine, others = lanes.where(alike)
        assert mine is not None
        if others is None:
            return meet(resident, activation, mine, number, *counts)
        if mine.warps + others.warps != lanes.warps:
            raise NeedsGpu("a barrier whose number differs within a warp")
        going = (meet(resident, activation, mine, number, *counts), barrier(resident, activation, others))
        return [each for part in going for each in part or ()]

    def meet(
        resident: Resident, activation: Activation, lanes: Lanes, number: int, count: int | None = None
    ) -> Successors | None:
        everyone = count in (None, -(-resident.extent[1] // WARP) * WARP) and resident.are_all(lanes)
        if everyone and not operation and not arrives_only:
            if resident.check:
                resident.shared_shadow.clocks.whole_barrier(lanes)
            return None
        values = predicate(resident, activation, lanes) if predicate else None
        waiting = _Waiting(activation, following, lanes, site, arrives_only, values, store, operation)
        return resident.barriers.arrive(number, count, waiting, whole_warps)

    return barrier


def _bind_fence(scope: str) -> Step:
    def fence(resident: Resident, _: Activation, lanes: Lanes) -> None:
        if resident.check:
            release(resident, lanes, scope == "cta")

    return fence


def _bind_proxy_fence(parts: tuple[str, ...]) -> Step:
    """Bind `fence.proxy`: that of the async proxy makes what threads did visible to bulk copies and tensor cores."""
    concerned = parts[2].partition("::")[0] == "async"

    def fence(resident: Resident, _: Activation, lanes: Lanes) -> None:
        if resident.check and concerned:
            resident.shared_shadow.clocks.proxy_fence(lanes)

    return fence


def release(resident: Resident, lanes: Lanes, within_block: bool) -> None:
    """Make the memory accesses of these threads visible to others."""
    resident.shared_shadow.clocks.release(lanes)
    if not within_block:
        resident.global_shadow.fence(np.unique(resident.geometry.numbers[lanes.row_ids]))
