"""Let loops over a window run over the part of it that lies inside, in place of a test at each of its points.

A filter, a blur or a pooling of any size asks of each point of its window whether that lies in the image: more work
than what it does with the point, and no two turns of the loop can be put together. Where the test compares something
that grows with a loop's counter one by one, the loop begins and ends where the test begins and ends to hold. Windows of
a known small size keep their tests: the compiler unrolls those.
"""

import re
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from dataclasses import field as attribute

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.affine import Indices, Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    comment_free,
    condition_parts,
    declared_names,
    indent_at,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError, SerialLoop, serial_loop
from kernel_lsp.refine.rewrites.writing.insertions import unwrapped
from kernel_lsp.refine.rewrites.writing.leftovers import with_remark
from kernel_lsp.refine.rewrites.writing.spelling import with_signs
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_SIGNED = ("int", "int32_t", "short")
_UNSIGNED = ("unsigned", "unsigned int", "uint", "uint32_t", "size_t", "unsigned long", "uint64_t")
_LINE = 110  # characters
_SMALL = 8  # turns of a loop that the compiler unrolls
_OPPOSITE = {"<": ">=", "<=": ">", ">": "<=", ">=": "<"}
_TURNED = {"<": ">", "<=": ">=", ">": "<", ">=": "<="}


@dataclass(frozen=True)
class _Window:
    """A loop, and what its counter must be at least, or less than, besides.

    Attributes:
        loop: it.
        outer: the loop around it that does nothing beside it; None for any other.
        least: first values for which the tests hold.
        ends: values from which on they do not.
    """

    loop: SerialLoop
    outer: "_Window | None"
    least: list[str] = attribute(default_factory=list)
    ends: list[str] = attribute(default_factory=list)


def _clipped(tree: KernelTree) -> list[Edit]:
    """Return the edits that move tests into the heads of their loops.

    Raises:
        NotApplicableError: there are none that can be moved.
    """
    use = MemoryUse(Scopes(tree))
    windows: dict[Node, _Window] = {}
    edits: list[Edit] = []
    for node in (n for n in walk(tree.body) if n.type == "for_statement"):  # outer ones first
        loop = serial_loop(use.scopes, node)
        if any(edit.span.holds(span_of(node)) for edit in edits):  # in a test that goes: the next turn's
            continue
        if loop is None or field(node, "initializer").type != "declaration" or _ends(use, loop) is None:
            continue
        outer = next((w for w in windows.values() if _does_only(use, w.loop.body, node)), None)
        windows[node] = _Window(loop, outer)
        edits += _moved(use, windows[node])
    changed = [window for window in windows.values() if window.least or window.ends]
    if not any(_is_long(use, window.loop) for window in changed):
        raise NotApplicableError("no window with tests, or one that is unrolled")
    return [*edits, *(edit for window in changed for edit in _head(use, window))]


def _does_only(use: MemoryUse, body: Node, loop: Node) -> bool:
    """Return True for the body of a loop that holds another loop and, ahead of it, declarations of values."""
    *ahead, last = _statements(body) or [body]
    return last == loop and _are_values(use, ahead)


def _statements(body: Node) -> list[Node]:
    inner = body.named_children if body.type == "compound_statement" else [body]
    return [n for n in inner if n.type not in ("comment", "preproc_call")]


def _are_values(use: MemoryUse, statements: Sequence[Node]) -> bool:
    """Return True for declarations that only compute values, and need not do so where nobody asks for them."""
    if any(n.type != "declaration" for n in statements):
        return False
    if any(one.type in ("assignment_expression", "update_expression") for n in statements for one in walk(n)):
        return False
    return not any(access.written for n in statements for access in use.accesses(n))


