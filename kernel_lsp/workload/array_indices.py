"""Reads off a kernel's indices which of its arrays have one element for each row, or one for each column.

`x[row * cols + col]` tells that `row` counts rows and `col` the elements of one, and so do `row = i / cols` and
`col = i % cols`. An array that is only indexed by `col` has one element for each column, and one that is only indexed
by `row` one for each row.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass

_CAST = re.compile(r"\(\s*(?:const\s+)?(?:unsigned\s+)?(?:int|long(?:\s+long)?|size_t|u?int\d+_t|unsigned)\s*\)")
_TERM = r"([A-Za-z_][\w.]*)"


@dataclass(frozen=True, slots=True)
class ArrayIndex:
    """The extent that a row has, and whether an array has one element for each `column` of it, or else for each row."""

    extent: str
    column: bool


def indices_of(names: Iterable[str], extents: Iterable[str], body: str) -> dict[str, ArrayIndex]:
    """Return the index of each array that is only indexed by a row or only by a column; the others are left out."""
    text = _CAST.sub("", body)
    found: dict[str, ArrayIndex] = {}
    wanted = tuple(names)
    for extent in extents:
        rows, columns = _counters(extent, text)
        for name in wanted:
            used = {_counter(index, extent) for index in _indices(name, text)}
            if used and (used <= {*columns, "%"} or used <= {*rows, "/"}):
                found.setdefault(name, ArrayIndex(extent, used <= {*columns, "%"}))
    return found


def _counter(index: str, extent: str) -> str:
    """Return `%` or `/` for an index that is a remainder or quotient by an extent, or else the index itself."""
    split = re.fullmatch(rf"[\w.]+\s*([%/])\s*{extent}", index)
    return split[1] if split else index


def _counters(extent: str, text: str) -> tuple[set[str], set[str]]:
    """Return the variables that count rows of `extent` elements, and those that count the elements of one."""
    rows: set[str] = set()
    columns: set[str] = set()
    sums = (rf"{_TERM}\s*\*\s*{extent}\b\s*\+\s*{_TERM}", rf"\b{extent}\s*\*\s*{_TERM}\s*\+\s*{_TERM}")
    for row, column in (pair for pattern in sums for pair in re.findall(pattern, text)):
        rows.add(row)
        columns.add(column)
    for column, row in re.findall(rf"{_TERM}\s*\+\s*{_TERM}\s*\*\s*{extent}\b", text):
        local = re.search(rf"([A-Za-z_]\w*)\s*=\s*{re.escape(column)}\s*\+\s*{re.escape(row)}\s*\*\s*{extent}\b", text)
        if local is not None:  # `const float* here = x + row * cols`
            columns |= set(_indices(local[1], text))
        else:
            columns.add(column)
        rows.add(row)
    for name, split in re.findall(rf"([A-Za-z_]\w*)\s*=\s*[\w.]+\s*([%/])\s*{extent}\s*[;,]", text):
        (columns if split == "%" else rows).add(name)
    return rows, columns - rows


def _indices(name: str, text: str) -> list[str]:
    return [index.strip() for index in re.findall(rf"(?<![\w.]){re.escape(name)}\s*\[([^\[\]]+)\]", text)]
