"""Triton's intermediate code (TTGIR) line by line, each with its place in the source.

MLIR prints a location at the end of each operation, mostly the name of one that is defined elsewhere in the module
(`loc(#loc12)`, `#loc12 = loc("row"(#loc3))`, `#loc3 = loc("softmax.py":12:20)`). A call that was inlined has two:
`loc(callsite(#loc5 at #loc3))`, the place in the callee before that of the call.
"""

import re
from collections.abc import Iterator, Mapping
from pathlib import Path

_QUOTED = r'"(?:[^"\\]|\\.)*"'
_PLAIN = rf'(?:{_QUOTED}|[^()"])*'
_LOC = re.compile(rf" ?\bloc\((?P<at>{_PLAIN}(?:\({_PLAIN}(?:\({_PLAIN}\){_PLAIN})*\){_PLAIN})*)\)")
_NAMED = re.compile(r"^(#loc\d*) = (.*)$", re.MULTILINE)
_PLACE = re.compile(r'"((?:[^"\\]|\\.)*)":(\d+):\d+|(#loc\d*)\b')


def ttgir_lines(ttgir: str, path: str) -> Iterator[tuple[str, int | None]]:
    """Yield the lines of TTGIR without locations, each with the innermost line of `path` that it was made from.

    Lines count from 1; None where there is none.
    """
    named = dict(_NAMED.findall(ttgir))
    for row in ttgir.splitlines():
        if row.strip() and not _NAMED.match(row):
            places = [found["at"] for found in _LOC.finditer(row)]
            line = _line_in(places[-1], named, Path(path).name) if places else None
            yield _LOC.sub("", row).rstrip(), line


def _line_in(place: str, named: Mapping[str, str], name: str, depth: int = 20) -> int | None:
    """Return the line of the file `name` in a location, through the names it uses; innermost first."""
    for file, line, alias in _PLACE.findall(place):
        found = int(line) if file and Path(file).name == name else None
        if alias and depth and alias in named:
            found = _line_in(named[alias], named, name, depth - 1)
        if found:
            return found
    return None
