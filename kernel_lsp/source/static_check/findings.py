"""Records of the static checker's findings, and a helper for the word sets of its rules."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self


@dataclass(frozen=True, slots=True)
class Violation:
    """A violation: code that no host code of a kernel needs; its version is rejected.

    Attributes:
        line: of the file that contains it, from 1.
        what: the code's effect, as the rest of a sentence: "imports `gc`".
    """

    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Note:
    """Unusual code that honest host code has too, shown to readers of the evidence.

    Attributes:
        line: of the file that contains it, from 1.
        what: the code's effect, as the rest of a sentence: "imports `os`".
    """

    line: int
    what: str


Finding = Violation | Note


@dataclass(frozen=True, slots=True)
class HostCode:
    """The findings of a candidate's host code, each kind in the order of lines."""

    violations: tuple[Violation, ...]
    notes: tuple[Note, ...]

    @classmethod
    def of(cls, found: Iterable[Finding]) -> Self:
        """Sort findings by their kind."""
        each = tuple(found)
        violations = tuple(one for one in each if isinstance(one, Violation))
        return cls(violations, tuple(one for one in each if isinstance(one, Note)))


def words(text: str) -> frozenset[str]:
    """Return the words of `text`."""
    return frozenset(text.split())
