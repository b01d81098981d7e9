"""The progress of a search, as the command line and the editor show it."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Best:
    """The best candidate so far; `speedup` and `interval` are baseline over candidate."""

    label: str
    speedup: float
    interval: tuple[float, float]
    confirmed: bool = False


@dataclass(slots=True)
class Talking:
    """The progress of the conversation with a model; `turn` is 0 if there is none.

    Attributes:
        turn: the turn under way, the furthest of all trajectories, from 1.
        turns: how many there may be.
        tokens: generated so far.
        rate: tokens a second while generating, over all trajectories together.
        plan: what the latest second opinion would do; empty without one.
    """

    turn: int = 0
    turns: int = 0
    tokens: int = 0
    rate: float = 0.0
    plan: str = ""


@dataclass(frozen=True, slots=True)
class SearchProgress:
    """One moment of a search.

    Attributes:
        doing: what is done now, a few words: `building 12 candidates`, `racing 4 candidates`, `confirming`.
        proposed: candidates proposed so far.
        built: of these, how many compiled.
        correct: of these, how many were correct.
        raced: of these, how many were timed against the baseline.
        elapsed: seconds since it was asked for.
        budget: seconds it may take.
        best: the best candidate so far.
        talking: the conversation with a model.
    """

    doing: str
    proposed: int
    built: int
    correct: int
    raced: int
    elapsed: float
    budget: float
    best: Best | None = None
    talking: Talking = field(default_factory=Talking)
