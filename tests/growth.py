"""How the time of a function grows with its input: a ratio within one run, which a busy machine changes little."""

import time
from collections.abc import Callable
from typing import TypeVar

_T = TypeVar("_T")
_TRIES = 3


def growth(work: Callable[[_T], object], small: _T, large: _T) -> float:
    """Return how many times the CPU time for `small` that for `large` is, each the least of three."""
    return _seconds(work, large) / _seconds(work, small)


def _seconds(work: Callable[[_T], object], given: _T) -> float:
    taken: list[float] = []
    for _ in range(_TRIES):
        start = time.process_time()
        work(given)
        taken.append(time.process_time() - start)
    return min(taken)
