"""Compute several outputs per thread of a tiled product: fewer loads from shared memory for each multiply-add.

A kernel whose threads each combine a row of one shared tile with a column of another loads two values for every
multiply-add. Here each block does the work of `TILES_Y` x `TILES_X` of its former blocks at once, its threads those of
the threads that stood in the same place. Data that depend only on the former block's row of blocks, such as the tile of
the left operand, are held `TILES_Y` times, data that depend only on its column `TILES_X` times, and only the sums as
often as both: TILES_Y + TILES_X loads for TILES_Y * TILES_X multiply-adds (Volkov, "Better performance at lower
occupancy", GTC 2010). Every sum is formed in the same order as before, so results keep their bits.
"""

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tree_sitter import Node

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    LOOPS,
    KernelTree,
    declaration_head,
    declared_identifier,
    function_names,
    indent_at,
    names,
    whole_line,
    written,
)
from kernel_lsp.refine.rewrites.writing.launches import fewer_blocks
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

Axes = frozenset[str]

# Along y and x, in the order of promise: the left operand's values are neighbours along k and load four at a time.
_TILES = ((4, 4), (8, 4), (8, 8), (4, 8), (2, 4), (2, 2))
_ASSUMED_EXTENT = 32  # of a tile whose size is set at launch
_NONE: Axes = frozenset()
_BOTH: Axes = frozenset("xy")
_FOREIGN = re.compile(r"atomic|\basm\b|gridDim|wmma|mma_|cp_async|__pipeline|memcpy|cooperative_groups|cluster")
_LEAPS = {"return_statement", "goto_statement", "lambda_expression", "switch_statement", "labeled_statement"}
_OPAQUE = {"subscript_expression", "call_expression", "pointer_expression"}
_SIZES = {"double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}


@dataclass(frozen=True)
class _Product:
    """A tiled product: which of the kernel's variables depend on which axis of the grid.

    Attributes:
        tree: the kernel.
        axes: the axes that a local or shared variable depends on, by name; not those that depend on none.
    """

    tree: KernelTree
    axes: Mapping[str, Axes]

    def of(self, node: Node) -> Axes:
        """Return the axes of the grid that a node depends on."""
        return _axes_of(node, self.axes)

    @cached_property
    def parts(self) -> list[Node]:
        """Return the largest statements to repeat as a whole, in order, without declarations."""
        return list(self._parts(self.tree.body))

    def _parts(self, node: Node) -> Iterator[Node]:
        for child in node.named_children:
            inner = child.type in (*LOOPS, "if_statement", "compound_statement", "else_clause")
            if inner and not any(self.of(head) for head in _heads(child)):
                yield from self._parts(child)
            elif child.type != "declaration" and (child.type.endswith("_statement") and self.of(child)):
                yield child

    @cached_property
    def declared(self) -> dict[str, tuple[Node, Node]]:
        """Return declaration and declarator of each dependent variable outside of all parts."""
        inside = [span_of(part) for part in self.parts]
        found: dict[str, tuple[Node, Node]] = {}
        for declaration, declarator, name in _declarators(self.tree.body):
            if name in self.axes and not any(part.holds(span_of(declaration)) for part in inside):
                found[name] = declaration, declarator
        return found

    @cached_property
    def recomputed(self) -> set[str]:
        """Return dependent variables that are arithmetic on fixed values, computed again where they are used."""
        moving = _changed(self.tree.body) - _loop_variables(self.tree.body)
        return {
            name
            for name in self.declared
            if (value := self.tree.values.get(name)) is not None
            and not any(n.type in _OPAQUE for n in walk(value))
            and not names(value) & moving
        }

    def needed(self, nodes: list[Node]) -> list[str]:
        """Return the recomputed variables that the nodes use, in the order of their declarations."""
        reached: set[str] = set()
        todo = {name for node in nodes for name in names(node)} & self.recomputed
        while todo:
            reached |= todo
            todo = {n for name in todo for n in names(self.tree.values[name])} & self.recomputed - reached
        return [name for name in self.declared if name in reached]


def _axes_of(node: Node, axes: Mapping[str, Axes]) -> Axes:
    found: set[str] = set()
    for n in walk(node):
        if n.type == "identifier":
            found |= axes.get(text_of(n), _NONE)
        elif n.type == "field_expression" and text_of(n) in ("blockIdx.x", "blockIdx.y"):
            found.add(text_of(n)[-1])
    return frozenset(found)


def _heads(node: Node) -> list[Node]:
    """Return the nodes that decide if and how often a statement's body runs."""
    named = (node.child_by_field_name(name) for name in ("initializer", "condition", "update"))
    return [head for head in named if head is not None]


def _declarators(body: Node) -> Iterator[tuple[Node, Node, str]]:
    """Yield every declarator in the kernel with its declaration and the name that it declares."""
    for declaration in walk(body):
        for declarator in declaration.children_by_field_name("declarator") if declaration.type == "declaration" else ():
            yield declaration, declarator, text_of(declared_identifier(declarator))


def _base(target: Node) -> Node:
    """Return the variable that an assignment changes, as a whole or in part."""
    while target.type == "subscript_expression":
        target = field(target, "argument")
    return target


def _changed(body: Node) -> set[str]:
    return {text_of(_base(target)) for target in written(body)}


def _loop_variables(body: Node) -> set[str]:
    """Return variables of loops that change in the loop's head alone."""
    found: set[str] = set()
    for node in walk(body):
        head, update = node.child_by_field_name("initializer"), node.child_by_field_name("update")
        if node.type == "for_statement" and head is not None and update is not None:
            found |= _changed(update) - _changed(field(node, "body"))
    return found


def _dependences(tree: KernelTree) -> dict[str, Axes]:
    """Return the axes that each variable of the kernel depends on, through values, indices and conditions alike."""
    sources: list[tuple[str, Node]] = []
    for _, declarator, name in _declarators(tree.body):
        if (value := declarator.child_by_field_name("value")) is not None:
            sources.append((name, value))
    for node in walk(tree.body):
        if node.type in ("assignment_expression", "update_expression"):
            target = field(node, "left" if node.type == "assignment_expression" else "argument")
            over, outer = [node], node.parent
            while outer is not None and outer != tree.body:
                over += [head for head in _heads(outer) if head != node]
                outer = outer.parent
            sources += [(text_of(_base(target)), n) for n in over]
    local = {name for _, _, name in _declarators(tree.body)}
    axes: dict[str, Axes] = {}
    while True:
        before = dict(axes)
        for name, source in sources:
            if name in local and (found := _axes_of(source, axes)):
                axes[name] = axes.get(name, _NONE) | found
        if axes == before:
            return axes


def _shared(tree: KernelTree) -> dict[str, tuple[Node, Node]]:
    """Return declaration and declarator of each static shared array."""
    return {
        name: (declaration, declarator)
        for declaration, declarator, name in _declarators(tree.body)
        if declarator.type == "array_declarator" and "__shared__" in text_of(declaration)
    }


def _find(tree: KernelTree) -> _Product | None:
    """Return the kernel as a tiled product; None if it is no product, or must not be spread over fewer blocks."""
    body = text_of(tree.body)
    if _FOREIGN.search(body) or "extern __shared__" in body or any(n.type in _LEAPS for n in walk(tree.body)):
        return None
    if any("blockIdx" in text_of(function) for function in _helpers(tree)):
        return None
    if any(text_of(user) not in ("blockIdx.x", "blockIdx.y", "blockIdx.z") for user in _users(tree, {"blockIdx"})):
        return None
    found = _Product(tree, _dependences(tree))
    shared = _shared(tree)
    return found if _is_product(found, shared) and _is_repeatable(found, shared) else None


def _helpers(tree: KernelTree) -> Iterator[Node]:
    """Yield macros and functions of the file that the kernel uses."""
    used = names(tree.body)
    for node in walk(tree.root):
        if node.type in ("preproc_def", "preproc_function_def"):
            defined = {text_of(field(node, "name"))}
        elif node.type == "function_definition" and not span_of(node).holds(tree.kernel.body):
            defined = function_names(node)
        else:
            continue
        if defined & used:
            yield node


def _users(tree: KernelTree, wanted: Collection[str]) -> Iterator[Node]:
    """Yield the parent nodes of these variables' uses."""
    for node in walk(tree.body):
        if node.type == "identifier" and text_of(node) in wanted and node.parent is not None:
            yield node.parent


def _is_product(found: _Product, shared: Collection[str]) -> bool:
    """Return True if an innermost loop combines a shared array of the rows with one of the columns in one variable."""
    by_row, by_column = ({n for n in shared if found.axes.get(n, _NONE) == frozenset(axis)} for axis in "yx")
    for loop in walk(found.tree.body):
        if loop.type != "for_statement" or sum(n.type in LOOPS for n in walk(loop)) > 1:
            continue
        used, sums = names(loop), _changed(field(loop, "body")) - set(shared)
        if used & by_row and used & by_column and any(found.axes.get(n, _NONE) == _BOTH for n in sums):
            return True
    return False


def _is_repeatable(found: _Product, shared: Collection[str]) -> bool:
    """Return True if each statement that depends on the grid is free of barriers and checks its bounds."""
    tree = found.tree
    counts: dict[str, int] = {}
    for _, _, name in _declarators(tree.body):
        counts[name] = counts.get(name, 0) + 1
    if any(counts[name] != 1 for name in found.axes) or any(found.of(n) for n in _loop_heads(found)):
        return False
    for name, (declaration, _) in found.declared.items():
        if name not in found.recomputed and text_of(field(declaration, "type")) == "auto":
            return False
    if any(user.type not in ("subscript_expression", "array_declarator") for user in _users(tree, shared)):
        return False
    return all(not tree.collective(part) and _is_guarded(found, part) for part in found.parts)


def _loop_heads(found: _Product) -> Iterator[Node]:
    """Yield heads of the loops that contain barriers: all blocks must run them equally often."""
    for node in walk(found.tree.body):
        if node.type in LOOPS and found.tree.collective(node):
            yield from _heads(node)


def _is_guarded(found: _Product, part: Node) -> bool:
    """Return True if a block past the edge, as the last of a smaller grid may be, touches no memory there."""
    checked: set[str] = set()
    for node in walk(part):
        if (condition := node.child_by_field_name("condition")) is not None:
            checked |= found.of(condition)
    touched: set[str] = set()
    for node in walk(part):
        indexed = node.type == "subscript_expression" and text_of(_base(node)) in found.tree.pointers
        if indexed or (node.type == "pointer_expression" and text_of(node).startswith("*")):
            touched |= found.of(node)
    return touched <= checked


def _shared_bytes(found: _Product, tiles: Mapping[str, int]) -> int:
    """Return the bytes of static shared memory of the rewritten kernel."""
    total = 0
    for name, (declaration, declarator) in _shared(found.tree).items():
        extents = [field(n, "size") for n in walk(declarator) if n.type == "array_declarator"]
        size = _SIZES.get(text_of(field(declaration, "type")), 4)
        extent = prod(_extent(found.tree, text_of(n)) for n in extents)
        total += size * extent * prod(tiles[axis] for axis in found.axes.get(name, _NONE))
    return total


def _extent(tree: KernelTree, text: str) -> int:
    """Return the value of an array's extent: sums and products of numbers and constants of the file."""
    total = 0
    for term in text.split("+"):
        factors = [factor.strip(" ()") for factor in term.split("*")]
        total += prod(int(f) if f.isdigit() else _constant(tree.file.text, f) for f in factors)
    return total


def _constant(text: str, name: str) -> int:
    match = re.search(rf"\b{re.escape(name)}\s*=?\s*\(?(\d+)", text)
    return int(match[1]) if match else _ASSUMED_EXTENT


@dataclass(frozen=True)
class _Writer:
    """Writes the rewritten kernel, with names for the number of tiles and for the current tile on each axis."""

    found: _Product
    counts: Mapping[str, str]
    at: Mapping[str, str]

    def text(self, node: Node) -> str:
        """Return a node's text for the current tile."""
        edits: list[Edit] = []
        for n in walk(node):
            span = Span(n.start_byte - node.start_byte, n.end_byte - node.start_byte)
            if n.type == "field_expression" and text_of(n) in ("blockIdx.x", "blockIdx.y"):
                axis = text_of(n)[-1]
                edits.append(Edit(span, f"(blockIdx.{axis} * {self.counts[axis]} + {self.at[axis]})"))
            elif n.type == "identifier" and self._is_many(name := text_of(n)):
                edits.append(Edit(span, name + self._index(name, self.at)))
        return apply_edits(text_of(node), edits)

    def _is_many(self, name: str) -> bool:
        return name in self.found.declared and name not in self.found.recomputed

    def _index(self, name: str, by: Mapping[str, str]) -> str:
        return "".join(f"[{by[axis]}]" for axis in "yx" if axis in self.found.axes[name])

    def repeated(self, statements: list[Node], axes: Axes, pad: str) -> str:
        """Return statements once for each tile along `axes`, with the variables that they need, as unrolled loops."""
        texts = [self.text(node) for node in statements]
        return self._nest(texts, self.found.needed(statements), axes, pad)

    def _nest(self, texts: list[str], needed: list[str], axes: Axes, pad: str) -> str:
        lines: list[str] = []
        depth, over = pad, set[str]()
        for axis in (axis for axis in "yx" if axis in axes):
            over.add(axis)
            at, count = self.at[axis], self.counts[axis]
            lines += ["#pragma unroll", f"{depth}for (int {at} = 0; {at} < {count}; ++{at}) {{"]
            depth += "    "
            ready = [name for name in needed if self.found.axes[name] <= over]
            lines += [f"{depth}{self._declaration(name)}" for name in ready]
            needed = [name for name in needed if name not in ready]
        deeper = len(depth) - len(pad)
        lines += [depth + text.replace("\n", "\n" + " " * deeper) for text in texts]
        while depth != pad:
            depth = depth[:-4]
            lines.append(f"{depth}}}")
        return "\n".join(lines)

    def _declaration(self, name: str) -> str:
        declaration, declarator = self.found.declared[name]
        return f"{declaration_head(declaration)}{self.text(declarator)};"

    def declaration(self, node: Node, pad: str) -> str:
        """Return a declaration with room for every tile; recomputed variables are left out."""
        lines: list[str] = []
        for declarator in node.children_by_field_name("declarator"):
            name = text_of(declared_identifier(declarator))
            if name not in self.found.declared:
                lines.append(f"{declaration_head(node)}{text_of(declarator)};")
            elif name not in self.found.recomputed:
                value = declarator.child_by_field_name("value")
                shape = field(declarator, "declarator") if value is not None else declarator
                at = declared_identifier(shape)
                room = name + self._index(name, self.counts)
                end = Span(at.start_byte - shape.start_byte, at.end_byte - shape.start_byte)
                # Values are assigned after it: they could not initialise an array of constants.
                head = declaration_head(node)
                head = head if "*" in text_of(shape) else re.sub(r"\bconst\s+", "", head)
                lines.append(f"{head}{apply_edits(text_of(shape), [Edit(end, room)])};")
                if value is not None:
                    first = f"{name}{self._index(name, self.at)} = {self.text(value)};"
                    needed = self.found.needed([value])
                    lines.append(self._nest([first], needed, self.found.axes[name], pad).lstrip(" "))
        return "\n".join(line if line.startswith("#") or not at else pad + line for at, line in enumerate(lines))


def _rewritten(found: _Product, tiles: Mapping[str, int]) -> KernelTree:
    tree = found.tree
    source = tree.file.text
    counts = {axis: tree.fresh(f"TILES_{axis.upper()}") for axis in "yx"}
    writer = _Writer(found, counts, {axis: tree.fresh(f"tile_{axis}") for axis in "yx"})
    edits = [_edit(writer, source, run) for run in _runs(found)]
    for node in {d.id: d for d, _ in found.declared.values()}.values():
        pad = indent_at(source, node.start_byte)
        text = writer.declaration(node, pad)
        edits.append(Edit(span_of(node), text) if text else Edit(whole_line(source, span_of(node)), ""))
    first = next(n for n in tree.body.named_children if n.type != "comment")
    pad = indent_at(source, first.start_byte)
    lines = [f"\n{pad}constexpr int {counts[axis]} = {tiles[axis]};" for axis in "yx"]
    edits.append(Edit(Span(tree.body.start_byte + 1, tree.body.start_byte + 1), "".join(lines)))
    return tree.edited(*edits)


def _edit(writer: _Writer, source: str, run: list[Node]) -> Edit:
    """Return the edit of consecutive statements into loops over the tiles."""
    axes, pad = writer.found.of(run[0]), indent_at(source, run[0].start_byte)
    span = Span(run[0].start_byte, run[-1].end_byte)
    outer, before = run[0].parent, run[0].prev_sibling
    if outer is not None and before is not None and outer.type != "compound_statement":
        pad = indent_at(source, outer.start_byte)
        text = writer.repeated(run, axes, pad + "    ")
        return Edit(Span(before.end_byte, span.end), f" {{\n{text}\n{pad}}}")
    text, wide = writer.repeated(run, axes, pad), _from_line_start(source, span)
    return Edit(wide, text) if wide != span or not pad else Edit(span, f"\n{text}\n{pad}")


def _runs(found: _Product) -> Iterator[list[Node]]:
    """Yield consecutive parts that depend on the same axes, which share their loops."""
    run: list[Node] = []
    for part in found.parts:
        if run and run[-1].next_named_sibling == part and found.of(run[-1]) == found.of(part):
            run.append(part)
            continue
        if run:
            yield run
        run = [part]
    if run:
        yield run


def _from_line_start(source: str, span: Span) -> Span:
    """Return the span with the white space before it."""
    data = source.encode()
    start = data.rfind(b"\n", 0, span.start) + 1
    return Span(start, span.end) if not data[start : span.start].strip() else span


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 4 x 4, 8 x 4, ... outputs per thread, on a grid smaller by that along both axes."""
    try:
        found = _find(KernelTree(kernel_file, kernel))
        if found is None:
            return
        for rows, columns in _TILES:
            tiles = {"y": rows, "x": columns}
            if _shared_bytes(found, tiles) > STATIC_SHARED_BYTES:
                continue
            files = fewer_blocks(_rewritten(found, tiles), workload_file, columns, rows)
            if files:
                label = f"{rows} x {columns} outputs per thread"
                yield Candidate(kernel.language, *files, label, "rewrite:register_tile")
    except LookupError:
        return
