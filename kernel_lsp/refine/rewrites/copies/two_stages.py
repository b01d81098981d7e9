"""Fill the next tiles while a block computes from the present ones, by asynchronous copies (sm_80 and later).

A loop that loads tiles, waits, computes and waits again leaves memory idle while it computes, unless other blocks of
the multiprocessor load meanwhile. Here each tile has two stages. Before a thread computes from one of them it starts
its copies to the other (`cp.async`, PTX ISA 9.2, section 9.7.9.25.3), element by element as it did before, so that the
tiles' layouts and the bounds stay as they are; a step waits once instead of twice. Sums are formed in the same order.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from tree_sitter import Node

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.copies.element_copies import TileLoop, find_tile_loop, unwrapped
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    condition_parts,
    declared_identifier,
    indent_at,
    whole_line,
)
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of, defined_before
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_HELPERS = """\
// Starts to copy an element to shared memory, or zeros where there is none.
template <typename {kind}>
__device__ inline void {copy}({kind}* to, const {kind}* from, bool there = true) {{
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(int(sizeof(*to))),
                 "r"(there ? int(sizeof(*to)) : 0)
                 : "memory");
}}

// Waits until this thread's copies have come.
__device__ inline void {wait}() {{
    asm volatile("cp.async.wait_all;" ::: "memory");
}}
"""


@dataclass(frozen=True)
class _Writer:
    """Writes a kernel with two stages of its tiles."""

    loop: TileLoop

    @property
    def tree(self) -> KernelTree:
        """Return the kernel as it was."""
        return self.loop.tree

    @cached_property
    def stage(self) -> str:
        """Return the name of the stage that is computed from."""
        return self.tree.fresh("stage")

    @cached_property
    def fill(self) -> str:
        """Return the name of what fills a stage."""
        return self.tree.fresh("fill")

    @cached_property
    def copy(self) -> str:
        """Return the name of the function that copies an element."""
        return self.tree.fresh("copy_async")

    @cached_property
    def wait(self) -> str:
        """Return the name of the function that awaits copies."""
        return self.tree.fresh("await_copies")

    def edits(self) -> Iterator[Edit]:
        """Yield all edits of the file."""
        loop, steps = self.loop, self.loop.steps
        yield defined_before(
            self.tree, _HELPERS.format(copy=self.copy, wait=self.wait, kind=self.tree.fresh("Element"))
        )
        for tile in loop.tiles:
            for declarator in self.tree.declarations[tile.name][0].children_by_field_name("declarator"):
                at = declared_identifier(declarator)
                if text_of(at) == tile.name:
                    yield Edit(Span(at.end_byte, at.end_byte), "[2]")
        yield ahead_of(self.tree, loop.node, self._ahead())
        update = field(loop.node, "update")
        yield Edit(span_of(update), f"{text_of(update)}, {self.stage} ^= 1")
        pad = indent_at(self.tree.file.text, loop.barriers[0].start_byte)
        later = f"{steps.variable} + {closed(steps.step)}"
        lines = (
            f"{self.wait}();",
            "__syncthreads();",
            f"if ({later} < {text_of(steps.limit)}) {self.fill}({later}, {self.stage} ^ 1);",
        )
        placed = "\n".join(f"{pad}{line}" for line in lines)
        begins_line = self._filled.start < loop.filling[0].start_byte or not pad
        yield Edit(self._filled, placed if begins_line else f"\n{placed}")
        yield Edit(whole_line(self.tree.file.text, span_of(loop.barriers[1])), "")
        for one in loop.computing:
            yield from self._staged(one)

    @property
    def _filled(self) -> Span:
        """Return the statements up to the first barrier, from the beginning of a line if nothing else is on it."""
        data, start = self.tree.file.text.encode(), self.loop.filling[0].start_byte
        line = data.rfind(b"\n", 0, start) + 1
        return Span(start if data[line:start].strip() else line, self.loop.barriers[0].end_byte)

    def _staged(self, within: Node) -> Iterator[Edit]:
        """Yield the edits that give tiles their stage."""
        filled = {tile.name for tile in self.loop.tiles}
        for node in walk(within):
            if node.type == "identifier" and text_of(node) in filled:
                yield Edit(Span(node.end_byte, node.end_byte), f"[{self.stage}]")

    def _ahead(self) -> Iterator[str]:
        """Yield the lines ahead of the loop, without its indent."""
        steps, text = self.loop.steps, self.tree.file.text
        pad = indent_at(text, self.loop.node.start_byte)
        yield "// While a block computes from one stage of its tiles, the other one is filled."
        yield f"auto {self.fill} = [&]({steps.type} {steps.variable}, int {self.stage}) {{"
        for line in self._filling():
            yield line.removeprefix(pad)
        yield "};"
        start = text_of(steps.start)
        yield f"if ({start} < {text_of(steps.limit)}) {self.fill}({start}, 0);"
        yield f"int {self.stage} = 0;"

    def _filling(self) -> list[str]:
        """Return the lines of the statements that fill a stage."""
        loop, data = self.loop, self.tree.file.text.encode()
        begin, end = self._filled.start, loop.filling[-1].end_byte
        edits: list[Edit] = []
        for copy in loop.copies:
            target = apply_edits(
                text_of(copy.target), [_moved(edit, copy.target.start_byte) for edit in self._staged(copy.target)]
            )
            given = f"&{target}, &{text_of(copy.source)}"
            given += f", {_alone(copy.condition)}" if copy.condition is not None else ""
            edits.append(_moved(Edit(span_of(copy.statement), f"{self.copy}({given});"), begin))
        return apply_edits(data[begin:end].decode(), edits).rstrip().split("\n")


def _alone(condition: Node) -> str:
    """Return a condition as an argument."""
    parts = list(condition_parts(condition, ","))
    return text_of(unwrapped(condition)) if len(parts) == 1 else f"({text_of(condition)})"


def _moved(edit: Edit, by: int) -> Edit:
    return Edit(Span(edit.span.start - by, edit.span.end - by), edit.text)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with two stages of its tiles, where they fit in static shared memory."""
    if device.capability < (8, 0) or "__shared__" not in kernel_file.text:
        return
    try:
        loop = find_tile_loop(KernelTree(kernel_file, kernel))
        if 2 * sum(prod(tile.extents) * tile.element_bytes for tile in loop.tiles) > STATIC_SHARED_BYTES:
            return
        made = loop.tree.edited(*_Writer(loop).edits())
    except LookupError:
        return
    label = "the next tiles are copied while these are computed from"
    yield Candidate(kernel.language, made.file, workload_file, label, "rewrite:two_stages")
