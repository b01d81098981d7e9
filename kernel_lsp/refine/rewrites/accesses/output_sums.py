"""Sums of which a thread has one for each number of an axis: what they need, what gathers them, what they share."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.accesses.output_axes import OutputAxis
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, around
from kernel_lsp.refine.rewrites.reading.reductions import TYPES
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryAccess, MemoryUse, NotApplicableError, serial_loop
from kernel_lsp.source.trees import field, span_of, text_of, walk

_JUMPS = ("break_statement", "continue_statement", "return_statement", "goto_statement", "labeled_statement")


@dataclass(frozen=True)
class OutputSums:
    """Sums, one of each for each number of an axis.

    Attributes:
        axis: the numbers.
        held: variables that each number has one of: those that gather, what they need, and what one part of `gathering`
            hands to the next.
        gathering: neighbouring statements within the loops that depend on the number, in parts: between these begin or
            end loops that all numbers have in common.
        tail: statements behind the loops.
        shared: loads of `gathering` that all numbers have in common.
    """

    axis: OutputAxis
    held: tuple[CudaVariable, ...]
    gathering: tuple[tuple[Node, ...], ...]
    tail: tuple[Node, ...]
    shared: tuple[MemoryAccess, ...]


def find_output_sums(use: MemoryUse, axis: OutputAxis) -> OutputSums:
    """Return what a kernel computes along an axis.

    Raises:
        NotApplicableError: it has another form, or all that it loads depends on the number.
    """
    scopes = use.scopes
    block = _block(scopes.tree.body)
    loops = [n for n in block.named_children if n.type == "for_statement"]
    if len(loops) != 1:
        raise NotApplicableError("several loops")
    loop, statements = loops[0], [n for n in block.named_children if n.type not in ("comment", "preproc_call")]
    ahead, tail = statements[: statements.index(loop)], statements[statements.index(loop) + 1 :]
    totals = tuple(_totals(scopes, loop))
    held = (*totals, *_needed(use, axis, loop, totals))
    depends = [axis.variable, *held[len(totals) :]]
    depends += _dependent(scopes, depends, loop)
    parts = _parts(scopes, _gathering(scopes, loop, [*totals, *depends]), [*totals, *depends])
    handed = tuple(_handed(scopes, loop, parts))
    parts = tuple(filter(None, (tuple(n for n in part if all(n != v.declaration for v in handed)) for part in parts)))
    gathering = [n for part in parts for n in part]
    _check_statements(use, loop, gathering, tail, [*totals, *handed])
    held = (*held, *handed)
    if any(one.declaration == v.declaration and one not in held for v in held for one in scopes.variables):
        raise NotApplicableError("a declaration of something else, too")
    uses = [n for v in (axis.variable, *held) for n in scopes.uses(v, scopes.tree.body) if n != axis.tested]
    starts = [span_of(v.declaration) for v in held if v.declaration is not None]
    places = [*starts, *map(span_of, gathering), *map(span_of, tail)]
    if any(not any(place.holds(span_of(n)) for place in places) for n in uses):
        raise NotApplicableError("something else depends on the number")
    top = [n for n in scopes.tree.body.named_children if n.end_byte < block.start_byte]
    if any(v.declaration not in (*ahead, *top) for v in held if v not in handed):
        raise NotApplicableError("a sum from elsewhere")
    values = [v.value for v in held if v.value is not None and v not in handed]
    if axis.tested is not None and any(n.start_byte < axis.tested.start_byte and use.accesses(n) for n in values):
        raise NotApplicableError("a load ahead of the test")
    if any(a.written for n in (*ahead, *top) for a in use.accesses(n)):
        raise NotApplicableError("a write for each output ahead of the sums")
    loads = use.accesses(loop)
    mine = [any(scopes.uses(v, a.node) for v in depends) for a in loads]
    if not totals or all(mine) or not any(scopes.uses(v, n) for v in depends for n in gathering):
        raise NotApplicableError("nothing that several outputs share")
    if axis.tested is not None and any(_is_of_row(use, a, loop) for a, own in zip(loads, mine, strict=True) if own):
        raise NotApplicableError("a row for each thread, which many threads had better share")
    common = [list(_shared(use, part, [*held, *depends])) for part in parts]
    texts = [text for loaded in common for text in {text_of(one.node) for one in loaded}]
    shared = tuple(one for loaded in common for one in loaded if texts.count(text_of(one.node)) == 1)
    return OutputSums(axis, held, parts, tuple(tail), shared)


def _is_of_row(use: MemoryUse, access: MemoryAccess, loop: Node) -> bool:
    """Return True if neighbouring threads are a row of some length apart, which the loop walks along once."""
    step = access.offset.factor("threadIdx.x") if access.offset is not None else None
    if access.offset is None or step is None or step.value is not None:
        return False
    counted = serial_loop(use.scopes, loop)
    return counted is None or counted.variable.symbol in access.offset.names()


def _needed(use: MemoryUse, axis: OutputAxis, loop: Node, totals: Sequence[CudaVariable]) -> Iterator[CudaVariable]:
    """Yield the variables ahead of a loop that are made from a number.

    Raises:
        NotApplicableError: one is of another form.
    """
    scopes, found = use.scopes, [axis.variable]
    for one in scopes.variables:  # in source order
        declaration, value = one.declaration, one.value
        if declaration is None or value is None or one in totals or declaration.start_byte > loop.start_byte:
            continue
        if one is axis.variable or not any(scopes.uses(v, value) for v in found):
            continue
        if one.changes or one.array or one.type.startswith("auto"):
            raise NotApplicableError("a value of another form")
        found.append(one)
        yield one


def _shared(use: MemoryUse, gathering: Sequence[Node], marked: Sequence[CudaVariable]) -> Iterator[MemoryAccess]:
    """Yield the loads of some statements that depend on no number, under no condition but a number's."""
    inside = [v for v in use.scopes.variables if any(_declares(v, n) for n in gathering)]
    for node in gathering:
        for one in use.accesses(node):
            outer, free = one.node.parent, not any(use.scopes.uses(v, one.node) for v in (*marked, *inside))
            while free and outer is not None and outer != node.parent:
                condition = outer.child_by_field_name("condition")
                free = condition is None or any(use.scopes.uses(v, condition) for v in (*marked, *inside))
                outer = outer.parent
            if free:
                yield one


