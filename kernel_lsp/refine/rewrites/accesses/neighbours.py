"""Reads of a grid's neighbouring elements: threads of an area read `in[(y + i) * width + x + j]` for small i and j."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.path_facts import facts_at
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryAccess, MemoryUse, NotApplicableError, serial_loop
from kernel_lsp.source.trees import field, span_of, text_of

_ZERO = number(0)
_LINE = 100  # characters


@dataclass(frozen=True)
class ThreadNumber:
    """A thread's number along one axis, as the kernel names it.

    Attributes:
        axis: `x` or `y`.
        variable: the name.
        plus: what the name's value has beyond `blockIdx * blockDim + threadIdx`.
    """

    axis: str
    variable: CudaVariable
    plus: int

    @property
    def name(self) -> str:
        """Return the name."""
        return self.variable.name

    @property
    def statement(self) -> Node:
        """Return the statement that declares the name."""
        assert self.variable.declaration is not None, "it was found by its declaration"
        return self.variable.declaration


@dataclass(frozen=True)
class Range:
    """Whole numbers from `first` to `last`, both included."""

    first: Polynomial
    last: Polynomial

    @property
    def length(self) -> Polynomial:
        """Return how many they are."""
        return self.last - self.first + number(1)


@dataclass(frozen=True)
class NeighbourRead:
    """One read, at a row and a column that are a thread's own numbers plus something small.

    Attributes:
        node: the expression.
        row: what is added to the number along y, in constants and the counters of loops around.
        column: the same along x.
        rows: from the least to the largest `row`.
        columns: from the least to the largest `column`.
        row_bounds: rows of the grid that this read can have, by the conditions on the way there.
        column_bounds: its columns.
    """

    node: Node
    row: Polynomial
    column: Polynomial
    rows: Range
    columns: Range
    row_bounds: Range
    column_bounds: Range


@dataclass(frozen=True)
class NeighbourReads:
    """All reads of one array at neighbours.

    Attributes:
        pointer: the array, which the kernel does not write.
        reads: the reads.
        stride: elements from one row to the next; None for a single row.
        rest: what is added to each index.
    """

    pointer: CudaVariable
    reads: Sequence[NeighbourRead]
    stride: Polynomial | None
    rest: Polynomial

    @property
    def element(self) -> str:
        """Return the type of an element."""
        return self.pointer.type.rstrip("*")

    def hull(self, of: Callable[[NeighbourRead], Range]) -> Range:
        """Return the smallest range that holds one range of every read.

        Raises:
            NotApplicableError: they cannot be compared.
        """
        ranges = [of(one) for one in self.reads]
        return Range(_extreme([r.first for r in ranges], -1), _extreme([r.last for r in ranges], 1))

    def index(self, row: str, column: str) -> str:
        """Return the index of an element as text."""
        parts = [column] if self.stride is None else [f"{row} * {factor(self.stride)}", column]
        return " + ".join([*parts, *([shown(self.rest)] if self.rest.terms else [])])


def thread_numbers(use: MemoryUse) -> dict[str, ThreadNumber]:
    """Return a thread's numbers by axis: names at the top of a kernel that never change."""
    found: dict[str, ThreadNumber] = {}
    for variable in use.scopes.variables:
        declaration = variable.declaration
        if declaration is None or variable.constant is None or declaration.parent != use.scopes.tree.body:
            continue
        for axis in "xy":
            plus = (use.indices.of(variable.constant) - thread_index(axis)).value
            if plus is not None and plus >= 0:
                found.setdefault(axis, ThreadNumber(axis, variable, plus))
    return found


def head_of(tree: KernelTree, numbers: Sequence[Node]) -> tuple[list[Node], Node]:
    """Return the declarations up to a thread's numbers, and the statement or comment that follows.

    Raises:
        NotApplicableError: other statements stand among them, or none follows.
    """
    statements = [n for n in tree.body.named_children if n.type != "comment"]
    at = max(statements.index(one) for one in numbers) + 1
    ahead, last = statements[:at], statements[at - 1]
    if at == len(statements) or any(n.type != "declaration" for n in ahead):
        raise NotApplicableError("work ahead of the thread's numbers")
    first = last.next_named_sibling
    while first is not None and first.start_point.row == last.end_point.row:
        first = first.next_named_sibling
    if first is None:
        raise NotApplicableError("nothing behind the thread's numbers")
    return ahead, first


