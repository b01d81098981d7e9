"""Let a thread take several rows of a stencil, and load what several of them need only once, into registers.

A thread of the naive kernel loads all neighbours of its one element; those above and below are loaded again by the
threads of other rows. In the new kernel a thread walks down a few rows with a window of columns in registers. Loads
keep to rows and columns that some thread of the naive kernel reads; arrays are taken to have whole rows, and those of
other names for other arrays.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.neighbours import (
    NeighbourRead,
    NeighbourReads,
    ThreadNumber,
    chosen,
    find_neighbours,
    head_of,
    inside,
    place_names,
    plus,
    shown,
    thread_numbers,
)
from kernel_lsp.refine.rewrites.reading.affine import number, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, KernelTree, around, body_unit, indent_at, whole_line
from kernel_lsp.refine.rewrites.reading.path_facts import facts_at
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import check_elsewhere
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of, walk

_ROWS = (4, 8)
_PLACE = re.compile(r"(threadIdx|blockIdx|blockDim|gridDim)\.y")
_LOOPS = (*LOOPS, "switch_statement")
_MOST = 12  # elements of a window's row that are worth their registers


@dataclass(frozen=True)
class _Window:
    """Elements of one array in registers: rows of one thread and those around, by columns."""

    of: NeighbourReads
    name: str
    height: int
    width: int
    first_row: int
    first_column: int

    @property
    def shape(self) -> str:
        return f"[{self.width}]" if self.width > 1 else ""


def _windows(use: MemoryUse) -> list[_Window]:
    """Return the windows of a kernel.

    Raises:
        NotApplicableError: no array is read in several rows of one column.
    """
    found: list[_Window] = []
    for array in find_neighbours(use, "yx"):
        columns: dict[int, list[NeighbourRead]] = {}
        for read in array.reads:
            if read.row.value is not None and read.column.value is not None:
                columns.setdefault(read.column.value, []).append(read)
        tall = {at: reads for at, reads in columns.items() if len({r.row.value for r in reads}) > 1}
        if not tall or max(tall) - min(tall) >= _MOST:
            continue
        mine = replace(array, reads=[read for reads in tall.values() for read in reads])
        rows = sorted(read.row.value or 0 for read in mine.reads)
        name = use.scopes.tree.fresh(f"{array.pointer.name}_window")
        found.append(_Window(mine, name, rows[-1] - rows[0], max(tall) - min(tall) + 1, rows[0], min(tall)))
    if not found:
        raise NotApplicableError("no rows that share elements")
    return found


def _check_rows(use: MemoryUse, number_y: ThreadNumber, ahead: list[Node], inner: list[Node]) -> None:
    """Refuse a kernel whose rows could not be taken one after the other, or that has no last row."""
    scopes = use.scopes
    value = number_y.variable.value
    assert value is not None, "it was found by its value"
    check_elsewhere(scopes, [span_of(value)], _PLACE)
    first = inner[0].start_byte
    for variable in scopes.variables:
        outer = variable.declaration is None or variable.declaration.start_byte < first
        if outer and any(change.start_byte >= first for change in variable.changes):
            raise NotApplicableError("a row that depends on the one before")
    for access in (a for node in (*ahead, *inner) for a in use.accesses(node) if a.written):
        ends = (fact + thread_index("y") for fact in facts_at(use, access.node))
        if not any("Idx" not in str(end) for end in ends):
            raise NotApplicableError("rows without an end")


def _leaves(inner: list[Node]) -> Iterator[Edit]:
    """Yield the edits that leave a row, not the kernel.

    Raises:
        NotApplicableError: a loop stands between.
    """
    for node in (n for one in inner for n in walk(one)):
        if node.type in ("goto_statement", "labeled_statement"):
            raise NotApplicableError("a jump")
        if node.type != "return_statement":
            continue
        if any(parent.type in _LOOPS for parent in around(node)):
            raise NotApplicableError("a loop that leaves the kernel")
        yield Edit(span_of(node), "continue;")


def _loaded(window: _Window, tree: KernelTree, rows: str, first: str, x: ThreadNumber, unit: str) -> list[str]:
    """Return the lines that load a window, with `first` as the first row's number along y."""
    array, name = window.of, window.name
    at = tree.fresh("k")
    row, column = place_names(tree)
    bounds = array.hull(lambda read: read.row_bounds), array.hull(lambda read: read.column_bounds)
    tall = f"{rows} + {window.height}"
    place = (f"{at} / {window.width}", f"{at} % {window.width}") if window.width > 1 else (at, "")
    rows_from = plus(f"{first} + {place[0]}", number(window.first_row))
    shift = number(window.first_column - x.plus)
    named = window.width > 1 or bool(shift.terms)
    columns = plus(f"{x.name} + {place[1]}" if place[1] else x.name, shift)
    column = column if named else x.name
    conditions = [
        *inside(row, number(window.first_row), bounds[0]),
        *inside(column, number(window.first_column), bounds[1]),
    ]
    element = f"{name}[{place[0]}]" + (f"[{place[1]}]" if place[1] else "")
    count = f"({tall}) * {window.width}" if window.width > 1 else tall
    return [
        f"{array.element} {name}[{tall}]{window.shape};",
        "#pragma unroll",
        f"for (int {at} = 0; {at} < {count}; ++{at}) {{",
        f"{unit}const int {row} = {rows_from}{f', {column} = {columns}' if named else ''};",
        *chosen(
            f"{unit}{element} =",
            conditions,
            f"{array.pointer.name}[{array.index(row, column)}]",
            zero_of(array.element),
            unit,
        ),
        "}",
    ]


