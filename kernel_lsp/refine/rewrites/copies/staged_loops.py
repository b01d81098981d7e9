"""Find loops of a block that fill tiles in shared memory, wait, compute from them, and wait again."""

import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.block_copies import CopiedRows, copied_rows
from kernel_lsp.refine.rewrites.copies.block_names import BlockNames, Tile, element_bytes
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    LOOPS,
    KernelTree,
    around,
    assigned,
    bare,
    declared_names,
    names,
    written,
)
from kernel_lsp.refine.rewrites.reading.loops import loop_step
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.trees import field, text_of, walk

_FOREIGN = re.compile(
    r"mbarrier|cp\.async\.bulk|__threadfence|\bvolatile\s+[a-z]|cooperative_groups|\bcg::|memcpy_async\(b"
)
_SILENT = ("comment", "preproc_call")
_LOOPS = (*LOOPS, "switch_statement")
_READERS = re.compile(r"(?:wmma::)?load_matrix_sync|__cvta_generic_to_shared|\w*ldmatrix\w*")


@dataclass(frozen=True)
class BlockSteps:
    """`for (variable = start; variable < limit; variable += step)`: all threads of a block take the same steps.

    Attributes:
        block: the block.
        variable: name of the loop's variable.
        type: type of the variable.
        start: first value.
        limit: value that ends it.
        step: by how much it grows, as text.
    """

    block: BlockNames
    variable: str
    type: str
    start: Node
    limit: Node
    step: str


@dataclass(frozen=True)
class TileFill:
    """A statement that fills rows of tiles, with its comments."""

    node: Node
    comments: tuple[Node, ...]
    rows: tuple[CopiedRows, ...]


@dataclass(frozen=True)
class StagedLoop:
    """`for (variable = start; variable < limit; variable += step)` over steps that fill tiles and compute from them.

    Attributes:
        tree: the kernel.
        block: the block whose threads fill the tiles.
        node: the loop.
        variable: name of its variable.
        type: type of the variable.
        start: first value.
        limit: value that ends it.
        step: by how much it grows, as text.
        fills: statements that fill tiles with whole rows.
        local: declarations ahead of the first barrier that only these use, with their comments.
        groups: statements there that close and await groups of asynchronous copies.
        mixed: other statements stand ahead of the first barrier, which threads have to run at each step.
        barrier: statement after which the tiles are read.
    """

    tree: KernelTree
    block: BlockNames
    node: Node
    variable: str
    type: str
    start: Node
    limit: Node
    step: str
    fills: tuple[TileFill, ...]
    local: tuple[Node, ...]
    groups: tuple[Node, ...]
    mixed: bool
    barrier: Node

    @property
    def body(self) -> Node:
        """Return the loop's block."""
        return field(self.node, "body")

    def tiles(self) -> list[Tile]:
        """Return the tiles that are filled, each once."""
        return list({rows.tile.name: rows.tile for fill in self.fills for rows in fill.rows}.values())


def find_tiles(tree: KernelTree) -> dict[str, Tile]:
    """Return static arrays in shared memory whose extents are known numbers."""
    found: dict[str, Tile] = {}
    block = BlockNames(tree, (1, 1, 1), {}, frozenset(), 0, 0)
    for name, (declaration, value) in tree.declarations.items():
        head = text_of(declaration).split("[")[0]
        if "__shared__" not in head or "extern" in head or value is not None:
            continue
        extents: list[int | None] = []
        for node in _array(declaration, name):
            size = node.child_by_field_name("size")
            extents.insert(0, block.indices.of(size).value if size is not None else None)
        kind = tree.named_type(text_of(field(declaration, "type")))
        sizes = tuple(n for n in extents if n is not None)
        if sizes and len(sizes) == len(extents):
            try:
                found[name] = Tile(name, kind, element_bytes(tree, kind), sizes)
            except NotApplicableError:
                continue
    return found


def _array(declaration: Node, name: str) -> Iterator[Node]:
    """Yield the array declarators of a name, from the last extent to the first."""
    for declarator in declaration.children_by_field_name("declarator"):
        node, arrays = declarator, list[Node]()
        while (inner := node.child_by_field_name("declarator")) is not None:
            arrays += [node] if node.type == "array_declarator" else []
            node = inner
        if text_of(node) == name:
            yield from arrays


def check_form(tree: KernelTree) -> None:
    """Refuse a kernel that synchronises in ways that are not followed.

    Raises:
        NotApplicableError: it does; the text names what it uses.
    """
    if match := _FOREIGN.search(text_of(tree.body)):
        raise NotApplicableError(f"the kernel uses `{match[0].strip()}`")