def _moved(use: MemoryUse, window: _Window) -> list[Edit]:
    """Return the edits that take tests out of a loop's body; the loops learn of them."""
    statements = _statements(window.loop.body)
    at = next((i for i, n in enumerate(statements) if n.type != "declaration"), len(statements))
    test = statements[at] if at < len(statements) else None
    if test is None or test.type != "if_statement" or not _are_values(use, statements[:at]):
        return []
    inside = field(test, "consequence")
    leaves = comment_free(inside) in ("continue;", "{continue;}")
    if test.child_by_field_name("alternative") is not None or (not leaves and test != statements[-1]):
        return []
    parts = list(condition_parts(field(test, "condition"), "||" if leaves else "&&"))
    kept = [part for part in parts if not _learned(use, window, part, parts, leaves=leaves)]
    if len(kept) == len(parts):
        return []
    tree = use.scopes.tree
    if kept:
        joined = (" || " if leaves else " && ").join(map(text_of, kept))
        return [Edit(span_of(field(test, "condition")), f"({joined})")]
    if leaves:
        return [Edit(whole_line(tree.file.text, Span(test.start_byte, with_remark(test))), "")]
    named = {name for n in statements[:at] for name in declared_names(n)} | {window.loop.variable.name}
    hidden = any(n.type == "declaration" and declared_names(n) & named for n in inside.named_children)
    alone = test == window.loop.body  # without braces around it
    return [Edit(span_of(test), text_of(inside) if alone or hidden else unwrapped(tree, test, inside))]


def _learned(use: MemoryUse, window: _Window, part: Node, parts: Sequence[Node], *, leaves: bool) -> bool:
    """Return True if a test, or one that leaves, was moved to the head of a loop."""
    if part.type != "binary_expression" or (operator := text_of(field(part, "operator"))) not in _OPPOSITE:
        return False
    operator = _OPPOSITE[operator] if leaves else operator
    around: _Window | None = window
    while around is not None:
        if _learned_by(use, around, part, operator, parts):
            return True
        around = around.outer
    return False


def _learned_by(use: MemoryUse, window: _Window, part: Node, operator: str, parts: Sequence[Node]) -> bool:
    loop = window.loop
    outermost = window
    while outermost.outer is not None:
        outermost = outermost.outer
    indices = Indices(use.scopes, outermost.loop.node)
    left, right = (indices.of(field(part, side)) for side in ("left", "right"))
    difference, counter = left - right, symbol(loop.variable.symbol)
    factor = difference.factor(loop.variable.symbol)
    if factor is None or factor.value not in (1, -1) or not _is_signed(use, outermost.loop.node, part):
        return False
    if factor.value == -1:
        difference, operator = number(-1) * difference, _TURNED[operator]
    bound = number(-1) * (difference - counter)  # the test is `counter operator bound`
    texts = _texts(use, loop.node, bound, wide=_is_wide(use, part, parts))
    if texts is None:
        return False
    if operator in (">", ">="):
        window.least.append(_shown(bound + number(operator == ">"), texts))
    else:
        inclusive = text_of(field(loop.condition, "operator")) == "<="
        window.ends.append(_shown(bound + number((operator == "<=") - inclusive), texts))
    return True


def _is_signed(use: MemoryUse, loop: Node, node: Node) -> bool:
    """Return True if all that an expression is made of within a loop is signed, and converted to nothing else."""
    for one in walk(node):
        if one.type == "cast_expression" and text_of(field(one, "type")) not in _SIGNED:
            return False
        variable = use.scopes.of(one) if one.type == "identifier" else None
        if variable is None or variable.declaration is None:
            continue
        if span_of(loop).holds(span_of(variable.declaration)):
            value = variable.constant
            if variable.type not in _SIGNED or (value is not None and not _is_signed(use, loop, value)):
                return False
    return not re.search(r"static_cast<(?!(int|int32_t|short)>)", text_of(node))


def _shown(bound: Polynomial, texts: dict[str, str]) -> str:
    """Return a bound as text, what is added ahead of what is taken away."""
    added = Polynomial({key: n for key, n in bound.terms.items() if n > 0})
    taken = number(-1) * (bound - added)
    if not added.terms or not taken.terms:
        return with_signs(bound, texts)
    return f"{with_signs(added, texts)} - {with_signs(taken, texts).replace(' + ', ' - ')}"


