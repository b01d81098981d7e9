"""Compute several outputs per thread of a tiled product: fewer loads from shared memory for each multiply-add.

A kernel whose threads each combine a row of one shared tile with a column of another loads two values for every
multiply-add. Here each block does the work of `TILES_Y` x `TILES_X` of its former blocks at once, its threads those of
the threads that stood in the same place. Data that depend only on the former block's row of blocks, such as the tile of
the left operand, are held `TILES_Y` times, data that depend only on its column `TILES_X` times, and only the sums as
often as both: TILES_Y + TILES_X loads for TILES_Y * TILES_X multiply-adds (Volkov, "Better performance at lower
occupancy", GTC 2010). Values that a thread reads of several tiles lie side by side, so that a load brings four of them,
unless it reads neighbours anyway. Every sum is formed in the same order as before, so results keep their bits.

Many sums take so many registers that one block fills a multiprocessor, and nothing computes while it waits. Then there
is a version, too, whose launch bounds make the compiler spend so few that two blocks fit.
"""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from math import prod

from tree_sitter import Node

from kernel_lsp.device.architectures import REGISTERS, STATIC_SHARED_BYTES, THREAD_REGISTERS
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.products.tiled_product import (
    NO_AXES,
    Axes,
    TiledProduct,
    find_tiled_product,
    is_list,
    shared_arrays,
    subscripts_of,
)
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    declaration_head,
    declared_identifier,
    indent_at,
    whole_line,
)
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.refine.rewrites.writing.launches import fewer_blocks
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

# Along y and x, in the order of promise: the left operand's values are neighbours along k and load four at a time.
_TILES = ((4, 4), (8, 4), (8, 8), (4, 8), (2, 4), (2, 2))
_MANY = 64  # sums of a thread that fill a multiprocessor's registers with one block
_REGISTERS_EACH = 1.75  # for a sum and for what it is formed of: 8 x 8 do with 128, and 166 are taken of 255
_WORD = 16  # bytes that a thread loads at once
_ASSUMED_EXTENT = 32  # of a tile whose size is set at launch
_SIZES = {"double": 8, "half": 2, "__half": 2, "__nv_bfloat16": 2, "nv_bfloat16": 2}


def _shared_bytes(found: TiledProduct, tiles: Mapping[str, int]) -> int:
    """Return the bytes of static shared memory of the rewritten kernel."""
    total = 0
    for name, (declaration, declarator) in shared_arrays(found.tree).items():
        extents = [field(n, "size") for n in walk(declarator) if n.type == "array_declarator"]
        extent = prod(_extent(found.tree, text_of(n)) for n in extents)
        held = prod(tiles[axis] for axis in found.axes.get(name, NO_AXES))
        size = _element_bytes(declaration)
        total += size * extent * (held + (_spare(held, size) if name in found.apart else 0))
    return total


def _element_bytes(declaration: Node) -> int:
    return _SIZES.get(text_of(field(declaration, "type")), 4)


def _spare(count: int, element_bytes: int) -> int:
    """Return the elements that keep groups of `count`, which threads load 16 bytes at a time, in different banks."""
    return _WORD // element_bytes if count * element_bytes > _WORD else 0


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
    """Writes the rewritten kernel: numbers of tiles, names for them, and names for the current tile on each axis."""

    found: TiledProduct
    tiles: Mapping[str, int]
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
                end = subscripts_of(n)[-1].end_byte - node.start_byte if name in self.found.apart else span.end
                edits.append(Edit(Span(end, end), self._index(name, self.at)))
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
                # Values are assigned after it: they could not initialise an array of constants.
                head = declaration_head(node)
                head = head if "*" in text_of(shape) else re.sub(r"\bconst\s+", "", head)
                zeros = " = {}" if is_list(value) else ""
                lines.append(f"{self._aligned(name, head)}{self._with_room(node, name, shape)}{zeros};")
                if value is not None and not zeros:
                    first = f"{name}{self._index(name, self.at)} = {self.text(value)};"
                    needed = self.found.needed([value])
                    lines.append(self._nest([first], needed, self.found.axes[name], pad).lstrip(" "))
        return "\n".join(line if line.startswith("#") or not at else pad + line for at, line in enumerate(lines))

    def _with_room(self, declaration: Node, name: str, shape: Node) -> str:
        """Return a declarator with room for every tile: side by side where a thread reads one value of each."""
        if name not in self.found.apart:
            end = declared_identifier(shape).end_byte - shape.start_byte
            return apply_edits(text_of(shape), [Edit(Span(end, end), self._index(name, self.counts))])
        (axis,) = self.found.axes[name]
        spare = _spare(self.tiles[axis], _element_bytes(declaration))
        return f"{text_of(shape)}[{self.counts[axis]}{f' + {spare}' if spare else ''}]"

    def _aligned(self, name: str, head: str) -> str:
        """Return the head of a declaration, with what loads of several values ask for."""
        if name not in self.found.apart or "align" in head:
            return head
        return head.replace("__shared__", f"alignas({_WORD}) __shared__", 1)


def _rewritten(found: TiledProduct, tiles: Mapping[str, int]) -> KernelTree:
    tree = found.tree
    source = tree.file.text
    counts = {axis: tree.fresh(f"TILES_{axis.upper()}") for axis in "yx"}
    writer = _Writer(found, tiles, counts, {axis: tree.fresh(f"tile_{axis}") for axis in "yx"})
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


def _bounded(tree: KernelTree, workload: SourceFile | None, sums: int) -> KernelTree | None:
    """Return a kernel of so many sums a thread, two blocks of which share the registers of a multiprocessor.

    None where two fit anyway, the registers would not do, or the threads of a block are not known.
    """
    sizes = {prod(n or 0 for n in site.shape()) for site in find_launches(tree, workload) or ()}
    threads = sizes.pop() if len(sizes) == 1 and not tree.kernel.launch_bounds else 0
    if not threads or not _REGISTERS_EACH * sums <= REGISTERS // (2 * threads) < THREAD_REGISTERS:
        return None
    definition = tree.body.parent
    assert definition is not None, "a kernel has a signature"
    at = field(definition, "declarator").start_byte
    return tree.edited(Edit(Span(at, at), f"__launch_bounds__({threads}, 2) "))


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


def _runs(found: TiledProduct) -> Iterator[list[Node]]:
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
        found = find_tiled_product(KernelTree(kernel_file, kernel))
        if found is None:
            return
        for rows, columns in _TILES:
            tiles = {"y": rows, "x": columns}
            if _shared_bytes(found, tiles) > STATIC_SHARED_BYTES:
                continue
            label = f"{rows} x {columns} outputs per thread"
            made = _rewritten(found, tiles)
            bounded = _bounded(made, workload_file, rows * columns) if rows * columns >= _MANY else None
            for tree, how in ((made, ""), (bounded, ", two blocks a multiprocessor")):
                if tree is not None and (files := fewer_blocks(tree, workload_file, columns, rows)):
                    yield Candidate(kernel.language, *files, f"{label}{how}", "rewrite:register_tile")
    except LookupError:
        return
