"""The mistakes that an emulated run found, at source lines."""

from __future__ import annotations

from dataclasses import dataclass, replace
from enum import StrEnum

from kernel_lsp.emulate.program import Location


class FindingKind(StrEnum):
    """The kinds of mistake that are detected."""

    OUT_OF_BOUNDS = "out-of-bounds"
    MISALIGNED = "misaligned"
    UNINITIALISED = "uninitialised"
    SHARED_RACE = "shared-race"
    GLOBAL_RACE = "global-race"
    DIVERGENT_BARRIER = "divergent-barrier"
    INACTIVE_LANE = "inactive-lane"
    DEADLOCK = "deadlock"
    RUNAWAY = "runaway-loop"
    TRAP = "trap"
    UNAWAITED_COPY = "unawaited-copy"
    OVERWRITTEN_STAGE = "overwritten-stage"
    TRANSACTION_BYTES = "transaction-bytes"
    MISSING_PROXY_FENCE = "missing-proxy-fence"
    MISUSED_MBARRIER = "misused-mbarrier"
    MISMATCHED_SWIZZLE = "mismatched-swizzle"
    UNAWAITED_PRODUCT = "unawaited-product"


@dataclass(frozen=True, slots=True)
class Finding:
    """One mistake at one source line; the values are those of the first thread that made it.

    Attributes:
        kind: its kind.
        message: one sentence with the values that matter.
        location: its place, if the PTX has line information.
        other: the other access of a race, if known.
        space: `global`, `shared`, `local`, `const`; None if it is not about memory.
        access: `read`, `write`, `atomic`; None if it is not about memory.
        buffer: name of the global buffer, or of the nearest one.
        address: in bytes; of shared and local memory relative to their start.
        index: byte offset into `buffer`.
        size: bytes of the access.
        thread: threadIdx of the first thread.
        block: blockIdx of the first thread.
        count: number of times that any thread made it.
    """

    kind: FindingKind
    message: str
    location: Location | None
    other: Location | None = None
    space: str | None = None
    access: str | None = None
    buffer: str | None = None
    address: int | None = None
    index: int | None = None
    size: int | None = None
    thread: tuple[int, int, int] | None = None
    block: tuple[int, int, int] | None = None
    count: int = 1


class FindingCollector:
    """Collects findings, one for each kind, line and buffer."""

    def __init__(self) -> None:
        self._found: dict[tuple[object, ...], Finding] = {}

    def add(self, finding: Finding) -> None:
        """Add a finding; a repetition of its kind at the same place raises the count of the first."""
        key = (finding.kind, finding.location, finding.space, finding.access, finding.buffer)
        known = self._found.get(key)
        self._found[key] = finding if known is None else replace(known, count=known.count + finding.count)

    def __len__(self) -> int:
        return len(self._found)

    def all(self) -> tuple[Finding, ...]:
        """Return the findings, in order of appearance."""
        return tuple(self._found.values())
