"""Find loops in which the warps of a block multiply two tiles in shared memory by tensor cores.

The statements of a step are run for every warp (`warp_fragments`). Together they have to be one product: each block of
the result, 16 x 16 or 16 x 8, is that of one warp, and is added up over the same steps of K. The loop's other
statements, such as those that fill the tiles, are not looked at here.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_names import BlockNames, Tile
from kernel_lsp.refine.rewrites.copies.staged_loops import check_form, find_tiles, is_barrier
from kernel_lsp.refine.rewrites.products.warp_fragments import (
    WARP,
    FragmentProduct,
    OperandBlock,
    Register,
    fragment_products,
    lane_at,
)
from kernel_lsp.refine.rewrites.products.warp_instructions import WarpInstructions
from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, declared_names, names
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, span_of, text_of, walk

_FRAGMENT = re.compile(r"(?:nvcuda::)?(?:wmma::)?fragment\s*<")
TENSOR_KINDS = {
    **dict.fromkeys(("half", "__half"), "f16"),
    **dict.fromkeys(("__nv_bfloat16", "nv_bfloat16"), "bf16"),
}
"""Types of operands of tensor cores, each with its name in PTX."""
_JUMPS = ("return_statement", "break_statement", "continue_statement", "goto_statement")
_DEPTH = 16  # steps of K of one instruction


@dataclass(frozen=True)
class TileOperand:
    """A tile, or a stage of one, that is an operand as a whole.

    Attributes:
        tile: the tile.
        moved: elements ahead of the stage that is used.
        turned: True if its rows are steps of K; else they are rows of A or columns of B.
        shape: rows and columns of the tile that are used.
        shared: True if two warps or more read each element.
    """

    tile: Tile
    moved: Polynomial
    turned: bool
    shape: tuple[int, int]
    shared: bool


@dataclass(frozen=True)
class BlockProduct:
    """A loop whose steps multiply two tiles.

    Attributes:
        block: the block.
        instructions: what the file calls them.
        loop: the loop.
        region: its statements that multiply, which stand side by side.
        a: rows of the result.
        b: columns of the result.
        kind: `f16` or `bf16`.
        depth: steps of K that are in a tile.
        places: first row and column of what each warp has in its sums.
    """

    block: BlockNames
    instructions: WarpInstructions
    loop: Node
    region: tuple[Node, ...]
    a: TileOperand
    b: TileOperand
    kind: str
    depth: int
    places: Mapping[tuple[int, tuple[Register, ...]], tuple[int, int]]

    @property
    def tree(self) -> KernelTree:
        """Return the kernel."""
        return self.block.tree

    @cached_property
    def sums(self) -> set[str]:
        """Return the names of the registers or fragments that hold sums."""
        return {name for _, registers in self.places for name, _ in registers}

    @property
    def rows(self) -> int:
        """Return the rows of the block's result."""
        return self.a.shape[1 if self.a.turned else 0]

    @property
    def columns(self) -> int:
        """Return the columns of the block's result."""
        return self.b.shape[1 if self.b.turned else 0]

    @property
    def threads(self) -> int:
        """Return the threads of a block."""
        return prod(self.block.shape)


