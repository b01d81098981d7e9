"""The record of one mutation: its kind, its place, and the edits that plant it."""

from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.source.text import Edit, apply_edits


class Bug(StrEnum):
    """The kinds of bugs, each a mistake that people and models make."""

    DROPPED_GUARD = "dropped bounds check"
    DROPPED_BARRIER = "dropped barrier"
    OFF_BY_ONE = "off-by-one bound"
    DROPPED_TAIL = "dropped last tile"
    NARROW_ACCUMULATOR = "too narrow an accumulator"
    SWAPPED_INDEX = "swapped index"
    WRONG_STRIDE = "wrong stride"
    UNINITIALISED_SHARED = "uninitialised shared memory"
    WRONG_START = "wrong initial value"
    WRONG_FILL = "wrong value for masked elements"
    DROPPED_TERM = "dropped term or factor"
    LOST_ATOMIC = "atomic made plain"


@dataclass(frozen=True, slots=True)
class Mutation:
    """A bug planted at one place of a kernel file.

    Attributes:
        bug: its kind.
        function: the function that contains it, as the file names it.
        line: where, from 1.
        what: the change in a few words, in the file's own terms: `i < n` → `true`.
        edits: of the file's text.
    """

    bug: Bug
    function: str
    line: int
    what: str
    edits: tuple[Edit, ...]

    def applied_to(self, text: str) -> str:
        """Return the text with the bug planted."""
        return apply_edits(text, self.edits)
