"""Places in the source that PTX names, and the PTX of one kernel line by line, each with its place."""

import re
from collections.abc import Iterator
from pathlib import Path

from kernel_lsp.source.compiler_paths import unescaped

_FILE = re.compile(r'^\s*\.file\s+(\d+)\s+"([^"]*)"', re.MULTILINE)
_LOC = re.compile(r"^\s*\.loc\s+(\d+)\s+(\d+)\s+(\d+)(?:.*?inlined_at\s+(\d+)\s+(\d+)\s+(\d+))?")
_INLINED = re.compile(r"@\[ ?(.+?):(\d+):\d+")  # LLVM names the calls in a comment, by the file's name alone
_DIRECTIVE = re.compile(r"\s*(?:[.{}()]|[\w$]+:\s*$)")


def files_of(ptx: str) -> dict[str, str]:
    """Return the paths of the source files that PTX names, by their numbers."""
    return {number: unescaped(path) for number, path in _FILE.findall(ptx)}


def frames_of(text: str, files: dict[str, str]) -> list[tuple[str, int, int]]:
    """Return path, line and column of the place that a `.loc` names and, if it was inlined, of the call.

    The path is empty for a number that `files` lacks. The list is empty for any other line of PTX.
    """
    loc = _LOC.match(text)
    if loc is None:
        return []
    return [(files.get(loc[at], ""), int(loc[at + 1]), int(loc[at + 2])) for at in (1, 4) if loc[at]]


def ptx_lines(ptx: str, entry: str, path: str) -> Iterator[tuple[str, int | None]]:
    """Yield the lines of the PTX of `entry`, without comments and debug information, each with a line of the source.

    That is the innermost line of `path`, from 1; None for directives, labels, and what comes from elsewhere.
    """
    for _, text, line in placed_lines(ptx, entry, path):
        yield text, line


def placed_lines(ptx: str, entry: str, path: str) -> Iterator[tuple[int, str, int | None]]:
    """Yield the same as `ptx_lines`, each with its index among all lines of the PTX."""
    begin = re.search(rf"^[^\n/]*\.entry\s+{re.escape(entry)}(?![\w$]).*$", ptx, re.MULTILINE)
    if begin is None:
        return
    files = files_of(ptx)
    line: int | None = None
    for index, text in enumerate(ptx[begin.start() :].splitlines(), ptx.count("\n", 0, begin.start())):
        if frames := frames_of(text, files):
            line = _own_line(frames, text, path)
        elif text.strip() and not text.lstrip().startswith("//"):
            yield index, text, None if _DIRECTIVE.match(text) else line
        if text == "}":
            return


def _own_line(frames: list[tuple[str, int, int]], text: str, path: str) -> int | None:
    if (own := next((line for file, line, _ in frames if file == path), None)) is None:
        name = Path(path).name
        own = next((int(line) for file, line in _INLINED.findall(text) if file == name), None)
    return own or None
