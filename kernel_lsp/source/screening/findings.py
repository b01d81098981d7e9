"""Records of what screening finds, and the sets of words that its rules are written with."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Objection:
    """Something that host code has no business with: its version is rejected.

    Attributes:
        line: of the file it stands in, from 1.
        what: what the code does, as the rest of a sentence: "imports `gc`".
    """

    line: int
    what: str


@dataclass(frozen=True, slots=True)
class Note:
    """Something that honest host code does too, and that a reader of the evidence may want to know.

    Attributes:
        line: of the file it stands in, from 1.
        what: what the code does, as the rest of a sentence: "imports `os`".
    """

    line: int
    what: str


Finding = Objection | Note


def words(text: str) -> frozenset[str]:
    """Return the words of `text`."""
    return frozenset(text.split())
