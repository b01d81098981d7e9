"""The comments of a file that run to the end of their line, told from strings that only look like them."""

import re
from dataclasses import dataclass

from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import device_view
from kernel_lsp.source.text import Lines

_CUDA = re.compile(
    rb"""(?xs) (?P<comment>//[^\r\n]*) | /\*.*?(?:\*/|\Z) | \bR"(?P<mark>[^()\\\s]{0,16})\(.*?\)(?P=mark)"
    | "(?:\\.|[^"\\\r\n])*" | (?<!\w)'(?:\\.|[^'\\\r\n])*'"""
)
_PYTHON = re.compile(
    rb'''(?xs) (?P<comment>\#[^\r\n]*) | """(?:\\.|[^\\])*?(?:"""|\Z) | \'\'\'(?:\\.|[^\\])*?(?:\'\'\'|\Z)
    | "(?:\\.|[^"\\\r\n])*" | '(?:\\.|[^'\\\r\n])*\''''
)


@dataclass(frozen=True, slots=True)
class Comment:
    """A comment from its `//` or `#` to the end of its line.

    Attributes:
        line: counted from 1.
        column: of its first character, in UTF-8 bytes from 1.
        text: the whole of it.
        alone: whether nothing but blanks stands before it on its line.
    """

    line: int
    column: int
    text: str
    alone: bool


def line_comments(text: str, language: Language) -> tuple[Comment, ...]:
    """The comments of `text` that run to the end of a line, in order; the text need not be complete."""
    data = text.encode()
    lines = Lines(data)
    found: list[Comment] = []
    texts = [(_CUDA if language is Language.CUDA else _PYTHON, data)]
    if language is Language.TORCH:
        texts.append((_CUDA, device_view(text).encode()))
    for pattern, searched in texts:
        for match in pattern.finditer(searched):
            if (comment := match["comment"]) is not None:
                line, column = lines.position(match.start())
                before = data[lines.starts[line - 1] : match.start()]
                found.append(Comment(line, column, comment.decode(), not before.strip()))
    return tuple(sorted(found, key=lambda comment: (comment.line, comment.column)))