def find_staged_loop(tree: KernelTree, shape: tuple[int, int, int]) -> StagedLoop:
    """Return the first loop of a kernel that fills tiles with whole rows, for blocks of a shape.

    Raises:
        NotApplicableError: there is none; the text says what the first one that fills tiles does otherwise.
    """
    check_form(tree)
    tiles = find_tiles(tree)
    refused: NotApplicableError | None = None
    for node in tree.body.named_children:
        if node.type == "for_statement" and names(node) & tiles.keys():
            try:
                return _staged(tree, shape, tiles, node)
            except NotApplicableError as error:
                refused = refused or error
            except LookupError:
                continue
    raise refused or NotApplicableError("no loop of the whole block fills static tiles in shared memory")


def _staged(tree: KernelTree, shape: tuple[int, int, int], tiles: Mapping[str, Tile], node: Node) -> StagedLoop:
    """Return a loop as a staged one, or refuse it."""
    steps = block_steps(tree, shape, tiles, node)
    statements = field(node, "body").named_children
    barriers = barriers_in(statements)
    filled = _filled(steps.block, statements[: barriers[0]], statements[barriers[0] :])
    loop = StagedLoop(
        tree,
        steps.block,
        node,
        steps.variable,
        steps.type,
        steps.start,
        steps.limit,
        steps.step,
        *filled,
        statements[barriers[0]],
    )
    computing = statements[barriers[0] + 1 : barriers[-1]]
    check_tiles(tree, node, loop.tiles(), [fill.node for fill in loop.fills], computing)
    check_memory(tree, loop.fills, node.end_byte)
    return loop


def block_steps(tree: KernelTree, shape: tuple[int, int, int], tiles: Mapping[str, Tile], node: Node) -> BlockSteps:
    """Return a `for` as steps that a whole block takes.

    Raises:
        NotApplicableError: threads may leave ahead of it or in it, or take different steps.
    """
    if any(n.type == "return_statement" and n.start_byte < node.end_byte for n in walk(tree.body)):
        raise NotApplicableError("threads may leave ahead of the loop or in it")
    declaration, condition, body = (field(node, name) for name in ("initializer", "condition", "body"))
    declarators = declaration.children_by_field_name("declarator") if declaration.type == "declaration" else []
    if len(declarators) != 1 or condition.type != "binary_expression" or body.type != "compound_statement":
        raise NotApplicableError("the loop does not count up to a limit")
    variable = text_of(field(declarators[0], "declarator"))
    step, limit = loop_step(field(node, "update"), variable), field(condition, "right")
    counts = text_of(field(condition, "operator")) == "<" and text_of(bare(field(condition, "left"))) == variable
    if step is None or not counts:
        raise NotApplicableError("the loop does not count up to a limit")
    block = BlockNames(tree, shape, tiles, frozenset({variable}), body.start_byte, body.end_byte)
    start, fixed = field(declarators[0], "value"), [limit] if isinstance(step, str) else [limit, step]
    if not all(block.is_uniform(n) for n in (start, *fixed)) or variable in assigned(body).union(*map(names, fixed)):
        raise NotApplicableError("threads may take different steps")
    by = step if isinstance(step, str) else text_of(step)
    return BlockSteps(block, variable, text_of(field(declaration, "type")), start, limit, by)


def barriers_in(statements: Sequence[Node]) -> list[int]:
    """Return the places of the barriers of a step.

    Raises:
        NotApplicableError: there are not both one before the tiles are read and one after.
    """
    found = [at for at, one in enumerate(statements) if is_barrier(one)]
    if len(found) < 2:
        raise NotApplicableError("a step does not wait both before its tiles are read and after")
    return found


def is_barrier(node: Node) -> bool:
    """Return True for `__syncthreads();`."""
    return "".join(text_of(node).split()) == "__syncthreads();"


def _filled(
    block: BlockNames, ahead: Sequence[Node], after: Sequence[Node]
) -> tuple[tuple[TileFill, ...], tuple[Node, ...], tuple[Node, ...], bool]:
    """Return what fills tiles ahead of the first barrier, what else belongs to that, and if there is more."""
    fills: list[TileFill] = []
    declarations: list[Node] = []
    said: dict[int, list[Node]] = {}
    groups: list[Node] = []
    other: list[Node] = []
    comments: list[Node] = []
    refused: NotApplicableError | None = None
    for node in ahead:
        if node.type in _SILENT:
            comments.append(node)
            continue
        if node.type == "declaration":
            declarations.append(node)
            said[node.id] = comments
        elif _is_group(block, node):
            groups.append(node)
        else:
            try:
                fills.append(TileFill(node, tuple(comments), copied_rows(block, node, declarations)))
            except NotApplicableError as error:
                refused = refused or error
                other.append(node)
        comments = []
    fills = [one for one in fills if one.rows]
    if any(rows.moved.terms for one in fills for rows in one.rows):
        raise NotApplicableError("the tiles have stages of their own")
    if not fills:
        raise refused or NotApplicableError("the loop fills no tile ahead of its first barrier")
    filled = {rows.tile.name for one in fills for rows in one.rows}
    if refused is not None and any(names(one) & filled for one in other):
        raise refused
    used = set[str]().union(*(names(one) for one in (*other, *after)))
    local = [one for one in declarations if not declared_names(one) & used]
    local += [comment for one in local for comment in said[one.id]]
    return tuple(fills), tuple(local), tuple(groups), bool(other)


