"""The PTX of one kernel line by line, each with the line of the source that it was made from."""

import re
from collections.abc import Iterator
from pathlib import Path

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+\d+(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+\d+)?")
_INLINED = re.compile(r"@\[ ?([^\s:]+):(\d+):\d+")  # LLVM names the calls in a comment, by the file's name alone
_DIRECTIVE = re.compile(r"\s*(?:[.{}()]|[\w$]+:\s*$)")


def ptx_lines(ptx: str, entry: str, path: str) -> Iterator[tuple[str, int | None]]:
    """Yield the lines of the PTX of `entry`, without comments and debug information, each with a line of the source.

    That is the innermost line of `path`, from 1; None for directives, labels, and what comes from elsewhere.
    """
    begin = re.search(rf"^[^\n/]*\.entry\s+{re.escape(entry)}(?![\w$]).*$", ptx, re.MULTILINE)
    if begin is None:
        return
    files = dict(_FILE.findall(ptx))
    line: int | None = None
    for text in ptx[begin.start() :].splitlines():
        if loc := _LOC.match(text):
            line = _own_line(loc, text, files, path)
        elif text.strip() and not text.lstrip().startswith("//"):
            yield text, None if _DIRECTIVE.match(text) else line
        if text == "}":
            return


def _own_line(loc: re.Match[str], text: str, files: dict[str, str], path: str) -> int | None:
    named = [(files.get(file), number) for file, number in (loc.group(1, 2), loc.group(3, 4))]
    if (own := next((number for file, number in named if file == path), None)) is None:
        name = Path(path).name
        own = next((number for file, number in _INLINED.findall(text) if file == name), None)
    return int(own) if own else None
