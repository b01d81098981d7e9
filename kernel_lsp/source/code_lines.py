"""Finds the lines of a text that hold code, with their comments cut off: texts with equal ones do the same.

Kept as written, comments and all, is whatever a comment or an empty line may change: a preprocessor's directive, a line
that ends in a backslash and the next one, strings over several lines, and comments over several lines that are beside
code or have such a backslash.
"""

import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from kernel_lsp.source.outline import code_only, comments_and_strings
from kernel_lsp.source.text import Lines, Span

_MEANT_FOR_TOOLS = re.compile(  # comments that a compiler or Python itself reads
    r"coding[:=]|fall\w*[\s-]*thr|NOTREACHED|ARGSUSED|VARARGS|\bLINTED", re.IGNORECASE
)
_UNCLEAR = re.compile(  # what `comments_and_strings` takes for something else: literals, and lines that are joined
    r"""(?mx) \b(?:u8|[uUL])R?['"] | \w'"' | \\[^\S\n]+$ | /\\$"""
)
_UNMATCHED = re.compile(rb"\"|(?<!\w)'|'(?!\w)")  # quotes outside of literals: the text may be incomplete
_CONTINUED = re.compile(rb"\\\s*$")


@dataclass(frozen=True, slots=True)
class CodeLines:
    """The lines of code of a text: `text` has them without comments, `numbers` where each stands, from 1."""

    text: str
    numbers: tuple[int, ...]


@lru_cache(maxsize=16)
def code_lines(text: str, *, python: bool) -> CodeLines:
    """Return the lines of code of a CUDA or Python text; all lines as they are, where it cannot be told."""
    if "\r" in text or (not python and (_UNCLEAR.search(text) or _UNMATCHED.search(code_only(text.encode())))):
        return _as_written(text)
    try:
        parts = list(_python(text) if python else comments_and_strings(text.encode()))
    except (SyntaxError, tokenize.TokenError):
        return _as_written(text)
    data = text.encode()
    comments = [span for span, is_comment in parts if is_comment]
    said = (data[span.start : span.end].decode() for span in comments)
    if any(map(_MEANT_FOR_TOOLS.search, said)):
        return _as_written(text)
    bare, lines = bytearray(data), Lines(data)
    for span in comments:
        bare[span.start : span.end] = re.sub(rb"[^\n]", b" ", data[span.start : span.end])
    code, written = bytes(bare).split(b"\n"), data.split(b"\n")
    whole: set[int] = set()
    for span, is_comment in parts:
        first, last = (lines.position(at)[0] for at in (span.start, span.end))
        alone = is_comment and not code[first - 1].strip() and not code[last - 1].strip()
        if first < last and not (alone and not any(map(_CONTINUED.search, written[first - 1 : last]))):
            whole.update(range(first, last + 1))
    found: list[tuple[int, bytes]] = []
    continued = False
    for number, (line, full) in enumerate(zip(code, written, strict=True), 1):
        kept = line.rstrip()
        as_written = continued or number in whole or kept.endswith(b"\\") or kept.lstrip().startswith(b"#")
        continued = _CONTINUED.search(full) is not None
        if as_written or kept:
            found.append((number, full if as_written else kept))
    return CodeLines("\n".join(line.decode() for _, line in found), tuple(number for number, _ in found))


def _as_written(text: str) -> CodeLines:
    return CodeLines(text, tuple(range(1, text.count("\n") + 2)))


def _python(text: str) -> Iterator[tuple[Span, bool]]:
    """Yield the comments, and all else that may run over several lines, of a Python text; True for a comment.

    Raises:
        SyntaxError, tokenize.TokenError: it is not Python.
    """
    lines, starts = text.split("\n"), [0]
    for line in lines:
        starts.append(starts[-1] + len(line.encode()) + 1)

    def offset(place: tuple[int, int]) -> int:
        return starts[place[0] - 1] + len(lines[place[0] - 1][: place[1]].encode())

    opened: list[tuple[int, int]] = []
    for token in tokenize.generate_tokens(io.StringIO(text, newline="").readline):
        kind = tokenize.tok_name[token.type]
        if kind == "COMMENT":
            yield Span(offset(token.start), offset(token.end)), True
        elif kind == "STRING":
            yield Span(offset(token.start), offset(token.end)), False
        elif kind.endswith("STRING_START"):
            opened.append(token.start)
        elif kind.endswith("STRING_END"):
            yield Span(offset(opened.pop()), offset(token.end)), False
