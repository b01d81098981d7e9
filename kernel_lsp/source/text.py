"""Spans in UTF-8 bytes, line and column positions from 1, and edits that replace spans."""

import re
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property

_LINE_BREAK = re.compile(rb"\r\n|\n|\r")


@dataclass(frozen=True, slots=True, order=True)
class Span:
    """Half-open range of UTF-8 byte offsets in one text."""

    start: int
    end: int

    def holds(self, other: "Span") -> bool:
        """Return True if `other` lies within this span."""
        return self.start <= other.start and other.end <= self.end


@dataclass(frozen=True, slots=True, order=True)
class Edit:
    """Replace `span` of the old text by `text`."""

    span: Span
    text: str


def apply_edits(text: str, edits: Iterable[Edit]) -> str:
    """Return the text with all `edits` applied at once; spans refer to the old text.

    Raises:
        ValueError: two edits overlap or a span lies outside the text.
    """
    data = text.encode()
    out: list[bytes] = []
    at = 0
    for edit in sorted(edits):
        if not at <= edit.span.start <= edit.span.end <= len(data):
            raise ValueError(f"edit at {edit.span} overlaps another one or lies outside the text")
        out += [data[at : edit.span.start], edit.text.encode()]
        at = edit.span.end
    out.append(data[at:])
    return b"".join(out).decode()


@dataclass(frozen=True)
class Lines:
    r"""Converts offsets to line positions and back. Only ``\r\n``, ``\n`` and ``\r`` end a line, as in the LSP."""

    data: bytes

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """Return the byte offset of the first character of each line."""
        return (0, *(m.end() for m in _LINE_BREAK.finditer(self.data)))

    def position(self, offset: int) -> tuple[int, int]:
        """Return line and column, both from 1, of a byte offset; columns count UTF-8 bytes."""
        line = bisect_right(self.starts, offset)
        return line, offset - self.starts[line - 1] + 1

    def offset(self, line: int, column: int = 1) -> int:
        """Return the byte offset of a line and column, from 1; a column past the end of its line gives the line's
        end.
        """
        start = self.starts[min(max(line, 1), len(self.starts)) - 1]
        end = self.starts[line] if 0 < line < len(self.starts) else len(self.data)
        content = len(self.data[start:end].rstrip(b"\r\n"))
        return start + min(max(column - 1, 0), content)


def between_commas(text: str, opening: str = "([{", closing: str = ")]}") -> list[str]:
    """Return the parts of a text between commas that stand in no bracket, with the blanks around them."""
    parts, depth = [""], 0
    for character in text:
        depth += (character in opening) - (character in closing)
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    return parts


def behind_brackets(text: str, brackets: str = "()") -> int:
    """Return the position behind the bracket that closes the first one of a text; its length if none does."""
    depth = 0
    for at, character in enumerate(text):
        depth += (character == brackets[0]) - (character == brackets[1])
        if depth == 0:
            return at + 1
    return len(text)


def indent_unit(text: str) -> str:
    """Return what a text indents by: a tab where its indented lines begin with tabs, else four blanks."""
    tabs = sum(line.startswith("\t") for line in text.split("\n"))
    return "\t" if tabs > sum(line.startswith("  ") for line in text.split("\n")) else "    "