def find_block_product(tree: KernelTree, shape: tuple[int, int, int]) -> BlockProduct:
    """Return the only loop of a kernel that multiplies tiles, for blocks of a shape.

    Raises:
        NotApplicableError: there is none, or it does something else; the text says what.
    """
    check_form(tree)
    instructions, tiles = WarpInstructions(tree), find_tiles(tree)
    loops = [node for node in tree.body.named_children if _multiplies(instructions, node)]
    if len(loops) != 1 or loops[0].type != "for_statement":
        raise NotApplicableError("not one loop of the whole block multiplies by tensor cores")
    if prod(shape) % (4 * WARP):
        raise NotApplicableError("a block is not made of warpgroups of 128 threads")
    (loop,) = loops
    if any(n.type in _JUMPS and n.start_byte < loop.end_byte for n in walk(tree.body)):
        raise NotApplicableError("threads may leave ahead of the loop or in it")
    region = _region(tree, instructions, loop)
    block = BlockNames(tree, shape, tiles, _counters(loop), region[0].start_byte, region[-1].end_byte)
    _check_steps(block, loop)
    layouts = _layouts(tree)
    by_warp = [fragment_products(block, instructions, layouts, warp, region) for warp in range(prod(shape) // WARP)]
    return _joined(block, instructions, loop, region, by_warp)


def _counters(loop: Node) -> frozenset[str]:
    """Return the variables that a loop declares."""
    return frozenset(declared_names(field(loop, "initializer")))


def _check_steps(block: BlockNames, loop: Node) -> None:
    """Refuse a loop of which threads may take different steps."""
    values = (
        one.child_by_field_name("value") for one in field(loop, "initializer").children_by_field_name("declarator")
    )
    uniform = all(value is not None and block.is_uniform(value) for value in values)
    uniform &= block.is_uniform(field(loop, "condition"))
    uniform &= all(name in block.own or block.is_same_for_all(name) for name in names(field(loop, "update")))
    if not block.own or not uniform or block.own & assigned(field(loop, "body")):
        raise NotApplicableError("threads may take different steps")


def used_only_by(tree: KernelTree, wanted: set[str], nodes: Sequence[Node]) -> bool:
    """Return True if names are used nowhere in the kernel but in some nodes."""
    spans = [span_of(node) for node in nodes]
    return all(
        any(span.holds(span_of(node)) for span in spans)
        for node in walk(tree.body)
        if node.type == "identifier" and text_of(node) in wanted
    )


def _multiplies(instructions: WarpInstructions, node: Node) -> bool:
    return any(
        (n.type == "call_expression" and text_of(field(n, "function")).split("::")[-1] == "mma_sync")
        or ((one := instructions.of(n)) is not None and one.name.startswith("mma"))
        for n in walk(node)
        if n.type in ("call_expression", "gnu_asm_expression")
    )


def _layouts(tree: KernelTree) -> dict[str, str]:
    """Return the layout of each `wmma` fragment that is an operand.

    Raises:
        NotApplicableError: a fragment of another shape or type than 16 x 16 x 16 of 16 bits with sums of 32.
    """
    found: dict[str, str] = {}
    block = BlockNames(tree, (1, 1, 1), {}, frozenset(), 0, 0)
    for name, (node, _) in tree.declarations.items():
        arguments = next((n for n in walk(field(node, "type")) if n.type == "template_argument_list"), None)
        if arguments is None or not _FRAGMENT.match(text_of(field(node, "type"))):
            continue
        use, *sizes = arguments.named_children[:4]
        kind, *layout = [text_of(one).split("::")[-1] for one in arguments.named_children[4:]]
        if [block.indices.of(one).value for one in sizes] != [16, 16, 16]:
            raise NotApplicableError(f"the fragment `{name}` is not 16 x 16 x 16")
        if text_of(use).endswith("accumulator"):
            if kind != "float":
                raise NotApplicableError(f"the sums `{name}` are no float")
        elif tree.named_type(kind) not in TENSOR_KINDS:
            raise NotApplicableError(f"the fragment `{name}` has elements of no 16 bits")
        else:
            found[name] = layout[0] if layout else ""
    return found


def _region(tree: KernelTree, instructions: WarpInstructions, loop: Node) -> tuple[Node, ...]:
    """Return the statements of a step that load fragments and multiply, with what stands between them."""
    body = field(loop, "body")
    if body.type != "compound_statement":
        raise NotApplicableError("the loop has no block")
    statements = [one for one in body.named_children if one.type != "comment"]
    products = [at for at, one in enumerate(statements) if _multiplies(instructions, one)]
    first, last = products[0], products[-1]
    while first and _prepares(tree, instructions, statements[first - 1], statements[first : last + 1]):
        first -= 1
    ahead = [at for at, one in enumerate(statements[:first]) if is_barrier(one)]
    if not ahead or any(is_barrier(one) for one in statements[first : last + 1]):
        raise NotApplicableError("the block does not wait ahead of its products in each step")
    return tuple(statements[first : last + 1])


def _prepares(tree: KernelTree, instructions: WarpInstructions, node: Node, users: Sequence[Node]) -> bool:
    """Return True for what fragments are declared or loaded by, ahead of the products, and for a pragma."""
    if node.type == "preproc_call":
        return True
    if node.type == "declaration":
        return used_only_by(tree, declared_names(node), (node, *users))
    return any(
        "load_matrix_sync" in text_of(field(n, "function")) or instructions.of(n) is not None
        for n in walk(node)
        if n.type == "call_expression"
    )


def _joined(
    block: BlockNames,
    instructions: WarpInstructions,
    loop: Node,
    region: tuple[Node, ...],
    by_warp: Sequence[Sequence[FragmentProduct]],
) -> BlockProduct:
    """Return what all warps multiply as one product of tiles."""
    every = [one for products in by_warp for one in products]
    if not every:
        raise NotApplicableError("the warps multiply nothing")
    a, b = every[0].a, every[0].b
    for one in every:
        if _of(one.a) != _of(a) or _of(one.b) != _of(b):
            raise NotApplicableError("fragments come from several tiles, or are laid out differently")
    if a.tile == b.tile or {one.kind or _kind(a) for one in every} | {_kind(b)} != {_kind(a)}:
        raise NotApplicableError("both operands are in one tile, or have different types")
    steps: dict[tuple[int, tuple[Register, ...]], list[FragmentProduct]] = {}
    for warp, products in enumerate(by_warp):
        for one in products:
            steps.setdefault((warp, one.sums), []).append(one)
    depth = _DEPTH * len(next(iter(steps.values())))
    places: dict[tuple[int, tuple[Register, ...]], tuple[int, int]] = {}
    for key, products in steps.items():
        where = {(one.a.outer, one.b.outer) for one in products}
        met = sorted((one.a.depth, one.b.depth) for one in products)
        if len(where) != 1 or met != [(k, k) for k in range(0, depth, _DEPTH)]:
            raise NotApplicableError("the sums are not formed over all steps of K in the tiles")
        (places[key],) = where
    rows = 16 * len({row for row, _ in places.values()})
    width = every[0].columns
    columns = width * len({column for _, column in places.values()})
    wanted = [(row, column) for row in range(0, rows, 16) for column in range(0, columns, width)]
    if sorted(places.values()) != wanted:
        raise NotApplicableError("the warps' blocks of the result are not one tile")
    shared = [_read_by_two(places, side) for side in (0, 1)]
    operands = [
        TileOperand(one.tile, one.moved, one.turned, (depth, outer) if one.turned else (outer, depth), both)
        for one, outer, both in ((a, rows, shared[0]), (b, columns, shared[1]))
    ]
    for one in operands:
        _check_stage(one)
    return BlockProduct(block, instructions, loop, region, operands[0], operands[1], _kind(a), depth, places)


def _check_stage(operand: TileOperand) -> None:
    """Refuse an operand that is not one stage of its tile, or a tile without stages."""
    extents = operand.tile.extents
    size = prod(extents[-2:])
    staged = len(extents) == 3 and all(n % size == 0 for n in operand.moved.terms.values())
    within = operand.shape[0] <= extents[-2] and operand.shape[1] <= extents[-1]
    if not within or not (staged or not operand.moved.terms):
        raise NotApplicableError(f"which part of `{operand.tile.name}` is multiplied is not known")


def _read_by_two(places: Mapping[tuple[int, tuple[Register, ...]], tuple[int, int]], side: int) -> bool:
    """Return True if two warps or more have each row, or each column for side 1."""
    warps: dict[int, set[int]] = {}
    for (warp, _), place in places.items():
        warps.setdefault(place[side], set()).add(warp)
    return all(len(found) > 1 for found in warps.values())


def _of(one: OperandBlock) -> tuple[Tile, Polynomial, bool]:
    return one.tile, one.moved, one.turned


def _kind(one: OperandBlock) -> str:
    """Return the type of an operand's elements as PTX names it.

    Raises:
        NotApplicableError: it is another than those of 16 bits, or its tile has no rows.
    """
    if one.tile.type not in TENSOR_KINDS or len(one.tile.extents) not in (2, 3):
        raise NotApplicableError(f"`{one.tile.name}` is no tile of rows of 16-bit floats")
    return TENSOR_KINDS[one.tile.type]


def zeroed_by(product: BlockProduct, statements: Sequence[Node]) -> set[Register]:
    """Return the registers that statements set to 0, which do nothing else.

    Raises:
        NotApplicableError: they do something else.
    """
    run = lane_at(product.block, product.instructions, 0)
    for statement in statements:
        run.step(statement, ())
    if run.products or run.loads:
        raise NotApplicableError("the sums do not begin with 0")
    return run.zeroed
