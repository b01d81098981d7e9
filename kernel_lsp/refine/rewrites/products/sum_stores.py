"""Where a block stores its sums: the matrix, and what each element becomes on its way there.

The statements behind the loop are run for every thread. Row and column of each sum in the block's tile are known from
the products that were added to it; the sums have to go to rows of one matrix in that order.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from dataclasses import field as attribute

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard
from kernel_lsp.refine.rewrites.products.block_products import BlockProduct, used_only_by
from kernel_lsp.refine.rewrites.products.warp_fragments import WARP, LaneRun, Register, thread_values
from kernel_lsp.refine.rewrites.products.warp_instructions import NOTHING
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import bare, condition_parts, declared_names, names
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of

_PURE = {
    *("__float2half", "__float2half_rn", "__floats2half2_rn", "make_float2", "half", "__half"),
    *("__float2bfloat16", "__float2bfloat16_rn", "__floats2bfloat162_rn", "fmaxf", "fminf", "static_cast<half>"),
    *("static_cast<__half>", "static_cast<__nv_bfloat16>", "static_cast<float>"),
}
FRAGMENT = 16
"""Rows and columns that `store_matrix_sync` stores."""


@dataclass(frozen=True)
class SumGuard:
    """`amount + rows * row + columns * column < 0`, asked of the first element that is stored."""

    amount: Polynomial
    rows: int
    columns: int


@dataclass(frozen=True)
class StoredSums:
    """How all sums are stored.

    Attributes:
        pointer: where the matrix begins.
        type: type of its elements.
        offset: element of the matrix that the first sum of the block goes to.
        distance: elements from one row of the matrix to the next.
        guards: what is asked before.
        width: neighbours that one statement stores: 1, 2, or 16 with 16 rows by `store_matrix_sync`.
        value: text of what is stored, with `@0@` for a sum and `@1@` for its neighbour.
    """

    pointer: str
    type: str
    offset: Polynomial
    distance: Polynomial
    guards: tuple[SumGuard, ...]
    width: int
    value: str

    def names(self) -> set[str]:
        """Return all names in it."""
        amounts = (self.offset, self.distance, *(guard.amount for guard in self.guards))
        return {self.pointer, *re.findall(r"\w+", self.value)}.union(*(amount.names() for amount in amounts))


@dataclass(frozen=True)
class _Store:
    """One store of one thread: of the first sum at row and column of the block's tile."""

    row: int
    column: int
    address: Polynomial
    distance: Polynomial | None
    guards: tuple[CopyGuard, ...]
    width: int
    type: str
    value: str


