"""Detects races: keeps the last accesses to each byte, and whether they are ordered with the present one.

Worker-only: imports numpy. Shared memory is followed by thread, with the clocks of warps (`clocks`). Global memory is
followed by block: what two blocks do is unordered unless one has fenced after it and the other has looked at an atomic
or volatile value since.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.clocks import Clocks
from kernel_lsp.emulate.lanes import WARP, Lanes
from kernel_lsp.emulate.memory import Buffer

Array: TypeAlias = NDArray[Any]

_THREADS = 24  # bits of a stamp that tell the thread or agent, and whether it was a strong access
_STRONG = 1 << 23
_PENDING = np.int64(1) << 62  # the clock of a copy that is still under way


@dataclass(frozen=True, slots=True)
class Conflict:
    """Two unordered accesses: `position` in the present access, the earlier one's site, and its thread.

    Attributes:
        pending: the earlier one is a `cp.async` that has not been waited for.
        agent: the earlier one is by a bulk copy or `wgmma`, and `thread` tells nothing.
        unfenced: they are ordered, but without the proxy fence that they need.
        row: of the earlier thread's block; None if it is the one whose memory it is.
    """

    position: int
    before: str
    site: int
    thread: int
    count: int
    pending: bool = False
    agent: bool = False
    unfenced: bool = False
    row: int | None = None


@dataclass(frozen=True, slots=True)
class Issue:
    """Threads that tell an agent to access shared memory, (threads,) each.

    Attributes:
        rows: the block whose memory it is.
        owners, columns: the thread.
    """

    rows: Array
    owners: Array
    columns: Array


@dataclass(frozen=True, slots=True)
class Outlived:
    """An access of another block's shared memory that may come after that block's end.

    Attributes:
        row, address: the place.
        site: the instruction.
        owner, column: the thread.
        access: `read` or `write`.
    """

    row: int
    address: int
    site: int
    owner: int
    column: int
    access: str


class SharedShadow:
    """The last accesses to each grain of the blocks' shared memory.

    As long as all blocks do the same, one row stands for all of them.
    """

    def __init__(self, blocks: int, size: int, grain: int, threads: int, cluster: int = 1) -> None:
        self.grain = grain
        self._blocks = blocks
        self.clocks = Clocks(blocks, -(-threads // WARP), cluster)
        cells = -(-size // grain)
        # A stamp is clock << 24 | strong << 23 | thread + 1; 0 is no access. Sites are kept beside it. Threads are
        # numbered as the columns of their warps are. The number of an agent is that of its column's first thread.
        self._writer = np.zeros((1, cells), np.int64)
        self._writer_site = np.zeros((1, cells), np.int32)
        self._readers = np.zeros((2, 1, cells), np.int64)  # the last one in lane order, and the first
        self._reader_site = np.zeros((1, cells), np.int32)
        # Instructions that initialise an mbarrier: what they write needs no proxy fence, as copies signal it at once.
        self.barrier_sites: set[int] = set()
        if cluster > 1:
            self._expand()

    def _expand(self) -> None:
        self.clocks.expand()
        if len(self._writer) == self._blocks:
            return
        for name in ("_writer", "_writer_site", "_reader_site"):
            setattr(self, name, np.repeat(getattr(self, name), self._blocks, axis=0))
        self._readers = np.repeat(self._readers, self._blocks, axis=1)

    def _place(self, addresses: Array, size: int, lanes: Lanes) -> tuple[Array, Array, Array, Array]:
        """Return rows, cells, threads and clocks of each grain touched; the last axis is the grains of one access."""
        alike = lanes.mask is None and addresses.shape[0] == 1 and lanes.shape[0] == self._blocks
        grains = max(1, size // self.grain)
        if alike and len(self._writer) == len(self.clocks.now) == 1:
            cells = np.broadcast_to(addresses, (1, lanes.shape[1])).astype(np.int64)
            rows, columns = np.zeros((1, 1), np.intp), lanes.column_ids[None, :]
        elif lanes.mask is None:
            self._expand()
            cells = np.broadcast_to(addresses, lanes.shape).astype(np.int64)
            rows, columns = lanes.row_ids[:, None], lanes.column_ids[None, :]
        else:
            self._expand()
            cells = addresses.astype(np.int64)
            rows, columns = np.divmod(lanes.lane_ids, lanes.extent[1])
        clock = self.clocks.now[rows, columns >> 5]
        cells = (cells // self.grain)[..., None] + np.arange(grains)
        return rows[..., None], cells, columns[..., None], clock[..., None]

    def _numbers(self, rows: Array, columns: Array) -> Array:
        """Return the threads' numbers among those of their cluster."""
        return columns if self.clocks.cluster == 1 else rows % self.clocks.cluster * self.clocks.warps * WARP + columns

    def _beside(self, stamps: Array, rows: Array, columns: Array, strong: bool) -> Array:
        """Return True for earlier accesses by another thread that are unordered with one of now.

        `rows` and `columns` tell the block and the thread that makes it.
        """
        threads = (stamps & (_STRONG - 1)) - 1
        suspect: Array = (stamps != 0) & (threads != self._numbers(rows, columns))
        if strong:
            suspect &= stamps & _STRONG == 0
        if suspect.any():
            known = self.clocks.known[0, rows, columns >> 5, np.maximum(threads, 0) >> 5]
            suspect &= stamps >> _THREADS > known
        return suspect

    def read(
        self, addresses: Array, size: int, lanes: Lanes, site: int, strong: bool
    ) -> tuple[Conflict | None, Array | None]:
        """Record reads; return their races, and the reads of unwritten bytes."""
        rows, cells, columns, clock = self._place(addresses, size, lanes)
        writer = self._writer[rows, cells]
        fresh = writer == 0
        unwritten = fresh.any(axis=-1) if fresh.any() else None
        pending = writer >= _PENDING
        conflict = self._conflict(self._beside(writer, rows, columns, strong), writer, rows, cells, "write")
        if conflict is None and pending.any():
            conflict = self._conflict(pending, writer, rows, cells, "write")
        stamp = self._stamps(clock, rows, columns, strong, cells.shape)
        flat = (np.broadcast_to(rows, cells.shape) * self._writer.shape[1] + cells).ravel()
        self._readers[0].reshape(-1)[flat] = stamp.ravel()
        self._readers[1].reshape(-1)[flat[::-1]] = stamp.ravel()[::-1]
        self._reader_site.reshape(-1)[flat] = site
        return conflict, unwritten

    def write(
        self, addresses: Array, size: int, lanes: Lanes, site: int, strong: bool, pending: bool = False
    ) -> Conflict | None:
        """Record writes; return their races."""
        rows, cells, columns, clock = self._place(addresses, size, lanes)
        writer = self._writer[rows, cells]
        conflict = self._conflict(self._beside(writer, rows, columns, strong), writer, rows, cells, "write")
        for readers in self._readers:
            if conflict is None:
                stamps = readers[rows, cells]
                conflict = self._conflict(self._beside(stamps, rows, columns, strong), stamps, rows, cells, "read")
        if pending:
            clock = np.full_like(clock, _PENDING >> _THREADS)
        flat = (np.broadcast_to(rows, cells.shape) * self._writer.shape[1] + cells).ravel()
        stamp = self._stamps(clock, rows, columns, strong, cells.shape)
        self._writer.reshape(-1)[flat] = stamp.ravel()
        self._writer_site.reshape(-1)[flat] = site
        return conflict

    def land(self, addresses: Array, size: int, lanes: Lanes) -> None:
        """Record asynchronous copies that have been waited for, as writes of now."""
        rows, cells, columns, clock = self._place(addresses, size, lanes)
        stamp = self._stamps(clock, rows, columns, False, cells.shape)
        self._writer[np.broadcast_to(rows, cells.shape), cells] = stamp

    def _stamps(self, clock: Array, rows: Array, columns: Array, strong: bool, shape: tuple[int, ...]) -> Array:
        stamps = clock << _THREADS | (_STRONG if strong else 0) | self._numbers(rows, columns) + 1
        return np.broadcast_to(stamps, shape)

    def from_afar(
        self, issue: Issue, addresses: Array, size: int, site: int, *, writes: bool, strong: bool = False
    ) -> Conflict | None:
        """Record accesses of `size` bytes, (threads,) each, in the memory of other blocks of the cluster.

        Args:
            issue: the threads, and in which block's memory.
            addresses: in shared memory.
            size: bytes of each access.
            site: the instruction.
            writes: whether it writes.
            strong: whether it is atomic.

        Returns:
            The first race.
        """
        rows, owners, columns = issue.rows[:, None], issue.owners[:, None], issue.columns[:, None]
        cells = (addresses // self.grain)[:, None] + np.arange(max(1, size // self.grain))
        where = np.broadcast_to(rows, cells.shape), cells
        stamps = self._writer[where]
        conflict = self._conflict(self._beside(stamps, owners, columns, strong), stamps, rows, cells, "write")
        for readers in self._readers if writes else ():
            if conflict is None:
                stamps = readers[where]
                conflict = self._conflict(self._beside(stamps, owners, columns, strong), stamps, rows, cells, "read")
        stamp = self._stamps(self.clocks.now[owners, columns >> 5], owners, columns, strong, cells.shape)
        if writes:
            self._writer[where], self._writer_site[where] = stamp, site
        else:
            self._readers[0][where] = stamp
            self._readers[1][where] = stamp
            self._reader_site[where] = site
        return conflict

    def outlived(self) -> list[Outlived]:
        """Return the accesses by other blocks that nothing orders before a block's end, one for each instruction."""
        if self.clocks.cluster == 1:
            return []
        threads, known = self.clocks.warps * WARP, self.clocks.known[0].max(axis=1)
        found: dict[int, Outlived] = {}
        for access, stamps, sites in (
            ("write", self._writer, self._writer_site),
            *(("read", readers, self._reader_site) for readers in self._readers),
        ):
            numbers, rows = (stamps & (_STRONG - 1)) - 1, np.arange(len(stamps))[:, None]
            foreign = (stamps != 0) & (numbers < self.clocks.width * WARP)
            foreign &= numbers // threads != rows % self.clocks.cluster
            late = foreign & (stamps >> _THREADS > known[rows, np.maximum(numbers, 0) >> 5])
            for site in np.unique(sites[late]):
                row, cell = (int(each) for each in np.argwhere(late & (sites == site))[0])
                rank, column = divmod(int(numbers[row, cell]), threads)
                owner = row // self.clocks.cluster * self.clocks.cluster + rank
                found.setdefault(int(site), Outlived(row, cell * self.grain, int(site), owner, column, access))
        return [found[site] for site in sorted(found)]

    def by_agent(
        self,
        issue: Issue,
        addresses: Array,
        size: int,
        agent: int,
        clock: Array,
        site: int,
        writes: bool,
        *,
        home: Array | None = None,
        fenced: bool = True,
        adds: bool = False,
    ) -> Conflict | None:
        """Record that an agent reads or writes `size` bytes at each of the addresses (threads, accesses) from now on.

        Args:
            issue: who tells it to, and in which block's memory.
            addresses: in shared memory.
            size: bytes of each access.
            agent: its column in the clocks, as `Clocks.agent` returned it.
            clock: the time (threads,) of the agent until which the access may last.
            site: the instruction.
            writes: whether it writes.
            home: the block (threads,) whose agent it is; None if it is the one whose memory it is.
            fenced: whether it is of the async proxy, so that writes of threads before it need a proxy fence.
            adds: whether the order of its accesses among themselves does not matter.

        Returns:
            The first race, whose `position` is that in `addresses`, flat.
        """
        self._expand()
        rows = issue.rows[:, None, None]
        cells = (addresses // self.grain)[..., None] + np.arange(max(1, size // self.grain))
        number = (agent + (rows if home is None else home[:, None, None]) % self.clocks.cluster) * WARP
        before = [("write", self._writer), *(("read", readers) for readers in self._readers if writes)]
        conflict = None
        for access, earlier in before:
            if conflict is None:
                stamps = earlier[rows, cells]
                if adds:
                    stamps = np.where((stamps & (_STRONG - 1)) - 1 == number, 0, stamps)
                conflict = self._before_agent(stamps, rows, cells, issue, access, fenced)
        stamp = np.broadcast_to(clock[:, None, None] << _THREADS | number + 1, cells.shape)
        where = np.broadcast_to(rows, cells.shape), cells
        if writes:
            self._writer[where] = stamp
            self._writer_site[where] = site
        else:
            self._readers[0][where] = stamp
            self._reader_site[where] = site
        return conflict

    def _before_agent(
        self, stamps: Array, rows: Array, cells: Array, issue: Issue, before: str, fenced: bool
    ) -> Conflict | None:
        """Return an earlier access that the issuing warp does not know of, or that no proxy fence stands behind."""
        threads = (stamps & (_STRONG - 1)) - 1
        earlier = stamps != 0
        if not earlier.any():
            return None
        owners, columns = issue.owners[:, None, None], issue.columns[:, None, None]
        column, clock = np.maximum(threads, 0) >> 5, stamps >> _THREADS
        known = self.clocks.known[:, owners, columns >> 5, column]
        unordered = earlier & (clock > known[0]) & (threads != self._numbers(owners, columns))
        conflict = self._conflict(unordered, stamps, rows, cells, before)
        if conflict is not None or before == "read" or not fenced:
            return conflict
        unfenced = earlier & (clock > known[1]) & (threads < self.clocks.width * WARP)
        if self.barrier_sites:
            unfenced &= ~np.isin(self._writer_site[rows, cells], list(self.barrier_sites))
        conflict = self._conflict(unfenced, stamps, rows, cells, before)
        return conflict and replace(conflict, unfenced=True)

    def forget(self, rows: Array, addresses: Array, size: int) -> None:
        """Record that nobody has written `size` bytes at these places, (places,) each."""
        self._writer[rows[:, None], (addresses // self.grain)[:, None] + np.arange(max(1, size // self.grain))] = 0

    def untouched(self, rows: Array, addresses: Array, size: int) -> Array:
        """Return, for addresses (threads, accesses), where nothing has written some of the `size` bytes."""
        self._expand()
        cells = (addresses // self.grain)[..., None] + np.arange(max(1, size // self.grain))
        return np.asarray((self._writer[rows[:, None, None], cells] == 0).any(axis=-1))

    def last_writer(self, rows: Array, addresses: Array) -> Array:
        """Return the instructions that wrote places last, (places,) each, of which all have been written."""
        self._expand()
        return np.asarray(self._writer_site[rows, addresses // self.grain])

    def copied_since(self, row: int, address: int) -> int | None:
        """Return the copy or other agent's instruction that wrote a place last; None if it was none."""
        row = row if len(self._writer) > 1 else 0
        stamp = int(self._writer[row, address // self.grain])
        agent = (stamp & (_STRONG - 1)) > self.clocks.width * WARP
        return int(self._writer_site[row, address // self.grain]) if agent else None

    def _conflict(self, beside: Array, stamps: Array, rows: Array, cells: Array, before: str) -> Conflict | None:
        if not beside.any():
            return None
        position = int(np.flatnonzero(beside.ravel())[0])
        row, cell = (int(np.broadcast_to(x, beside.shape).ravel()[position]) for x in (rows, cells))
        sites = self._writer_site if before == "write" else self._reader_site
        stamp = int(stamps.ravel()[position])
        thread, cluster = (stamp & (_STRONG - 1)) - 1, self.clocks.cluster
        agent, rank = thread >= self.clocks.width * WARP, thread // (self.clocks.warps * WARP)
        return Conflict(
            position // beside.shape[-1],
            before,
            int(sites[row, cell]),
            thread - (0 if agent else rank * self.clocks.warps * WARP),
            int(np.count_nonzero(beside)),
            stamp >= int(_PENDING),
            agent,
            row=None if agent or cluster == 1 else row // cluster * cluster + rank,
        )


_EARLIER = {"earlier": "read"}


class GlobalShadow:
    """The last accesses to each grain of global memory in one launch, by block.

    Args:
        first_stamp: above all stamps of earlier launches. Block b has stamp `first_stamp + 1 + b`; `first_stamp` itself
            stands for several blocks that read the same at once.
        blocks: of the launch.
        grain: bytes tracked together: no access of the program is narrower.
        ordered: True if the program has fences and atomics, so that the times of accesses matter.
    """

    def __init__(self, first_stamp: int, blocks: int, grain: int, ordered: bool) -> None:
        self._first, self.grain, self._timed = first_stamp, grain, ordered
        self.next_stamp = first_stamp + blocks + 1
        self._fenced = np.zeros(blocks, np.int64)
        self._looked = np.zeros(blocks, np.int64)
        self.now = 1
        self._touched: set[Buffer] = set()
        self.written: set[Buffer] = set()

    def fence(self, blocks: Array) -> None:
        """Record a fence of these blocks."""
        self.now += 1
        self._fenced[blocks] = self.now
        self.now += 1

    def look(self, blocks: Array) -> None:
        """Record that these blocks have read an atomic or volatile value."""
        self.now += 1
        self._looked[blocks] = self.now

    def _beside(self, buffer: Buffer, kind: str, where: Any, stamps: Array, mine: Array) -> Array | None:
        """Return True for earlier accesses by other blocks in this launch that are unordered with one of now."""
        foreign = (stamps >= self._first) & (stamps != mine)
        if not foreign.any():
            return None
        if self._timed:
            times = buffer.shadow(f"{kind} time", self.grain)[where].reshape(stamps.shape)
            other = np.maximum(np.where(stamps > self._first, stamps, mine) - self._first - 1, 0)
            own = np.maximum(np.broadcast_to(mine, stamps.shape) - self._first - 1, 0)
            foreign &= ~((self._fenced[other] > times) & (self._looked[own] > times))
            if not foreign.any():
                return None
        return foreign

    def _conflict(
        self, buffer: Buffer, kind: str, where: Any, stamps: Array, mine: Array, apart: Array | None = None
    ) -> Conflict | None:
        beside = self._beside(buffer, kind, where, stamps, mine)
        if beside is not None and apart is not None:
            beside = beside & apart
        if beside is None or not beside.any():
            return None
        position = int(np.flatnonzero(beside.ravel())[0])
        site = int(buffer.shadow(f"{kind} site", self.grain)[where].ravel()[position])
        block = int(stamps.ravel()[position]) - self._first - 1
        return Conflict(position, _EARLIER.get(kind, kind), site, block, int(np.count_nonzero(beside)))

    def _note(self, buffer: Buffer, kind: str, where: Any, stamps: Array, shape: tuple[int, ...], site: int) -> None:
        flat = (-1,) if isinstance(where, slice) else shape
        buffer.shadow(kind, self.grain)[where] = np.broadcast_to(stamps, shape).reshape(flat)
        buffer.shadow(f"{kind} site", self.grain)[where] = site
        if self._timed:
            buffer.shadow(f"{kind} time", self.grain)[where] = self.now
        self._touched.add(buffer)

    def read(
        self, buffer: Buffer, where: Any, blocks: Array | None, shape: tuple[int, ...], site: int, strong: bool
    ) -> Conflict | None:
        """Record reads of grains `where` (a slice or indices, of `shape`); return their races.

        `blocks` is None if several blocks read the same. A strong (volatile) read does not race with atomics.
        """
        mine = np.full((1,) * len(shape), self._first) if blocks is None else blocks + (self._first + 1)
        conflict = None
        for kind in ("write",) if strong else ("write", "atomic"):
            if kind in buffer.shadows:
                stamps = buffer.shadow(kind, self.grain)[where].reshape(shape)
                conflict = conflict or self._conflict(buffer, kind, where, stamps, mine)
        readers = buffer.shadow("read", self.grain)[where].reshape(shape)
        others = (readers >= self._first) & (readers != mine)
        if others.any():  # the last reader of another block is kept beside the last one
            at = (np.arange(where.start, where.stop).reshape(shape) if isinstance(where, slice) else where)[others]
            for kind in ("", " site", " time") if self._timed else ("", " site"):
                buffer.shadow(f"earlier{kind}", self.grain)[at] = buffer.shadow(f"read{kind}", self.grain)[at]
        self._note(buffer, "read", where, mine, shape, site)
        return conflict

    def write(
        self, buffer: Buffer, where: Any, blocks: Array, shape: tuple[int, ...], site: int, changed: Array
    ) -> Conflict | None:
        """Record plain writes; `changed` tells which of them alter the memory. Return their races."""
        mine = blocks + (self._first + 1)
        conflict = None
        for kind in ("write", "atomic", "read", "earlier"):
            if kind in buffer.shadows and conflict is None:
                stamps = buffer.shadow(kind, self.grain)[where].reshape(shape)
                conflict = self._conflict(buffer, kind, where, stamps, mine, changed)
        self._note(buffer, "write", where, mine, shape, site)
        self.written.add(buffer)
        return conflict

    def atomic(self, buffer: Buffer, where: Any, blocks: Array, shape: tuple[int, ...], site: int) -> Conflict | None:
        """Record atomic updates or volatile writes; return their races with plain writes."""
        mine = blocks + (self._first + 1)
        conflict = None
        if "write" in buffer.shadows:
            stamps = buffer.shadow("write", self.grain)[where].reshape(shape)
            conflict = self._conflict(buffer, "write", where, stamps, mine)
        self._note(buffer, "atomic", where, mine, shape, site)
        self.written.add(buffer)
        return conflict

    def touched(self) -> tuple[int, int]:
        """Return the number of distinct bytes read and written in this launch, rounded to grains."""

        def count(*kinds: str) -> int:
            total = 0
            for buffer in self._touched:
                marks = [buffer.shadow(kind, self.grain) >= self._first for kind in kinds if kind in buffer.shadows]
                total += int(np.count_nonzero(np.logical_or.reduce(marks))) * self.grain if marks else 0
            return total

        return count("read", "atomic"), count("write", "atomic")