def _block(body: Node) -> Node:
    """Return the block with the work: the kernel's, or that of a condition that nothing follows."""
    statements = [n for n in body.named_children if n.type not in ("comment", "preproc_call")]
    last = statements[-1] if statements else body
    held = last.child_by_field_name("consequence") if last.type == "if_statement" else None
    if held is None or held.type != "compound_statement" or last.child_by_field_name("alternative") is not None:
        return body
    return held


def _totals(scopes: Scopes, loop: Node) -> Iterator[CudaVariable]:
    """Yield the variables from outside of a loop that it changes, but those that loops count in."""
    heads = [n for n in walk(loop) if n.type == "for_statement"]
    counts = [span_of(h) for n in heads for k in ("initializer", "update") if (h := n.child_by_field_name(k))]
    for one in scopes.variables:
        changes = [c for c in one.changes if span_of(loop).holds(span_of(c))]
        inside = one.declaration is not None and span_of(loop).holds(span_of(one.declaration))
        if not changes or inside or all(any(span.holds(span_of(c)) for span in counts) for c in changes):
            continue
        kind = scopes.tree.named_type(one.type)
        if one.declaration is None or one.value is None:
            raise NotApplicableError("a sum from elsewhere")
        if one.array or (kind not in TYPES and kind not in scopes.tree.type_parameters):
            raise NotApplicableError("a sum of another type")
        yield one


def _dependent(scopes: Scopes, marked: Sequence[CudaVariable], loop: Node) -> list[CudaVariable]:
    """Return the variables within a loop that are made from some others, or changed by what is."""
    inside = [v for v in scopes.variables if v.declaration and span_of(loop).holds(span_of(v.declaration))]
    made = {v: [n for n in (v.value, *(change.parent for change in v.changes)) if n is not None] for v in inside}
    found = [*marked]
    while more := [v for v in inside if v not in found and any(scopes.uses(o, n) for o in found for n in made[v])]:
        found += more
    return found[len(marked) :]


def _parts(
    scopes: Scopes, statements: tuple[Node, ...], marked: Sequence[CudaVariable]
) -> tuple[tuple[Node, ...], ...]:
    """Return neighbouring statements in parts: what is done for each number within a loop that all have in common."""
    found: list[tuple[Node, ...]] = []
    run: list[Node] = []
    for node in statements:
        if node.type != "for_statement" or not _is_common(scopes, node, marked):
            run.append(node)
            continue
        found += [tuple(run), *_parts(scopes, _gathering(scopes, node, marked), marked)]
        run = []
    return tuple(filter(None, [*found, tuple(run)]))


