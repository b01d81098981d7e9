"""Reads C++ as its compiler does before it knows words: joined lines, trigraphs, and characters written by number."""

import re
from collections.abc import Iterator

_ENDS = r"\\[ \t\v\f]*\r?\n"  # of a line that the next one joins; compilers ignore white space before its end
_JOINED = re.compile(rf"(?:[^\n]*?{_ENDS})+[^\n]*")
_END = re.compile(_ENDS)
_BROKEN = re.compile(rf"\w{_ENDS}[\w\"]|\#{_ENDS}\#")
_HIDING = re.compile(
    rf"[*/](?:{_ENDS})+[*/]|\?\?/|^[ \t]*#[ \t]*include(?:_next)?[ \t]*<[^>\n]*?(?:/[*/]|[\"'])", re.MULTILINE
)
"""A comment or string ends, or begins, for the compiler alone: in joined lines, a trigraph, the name of a header."""
_TRIGRAPH = re.compile(r"\?\?[=()<>!'-]")
_RAW = re.compile(r'\b(?:u8|[uUL])?R"(?P<mark>[^()\\\s]{0,16})\((?P<text>.*?)\)(?P=mark)"', re.DOTALL)
_ESCAPE = re.compile(r"\\(?:x([0-9A-Fa-f]+)|u([0-9A-Fa-f]{4})|U([0-9A-Fa-f]{8})|([0-7]{1,3})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "t": "\t", "r": "\r", "v": "\v", "f": "\f", "a": "\a", "b": "\b"}


def joined(text: str) -> str:
    """Return a text with the lines in one that a backslash joins; what follows keeps its line numbers."""
    return _JOINED.sub(lambda match: _END.sub("", match[0]) + "\n" * len(_END.findall(match[0])), text)


def misleading(text: str, code: str, kept: str) -> Iterator[tuple[int, str]]:
    """Yield spellings by which a compiler reads another text than people do: where, and what.

    Args:
        text: as it is written.
        code: without comments and strings, of the same length.
        kept: without comments.
    """
    for match in _HIDING.finditer(text):
        yield match.start(), "ends a comment or a string where only a compiler sees it"
    for match in _BROKEN.finditer(code):
        yield match.start(), "breaks a word at the end of a line"
    for match in _TRIGRAPH.finditer(code):
        yield match.start(), "writes characters as trigraphs"
    for match in _RAW.finditer(kept):
        if f'){match["mark"]}"' in _END.sub("", match["text"]):
            yield match.start(), "ends a comment or a string where only a compiler sees it"


def unescaped(literal: str) -> str:
    """Return the characters of a string literal between its quotes."""
    return _ESCAPE.sub(_character, literal)


def _character(match: re.Match[str]) -> str:
    number = match[1] or match[2] or match[3]
    if number or match[4]:
        code = int(number, 16) if number else int(match[4], 8)
        return chr(code) if code <= 0x10FFFF else "\ufffd"
    return _ESCAPED.get(match[5], match[5])
