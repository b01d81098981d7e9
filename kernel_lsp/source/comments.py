"""Finds comments that run to the end of their line, and not the strings that only look like them."""

import re
from dataclasses import dataclass

from kernel_lsp.source.text import Lines

_CUDA = re.compile(
    rb"""(?xs) (?P<comment>//[^\r\n]*) | /\*.*?(?:\*/|\Z) | \bR"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\r\n])*" | (?<!\w)'(?:\\.|[^'\\\r\n])*'"""
)
_PYTHON = re.compile(
    rb'''(?xs) (?P<comment>\#[^\r\n]*) | """(?:\\.|[^\\])*?(?:"""|\Z) | \'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)
    | "(?:\\.|[^"\\\r\n])*" | '(?:\\.|[^'\\\r\n])*\''''
)


@dataclass(frozen=True, slots=True, order=True)
class Comment:
    """A comment from its `//` or `#` to the end of its line.

    Attributes:
        line: counted from 1.
        column: of its first character, in UTF-8 bytes from 1.
        text: the whole comment.
        alone: True if only blanks precede it on its line.
    """

    line: int
    column: int
    text: str
    alone: bool


def cuda_comments(text: str, view: str | None = None) -> tuple[Comment, ...]:
    """Return the comments of a CUDA text that run to the end of a line, in order; the text need not be complete.

    Args:
        text: the file.
        view: its CUDA text in its place, where the file is not CUDA as a whole.
    """
    return _comments(_CUDA, text, text if view is None else view)


def python_comments(text: str) -> tuple[Comment, ...]:
    """Return the comments of a Python text, in order; the text need not be complete."""
    return _comments(_PYTHON, text, text)


def _comments(pattern: re.Pattern[bytes], text: str, searched: str) -> tuple[Comment, ...]:
    data = text.encode()
    lines = Lines(data)
    found: list[Comment] = []
    for match in pattern.finditer(searched.encode()):
        if (comment := match["comment"]) is not None:
            line, column = lines.position(match.start())
            before = data[lines.starts[line - 1] : match.start()]
            found.append(Comment(line, column, comment.decode(), not before.strip()))
    return tuple(found)