def _rewritten(use: MemoryUse, count: int) -> list[Edit]:
    """Return the edits of the kernel."""
    tree, numbers = use.scopes.tree, thread_numbers(use)
    if set(numbers) != {"x", "y"}:
        raise NotApplicableError("no rows and columns of threads")
    windows, x, y = _windows(use), numbers["x"], numbers["y"]
    if len(y.statement.children_by_field_name("declarator")) != 1:
        raise NotApplicableError("several variables in a declaration")
    ahead, start = head_of(tree, [x.statement, y.statement])
    inner = [n for n in tree.body.named_children if n.start_byte >= start.start_byte]
    if any(use.scopes.uses(y.variable, n) for n in ahead):
        raise NotApplicableError("the row's number is used at once")
    _check_rows(use, y, ahead, inner)
    text, pad = tree.file.text, indent_at(tree.file.text, start.start_byte)
    unit = body_unit(pad)
    rows, first, index = tree.fresh("ROWS"), tree.fresh(f"first_{y.name}"), tree.fresh("r")
    arrays = " and ".join(f"`{w.of.pointer.name}`" for w in windows)
    head = [
        f"// Each thread takes {rows} rows: elements of {arrays} that several of them need are loaded once.",
        f"constexpr int {rows} = {count};",
        f"const int {first} = (blockIdx.y * blockDim.y + threadIdx.y) * {rows};",
        *(line for window in windows for line in _loaded(window, tree, rows, first, x, unit)),
        "#pragma unroll",
        f"for (int {index} = 0; {index} < {rows}; ++{index}) {{",
        f"{unit}const {y.variable.type} {y.name} = {plus(f'{first} + {index}', number(y.plus))};",
    ]
    edits = [Edit(whole_line(text, span_of(y.statement)), ""), *_leaves(inner)]
    edits += [e for window in windows for e in _reads(window, index)]
    edits += _into_loop(text, inner, "".join(f"{line}\n" if line[0] == "#" else f"{pad}{line}\n" for line in head), pad)
    return edits


def _reads(window: _Window, index: str) -> Iterator[Edit]:
    for read in window.of.reads:
        row = plus(index, read.row - number(window.first_row))
        column = f"[{shown(read.column - number(window.first_column))}]" if window.width > 1 else ""
        yield Edit(span_of(read.node), f"{window.name}[{row}]{column}")


def _into_loop(text: str, inner: list[Node], head: str, pad: str) -> Iterator[Edit]:
    """Yield the edits that put statements into a block with some lines ahead."""
    data = text.encode()
    begin, end = data.rfind(b"\n", 0, inner[0].start_byte) + 1, inner[-1].end_byte
    if data[begin : inner[0].start_byte].strip():
        raise NotApplicableError("a statement that shares its line")
    unit = body_unit(pad)
    yield Edit(Span(begin, begin), f"{head}{unit}")
    at = data.find(b"\n", begin, end)
    while at >= 0:
        if data[at + 1 : at + 2] not in (b"\n", b"#"):
            yield Edit(Span(at + 1, at + 1), unit)
        at = data.find(b"\n", at + 1, end)
    yield Edit(Span(end, end), f"\n{pad}}}")


def _launched(count: int, site: LaunchSite) -> list[Edit]:
    grid = [text_of(node) for node in site.sizes(site.grid)]
    if len(grid) < 2:
        raise NotApplicableError("a grid of unknown form")
    return [site.with_grid(grid[0], site.ceil_div(grid[1], count))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 4, and with 8 rows a thread."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet:
            return
        use = MemoryUse(Scopes(tree))
        sites = find_launches(tree, workload_file)
        if sites is None:
            return
        for count in _ROWS:
            files = relaunched(tree, workload_file, sites, _rewritten(use, count), partial(_launched, count))
            yield Candidate(kernel.language, *files, f"{count} rows a thread in registers", "rewrite:row_window")
    except LookupError:
        return
