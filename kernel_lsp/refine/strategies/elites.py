"""An archive of approaches, each with the best candidate that takes it: MAP-Elites.

A search that only follows its best candidate polishes the first structure that works. Here the best of every approach
is kept, and any of them may be gone on from: a structure that is slower at first may be the faster one in the end
(Mouret, Clune: Illuminating search spaces by mapping elites, arXiv 1504.04909, algorithm of figure 2).
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.refine.approach import Approach
from kernel_lsp.refine.dialogue.conversation import PastTurn


@dataclass(frozen=True, slots=True)
class Elite:
    """The best candidate of an approach.

    Attributes:
        approach: None where it is not known.
        ratio: its time over that of the user's file; 1 where it is right and was not timed.
        conversation: turns that end in the candidate.
    """

    approach: Approach | None
    ratio: float
    conversation: tuple[PastTurn, ...]


class Archive:
    """The best candidate of each approach. `rng` decides which are gone on from."""

    def __init__(self, rng: random.Random) -> None:
        self._rng = rng
        self._best: dict[Approach | None, Elite] = {}

    @property
    def elites(self) -> Sequence[Elite]:
        """Return what is kept, the fastest first; of equals that which came first."""
        return sorted(self._best.values(), key=lambda one: one.ratio)

    def add(self, elite: Elite) -> bool:
        """Keep a candidate if it is the first of its approach or faster than that; return True if it is kept."""
        known = self._best.get(elite.approach)
        if known is not None and known.ratio <= elite.ratio:
            return False
        self._best[elite.approach] = elite
        return True

    def draw(self, count: int) -> list[Elite]:
        """Return so many to go on from: the fastest, and others drawn with equal chances; empty if there are none."""
        elites = self.elites
        return [elites[0], *self._rng.choices(elites, k=count - 1)] if elites else []
