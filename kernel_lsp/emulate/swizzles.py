"""Compares the swizzle of a matrix descriptor with that of the tensor copy that brought the matrix.

Worker-only: imports numpy.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.emulate.bulk_memory import CHUNK, Copiers
from kernel_lsp.emulate.findings import FindingKind
from kernel_lsp.emulate.tensormap import SWIZZLE_BYTES

if TYPE_CHECKING:
    from kernel_lsp.emulate.resident import Resident

Array: TypeAlias = NDArray[Any]

_MODES = len(SWIZZLE_BYTES)


class Swizzles:
    """The swizzle of each chunk of the resident blocks' shared memory that a tensor copy has written last."""

    def __init__(self, resident: Resident) -> None:
        self._resident = resident
        self._copies: Array | None = None  # (instruction + 1) * modes + swizzle

    def copied(self, rows: Array, places: Array, swizzle: int, site: int) -> None:
        """Record that a tensor copy wrote `places` (copies, elements) in the blocks `rows`, (copies,)."""
        if self._copies is None:
            self._copies = np.zeros((self._resident.extent[0], -(-self._resident.shared_bytes // CHUNK)), np.int64)
        self._copies[rows[:, None], places // CHUNK] = (site + 1) * _MODES + swizzle

    def read(self, copiers: Copiers, places: Array, swizzle: int) -> None:
        """Report `wgmma` that reads `places` (warpgroups, elements) with another swizzle than they were copied with."""
        if self._copies is None:
            return
        chunks = places[:, 0] // CHUNK
        copy, copied = np.divmod(self._copies[copiers.rows, chunks], _MODES)
        last = self._resident.shared_shadow.last_writer(copiers.rows, chunks * CHUNK)
        wrong = np.flatnonzero((copy > 0) & (copy - 1 == last) & (copied != swizzle))
        if not len(wrong):
            return
        first, reports = int(wrong[0]), self._resident.reports
        other = reports.sites[int(copy[first]) - 1].place
        at = f" at line {other.own.line}" if other else ""
        name = reports.shared.named(int(chunks[first]) * CHUNK, 1)
        message = (
            f"what {{who}} starts here reads {name} with {_named(swizzle)}, "
            f"but the copy{at} put it down with {_named(int(copied[first]))}"
        )
        place = int(copiers.owners[first]), int(copiers.columns[first])
        reports.say(
            FindingKind.MISMATCHED_SWIZZLE, copiers.site, message, *place, other=other, space="shared", access="read"
        )


def _named(swizzle: int) -> str:
    return f"a swizzle of {SWIZZLE_BYTES[swizzle]} bytes" if swizzle else "no swizzle"
