"""Fill the stages of a `cp.async` pipeline by bulk copies (sm_90 and later), with stages and order as they are.

`cp.async` moves 16 bytes with each thread's instruction; a bulk copy moves a row with one. Groups of copies stay what
they are: each has a barrier of its own, of a ring, and is awaited where it was. Rows that cross a bound or are not
aligned are copied by threads as before, in the same group.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod

from kernel_lsp.refine.rewrites.copies.bulk_text import (
    BulkRows,
    aligned,
    conditions,
    helpers,
    numbered,
    prepared,
    thread_number,
)
from kernel_lsp.refine.rewrites.copies.copy_groups import CopyGroups
from kernel_lsp.refine.rewrites.copies.staged_loops import TileFill
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of


def in_bulk(groups: CopyGroups) -> KernelTree:
    """Return a kernel whose groups of copies come in bulk.

    Raises:
        NotApplicableError: a row cannot be spelled.
    """
    return groups.tree.edited(*_Grouped(groups).edits())


@dataclass(frozen=True)
class _Grouped:
    """Writes the kernel."""

    groups: CopyGroups

    @cached_property
    def names(self) -> dict[str, str]:
        """Return the new names, by what they stand for."""
        wanted = ("GROUPS", "arrived", "closed", "awaited", "expected", "by_threads", "close_group", "wait_for_groups")
        return {name: self.groups.tree.fresh(name) for name in wanted}

    @cached_property
    def thread(self) -> str:
        """Return the number of a thread in its block."""
        return thread_number(self.groups.tree, self.groups.shape)

    def edits(self) -> list[Edit]:
        """Return all edits of the kernel."""
        groups, text = self.groups, self.groups.tree.file.text
        edits = [helpers(groups.tree), ahead_of(groups.tree, groups.first, self._ahead())]
        edits += aligned(groups.tree, (rows.tile for fill in groups.fills for rows in fill.rows))
        edits += [self._filled(fill) for fill in groups.fills]
        edits += [Edit(span_of(node), f"{self.names['close_group']}();") for node in groups.closes]
        for wait in groups.waits:
            inner = indent_at(text, wait.node.start_byte)
            also = f"\n{inner}{self.names['wait_for_groups']}({wait.pending});"
            edits.append(Edit(Span(wait.node.end_byte, wait.node.end_byte), also))
        return edits

    def _ahead(self) -> Iterator[str]:
        """Yield the lines ahead of the pipeline."""
        (count, arrived, closed, awaited, expected, by_threads, close, wait) = self.names.values()
        yield from numbered(self.groups.shape, self.thread)
        yield f"constexpr int {count} = {self.groups.under_way + 1};"
        yield f"__shared__ unsigned long long {arrived}[{count}];"
        yield from prepared(self.thread, arrived, count)
        yield "// A group is what is brought until it is closed; its barrier's phase ends when all of it has come."
        yield f"int {closed} = 0, {awaited} = 0;"
        yield f"unsigned {expected} = 0;"
        yield f"bool {by_threads} = false;"
        yield f"auto {close} = [&] {{"
        yield f"    {text_of(self.groups.closes[0])}"
        yield f"    if ({self.thread} == 0) bulk::announce(&{arrived}[{closed} % {count}], {expected});"
        yield f"    {expected} = 0;"
        yield f"    ++{closed};"
        yield "};"
        yield f"auto {wait} = [&](int pending) {{"
        yield f"    for (; {awaited} + pending < {closed}; ++{awaited}) {{"
        yield f"        bulk::wait(&{arrived}[{awaited} % {count}], {awaited} / {count} % 2);"
        yield "    }"
        yield f"    if ({by_threads}) bulk::publish_writes();"
        yield "};"

    def _filled(self, fill: TileFill) -> Edit:
        """Return the edit that lets bulk copies fill rows where they can."""
        text, names = self.groups.tree.file.text, self.names
        pad, span = indent_at(text, fill.node.start_byte), span_of(fill.node)
        before = fill.node.prev_sibling
        unrolled = before is not None and before.type == "preproc_call"
        if before is not None and unrolled:
            span = Span(before.start_byte - len(indent_at(text, before.start_byte).encode()), span.end)
        barrier = f"&{names['arrived']}[{names['closed']} % {names['GROUPS']}]"
        bulk = BulkRows(fill.rows, None, self.thread, prod(self.groups.shape), barrier)
        asked = conditions(fill.rows)
        original = text.encode()[span.start : span.end].decode().lstrip().replace(f"\n{pad}", f"\n{pad}    ")
        lines = [
            f"if ({asked[0]}" + (") {" if len(asked) == 1 else ""),
            *(f"    && {one}" + (") {" if one == asked[-1] else "") for one in asked[1:]),
            f"    {names['expected']} += {bulk.total()};",
            *(f"    {line}" for line in bulk.copies("")),
            "} else {",
            original if unrolled else f"    {original}",
            f"    {names['by_threads']} = true;",
            "}",
        ]
        return Edit(span, (pad if unrolled else "") + f"\n{pad}".join(lines).replace(f"\n{pad}#", "\n#"))
