"""Gather in a register what a loop gathers in memory: `c[i] += ...` reads and writes memory in every iteration.

Unless pointers are `__restrict__`, the compiler must keep each store, for another pointer might mean the same element.
This rewrite takes arrays of other names for other arrays, as `restrict` does. Where the element is set just before its
loop, the register begins with that value. Where nothing but the loop touches the element, it is read and written even
if the loop has nothing to add; so it must be the thread's own, whose number a condition keeps within a limit.
A running sum that a loop carries from element to element is carried in a register, too (`carried_sums`). The rewrites
of sums in variables follow in the same step.
"""

from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import Rewrite, followed_by
from kernel_lsp.refine.rewrites.accesses import launched_limits
from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.reading.affine import number, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, KernelTree, indent_at
from kernel_lsp.refine.rewrites.reading.path_facts import facts_at
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import (
    MemoryAccess,
    MemoryUse,
    NotApplicableError,
    assignment_ahead,
)
from kernel_lsp.refine.rewrites.reductions import one_thread, parallel_rows, split_columns
from kernel_lsp.refine.rewrites.reductions.carried_sums import with_carried_sums
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_FOLLOWING: tuple[Rewrite, ...] = (
    tile_product.rewrite,
    launched_limits.rewrite,
    parallel_rows.rewrite,
    one_thread.rewrite,
    split_columns.rewrite,
)
_JUMPS = ("return_statement", "goto_statement")
_ELEMENTS = ("subscript_expression", "pointer_expression")  # `c[i]`, `*c`


def _element(use: MemoryUse, loop: Node) -> list[MemoryAccess] | None:
    """Return all accesses of a loop to an array of which it only gathers one element; None if there is none.

    Raises:
        NotApplicableError: what the loop touches is not known.
    """
    accesses = use.accesses(loop)
    if any(a.pointer is None or a.offset is None for a in accesses):
        raise NotApplicableError("an address that is not known")
    span = span_of(loop)
    changing = {v.symbol for v in use.scopes.variables if any(span.holds(span_of(c)) for c in v.changes)}
    changing |= {
        v.symbol for v in use.scopes.variables if v.declaration is not None and span.holds(span_of(v.declaration))
    }
    for one in accesses:
        mine = [a for a in accesses if a.pointer is one.pointer]
        if one.written and len({str(a.offset) for a in mine}) == 1 and one.offset is not None:
            loads = any(v.pointer and v.symbol in one.offset.names() for v in use.scopes.variables)
            plain = all(a.node.type in _ELEMENTS and _is_value(a.node) for a in mine)
            if plain and not loads and not one.offset.names() & changing and any(_gathers(a.node) for a in mine):
                return mine
    return None


def _is_value(node: Node) -> bool:
    """Return False for an element whose address is taken, or that is one of a structure's."""
    return node.parent is not None and node.parent.type not in ("pointer_expression", "field_expression")


def _gathers(node: Node) -> bool:
    parent = node.parent
    if parent is None or parent.type not in ("assignment_expression", "update_expression"):
        return False
    if parent.type == "update_expression" or text_of(field(parent, "operator")) != "=":
        return True
    return text_of(node) in text_of(field(parent, "right"))


def _set_before(use: MemoryUse, loop: Node, text: str) -> Node | None:
    """Return the statement `element = value;` before a loop, with only declarations between; None if there is none."""
    change = assignment_ahead(use, loop)
    if change is None or text in text_of(field(change, "right")):
        return None
    return change.parent if text_of(field(change, "left")) == text else None


def _is_touched_anyway(use: MemoryUse, loop: Node, element: MemoryAccess) -> bool:
    """Return True if a statement beside the loop touches the element, whether the loop runs or not."""
    beside = [n for n in (loop.parent.named_children if loop.parent is not None else []) if n != loop]
    return any(
        a.pointer is element.pointer and str(a.offset) == str(element.offset)
        for node in beside
        if node.type == "expression_statement"
        for a in use.accesses(node)
    )


def _is_own(use: MemoryUse, loop: Node, element: MemoryAccess) -> bool:
    """Return True for an element that no other thread has: by the number along x, or a row along y and a column."""
    column, row = thread_index("x"), thread_index("y")
    facts = facts_at(use, loop)
    limits = [limit for fact in facts if "Idx" not in str(limit := fact + column + number(1))]
    rest = element.offset - column if element.offset is not None else column
    width, others = rest.factor("threadIdx.y"), {"y", "z"}
    if width is not None and str(width) in map(str, limits):
        rest, others = rest - width * row, {"z"}
    numbered = any(f"Idx.{axis}" in text_of(use.scopes.tree.body) for axis in others)
    return bool(limits) and "Idx" not in str(rest) and not numbered


def _gathered(tree: KernelTree) -> KernelTree | None:
    """Return the kernel with the sums of one loop in a register; None if there is no such loop."""
    use = MemoryUse(Scopes(tree))
    for loop in (n for n in walk(tree.body) if n.type in LOOPS):  # outer ones first
        if loop.parent is None or loop.parent.type != "compound_statement":
            continue
        if tree.collective(loop) or any(n.type in _JUMPS for n in walk(loop)):
            continue
        try:
            found = _element(use, loop)
            if found and (edits := _edits(use, loop, found)):
                return tree.edited(*edits)
        except NotApplicableError:
            continue
    return None


def _edits(use: MemoryUse, loop: Node, found: list[MemoryAccess]) -> list[Edit] | None:
    tree, text, pointer = use.scopes.tree, text_of(found[0].node), found[0].pointer
    assert pointer is not None, "it was looked at"
    if {text_of(a.node) for a in found} != {text}:
        return None
    before = _set_before(use, loop, text)
    if before is None and not (_is_touched_anyway(use, loop, found[0]) or _is_own(use, loop, found[0])):
        return None
    name, kind = tree.fresh(f"{pointer.name}_sum"), pointer.type.rstrip("*")
    source, pad = tree.file.text, indent_at(tree.file.text, loop.start_byte)
    value = text_of(field(before.named_children[0], "right")) if before is not None else text
    line = f"{kind} {name} = {value};"
    edits = [Edit(span_of(a.node), name) for a in found]
    if before is not None:
        edits.append(Edit(span_of(before), line))
    else:
        first = (
            loop.prev_sibling if loop.prev_sibling is not None and loop.prev_sibling.type == "preproc_call" else loop
        )
        edits.append(Edit(Span(first.start_byte, first.start_byte), f"{line}\n{indent_at(source, first.start_byte)}"))
    return [*edits, Edit(Span(loop.end_byte, loop.end_byte), f"\n{pad}{text} = {name};")]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with its sums in registers: with the rewrites of sums that follow, then as it is."""
    try:
        tree = KernelTree(kernel_file, kernel)
        done = None
        while (further := _gathered(done or tree)) is not None:
            done = further
        done = with_carried_sums(done or tree) or done
    except LookupError:
        return
    if done is None:
        return
    found = Candidate(kernel.language, done.file, workload_file, "sums in registers", "rewrite:register_sums")
    for follows in _FOLLOWING:
        yield from followed_by(found, kernel, device, follows)
    yield found
