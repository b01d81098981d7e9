"""Carry a running sum in a register where a loop carries it in memory: `y[i] = y[i - 1] + x[i]`.

The register begins with the element before the loop's first: the value that a statement ahead of the loop gives it, or
what lies there. Arrays of other names are taken for other arrays, as `restrict` does. Rewrites of running sums follow.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.accesses.neighbours import shown
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, body_unit, indent_at
from kernel_lsp.refine.rewrites.reading.reductions import TYPES
from kernel_lsp.refine.rewrites.reading.scopes import Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import (
    MemoryAccess,
    MemoryUse,
    NotApplicableError,
    SerialLoop,
    assignment_ahead,
    serial_loop,
)
from kernel_lsp.refine.rewrites.writing.spelling import zero_of
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk


@dataclass(frozen=True)
class _CarriedSum:
    """A loop whose last statement adds to the element that it wrote one iteration ago.

    Attributes:
        loop: the loop.
        statement: its last statement.
        target: the element that it writes.
        carried: the element that it wrote before.
        summands: what it adds to that.
        first: where the first `carried` lies, from the start of the array.
        before: the statement ahead of the loop that sets the first `carried`; None without one.
    """

    loop: SerialLoop
    statement: Node
    target: MemoryAccess
    carried: MemoryAccess
    summands: tuple[Node, ...]
    first: Polynomial
    before: Node | None


def with_carried_sums(tree: KernelTree) -> KernelTree | None:
    """Return the kernel with the running sums of its loops in registers; None if no loop has one."""
    done = None
    while (further := _with_one(done or tree)) is not None:
        done = further
    return done


def _with_one(tree: KernelTree) -> KernelTree | None:
    use = MemoryUse(Scopes(tree))
    for node in walk(tree.body):
        try:
            loop = serial_loop(use.scopes, node) if node.type == "for_statement" else None
            if loop is not None and (found := _find(use, loop)) is not None:
                return tree.edited(*_edits(use, found))
        except NotApplicableError:
            continue
    return None


def _find(use: MemoryUse, loop: SerialLoop) -> _CarriedSum | None:
    """Return what a loop carries in memory; None if that is no sum.

    Raises:
        NotApplicableError: what the loop touches is not known.
    """
    inner = loop.body.named_children if loop.body.type == "compound_statement" else [loop.body]
    statements = [n for n in inner if n.type != "comment"]
    last = statements[-1] if statements else loop.body
    change = last.named_children[0] if last.type == "expression_statement" else last
    if change.type != "assignment_expression" or text_of(field(change, "operator")) not in ("=", "+="):
        return None
    left = field(change, "left")
    accesses = {a.node.id: a for a in use.accesses(loop.body)}
    target = accesses.get(left.id)
    step = target.offset.factor(loop.variable.symbol) if target is not None and target.offset is not None else None
    if target is None or target.pointer is None or target.offset is None or step is None or not step.terms:
        return None
    added = [*([left] if text_of(field(change, "operator")) == "+=" else []), *_summands(field(change, "right"))]
    carried = [a for n in added if (a := accesses.get(n.id)) and _is_at(a, target, target.offset - step)]
    mine = [a for a in accesses.values() if a.may_touch(target) and a not in (target, *carried)]
    if len(carried) != 1 or any(not _is_at(a, target, target.offset) or a.written for a in mine):
        return None
    if loop.node.parent is None or loop.node.parent.type != "compound_statement" or not _is_plain(use, target):
        return None
    summands = tuple(n for n in added if n.id != carried[0].node.id)
    first = target.offset - step * use.indices.of_symbol(loop.variable)
    first = first + step * (use.indices.of(loop.start) - number(1))
    return _CarriedSum(loop, last, target, carried[0], summands, first, _set_before(use, loop.node, target, first))


def _summands(node: Node) -> Iterator[Node]:
    node = bare(node)
    if node.type == "binary_expression" and text_of(field(node, "operator")) == "+":
        yield from _summands(field(node, "left"))
        yield from _summands(field(node, "right"))
    else:
        yield node


def _is_at(access: MemoryAccess, like: MemoryAccess, offset: Polynomial) -> bool:
    return access.pointer is like.pointer and access.offset is not None and str(access.offset) == str(offset)


def _is_plain(use: MemoryUse, target: MemoryAccess) -> bool:
    """Return True for an element of a type that sums can have, at a place that no memory decides."""
    if target.pointer is None or target.offset is None:
        return False
    loads = any(v.pointer and v.symbol in target.offset.names() for v in use.scopes.variables)
    kind = target.pointer.type.removesuffix("*")
    return not loads and (use.scopes.tree.named_type(kind) in TYPES or kind in use.scopes.tree.type_parameters)


def _set_before(use: MemoryUse, loop: Node, target: MemoryAccess, first: Polynomial) -> Node | None:
    """Return the statement `element = value;` ahead of a loop, with only declarations between; None without one."""
    change = assignment_ahead(use, loop)
    if change is None:
        return None
    stored = [a for a in use.accesses(change) if a.node == field(change, "left") and _is_at(a, target, first)]
    return change.parent if stored else None


def _edits(use: MemoryUse, found: _CarriedSum) -> list[Edit]:
    tree, pointer, loop = use.scopes.tree, found.target.pointer, found.loop
    assert pointer is not None, "it was looked at"
    name, kind, element = tree.fresh("sum"), pointer.type.removesuffix("*"), text_of(found.target.node)
    pad = indent_at(tree.file.text, loop.node.start_byte)
    if found.before is not None:
        change = found.before.named_children[0]
        value, place = text_of(field(change, "right")), text_of(field(change, "left"))
        start = Edit(span_of(found.before), f"{kind} {name} = {value};\n{pad}{place} = {name};")
    else:
        place = f"{pointer.name}[{_spelled(use, found.first, loop.node)}]"
        value = f"{text_of(loop.start)} < {text_of(loop.limit)} ? {place} : {zero_of(kind)}"
        start = Edit(Span(loop.node.start_byte, loop.node.start_byte), f"{kind} {name} = {value};\n{pad}")
    inside = indent_at(tree.file.text, found.statement.start_byte)
    lines = [f"{name} += {' + '.join(text_of(n) for n in found.summands)};", f"{element} = {name};"]
    if loop.body.type == "compound_statement":
        return [start, Edit(span_of(found.statement), f"\n{inside}".join(lines))]
    unit = body_unit(pad)
    body = "".join(f"\n{pad}{unit}{line}" for line in lines)
    return [start, Edit(Span(_head_end(loop), loop.body.end_byte), f" {{{body}\n{pad}}}")]


def _spelled(use: MemoryUse, offset: Polynomial, at: Node) -> str:
    """Return an index as C++.

    Raises:
        NotApplicableError: a node's place knows not all of its names.
    """
    if "Idx" in str(offset):
        raise NotApplicableError("an index that no one would write out")
    for unknown in offset.names():
        name, _, local = unknown.partition("@")
        variable = use.scopes.named(name, at.start_byte)
        if local and (variable is None or variable.symbol != unknown):
            raise NotApplicableError("an index that cannot be spelled")
    return shown(offset)


def _head_end(loop: SerialLoop) -> int:
    """Return where the head of a loop ends, behind its parenthesis."""
    closing = [n for n in loop.node.children if n.type == ")" and n.end_byte <= loop.body.start_byte]
    return closing[-1].end_byte
