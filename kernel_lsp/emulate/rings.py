"""Counts what the phases of mbarriers bring: the stages of a pipeline, and their bytes.

Worker-only: imports numpy. One line of a producer announces the bytes of all stages of a ring to one mbarrier each.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from numpy.typing import NDArray

from kernel_lsp.emulate.counters import Site
from kernel_lsp.emulate.program import Immediate, Location

Array: TypeAlias = NDArray[Any]


@dataclass(frozen=True, slots=True)
class Ring:
    """The mbarriers to which one place announces bytes.

    Attributes:
        place: the announcement; None if the machine code names no place.
        stages: their number.
        stage_bytes: the most that one phase brings.
        fills: phases that brought bytes, in all blocks.
    """

    place: Location | None
    stages: int
    stage_bytes: int
    fills: int


@dataclass(frozen=True, slots=True)
class RegisterShare:
    """The registers of some warps after `setmaxnreg`.

    Attributes:
        place: the instruction; None if the machine code names no place.
        registers: for each thread.
        warps: that executed it, of all blocks.
    """

    place: Location | None
    registers: int
    warps: int


class RingTally:
    """The phases of a launch's mbarriers that brought bytes."""

    def __init__(self) -> None:
        self._most: dict[Location | None, dict[int, int]] = {}
        self._fills: dict[Location | None, int] = {}

    def add(self, site: Site, address: int, amounts: Array) -> None:
        """Record phases that have ended.

        Args:
            site: who announced bytes to the last of them.
            address: of the mbarrier, in shared memory.
            amounts: bytes of each.
        """
        stages = self._most.setdefault(site.place, {})
        stages[address] = max(stages.get(address, 0), int(amounts.max()))
        self._fills[site.place] = self._fills.get(site.place, 0) + len(amounts)

    def rings(self) -> tuple[Ring, ...]:
        """Return a ring for each place that announced bytes."""
        return tuple(
            Ring(place, len(stages), max(stages.values()), self._fills[place]) for place, stages in self._most.items()
        )


def register_shares(sites: list[Site]) -> tuple[RegisterShare, ...]:
    """Return what `setmaxnreg` gave to warps in a launch, by place and number of registers."""
    found: dict[tuple[Location | None, int], int] = {}
    for site in sites:
        if site.instruction.opcode.startswith("setmaxnreg.") and (warps := site.counters.instructions):
            (count,) = site.instruction.operands
            assert isinstance(count, Immediate), "the ISA takes no register there"
            key = site.place, count.bits
            found[key] = found.get(key, 0) + warps
    return tuple(RegisterShare(*key, warps) for key, warps in found.items())