def _texts(use: MemoryUse, loop: Node, bound: Polynomial, *, wide: bool) -> dict[str, str] | None:
    """Return the texts of a bound's unknowns: signed numbers that the loop does not change; None if one is another."""
    found: dict[str, str] = {}
    for name in (one for unknowns in bound.terms for one in unknowns):
        variable = next((v for v in use.scopes.variables if v.symbol == name), None)
        kind, shown = _kind(use.scopes.tree, name, variable), name if variable is None else variable.name
        if kind not in (*_SIGNED, *(_UNSIGNED if wide else ())):
            return None
        declared = variable.declaration if variable is not None else None
        changes = variable.changes if variable is not None else []
        if any(span_of(loop).holds(span_of(n)) for n in (*changes, *([declared] if declared is not None else []))):
            return None
        found[name] = f"static_cast<int>({shown})" if kind in _UNSIGNED else shown
    return found


def _kind(tree: KernelTree, name: str, variable: CudaVariable | None) -> str | None:
    """Return the type of a variable, a template's number or a constant of the file; None for anything else."""
    if variable is not None:
        return None if variable.array or variable.pointer else tree.named_type(variable.type)
    fixed = (one.split("=")[0].split() for one in tree.kernel.template_parameters)
    found = [" ".join(words[:-1]) for words in fixed if words and words[-1] == name]
    value = tree.constants.get(name)
    if value is not None and value.type == "number_literal" and text_of(value).isdigit():
        return "int"
    return found[0] if found else None


def _is_wide(use: MemoryUse, part: Node, parts: Sequence[Node]) -> bool:
    """Return True for `value < limit` beside a test that the value, a signed one, is not negative.

    As an unsigned limit makes the comparison one of unsigned numbers, the values below 0 are beyond it, too.
    """
    value = field(part, "left")
    variable = use.scopes.of(value) if value.type == "identifier" else None
    if variable is None or variable.type not in _SIGNED or field(part, "right").type != "identifier":
        return False
    name = variable.name
    return any(comment_free(one) in (f"{name}>=0", f"0<={name}", f"{name}<0", f"0>{name}") for one in parts)


def _is_long(use: MemoryUse, loop: SerialLoop) -> bool:
    """Return True for a loop that the compiler does not unroll whole."""
    turns = (use.indices.of(loop.limit) - use.indices.of(loop.start)).value
    return turns is None or turns > _SMALL


def _ends(use: MemoryUse, loop: SerialLoop) -> tuple[str, str] | None:
    """Return a loop's start and limit as text, as signed numbers; None if its numbers are others."""
    indices = Indices(use.scopes, loop.node)
    start, limit = indices.of(loop.start), indices.of(loop.limit)
    counts = loop.limit.type == "identifier" and start.value is not None and start.value >= 0
    first, end = _texts(use, loop.node, start, wide=False), _texts(use, loop.node, limit, wide=counts)
    if loop.variable.type not in _SIGNED or first is None or end is None:
        return None
    return text_of(loop.start), end.get(next(iter(limit.names()), ""), "") if counts else text_of(loop.limit)


def _head(use: MemoryUse, window: _Window) -> Iterator[Edit]:
    """Yield the edits of a loop's first and last counter; a head that grows too long for a line gets two."""
    loop, ends = window.loop, _ends(use, window.loop)
    assert ends is not None, "it was looked at"
    first, end = ends
    for one in dict.fromkeys(window.least):
        first = f"max({first}, {one})"
    for one in dict.fromkeys(window.ends):
        end = f"min({end}, {one})"
    if window.least:
        yield Edit(span_of(loop.start), first)
    if window.ends:
        yield Edit(span_of(loop.limit), end)
    pad = indent_at(use.scopes.tree.file.text, loop.node.start_byte)
    if len(pad + text_of(loop.node).split(")")[0] + first + end) > _LINE:
        head = field(loop.node, "initializer")
        yield Edit(Span(head.end_byte, loop.condition.start_byte), f"\n{pad}     ")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with all loops over windows clipped."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet:
            return
        done = tree.edited(*_clipped(tree))
    except LookupError:
        return
    with suppress(LookupError):
        while True:  # a test may stand around a loop that has another one
            done = done.edited(*_clipped(done))
    label = "loops over the part of a window that lies inside"
    yield Candidate(kernel.language, done.file, workload_file, label, "rewrite:clipped_loops")
