"""Identifies threads and blocks of a launch: special registers, and names for messages.

Worker-only: imports numpy.
"""

from __future__ import annotations

import itertools
import random
import time
from dataclasses import dataclass
from math import prod
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.device.device import Device
from kernel_lsp.emulate.errors import NeedsGpu
from kernel_lsp.emulate.lanes import WARP

Array: TypeAlias = NDArray[Any]
Triple: TypeAlias = tuple[int, int, int]

# One value for all threads: no other program runs here, and there are no counters.
_ALIKE = {
    "%reserved_smem_offset_begin": 0,
    "%reserved_smem_offset_end": 0,
    "%reserved_smem_offset_cap": 0,
    "%reserved_smem_offset_0": 0,
    "%reserved_smem_offset_1": 0,
    **{f"%pm{number}": 0 for number in range(8)},
    **{f"%envreg{number}": 0 for number in range(32)},
}
_ALIKE_64 = {"%current_graph_exec": 0, **{f"%pm{number}_64": 0 for number in range(8)}}
_NUMBERS = itertools.count(random.SystemRandom().getrandbits(32))


@dataclass(frozen=True, slots=True)
class Moment:
    """The number of a launch, counted from anywhere, where the clocks stand as it begins, and where it begins to run.

    All are others in each launch, as on a GPU: what a kernel makes of them differs from run to run. `place` is taken
    modulo the number of multiprocessors, on which blocks follow each other.
    """

    number: int
    ticks: int
    place: int

    @classmethod
    def now(cls) -> Moment:
        """Return the moment of the next launch."""
        return cls(next(_NUMBERS), time.time_ns(), random.SystemRandom().getrandbits(32))


@dataclass(frozen=True)
class Geometry:
    """The blocks `first` to `first + rows` of a launch.

    Attributes:
        grid, blocks: blocks of the grid and threads of a block, in x, y, z.
        numbers: linear numbers of the resident blocks, one for each row.
        shared_bytes, dynamic_bytes: shared memory of a block, and the part that the launch requested.
        device: the GPU that it runs on.
        place: the multiprocessor of the launch's first block, modulo their number.
        cluster: blocks of a cluster in x, y, z, whose rows are neighbours; None without clusters.
    """

    grid: Triple
    shape: Triple
    numbers: NDArray[np.int64]
    shared_bytes: int
    dynamic_bytes: int
    device: Device
    place: int = 0
    cluster: Triple | None = None

    @property
    def cluster_size(self) -> int:
        """Return the blocks of a cluster; a launch without clusters has clusters of one block."""
        return prod(self.cluster or (1,))

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return self.shape[0] * self.shape[1] * self.shape[2]

    @property
    def extent(self) -> tuple[int, int]:
        """Return the numbers of rows and columns."""
        return len(self.numbers), self.threads

    def thread(self, column: int) -> Triple:
        """Return threadIdx of a column."""
        return _split(column, self.shape)

    def block(self, row: int) -> Triple:
        """Return blockIdx of a row."""
        return _split(int(self.numbers[row]), self.grid)

    def any_block(self, number: int) -> Triple:
        """Return blockIdx of a linear number."""
        return _split(number, self.grid)

    def registers(self) -> dict[str, Array]:
        """Return the special registers of the PTX ISA that do not change while blocks run, by name."""
        columns = np.arange(self.threads, dtype=np.uint32)[None, :]
        numbers = self.numbers[:, None].astype(np.uint64)
        lane = columns % np.uint32(WARP)
        one = np.uint32(1)
        below = (one << lane) - one
        bit = one << lane
        found: dict[str, Array] = {
            "%laneid": lane,
            "%warpid": columns // np.uint32(WARP),
            "%lanemask_eq": bit,
            "%lanemask_lt": below,
            "%lanemask_le": below | bit,
            "%lanemask_gt": ~(below | bit),
            "%lanemask_ge": ~below,
        }
        launch = {
            "%nsmid": self.device.multiprocessors,
            "%nwarpid": self.device.limits.threads // WARP,
            "%dynamic_smem_size": self.dynamic_bytes,
            "%total_smem_size": self.shared_bytes,
            "%aggr_smem_size": self.shared_bytes,
        }
        found |= {name: np.full((1, 1), value, np.uint32) for name, value in (_ALIKE | launch).items()}
        found |= {name: np.full((1, 1), value, np.uint64) for name, value in _ALIKE_64.items()}
        step_thread, step_block = 1, 1
        for axis, threads, blocks in zip("xyz", self.shape, self.grid, strict=True):
            found[f"%tid.{axis}"] = columns // np.uint32(step_thread) % np.uint32(threads)
            found[f"%ctaid.{axis}"] = (numbers // np.uint64(step_block) % np.uint64(blocks)).astype(np.uint32)
            found[f"%ntid.{axis}"] = np.full((1, 1), threads, np.uint32)
            found[f"%nctaid.{axis}"] = np.full((1, 1), blocks, np.uint32)
            size = np.uint32((self.cluster or (1, 1, 1))["xyz".index(axis)])
            found[f"%clusterid.{axis}"], found[f"%cluster_ctaid.{axis}"] = np.divmod(found[f"%ctaid.{axis}"], size)
            found[f"%nclusterid.{axis}"] = found[f"%nctaid.{axis}"] // size
            found[f"%cluster_nctaid.{axis}"] = np.full((1, 1), size, np.uint32)
            step_thread, step_block = step_thread * threads, step_block * blocks
        multiprocessor = (self.numbers[:, None] + self.place) % self.device.multiprocessors
        found["%smid"] = multiprocessor.astype(np.uint32)
        ranks = np.arange(len(self.numbers), dtype=np.uint32)[:, None] % np.uint32(self.cluster_size)
        found["%cluster_ctarank"] = ranks
        found["%cluster_nctarank"] = np.full((1, 1), self.cluster_size, np.uint32)
        found["%is_explicit_cluster"] = np.full((1, 1), self.cluster is not None)
        return found


def changing(name: str, moment: Moment, steps: int) -> Array:
    """Return the register of a launch's number, or a clock, which ticks once for each instruction executed."""
    if name == "%gridid":
        return np.full((1, 1), moment.number, np.uint64)
    steps += moment.ticks
    if name in ("%clock64", "%globaltimer"):
        return np.full((1, 1), steps, np.uint64)
    if name in ("%clock", "%globaltimer_lo"):
        return np.full((1, 1), steps & 0xFFFFFFFF, np.uint32)
    if name in ("%clock_hi", "%globaltimer_hi"):
        return np.full((1, 1), steps >> 32, np.uint32)
    raise NeedsGpu(f"special register {name}")


def _split(number: int, extent: Triple) -> Triple:
    return number % extent[0], number // extent[0] % extent[1], number // (extent[0] * extent[1])