def _is_group(block: BlockNames, node: Node) -> bool:
    call = node.named_children[0] if node.type == "expression_statement" and node.named_child_count else None
    return (
        call is not None and call.type == "call_expression" and block.is_bookkeeping(text_of(field(call, "function")))
    )


def check_tiles(
    tree: KernelTree, loop: Node, tiles: Iterable[Tile], filling: Sequence[Node], computing: Sequence[Node]
) -> None:
    """Refuse tiles that are used elsewhere than where a step fills them and computes from them, or changed there.

    Raises:
        NotApplicableError: they are, or a step may end early.
    """
    places = [*computing, *filling]
    for tile in tiles:
        declaration = tree.declarations[tile.name][0]
        if declaration.parent != tree.body:
            raise NotApplicableError(f"`{tile.name}` is declared in the loop")
        for use in walk(tree.body):
            if use.type != "identifier" or text_of(use) != tile.name:
                continue
            if declaration.start_byte <= use.start_byte < declaration.end_byte:
                continue
            if not any(one.start_byte <= use.start_byte < one.end_byte for one in places):
                raise NotApplicableError(f"`{tile.name}` is used outside of the steps")
        if not all(only_reads(use) for one in computing for use in walk(one) if _is_named(use, tile.name)):
            raise NotApplicableError(f"`{tile.name}` may be changed by what computes from it")
    for one in computing:
        for jump in walk(one):
            if jump.type in ("break_statement", "continue_statement", "goto_statement") and _leaves(jump, loop):
                raise NotApplicableError("a step may end early")


def _is_named(node: Node, name: str) -> bool:
    return node.type == "identifier" and text_of(node) == name


def _leaves(jump: Node, loop: Node) -> bool:
    """Return True if a jump ends a step of the loop, and not of one within."""
    left = next((parent for parent in around(jump) if parent.type in _LOOPS), None)
    return left == loop or jump.type == "goto_statement"


def only_reads(use: Node) -> bool:
    """Return True if a tile is read here, as an element or through a pointer to what is constant."""
    node, parent = use, use.parent
    while parent is not None and parent.type in (
        *("subscript_expression", "parenthesized_expression", "pointer_expression", "binary_expression"),
        *("subscript_argument_list", "cast_expression"),
    ):
        if parent.type == "subscript_expression" and field(parent, "argument") != node:
            return True  # an index
        node, parent = parent, parent.parent
    if parent is None or parent.type == "update_expression":
        return False
    if parent.type == "assignment_expression":
        return field(parent, "left") != node and node.type != "identifier"
    if parent.type == "init_declarator":
        declaration = parent.parent
        points = "*" in text_of(field(parent, "declarator")) or "&" in text_of(field(parent, "declarator"))
        return not points or (declaration is not None and text_of(declaration).startswith("const"))
    if parent.type == "argument_list" and parent.parent is not None and parent.parent.type == "call_expression":
        called = text_of(field(parent.parent, "function"))
        if called.startswith("reinterpret_cast<const"):
            return True
        return _READERS.fullmatch(called) is not None or (_is_element(node) and not called.startswith("atomic"))
    return True


def _is_element(node: Node) -> bool:
    return node.type in ("subscript_expression", "binary_expression") and "&" not in text_of(node)


def check_memory(tree: KernelTree, fills: Sequence[TileFill], until: int) -> None:
    """Refuse a kernel that may write what its fills copy from; see `check_sources`."""
    sources = {rows.source for fill in fills for rows in fill.rows}
    check_sources(tree, sources, [fill.node for fill in fills], until)


def check_sources(tree: KernelTree, sources: Collection[str], filling: Sequence[Node], until: int) -> None:
    """Refuse a kernel that may write memory that statements copy from, ahead of a byte offset.

    Raises:
        NotApplicableError: it may.
    """
    kinds = {p.name: p.type for p in tree.kernel.parameters}
    if all("restrict" in kinds[name] and kinds[name].lstrip().startswith("const") for name in sources):
        return
    own = tree.declarations.keys() - tree.pointers.keys()
    for target in written(tree.body):
        base = bare(target)
        while base.type in ("subscript_expression", "field_expression"):
            base = bare(field(base, "argument"))
        known = base.type == "identifier" and (text_of(base) in own or base == bare(target))
        if target.start_byte < until and not known:
            raise NotApplicableError("memory may be changed that is copied later")
    for call in walk(tree.body):
        if call.type == "call_expression" and call.start_byte < until and _may_write(tree, filling, call):
            raise NotApplicableError("memory may be changed that is copied later")


def _may_write(tree: KernelTree, filling: Sequence[Node], call: Node) -> bool:
    """Return True for a call, not one that fills a tile, that is given a pointer to global memory."""
    copies = any(one.start_byte <= call.start_byte < one.end_byte for one in filling)
    return not copies and bool(names(field(call, "arguments")) & tree.pointers.keys())
