"""The cases of a kind that are tried every time; the others are `thorough`."""

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar

import pytest

T = TypeVar("T")


def first_of_each(cases: Iterable[T], kinds: Callable[[T], set[str]]) -> tuple[T, ...]:
    """Return the first case of each kind; a case may be of several."""
    met: set[str] = set()
    found: list[T] = []
    for case in cases:
        if kinds(case) - met:
            met |= kinds(case)
            found.append(case)
    return tuple(found)


def params(cases: Iterable[T], every_time: Collection[T], name: Callable[[T], str]):
    """Return cases as parameters under their names, those marked `thorough` that are not tried every time."""
    return [
        pytest.param(case, id=name(case), marks=() if case in every_time else pytest.mark.thorough) for case in cases
    ]