@dataclass(frozen=True)
class _StoreRun(LaneRun):
    """One thread on its way through the statements.

    Attributes:
        sums: row and column of each of its sums; of the first one of a fragment.
        stores: in order.
        scaled: what each fragment's sums have become.
    """

    sums: Mapping[Register, tuple[int, int]] = attribute(default_factory=dict[Register, tuple[int, int]])
    stores: list[_Store] = attribute(default_factory=list[_Store])
    scaled: dict[Register, str] = attribute(default_factory=dict[Register, str])

    def _branch(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        asked = [self._asked(part) for part in condition_parts(field(node, "condition"), "&&")]
        other = node.child_by_field_name("alternative")
        more = tuple(one for one in asked if isinstance(one, CopyGuard))
        if more and other is not None:
            raise NotApplicableError("sums are stored in one of two ways")
        if False not in asked:
            self.step(field(node, "consequence"), (*guards, *more))
        elif other is not None:
            self.step(other.named_children[0], guards)

    def step(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        """Run one statement; a loop over all elements of a fragment is one step."""
        if node.type == "for_statement" and "num_elements" in text_of(field(node, "condition")):
            self._scale(node)
        else:
            super().step(node, guards)

    def _scale(self, node: Node) -> None:
        """Take note of `fragment.x[i] = ...` for each element."""
        body = field(node, "body")
        statement = body.named_children[0] if body.type == "compound_statement" and body.named_child_count else body
        change = statement.named_children[0] if statement.named_child_count else statement
        if (
            body.named_child_count != 1
            or change.type != "assignment_expression"
            or text_of(field(change, "operator")) != "="
        ):
            raise NotApplicableError(f"`{text_of(node)}` is not understood")
        fragment = self._fragment(field(change, "left"))
        if fragment is None or fragment in self.scaled:
            raise NotApplicableError(f"`{text_of(node)}` is not understood")
        found: list[Register] = []
        self.scaled[fragment] = self._template(field(change, "right"), found)
        if set(found) != {fragment}:
            raise NotApplicableError("sums are mixed with others")

    def _fragment(self, node: Node) -> Register | None:
        """Return the fragment of which `fragment.x[i]` is an element."""
        array = field(node, "argument") if node.type == "subscript_expression" else node
        if array.type != "field_expression" or text_of(field(array, "field")) != "x":
            return None
        found = self.register(field(array, "argument"), NOTHING)
        return found if found in self.sums else None

    def _expression(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        if node.type == "call_expression" and text_of(field(node, "function")).split("::")[-1] == "store_matrix_sync":
            given = field(node, "arguments").named_children
            if len(given) != 4 or not text_of(given[3]).endswith("mem_row_major"):
                raise NotApplicableError("sums are not stored as rows")
            fragment, address, type_ = self.register(given[1], NOTHING), *self._target(given[0])
            value = self.scaled.get(fragment, "@0@")
            self._store((fragment,), address, self._number(given[2]), guards, FRAGMENT, type_, value)
        elif node.type == "assignment_expression" and text_of(field(node, "operator")) == "=":
            place, found = self._element(bare(field(node, "left"))), list[Register]()
            value = self._template(field(node, "right"), found)
            self._store(tuple(found), place.address, None, guards, place.elements, place.type, value)
        else:
            raise NotApplicableError(f"`{text_of(node)}` is not understood")

    def _target(self, node: Node) -> tuple[Polynomial, str]:
        place = self._address(node)
        return place.address, place.type

    def _store(
        self,
        registers: tuple[Register, ...],
        address: Polynomial,
        distance: Polynomial | None,
        guards: tuple[CopyGuard, ...],
        width: int,
        type_: str,
        value: str,
    ) -> None:
        places = [self.sums[one] for one in registers if one in self.sums]
        first = places[0] if places else (0, 0)
        apart = [(first[0], first[1] + at) for at in range(1 if distance is not None else width)]
        if places != apart or len(places) != len(registers) or width not in (1, 2, FRAGMENT):
            raise NotApplicableError("what is stored are no neighbouring sums")
        self.stores.append(_Store(*first, address, distance, guards, width, type_, value))

    def _template(self, node: Node, found: list[Register]) -> str:
        """Return an expression's text with numbers for the sums in it, which are added to `found`."""
        register = self._sum(node)
        if register is not None:
            found += [register] if register not in found else []
            return f"@{found.index(register)}@"
        if node.type == "identifier":
            value = self.block.tree.values.get(text_of(node))
            if value is not None and self.block.start <= value.start_byte < self.block.end:
                return f"({self._template(value, found)})"
            if not self.block.is_same_for_all(text_of(node)):
                raise NotApplicableError(f"`{text_of(node)}` differs between sums")
        if node.type in ("subscript_expression", "pointer_expression", "field_expression", "update_expression"):
            raise NotApplicableError(f"`{text_of(node)}` is no sum")
        if node.type == "call_expression":
            called, given = field(node, "function"), field(node, "arguments")
            if "".join(text_of(called).split()) not in _PURE:
                raise NotApplicableError(f"`{text_of(called)}` is not known")
            return f"{text_of(called)}({', '.join(self._template(one, found) for one in given.named_children)})"
        parts: list[str] = []
        at = node.start_byte
        whole = text_of(node).encode()
        for child in node.named_children:
            parts.append(whole[at - node.start_byte : child.start_byte - node.start_byte].decode())
            parts.append(text_of(child) if "type" in child.type else self._template(child, found))
            at = child.end_byte
        return "".join(parts) + whole[at - node.start_byte :].decode()

    def _sum(self, node: Node) -> Register | None:
        """Return the register of a sum, or the fragment whose element this is; None for anything else."""
        if node.type == "subscript_expression" and (fragment := self._fragment(node)) is not None:
            return fragment
        if node.type not in ("identifier", "subscript_expression") or not names(node) & {n for n, _ in self.sums}:
            return None
        register = self.register(node, NOTHING)
        return register if register in self.sums else None


def epilogue(product: BlockProduct) -> tuple[Node, ...]:
    """Return the statements behind the loop that use its sums, with what stands between them.

    Raises:
        NotApplicableError: there are none.
    """
    after = [one for one in product.tree.body.named_children if one.start_byte > product.loop.end_byte]
    used = [at for at, one in enumerate(after) if names(one) & product.sums]
    if not used:
        raise NotApplicableError("the sums are not stored")
    first, last = used[0], used[-1]
    while first and after[first - 1].type in ("preproc_call", "declaration", "comment"):
        if not used_only_by(product.tree, declared_names(after[first - 1]), after[first - 1 : last + 1]):
            break
        first -= 1
    return tuple(after[first : last + 1])


def stored_sums(product: BlockProduct, statements: Sequence[Node]) -> StoredSums:
    """Return how statements store all sums, which they do and nothing else.

    Raises:
        NotApplicableError: they do something else; the text says what.
    """
    start, end = statements[0].start_byte, statements[-1].end_byte
    block = replace(product.block, own=frozenset(), start=start, end=end)
    whole = all(len(registers) == 1 for _, registers in product.places)
    stores: list[_Store] = []
    for thread in range(0, product.threads, WARP if whole else 1):
        sums = dict(_sums_of(product, thread))
        run = _StoreRun(block, thread_values(block, thread), {}, product.instructions, {}, sums=sums)
        for statement in statements:
            run.step(statement, ())
        stores += run.stores
    return _as_matrix(product, stores)


def _sums_of(product: BlockProduct, thread: int) -> Iterator[tuple[Register, tuple[int, int]]]:
    """Yield the sums of a thread with row and column."""
    warp, lane = divmod(thread, WARP)
    for (owner, registers), (row, column) in product.places.items():
        if owner == warp and len(registers) == 1:
            yield registers[0], (row, column)
        elif owner == warp:
            for at, register in enumerate(registers):
                yield register, (row + lane // 4 + at // 2 * 8, column + lane % 4 * 2 + at % 2)


def _as_matrix(product: BlockProduct, stores: Sequence[_Store]) -> StoredSums:
    """Return all stores as those of one matrix."""
    if not stores:
        raise NotApplicableError("the sums are not stored")
    first = stores[0]
    width, height = first.width, FRAGMENT if first.width == FRAGMENT else 1
    wanted = [(row, column) for row in range(0, product.rows, height) for column in range(0, product.columns, width)]
    if sorted((one.row, one.column) for one in stores) != wanted:
        raise NotApplicableError("not every sum is stored once")
    distance = first.distance or _distance(stores)
    offset = first.address - number(first.row) * distance - number(first.column)
    for one in stores:
        same = (one.width, one.type, one.value, one.distance) == (first.width, first.type, first.value, first.distance)
        if not same or one.address != offset + number(one.row) * distance + number(one.column):
            raise NotApplicableError("the sums are not stored as rows of one matrix")
    pointers = [
        key[0] for key, n in offset.terms.items() if len(key) == 1 and n == 1 and key[0] in product.block.sources
    ]
    if len(pointers) != 1:
        raise NotApplicableError("the sums do not go to one matrix")
    guards = tuple(_guards(stores))
    return StoredSums(pointers[0], first.type, offset - symbol(pointers[0]), distance, guards, width, first.value)


def _distance(stores: Sequence[_Store]) -> Polynomial:
    """Return how far two rows are apart."""
    first = stores[0]
    later = next((one for one in stores if one.column == first.column and one.row == first.row + 8), None)
    apart = later.address - first.address if later is not None else number(1)
    if any(n % 8 for n in apart.terms.values()):
        raise NotApplicableError("the sums are not stored as rows of one matrix")
    return Polynomial({key: n // 8 for key, n in apart.terms.items()})


def _guards(stores: Sequence[_Store]) -> Iterator[SumGuard]:
    """Yield what all stores ask, in terms of row and column."""
    if len({len(one.guards) for one in stores}) != 1:
        raise NotApplicableError("sums are stored under different conditions")
    for at in range(len(stores[0].guards)):
        for rows, columns in ((1, 0), (0, 1), (0, 0)):
            rest = {str(one.guards[at].amount - number(rows * one.row + columns * one.column)): one for one in stores}
            if len(rest) == 1:
                first = stores[0]
                amount = first.guards[at].amount - number(rows * first.row + columns * first.column)
                yield SumGuard(amount, rows, columns)
                break
        else:
            raise NotApplicableError("a condition of row and column that is not understood")
