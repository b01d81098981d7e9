"""Find loops of a block that fill tiles element by element from global memory, wait, compute from them, and wait."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import Tile
from kernel_lsp.refine.rewrites.copies.staged_loops import (
    BlockSteps,
    barriers_in,
    block_steps,
    check_form,
    check_sources,
    check_tiles,
    find_tiles,
)
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, declared_names, names, written
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

_SIZES = (4, 8, 16)  # bytes that one instruction copies
_SILENT = ("comment", "preproc_call")
_READS = ("subscript_expression", "pointer_expression", "call_expression")
_ZERO = re.compile(r"(?:0+\.?0*|\.0+)[fF]?")


@dataclass(frozen=True)
class ElementCopy:
    """A statement that fills an element of a tile from global memory.

    Attributes:
        statement: the statement.
        target: the element of the tile.
        source: the element of global memory.
        condition: where there is one; elsewhere the tile gets zero. None if there always is.
    """

    statement: Node
    target: Node
    source: Node
    condition: Node | None


@dataclass(frozen=True)
class TileLoop:
    """A loop that fills tiles ahead of its first barrier, and computes from them between that and its last statement.

    Attributes:
        tree: the kernel.
        node: the loop.
        steps: its steps.
        filling: statements ahead of the first barrier.
        computing: statements between both barriers.
        barriers: the first, and the last statement.
        copies: what fills the tiles.
        tiles: those that are filled.
    """

    tree: KernelTree
    node: Node
    steps: BlockSteps
    filling: Sequence[Node]
    computing: Sequence[Node]
    barriers: tuple[Node, Node]
    copies: Sequence[ElementCopy]
    tiles: Sequence[Tile]


def find_tile_loop(tree: KernelTree) -> TileLoop:
    """Return the first loop of a kernel that fills tiles element by element.

    Raises:
        NotApplicableError: there is none, or other shared memory that its barriers may serve.
    """
    check_form(tree)
    tiles = find_tiles(tree)
    shared = sum("__shared__" in text_of(node) for node in walk(tree.body) if node.type == "declaration")
    for node in tree.body.named_children:
        if node.type != "for_statement" or not names(node) & tiles.keys():
            continue
        loop = _tile_loop(tree, tiles, node)
        if shared != len({tree.declarations[tile.name][0].id for tile in loop.tiles}):
            raise NotApplicableError("other shared memory")
        return loop
    raise NotApplicableError("no loop of the whole block fills static tiles in shared memory")


def _tile_loop(tree: KernelTree, tiles: Mapping[str, Tile], node: Node) -> TileLoop:
    steps = block_steps(tree, (1, 1, 1), tiles, node)
    statements = field(node, "body").named_children
    barriers = barriers_in(statements)
    if barriers[-1] != len(statements) - 1:
        raise NotApplicableError("a step does not end by waiting")
    filling, computing = statements[: barriers[0]], statements[barriers[0] + 1 : -1]
    copies = [copy for one in filling for copy in _copies(tree, tiles, steps, one)]
    filled = {_base(copy.target) for copy in copies}
    if not copies:
        raise NotApplicableError("the loop fills no tile ahead of its first barrier")
    _check_filling(filling, computing, steps)
    found = [tile for name, tile in tiles.items() if name in filled]
    check_tiles(tree, node, found, filling, computing)
    check_sources(tree, {tree.base(_base(copy.source)) for copy in copies}, filling, node.end_byte)
    ends = statements[barriers[0]], statements[-1]
    return TileLoop(tree, node, steps, filling, computing, ends, copies, found)


def _base(element: Node) -> str:
    """Return the name of what an element belongs to."""
    while element.type == "subscript_expression":
        element = field(element, "argument")
    return text_of(element)


def _check_filling(filling: Sequence[Node], computing: Sequence[Node], steps: BlockSteps) -> None:
    """Refuse statements that cannot be run a step earlier, or without those after them."""
    own = {name for one in filling for n in walk(one) if n.type == "declaration" for name in declared_names(n)}
    used = set[str]().union(*(names(one) for one in filling)) - own - {steps.variable}
    changed = {_base(target) for one in (*filling, *computing) for target in written(one)}
    changed |= {name for one in computing for name in assigned(one)}
    if used & changed - steps.block.tiles.keys():
        raise NotApplicableError("a step fills its tiles from what an earlier one has changed")
    outside = {name for one in filling if one.type == "declaration" for name in declared_names(one)}
    if any(names(one) & outside for one in computing):
        raise NotApplicableError("a step computes with what was declared for filling its tiles")


def _copies(tree: KernelTree, tiles: Mapping[str, Tile], steps: BlockSteps, node: Node) -> Iterator[ElementCopy]:
    """Yield the copies of a statement that does nothing else.

    Raises:
        NotApplicableError: it does.
    """
    inner: Sequence[Node] = ()
    other = node.child_by_field_name("alternative") if node.type == "if_statement" else None
    if node.type == "for_statement":
        inner = [field(node, "body")]
    elif node.type == "compound_statement":
        inner = node.named_children
    elif node.type == "if_statement" and other is None:
        if _varies(node, steps):
            raise NotApplicableError("an element of a tile keeps an earlier value")
        inner = [field(node, "consequence")]
    elif other is not None:
        yield _either(tree, tiles, node, other.named_children[0])
    elif node.type == "expression_statement" and node.named_children[0].type == "assignment_expression":
        yield _copy(tree, tiles, node)
    elif node.type not in (*_SILENT, "declaration") or names(node) & tiles.keys() or _acts(node):
        raise NotApplicableError(f"`{text_of(node)}` is no copy to a tile")
    for one in inner:
        yield from _copies(tree, tiles, steps, one)


def _acts(node: Node) -> bool:
    """Return True if a declaration changes or calls something."""
    return any(n.type in ("assignment_expression", "update_expression", "call_expression") for n in walk(node))


def _varies(node: Node, steps: BlockSteps) -> bool:
    """Return True if a condition may hold in one step and not in another."""
    tree, seen = steps.block.tree, set[str]()
    todo = names(field(node, "condition"))
    while todo:
        seen |= todo
        todo = {n for name in todo if name in tree.values for n in names(tree.values[name])} - seen
    return steps.variable in seen


def _copy(tree: KernelTree, tiles: Mapping[str, Tile], statement: Node) -> ElementCopy:
    """Return an assignment to an element of a tile, of a value or of one that may be missing."""
    node = statement.named_children[0]
    value, condition = unwrapped(field(node, "right")), None
    if value.type == "conditional_expression":
        if not _is_zero(field(value, "alternative")):
            raise NotApplicableError("a tile is filled up with other values than zero")
        value, condition = unwrapped(field(value, "consequence")), field(value, "condition")
    target = field(node, "left")
    tile = tiles.get(_base(target))
    if target.type != "subscript_expression" or tile is None or text_of(field(node, "operator")) != "=":
        raise NotApplicableError(f"`{text_of(node)}` does not fill an element of a tile")
    if tile.element_bytes not in _SIZES:
        raise NotApplicableError(f"elements of `{tile.name}` have {tile.element_bytes} bytes")
    return ElementCopy(statement, target, _source(tree, tile, value), condition)


def _either(tree: KernelTree, tiles: Mapping[str, Tile], node: Node, other: Node) -> ElementCopy:
    """Return `if (there) tile[at] = element; else tile[at] = 0;`."""
    sides = [_only(field(node, "consequence")), _only(other)]
    if any(side is None or side.type != "expression_statement" for side in sides):
        raise NotApplicableError("a branch does more than to fill an element of a tile")
    made, zero = (side.named_children[0] for side in sides if side is not None)
    alike = zero.type == "assignment_expression" and text_of(field(zero, "left")) == text_of(field(made, "left"))
    if made.type != "assignment_expression" or not alike or not _is_zero(field(zero, "right")):
        raise NotApplicableError("a branch does more than to fill an element of a tile")
    copy = _copy(tree, tiles, made.parent or made)
    if copy.condition is not None:
        raise NotApplicableError("a condition within another one")
    return ElementCopy(node, copy.target, copy.source, field(field(node, "condition"), "value"))


def _only(node: Node) -> Node | None:
    """Return the only statement of a block, or a statement without one."""
    inner = [n for n in node.named_children if n.type != "comment"] if node.type == "compound_statement" else [node]
    return inner[0] if len(inner) == 1 else None


def unwrapped(node: Node) -> Node:
    """Return an expression without parentheses around it."""
    while node.type == "parenthesized_expression" and node.named_child_count == 1:
        node = node.named_children[0]
    return node


def _is_zero(node: Node) -> bool:
    return _ZERO.fullmatch(text_of(unwrapped(node))) is not None


def _source(tree: KernelTree, tile: Tile, node: Node) -> Node:
    """Return an element of global memory, of the tile's own type."""
    if node.type == "call_expression" and text_of(field(node, "function")) == "__ldg":
        given = field(node, "arguments").named_children[0]
        if given.type == "pointer_expression" and text_of(given).startswith("&"):
            node = unwrapped(field(given, "argument"))
    name = _base(node)
    if node.type != "subscript_expression" or tree.base(name) not in {p.name for p in tree.kernel.parameters}:
        raise NotApplicableError(f"`{text_of(node)}` is no element of global memory")
    if any(n.type in _READS for n in walk(field(node, "indices"))):
        raise NotApplicableError("where an element lies is read from memory, which its condition may guard")
    if tree.named_type(tree.pointers.get(name, "")) != tile.type:
        raise NotApplicableError(f"elements of `{tile.name}` have another type than those of `{name}`")
    return node
