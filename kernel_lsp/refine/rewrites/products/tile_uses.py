"""Elements of shared tiles, each by its indices: which are written in a kernel, run for every thread.

A tile whose elements are always named by row and column can be kept in another order. Vectors of up to 16 bytes stay
whole where that order keeps pieces of 16 bytes together.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import BlockNames
from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard, ThreadRun
from kernel_lsp.refine.rewrites.products.block_products import TileOperand
from kernel_lsp.refine.rewrites.products.warp_fragments import thread_values
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, bare, condition_parts
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.trees import field, text_of, walk

_PIECE = 16  # bytes that stay together
_ASYNC = "__pipeline_memcpy_async"


@dataclass(frozen=True)
class TileUse:
    """One element of a tile where it is written.

    Attributes:
        node: the element.
        operand: the tile.
        indices: that of a stage, if the tile has some, row and column; a single one of a tile without rows.
    """

    node: Node
    operand: TileOperand
    indices: tuple[Node, ...]

    def spelled(self, pitch: str) -> tuple[str, str, str]:
        """Return the tile with its stage, row and column, as text; `pitch` spells the elements of a row."""
        name, texts = self.operand.tile.name, [text_of(index) for index in self.indices]
        if len(texts) == 1:
            return name, f"{closed(texts[0])} / {closed(pitch)}", f"{closed(texts[0])} % {closed(pitch)}"
        return name + "".join(f"[{one}]" for one in texts[:-2]), texts[-2], texts[-1]


def tile_uses(within: Node, block: BlockNames, operands: Mapping[str, TileOperand]) -> Iterator[TileUse]:
    """Yield all elements of tiles in a node.

    Raises:
        NotApplicableError: a tile is used in another way than by all its indices.
    """
    for node in walk(within):
        if node.type == "identifier" and text_of(node) in operands:
            indices: list[Node] = []
            at, outer = node, node.parent
            while outer is not None and outer.type == "subscript_expression" and field(outer, "argument") == at:
                indices += field(outer, "indices").named_children
                at, outer = outer, outer.parent
            operand = operands[text_of(node)]
            if len(indices) != len(block.tiles[text_of(node)].extents):
                raise NotApplicableError(f"`{text_of(node)}` is not used by its elements alone")
            if len(indices) == 1 and (parts := _row_and_column(block, indices[0], operand.tile.extents[-1])):
                indices = parts
            yield TileUse(at, operand, tuple(indices))


def _row_and_column(block: BlockNames, index: Node, pitch: int) -> list[Node] | None:
    """Return the two parts of `row * pitch + column`; None for an index of another form."""
    index = bare(index)
    if index.type != "binary_expression" or text_of(field(index, "operator")) != "+":
        return None
    rows, column = bare(field(index, "left")), field(index, "right")
    if rows.type != "binary_expression" or text_of(field(rows, "operator")) != "*":
        return None
    by = block.indices.of(field(rows, "right")).value
    return [bare(field(rows, "left")), column] if by == pitch else None


@dataclass(frozen=True)
class _FillRun(ThreadRun):
    """One thread on its way through statements that write elements of tiles; what else they do is left out.

    Attributes:
        operands: the tiles.
        found: elements of tiles in each node, once they have been looked for.
        changing: names that each declaration declares and that change afterwards, once they have been looked for.
    """

    operands: Mapping[str, TileOperand]
    found: dict[int, list[TileUse]]
    changing: dict[int, set[str]]

    def step(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        """Run one statement, where it has to do with the tiles."""
        if node.type == "declaration":
            self.declare(node)
        if self._uses(node):
            if node.type == "declaration":
                raise NotApplicableError("a name for a place in a tile")
            super().step(node, guards)

    def _uses(self, node: Node) -> list[TileUse]:
        if node.id not in self.found:
            self.found[node.id] = list(tile_uses(node, self.block, self.operands))
        return self.found[node.id]

    def _declared(self, node: Node) -> None:
        super()._declared(node)
        if node.id not in self.changing:
            scope = node.parent
            if scope is not None and scope.type == "for_statement":
                scope = field(scope, "body")  # the loop's own steps are followed
            self.changing[node.id] = assigned(scope) if scope is not None else set()
        for name in self.changing[node.id]:
            self.values.pop(name, None)

    def _number(self, node: Node) -> Polynomial:
        """Return a value; what is not known, as a stage, is one unknown: it has to be the same text."""
        try:
            return super()._number(node)
        except NotApplicableError:
            return symbol(f"({text_of(node)})")

    def _branch(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        if self._uses(field(node, "condition")):
            raise NotApplicableError("a condition that reads a tile")
        held = self._known(field(node, "condition").named_children[0])
        if held is not False:
            self.step(field(node, "consequence"), guards)
        if held is not True and (other := node.child_by_field_name("alternative")) is not None:
            self.step(other.named_children[0], guards)

    def _known(self, condition: Node) -> bool | None:
        """Return what a condition gives for this thread; None where it may give both."""
        try:
            asked = [self._asked(part) for part in condition_parts(condition, "&&")]
        except NotApplicableError:
            return None
        return False if False in asked else True if all(one is True for one in asked) else None

    def _expression(self, node: Node, guards: tuple[CopyGuard, ...]) -> None:
        if node.type == "assignment_expression" and text_of(field(node, "operator")) == "=":
            target = field(node, "left")
            place = self._element(bare(target))
            elements = place.elements
        elif node.type == "call_expression":
            given = field(node, "arguments").named_children
            target, place, elements = given[0], self._address(given[0]), 0
        else:
            raise NotApplicableError(f"`{text_of(node)}` does not fill a tile")
        if len(self._uses(node)) != 1 or len(self._uses(target)) != 1:
            raise NotApplicableError(f"`{text_of(node)}` does not fill one element or piece")
        (use,) = self._uses(target)
        if not elements:
            elements = self._copied_bytes(node) // use.operand.tile.element_bytes
        self._check(use, place.address - symbol(use.operand.tile.name), elements)

    def _copied_bytes(self, node: Node) -> int:
        name, given = text_of(field(node, "function")), field(node, "arguments").named_children
        if name != _ASYNC and name not in self.block.async_helpers:
            raise NotApplicableError(f"`{text_of(node)}` does not fill a tile")
        size = self.block.async_helpers.get(name)
        if size is None and len(given) > 2:
            size = self._number(given[2]).value
        if size is None:
            raise NotApplicableError(f"how many bytes `{text_of(node)}` copies is not known")
        return size

    def _check(self, use: TileUse, address: Polynomial, elements: int) -> None:
        """Refuse what is written elsewhere than at the element that is named, or beyond the part that is kept."""
        tile, (rows, columns) = use.operand.tile, use.operand.shape
        numbers = [self._number(index) for index in use.indices]
        if len(numbers) == 1:
            at = numbers[0].value
            row, column = divmod(at, tile.extents[-1]) if at is not None else (None, None)
        else:
            row, column = numbers[-2].value, numbers[-1].value
        place = number(0)
        for extent, index in zip(tile.extents[-len(numbers) :], numbers, strict=True):
            place = place * number(extent) + index
        if row is None or column is None or address != place:
            raise NotApplicableError(f"which element `{text_of(use.node)}` is is not known")
        whole = elements * tile.element_bytes <= _PIECE and column % elements == 0
        if not whole or not (0 <= row < rows and 0 <= column <= columns - elements):
            raise NotApplicableError(f"`{tile.name}` is filled across or beyond its rows")


def check_fills(
    block: BlockNames,
    statement: Node,
    before: Sequence[Node],
    operands: Mapping[str, TileOperand],
) -> None:
    """Refuse a statement that does other things with tiles than to write single elements or pieces of 16 bytes.

    Args:
        block: the block.
        statement: the statement.
        before: declarations that it may use.
        operands: the tiles.

    Raises:
        NotApplicableError: it does, or writes elsewhere.
    """
    found: dict[int, list[TileUse]] = {}
    changing: dict[int, set[str]] = {}
    for thread in range(prod(block.shape)):
        run = _FillRun(block, thread_values(block, thread), {}, operands, found, changing)
        for one in before:
            run.declare(one)
        run.step(statement, ())


def spelled_shape(tree: KernelTree, node: Node, kept: tuple[int, int]) -> tuple[str, str]:
    """Return how a declarator spells the rows and columns that are kept: without what pads them."""
    block = BlockNames(tree, (1, 1, 1), {}, frozenset(), 0, 0)
    sizes: list[Node] = []
    while (inner := node.child_by_field_name("declarator")) is not None:
        size = node.child_by_field_name("size")
        sizes = [size, *sizes] if size is not None else sizes
        node = inner
    found: list[str] = []
    for size, wanted in zip(sizes[-2:] if len(sizes) > 1 else sizes * 2, kept, strict=True):
        parts = [size, *(n for n in walk(size) if n.type in ("identifier", "number_literal"))]
        found.append(next((text_of(n) for n in parts if block.indices.of(n).value == wanted), str(wanted)))
    return found[0], found[1]
