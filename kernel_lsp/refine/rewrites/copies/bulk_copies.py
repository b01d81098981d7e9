"""Bring tiles to shared memory by bulk copies, some steps ahead of the one that is computed (sm_90 and later).

A loop that loads a tile, waits, computes and waits again leaves memory idle while it computes. Here a ring of stages is
filled by the copy engine: a thread asks for a whole row of a tile with one instruction, which takes no registers and no
further instructions, and an `mbarrier` for each stage tells when all announced bytes have come. No tensor map is
needed, as a row is contiguous. Bulk copies bring no parts of 16 bytes and know no bounds in the middle of a tile: if a
step needs these, which is asked at run time, threads copy as before. Sums are formed in the same order.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tree_sitter import Node

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.copies.block_copies import CopiedRows
from kernel_lsp.refine.rewrites.copies.block_names import Tile
from kernel_lsp.refine.rewrites.copies.bulk_groups import in_bulk
from kernel_lsp.refine.rewrites.copies.bulk_text import (
    BulkRows,
    aligned,
    conditions,
    helpers,
    numbered,
    prepared,
    thread_number,
)
from kernel_lsp.refine.rewrites.copies.copy_groups import find_copy_groups
from kernel_lsp.refine.rewrites.copies.staged_loops import StagedLoop, find_staged_loop
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_identifier, indent_at
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_STAGES = (3, 4, 2)


@dataclass(frozen=True)
class _Ring:
    """Writes the kernel with a ring of stages."""

    loop: StagedLoop
    stages: int

    @property
    def tree(self) -> KernelTree:
        """Return the kernel as it was."""
        return self.loop.tree

    @cached_property
    def count(self) -> str:
        """Return the name of the number of stages."""
        return self.tree.fresh("STAGES")

    @cached_property
    def stage(self) -> str:
        """Return the name of the stage that is computed from."""
        return self.tree.fresh("stage")

    @cached_property
    def arrived(self) -> str:
        """Return the name of the barriers."""
        return self.tree.fresh("arrived")

    @cached_property
    def counted(self) -> bool:
        """Return True if the loop's own variable counts the steps."""
        return text_of(self.loop.start) == "0" and self.loop.step == "1"

    @cached_property
    def number(self) -> str:
        """Return the name of what counts the steps."""
        return self.loop.variable if self.counted else self.tree.fresh("step")

    @cached_property
    def all_rows(self) -> list[CopiedRows]:
        """Return what is brought in a step."""
        return [rows for fill in self.loop.fills for rows in fill.rows]

    @cached_property
    def thread(self) -> str:
        """Return the number of a thread in its block."""
        return thread_number(self.tree, self.loop.block.shape)

    def edits(self) -> list[Edit]:
        """Return all edits of the kernel."""
        loop = self.loop
        edits = [ahead_of(self.tree, loop.node, self._ahead())]
        if not self.counted:
            update = field(loop.node, "update")
            edits.append(Edit(span_of(update), f"{text_of(update)}, ++{self.number}"))
        return [helpers(self.tree), *self._declared(), *edits, *self._step()]

    def _declared(self) -> Iterator[Edit]:
        """Yield the edits that make the tiles stages of a ring, and declare the barriers."""
        tiles = self.loop.tiles()
        declarations = {self.tree.declarations[tile.name][0].id: self.tree.declarations[tile.name][0] for tile in tiles}
        ordered = sorted(declarations.values(), key=lambda node: node.start_byte)
        pad = indent_at(self.tree.file.text, ordered[0].start_byte)
        lines = f"constexpr int {self.count} = {self.stages};\n{pad}"
        yield Edit(Span(ordered[0].start_byte, ordered[0].start_byte), lines)
        yield from aligned(self.tree, tiles)
        for node in ordered:
            for declarator in node.children_by_field_name("declarator"):
                inner = declared_identifier(declarator)
                if text_of(inner) in {tile.name for tile in tiles}:
                    yield Edit(Span(inner.end_byte, inner.end_byte), f"[{self.count}]")
        end = ordered[-1].end_byte
        yield Edit(Span(end, end), f"\n{pad}__shared__ unsigned long long {self.arrived}[{self.count}];")

    def _ahead(self) -> Iterator[str]:
        """Yield the lines ahead of the loop."""
        loop, kind, variable = self.loop, self.loop.type, self.loop.variable
        barrier = f"&{self.arrived}[{self.stage}]"
        bulk = BulkRows(self.all_rows, self.stage, self.thread, prod(loop.block.shape), barrier)
        yield from numbered(loop.block.shape, self.thread)
        yield from prepared(self.thread, self.arrived, self.count)
        yield "// Bulk copies bring whole rows of tiles, in pieces of 16 bytes; where that does not do, threads copy."
        yield f"auto in_bulk = [&]({kind} {variable}) {{"
        asked = conditions(self.all_rows)
        yield f"    return {asked[0]}" + ("" if len(asked) > 1 else ";")
        for at, one in enumerate(asked[1:], start=2):
            yield f"        && {one}" + (";" if at == len(asked) else "")
        yield "};"
        yield f"auto bring = [&]({kind} {variable}, int {self.stage}) {{"
        yield f"    if ({variable} >= {text_of(loop.limit)}) return;"
        yield f"    const bool whole = in_bulk({variable});"
        yield f"    if ({self.thread} == 0) {{"
        yield f"        bulk::announce({barrier}, whole ? {bulk.total()} : 0);"
        yield "    }"
        yield from (f"    {line}" for line in bulk.copies("whole && "))
        yield "};"
        first = text_of(loop.start)
        start = "" if first == "0" else f"{closed(first)} + "
        later = "s" if loop.step == "1" else f"s * {closed(loop.step)}"
        yield f"// {self.count} - 1 steps are under way while one is computed."
        yield f"for (int s = 0; s < {self.count} - 1; ++s) bring({start}{later}, s);"
        if not self.counted:
            yield f"int {self.number} = 0;"

    def _step(self) -> Iterator[Edit]:
        """Yield the edits of the loop's block."""
        loop, data = self.loop, self.tree.file.text.encode()
        pad = indent_at(self.tree.file.text, loop.barrier.start_byte)
        later = f"({self.count} - 1)" if loop.step == "1" else f"({self.count} - 1) * {closed(loop.step)}"
        head = (
            f"const int {self.stage} = {self.number} % {self.count};",
            f"bring({loop.variable} + {later}, ({self.number} + {self.count} - 1) % {self.count});",
            f"bulk::wait(&{self.arrived}[{self.stage}], {self.number} / {self.count} % 2);",
        )
        at = loop.body.start_byte + 1
        yield Edit(Span(at, at), "".join(f"\n{pad}{line}" for line in head))
        spans = self._moved()
        for span in spans:
            start = data.rfind(b"\n", 0, span.start)
            alone = not data[start + 1 : span.start].strip()
            yield Edit(Span(max(start if alone else span.start, at), span.end), "")
            at = span.end  # a directive ends with its line
        copying = [self._staged(span).replace(f"\n{pad}", f"\n{pad}    ") for span in spans]
        copying.append("bulk::publish_writes();")
        if not loop.mixed:
            copying.append("__syncthreads();")
        lines = [f"if (!in_bulk({loop.variable})) {{", *(f"    {line}" for line in copying), "}"]
        if loop.mixed:
            lines.append("__syncthreads();")
        yield Edit(span_of(loop.barrier), f"\n{pad}".join(lines))
        for node in walk(loop.body):
            if self._is_tile(node) and not any(span.holds(span_of(node)) for span in spans):
                yield Edit(span_of(node), f"{text_of(node)}[{self.stage}]")

    def _moved(self) -> list[Span]:
        """Return the statements that copy, and what only they need, in their order."""
        loop = self.loop
        comments = (comment for fill in loop.fills for comment in fill.comments)
        nodes = [*(fill.node for fill in loop.fills), *comments, *loop.local, *(() if loop.mixed else loop.groups)]
        return sorted((span_of(node) for node in nodes), key=lambda span: span.start)

    def _is_tile(self, node: Node) -> bool:
        return node.type == "identifier" and text_of(node) in {tile.name for tile in self.loop.tiles()}

    def _staged(self, span: Span) -> str:
        """Return a statement's text with the stage of each tile."""
        edits = [
            Edit(Span(n.start_byte - span.start, n.end_byte - span.start), f"{text_of(n)}[{self.stage}]")
            for n in walk(self.loop.body)
            if self._is_tile(n) and span.holds(span_of(n))
        ]
        return apply_edits(self.tree.file.text.encode()[span.start : span.end].decode().rstrip(), edits)


