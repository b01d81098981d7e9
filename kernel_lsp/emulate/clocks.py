"""Tells which accesses of a block are ordered: a vector clock for each warp.

Worker-only: imports numpy. A warp knows of each other warp of its cluster up to which time its accesses come before its
own. A unit that accesses memory later than the instruction that asks for it (a bulk copy, `wgmma`) is an *agent*. It
has a clock of its own that no thread advances: the phases of a barrier, the groups of a thread.

The hardware reads and writes for agents by another path, the async proxy, where stores of threads are visible only
after a proxy fence. So there are two views of a warp's knowledge: of all accesses, and of those before a proxy fence.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.lanes import WARP, Lanes

Array: TypeAlias = NDArray[Any]
Pairs: TypeAlias = tuple[Array, Array]


class Clocks:
    """The clocks of the resident blocks. As long as all blocks do the same, one row stands for all of them.

    Attributes:
        now: (rows, warps), the clocks of the warps.
        known: (1 or 2 views, rows, warps, columns), the clocks that each warp knows: of the warps of all blocks of its
            cluster, one block after the other, and behind them of the agents, each with a column for every block.
        width: columns of warps.
    """

    def __init__(self, blocks: int, warps: int, cluster: int = 1) -> None:
        self._blocks, self.warps, self.cluster, self.width = blocks, warps, cluster, cluster * warps
        rows = 1 if cluster == 1 else blocks
        self.now = np.ones((rows, warps), np.int64)
        self.known = np.zeros((1, rows, warps, self.width), np.int64)
        self._released = self.nothing()

    def columns(self, rows: Array, warps: Array) -> Array:
        """Return the columns in which others know these warps."""
        return warps if self.cluster == 1 else rows % self.cluster * self.warps + warps

    def expand(self) -> None:
        """Give each block a row of its own."""
        if len(self.now) < self._blocks:
            self.now = np.repeat(self.now, self._blocks, axis=0)
            self.known = np.repeat(self.known, self._blocks, axis=1)

    def agent(self) -> int:
        """Add an agent, of which no warp knows anything; return its column in the first block of a cluster."""
        self._two_views()
        self.known = np.pad(self.known, ((0, 0), (0, 0), (0, 0), (0, self.cluster)))
        return self.known.shape[-1] - self.cluster

    def nothing(self) -> Array:
        """Return what is known by somebody who knows nothing: (views, blocks, columns)."""
        return np.zeros((len(self.known), self._blocks, self.known.shape[-1]), np.int64)

    def pairs(self, lanes: Lanes) -> Pairs:
        """Return rows and warps with a thread among `lanes`; each block has its row from now on."""
        return self.pairs_at(*divmod(lanes.lane_ids.ravel(), lanes.extent[1]))

    def pairs_at(self, rows: Array, columns: Array) -> Pairs:
        """Return rows and warps of threads, (threads,) each; each block has its row from now on."""
        self.expand()
        return divmod(np.unique(rows * self.warps + columns // WARP), self.warps)

    def whole_barrier(self, lanes: Lanes) -> None:
        """Record a barrier among all living threads of some blocks."""
        rows: Any = slice(None)
        if lanes.shape[0] != self._blocks:
            self.expand()
            rows = lanes.rows
        if self.known.shape[0] == 1 and self.known.shape[-1] == self.warps:
            self.known[0, rows] = self.now[rows][:, None, :]
        else:
            joint = self.known[:, rows].max(axis=2)
            np.put_along_axis(joint[0], self._own(np.arange(len(self.now))[rows]), self.now[rows], axis=1)
            self.known[:, rows] = joint[:, :, None, :]
        self.now[rows] += 1

    def barrier(self, taking_part: Array) -> None:
        """Record a barrier among some threads, a (blocks, threads) mask."""
        self.expand()
        padded = np.zeros((self._blocks, self.warps * WARP), np.bool_)
        padded[:, : taking_part.shape[1]] = taking_part
        warps: Array = np.logical_or.reduce(padded.reshape(self._blocks, self.warps, WARP), axis=2)
        # From now on each of them knows all that any of them knew, and their present clocks.
        joint = np.where(warps[:, :, None], self.known, 0).max(axis=2, initial=0)
        own = np.where(warps, self.now, 0)
        at = self._own(np.arange(self._blocks))
        np.put_along_axis(joint[0], at, np.maximum(np.take_along_axis(joint[0], at, axis=1), own), axis=1)
        self.known = np.where(warps[:, :, None], np.maximum(self.known, joint[:, :, None, :]), self.known)
        self.now = self.now + warps

    def warp_sync(self, lanes: Lanes) -> None:
        """Record that lanes of each warp have waited for each other."""
        if lanes.mask is None and lanes.shape[0] == self._blocks and len(self.now) == 1:
            warps = np.unique(lanes.column_ids // WARP)
            rows = np.zeros(len(warps), np.intp)
        else:
            rows, warps = self.pairs(lanes)
        self.known[0, rows, warps, self.columns(rows, warps)] = self.now[rows, warps]
        self.now[rows, warps] += 1

    def _own(self, rows: Array) -> Array:
        """Return the columns of all warps of some blocks, (rows, warps)."""
        return np.asarray(rows % self.cluster * self.warps)[:, None] + np.arange(self.warps)

    def give(self, held: Array, pairs: Pairs, to: Array | None = None) -> Array:
        """Return `held`, as `nothing` returns, joined with what these warps know and did; their clocks advance.

        `to` are the blocks, one for each warp, to which they give it; None if to their own.
        """
        rows, warps = pairs
        to = rows if to is None else to
        held = self.fitted(held)
        for view, known in zip(held, self.known, strict=True):
            np.maximum.at(view, to, known[rows, warps])
        np.maximum.at(held[0], (to, self.columns(rows, warps)), self.now[rows, warps])
        self._advance(pairs)
        return held

    def take(self, held: Array, pairs: Pairs) -> None:
        """Let these warps know what somebody gave to `held`."""
        rows, warps = pairs
        self.known[:, rows, warps] = np.maximum(self.known[:, rows, warps], self.fitted(held)[:, rows])

    def _advance(self, pairs: Pairs) -> None:
        rows, warps = pairs
        own = rows, warps, self.columns(rows, warps)
        self.known[0][own] = np.maximum(self.known[0][own], self.now[rows, warps] - 1)
        self.now[rows, warps] += 1

    def fitted(self, held: Array) -> Array:
        """Return `held` with all views and columns that there are by now."""
        missing = [(0, new - old) for new, old in zip(self.known.shape[::3], held.shape[::2], strict=True)]
        return np.pad(held, (missing[0], (0, 0), missing[1])) if any(map(any, missing)) else held

    def release(self, lanes: Lanes) -> None:
        """Record a fence: the accesses of these warps become visible to any warp that acquires later."""
        self._released = self.give(self._released, self.pairs(lanes))

    def acquire(self, lanes: Lanes) -> None:
        """Record an atomic or volatile access: these warps see all released accesses."""
        if self._released.any():
            self.take(self.of_clusters(self._released), self.pairs(lanes))

    def released(self, held: Array, rows: Array) -> Array:
        """Return `held`, as `nothing` returns, joined with what fences have released in these blocks."""
        held, released = self.fitted(held).copy(), self.fitted(self._released)
        held[:, rows] = np.maximum(held[:, rows], released[:, rows])
        return held

    def of_clusters(self, held: Array) -> Array:
        """Return `held`, as `nothing` returns, with what all blocks of a cluster hold in each of its blocks."""
        if self.cluster == 1:
            return held
        joint = held.reshape(len(held), -1, self.cluster, held.shape[-1]).max(axis=2)
        return np.repeat(joint, self.cluster, axis=1)

    def proxy_fence(self, lanes: Lanes) -> None:
        """Record that all that these warps know and did becomes visible to agents."""
        self._two_views()
        rows, warps = pairs = self.pairs(lanes)
        self.known[1, rows, warps] = np.maximum(self.known[1, rows, warps], self.known[0, rows, warps])
        self.known[1, rows, warps, self.columns(rows, warps)] = self.now[rows, warps]
        self._advance(pairs)

    def learn(self, agent: int, pairs: Pairs, clock: Array | int) -> None:
        """Let these warps know that all an agent of their block did up to `clock`, one for each of them, is done."""
        rows, warps = pairs
        column = agent + rows % self.cluster
        self.known[:, rows, warps, column] = np.maximum(self.known[:, rows, warps, column], clock)

    def _two_views(self) -> None:
        if len(self.known) == 1:
            self.known = np.concatenate((self.known, np.zeros_like(self.known)))