def find_neighbours(use: MemoryUse, axes: Sequence[str]) -> list[NeighbourReads]:
    """Return the reads at neighbours along some axes of threads, for each array that is read so.

    Args:
        use: the accesses of the kernel.
        axes: `x`, or `y` and `x` for arrays of rows.

    Raises:
        NotApplicableError: what the kernel touches is not known.
    """
    accesses = use.accesses(use.scopes.tree.body)
    if any(a.pointer is None or (a.written and a.offset is None) for a in accesses):
        raise NotApplicableError("an address that is not known")
    written = {a.pointer.symbol for a in accesses if a.pointer is not None and a.written}
    found: dict[tuple[str, str, str], NeighbourReads] = {}
    for access in accesses:
        pointer = access.pointer
        if pointer is None or pointer.symbol in written or pointer.declaration is not None or pointer.changes:
            continue
        if (one := _read(use, access, axes)) is not None:
            read, stride, rest = one
            key = pointer.symbol, str(stride), str(rest)
            before = found[key].reads if key in found else ()
            found[key] = NeighbourReads(pointer, (*before, read), stride if "y" in axes else None, rest)
    return list(found.values())


def _read(
    use: MemoryUse, access: MemoryAccess, axes: Sequence[str]
) -> tuple[NeighbourRead, Polynomial, Polynomial] | None:
    """Return an access as a read at neighbours, with the stride of rows and what is added; None for any other."""
    stride, left = _ZERO, access.offset
    along = left.factor("threadIdx.x") if left is not None else None
    if left is None or along is None or along.value != 1:
        return None
    left = left - thread_index("x")
    if "y" in axes:
        stride = left.factor("threadIdx.y") or _ZERO
        left = left - stride * thread_index("y")
        if not stride.terms or stride.value in (1, -1):
            return None
    counters = _counters(use, access.node)
    if {"threadIdx.x", "threadIdx.y", "blockIdx.x", "blockIdx.y"} & (left.names() | stride.names()):
        return None
    quotient = _quotient(left, stride) if stride.terms else _ZERO
    row, column = (_of_counters(part, counters) for part in (quotient, left - stride * quotient))
    rest = left - stride * row - column
    if any("@" in name for name in rest.names() | stride.names()):
        return None
    rows, columns = (_spread(part, counters) for part in (row, column))
    facts = facts_at(use, _whole(access.node))
    found = [_bounds(facts, axis, part, spread) for axis, part, spread in (("y", row, rows), ("x", column, columns))]
    if found[1] is None or (found[0] is None and "y" in axes):
        return None
    bounds = found[0] or Range(_ZERO, _ZERO)
    return NeighbourRead(_whole(access.node), row, column, rows, columns, bounds, found[1]), stride, rest


def _whole(element: Node) -> Node:
    """Return the call of `__ldg(&element)`; an element alone itself."""
    address = element.parent
    call = address.parent.parent if address is not None and address.parent is not None else None
    taken = address is not None and address.type == "pointer_expression" and text_of(address).startswith("&")
    return call if taken and call is not None else element


def _counters(use: MemoryUse, node: Node) -> dict[str, Range]:
    """Return the ranges of the counters of loops around a node, by symbol, where the compiler knows them."""
    found: dict[str, Range] = {}
    fixed = {one.split("=")[0].split()[-1] for one in use.scopes.tree.kernel.template_parameters}
    parent = node.parent
    while parent is not None and parent != use.scopes.tree.body:
        loop = serial_loop(use.scopes, parent) if parent.type == "for_statement" else None
        if loop is not None and span_of(loop.body).holds(span_of(node)):
            first, last = use.indices.of(loop.start), use.indices.of(loop.limit)
            last = last if text_of(field(loop.condition, "operator")) == "<=" else last - number(1)
            if first.names() | last.names() <= fixed:
                found[loop.variable.symbol] = Range(first, last)
        parent = parent.parent
    return found


def _quotient(index: Polynomial, stride: Polynomial) -> Polynomial:
    """Return the part of an index that is a multiple of the stride, divided by it."""
    leading = max(stride.terms, key=len)
    by, found = stride.terms[leading], _ZERO
    for key, n in index.terms.items():
        rest = list(key)
        if all(rest.count(name) >= leading.count(name) for name in leading):
            for name in leading:
                rest.remove(name)
            found = found + Polynomial({tuple(rest): m} if (m := round(n / by)) else {})
    return found


