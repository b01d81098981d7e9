"""Where a search stands: what the command line and the editor show while it runs."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Best:
    """The best candidate so far; `speedup` and `interval` are baseline over candidate."""

    label: str
    speedup: float
    interval: tuple[float, float]
    confirmed: bool = False


@dataclass(frozen=True, slots=True)
class Progress:
    """One moment of a search.

    Attributes:
        doing: what is done now, a few words: `building 12 candidates`, `racing 4 candidates`, `confirming`.
        proposed: candidates proposed so far.
        built: of these, how many compiled.
        correct: of these, how many were correct.
        raced: of these, how many were timed against the baseline.
        elapsed: seconds since the start.
        budget: seconds the search may take.
        best: the best candidate so far.
    """

    doing: str
    proposed: int
    built: int
    correct: int
    raced: int
    elapsed: float
    budget: float
    best: Best | None = None