def _is_common(scopes: Scopes, loop: Node, marked: Sequence[CudaVariable]) -> bool:
    """Return True for a loop that runs alike for all numbers."""
    heads = [loop.child_by_field_name(key) for key in ("initializer", "condition", "update")]
    alike = not any(scopes.uses(v, head) for v in marked for head in heads if head is not None)
    return alike and not any(n.type in _JUMPS for n in walk(loop))


def _handed(scopes: Scopes, loop: Node, parts: Sequence[Sequence[Node]]) -> Iterator[CudaVariable]:
    """Yield the variables that one part declares, and another uses.

    Raises:
        NotApplicableError: one cannot be kept for each number.
    """
    for one in scopes.variables:
        own = [part for part in parts if one.declaration in part]
        others = [span_of(n) for part in parts if part not in own for n in part]
        if not own or not any(other.holds(span_of(use)) for other in others for use in scopes.uses(one, loop)):
            continue
        if one.value is None or one.array or one.type.startswith("auto"):
            raise NotApplicableError("a variable that is handed on")
        yield one


def _gathering(scopes: Scopes, node: Node, marked: Sequence[CudaVariable]) -> tuple[Node, ...]:
    """Return the innermost neighbouring statements of a loop that name all of its uses of some variables."""

    def marks(one: Node | None) -> bool:
        return one is not None and any(scopes.uses(v, one) or _declares(v, one) for v in marked)

    while True:
        inner = [n for n in node.named_children if n.type not in ("comment", "preproc_call")]
        if node.type == "for_statement":
            if any(marks(node.child_by_field_name(key)) for key in ("initializer", "condition", "update")):
                return (node,)
            node = field(node, "body")
        elif node.type == "if_statement":
            if marks(field(node, "condition")) or node.child_by_field_name("alternative") is not None:
                return (node,)
            node = field(node, "consequence")
        elif node.type == "compound_statement":
            at = [i for i, n in enumerate(inner) if marks(n)]
            if len(at) != 1 or inner[at[0]].type not in ("for_statement", "if_statement", "compound_statement"):
                return tuple(inner[at[0] : at[-1] + 1]) if at else ()
            node = inner[at[0]]
        else:
            return (node,)


def _declares(variable: CudaVariable, node: Node) -> bool:
    return variable.declaration is not None and span_of(node).holds(span_of(variable.declaration))


def _check_statements(
    use: MemoryUse, loop: Node, gathering: Sequence[Node], tail: Sequence[Node], totals: Sequence[CudaVariable]
) -> None:
    """Refuse statements that cannot be repeated for several numbers."""
    scopes, spans = use.scopes, [span_of(n) for n in gathering]
    jumps = [n for one in (*gathering, *tail) for n in walk(one) if n.type in _JUMPS]
    if not gathering or gathering[0] == loop or not all(_stays(n, gathering) for n in jumps):
        raise NotApplicableError("statements that cannot be repeated")
    writes = [a for n in tail for a in use.accesses(n) if a.written]
    if any(a.written or a.pointer is None or any(a.may_touch(w) for w in writes) for a in use.accesses(loop)):
        raise NotApplicableError("a loop that writes, or reads what is written behind it")
    for one in scopes.variables:
        inside = any(_declares(one, n) for n in gathering)
        if inside and any(not any(s.holds(span_of(n)) for s in spans) for n in scopes.uses(one, scopes.tree.body)):
            raise NotApplicableError("a variable that is used behind its statements")
        changed = [c for c in one.changes if any(s.holds(span_of(c)) for s in spans)]
        if changed and not inside and one not in totals:
            raise NotApplicableError("a variable that is handed on")
        behind = any(span_of(n).holds(span_of(c)) for n in tail for c in one.changes)
        if behind and one not in totals and not any(_declares(one, n) for n in tail):
            raise NotApplicableError("a variable that is handed on")


def _stays(jump: Node, gathering: Sequence[Node]) -> bool:
    """Return True for a jump that still means the same where a loop over a thread's outputs repeats statements.

    It does within a loop of its own. Where the statements end the turn of a loop, `continue` ends that of an output.
    """
    if jump.type not in ("break_statement", "continue_statement"):
        return False
    loop = next((outer for outer in around(jump) if outer.type in LOOPS), None)
    if loop is None or any(span_of(one).holds(span_of(loop)) for one in gathering):
        return loop is not None
    body, last = field(loop, "body"), gathering[-1]
    ends = last.parent == body and [n for n in body.named_children if n.type != "comment"][-1] == last
    return jump.type == "continue_statement" and ends