def _of_counters(value: Polynomial, counters: Iterable[str]) -> Polynomial:
    """Return the terms that are a number, or a counter times a number."""
    return Polynomial({key: n for key, n in value.terms.items() if not key or (len(key) == 1 and key[0] in counters)})


def _spread(value: Polynomial, counters: dict[str, Range]) -> Range:
    first = last = number(value.terms.get((), 0))
    for key, n in value.terms.items():
        if key:
            ends = counters[key[0]]
            low, high = (ends.first, ends.last) if n > 0 else (ends.last, ends.first)
            first, last = first + number(n) * low, last + number(n) * high
    return Range(first, last)


def _bounds(facts: list[Polynomial], axis: str, plus: Polynomial, spread: Range) -> Range | None:
    """Return the least and the largest place that a read can have along an axis; None if nothing bounds it."""
    own = thread_index(axis)
    low: list[Polynomial] = []
    high: list[Polynomial] = []
    for fact in facts:
        low += [own + plus - fact, own - fact + spread.first]
        high += [own + plus + fact, own + fact + spread.last]
    low, high = ([p for p in bounds if not _depends(p)] for bounds in (low, high))
    return Range(_tightest(low, 1), _tightest(high, -1)) if low and high else None


def _depends(bound: Polynomial) -> bool:
    return any("Idx" in name or "@" in name or "(" in name for key in bound.terms for name in key)


def _extreme(values: Sequence[Polynomial], sign: int) -> Polynomial:
    """Return the largest of some values, or the least by a sign of -1.

    Raises:
        NotApplicableError: they cannot be compared.
    """
    best = values[0]
    for one in values[1:]:
        apart = (one - best).value
        if apart is None:
            raise NotApplicableError("places that cannot be compared")
        best = one if apart * sign > 0 else best
    return best


def _tightest(bounds: Sequence[Polynomial], sign: int) -> Polynomial:
    """Return the largest of some bounds (the least by a sign of -1), of those that compare with the first."""
    return _extreme([b for b in bounds if (b - bounds[0]).value is not None], sign)


def shown(value: Polynomial) -> str:
    """Return a polynomial as C++, counters of loops by their names."""
    text = ""
    for unknowns, n in sorted(value.terms.items(), key=lambda term: (not term[0], -len(term[0]), term[0])):
        names = [name.partition("@")[0] for name in unknowns]
        part = " * ".join([*([str(abs(n))] if abs(n) != 1 or not names else []), *names])
        text += (f" {'-' if n < 0 else '+'} " if text else "-" * (n < 0)) + part
    return text or "0"


def factor(value: Polynomial) -> str:
    """Return a polynomial as a factor of C++."""
    return shown(value) if len(value.terms) == 1 else f"({shown(value)})"


def plus(text: str, value: Polynomial) -> str:
    """Return `text` plus a polynomial as C++."""
    if not value.terms:
        return text
    more = shown(value)
    return f"{text} - {more[1:].lstrip()}" if more.startswith("-") else f"{text} + {more}"


def inside(place: str, first: Polynomial, bounds: Range) -> list[str]:
    """Return the conditions under which a place lies in its bounds, without what `first`, its least value, shows."""
    shows = (first - bounds.first).value
    below = [] if shows is not None and shows >= 0 else [f"{place} >= {shown(bounds.first)}"]
    return [*below, f"{place} < {shown(bounds.last + number(1))}"]


def place_names(tree: KernelTree) -> tuple[str, str]:
    """Return names for the row and the column of what is loaded."""
    plain = tree.fresh("row"), tree.fresh("column")
    return plain if plain == ("row", "column") else (tree.fresh("loaded_row"), tree.fresh("loaded_column"))


def chosen(target: str, conditions: Sequence[str], loaded: str, zero: str, pad: str) -> list[str]:
    """Return the statement that sets `target` to what is loaded or to zero: one line, or two where it is long."""
    test, values = f"{target} {' && '.join(conditions)}", f"? {loaded} : {zero};"
    return [f"{test} {values}"] if len(test) + len(values) < _LINE else [test, f"{pad}{values}"]