def block_shape(tree: KernelTree, workload: SourceFile | None) -> tuple[int, int, int]:
    """Return the shape of the blocks that all launches of a kernel have.

    Raises:
        NotApplicableError: it is not known, or they differ.
    """
    shapes = {site.shape() for site in find_launches(tree, workload) or []}
    if len(shapes) != 1:
        raise NotApplicableError("launches that are not known, or with blocks of different shapes")
    known = [n for n in next(iter(shapes)) if n is not None]
    if len(known) != len(next(iter(shapes))) or not 0 < len(known) <= 3:
        raise NotApplicableError("the shape of a block is no number")
    x, y, z = (*known, 1, 1)[:3]
    return x, y, z


def _bytes_of(tile: Tile) -> int:
    return prod(tile.extents) * tile.element_bytes


def staged(loop: StagedLoop, stages: int) -> KernelTree:
    """Return a kernel with the tiles of a loop in a ring of stages that bulk copies fill.

    Raises:
        NotApplicableError: the stages do not fit in static shared memory, or a row cannot be spelled.
    """
    ring = loop.tiles()
    others = sum(_bytes_of(tile) for name, tile in loop.block.tiles.items() if name not in {one.name for one in ring})
    if stages * (sum(map(_bytes_of, ring)) + 8) + others > STATIC_SHARED_BYTES:
        raise NotApplicableError(f"{stages} stages of the tiles do not fit in shared memory")
    return loop.tree.edited(*_Ring(loop, stages).edits())


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 3, 4 and 2 stages, where they fit; one that has stages of its own keeps these."""
    if device.capability < (9, 0) or "__shared__" not in kernel_file.text:
        return
    tree = KernelTree(kernel_file, kernel)
    for label, made in _rewritten(tree, workload_file):
        yield Candidate(kernel.language, made.file, workload_file, label, "rewrite:bulk_copies")


def _rewritten(tree: KernelTree, workload: SourceFile | None) -> Iterator[tuple[str, KernelTree]]:
    """Yield rewritten kernels with their labels."""
    try:
        shape = block_shape(tree, workload)
        loop = find_staged_loop(tree, shape)
    except LookupError:
        with suppress(LookupError):
            yield "groups of copies in bulk", in_bulk(find_copy_groups(tree, block_shape(tree, workload)))
        return
    for stages in _STAGES:
        with suppress(NotApplicableError):
            yield f"tiles by bulk copies through {stages} stages", staged(loop, stages)
