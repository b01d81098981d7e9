"""Let a thread compute several outputs at once that need the same inputs, as those of a convolution's filters do.

Where each output is a sum over several loops, a thread loads two values for each product. Outputs whose numbers differ
along an axis of the grid on which some of these loads do not depend are given to one thread, with their sums side by
side in registers: a value that is loaded once serves for all of them. Threads for outputs past the last one compute
that one again, and write nothing. Arrays of other names are taken for other arrays, as in `restrict`.
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import dedent, indent

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.affine import symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, body_unit, indent_at
from kernel_lsp.refine.rewrites.reading.reductions import TYPES
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_OUTPUTS = (8, 4)
_JUMPS = ("break_statement", "continue_statement", "return_statement", "goto_statement", "labeled_statement")


@dataclass(frozen=True)
class _Axis:
    """An axis of the grid that numbers outputs: `m = blockIdx.y`, or `m = blockIdx.y % count`.

    Attributes:
        variable: the number.
        letter: `x`, `y` or `z`.
        count: the parameter that says how many there are; None where the launch alone does, so far.
        others: nodes of `blockIdx.y / count`.
    """

    variable: CudaVariable
    letter: str
    count: str | None
    others: tuple[Node, ...]


@dataclass(frozen=True)
class _Sums:
    """Sums, one of each for each number of an axis.

    Attributes:
        axis: the numbers.
        totals: variables that gather, each with its declaration ahead of the loops.
        gathering: neighbouring statements within the loops that depend on the number.
        tail: statements behind the loops.
    """

    axis: _Axis
    totals: tuple[CudaVariable, ...]
    gathering: tuple[Node, ...]
    tail: tuple[Node, ...]


def _axes(use: MemoryUse) -> Iterator[_Axis]:
    """Yield the axes of the grid that a variable of the kernel alone, or with a quotient, goes along."""
    body = use.scopes.tree.body
    for variable in use.scopes.variables:
        value, declaration = variable.constant, variable.declaration
        if value is None or declaration is None or declaration.parent != body:
            continue
        if len(declaration.children_by_field_name("declarator")) != 1:
            continue
        for letter in "xyz":
            place = f"blockIdx.{letter}"
            uses = [n for n in walk(body) if n.type == "field_expression" and text_of(n) == place]
            if use.indices.of(value) == symbol(place) and len(uses) == 1:
                yield _Axis(variable, letter, None, ())
            elif (count := _divisor(use, value, place, "%")) is not None:
                others = tuple(n for n in walk(body) if _divisor(use, n, place, "/") == count)
                if len(uses) == 1 + len(others):
                    yield _Axis(variable, letter, count, others)


def _divisor(use: MemoryUse, node: Node, place: str, operator: str) -> str | None:
    """Return the parameter that a number of the block is divided by."""
    if node.type != "binary_expression" or text_of(field(node, "operator")) != operator:
        return None
    by = bare(field(node, "right"))
    known = use.scopes.of(by) if by.type == "identifier" else None
    if known is None or known.declaration is not None or known.changes or text_of(bare(field(node, "left"))) != place:
        return None
    return known.name


def _find(use: MemoryUse, axis: _Axis) -> _Sums:
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
    depends = [axis.variable, *_dependent(scopes, axis.variable, loop)]
    gathering = _gathering(scopes, loop, [*totals, *depends])
    _check_statements(use, loop, gathering, tail, totals)
    uses = [n for v in (axis.variable, *totals) for n in scopes.uses(v, scopes.tree.body)]
    starts = [span_of(v.declaration) for v in totals if v.declaration is not None]
    places = [*starts, *map(span_of, gathering), *map(span_of, tail)]
    if any(not any(place.holds(span_of(n)) for place in places) for n in uses):
        raise NotApplicableError("something else depends on the number")
    if any(v.declaration not in ahead for v in totals):
        raise NotApplicableError("a sum from elsewhere")
    loads = use.accesses(loop)
    mine = [any(scopes.uses(v, a.node) for v in depends) for a in loads]
    if not totals or all(mine) or not any(mine):
        raise NotApplicableError("nothing that several outputs share")
    return _Sums(axis, totals, gathering, tuple(tail))


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
        declaration = one.declaration
        kind = scopes.tree.named_type(one.type)
        if declaration is None or len(declaration.children_by_field_name("declarator")) != 1 or one.value is None:
            raise NotApplicableError("a sum from elsewhere")
        if one.array or (kind not in TYPES and kind not in scopes.tree.type_parameters):
            raise NotApplicableError("a sum of another type")
        yield one


def _dependent(scopes: Scopes, number: CudaVariable, loop: Node) -> list[CudaVariable]:
    """Return the variables within a loop that are made from a number."""
    found = [number]
    for one in scopes.variables:  # in source order
        inside = one.declaration is not None and span_of(loop).holds(span_of(one.declaration))
        if inside and one.value is not None and any(scopes.uses(v, one.value) for v in found):
            found.append(one)
    return found[1:]


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
    if not gathering or gathering[0] == loop or any(n.type in _JUMPS for one in (*gathering, *tail) for n in walk(one)):
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


@dataclass(frozen=True)
class _Words:
    """Names of the new kernel.

    Attributes:
        number: the axis's number, and its type.
        first: the first number of a thread.
        size: how many it has.
        at: counts them.
        count: how many numbers there are.
        unit: one level of indent.
    """

    number: tuple[str, str]
    first: str
    size: str
    at: str
    count: str
    unit: str

    @property
    def loop(self) -> str:
        """Return the head of a loop over a thread's outputs."""
        return f"for (int {self.at} = 0; {self.at} < {self.size}; ++{self.at})"

    @property
    def own(self) -> str:
        """Return the declaration of an output's number."""
        name, kind = self.number
        return f"const {kind} {name} = {self.first} + {self.at};"

    @property
    def own_or_last(self) -> str:
        """Return the declaration of an output's number, or the last one's for those past it."""
        name, kind = self.number
        return f"const {kind} {name} = min({self.first} + {self.at}, {self.count} - 1);"


def _edits(use: MemoryUse, found: _Sums, count: str, outputs: int) -> list[Edit]:
    """Return the edits of the kernel."""
    tree, number, declaration = use.scopes.tree, found.axis.variable, found.axis.variable.declaration
    assert declaration is not None, "it was looked at"
    text, block = tree.file.text, f"blockIdx.{found.axis.letter}"
    pad = indent_at(text, declaration.start_byte)
    first, size, at = (tree.fresh(name) for name in (f"first_{number.name}", "OUTPUTS", "output"))
    words = _Words((number.name, number.type), first, size, at, count, body_unit(pad))
    lines = [
        f"// A thread computes {outputs} outputs, which share what does not depend on `{number.name}`.",
        f"constexpr int {size} = {outputs};",
    ]
    edits: list[Edit] = []
    if found.axis.count is None:
        lines.append(f"const {number.type} {first} = {block} * {size};")
    else:
        groups = tree.fresh("groups")
        lines.append(f"const {number.type} {groups} = ({count} + {size} - 1) / {size};")
        lines.append(f"const {number.type} {first} = {block} % {groups} * {size};")
        edits += [Edit(span_of(node), f"{block} / {groups}") for node in found.axis.others]
    edits.append(Edit(span_of(declaration), f"\n{pad}".join(lines)))
    edits += [_set(use, found, words, one) for one in found.totals]
    depends = any(use.scopes.uses(number, n) for n in found.gathering)
    edits.append(_repeated(use, found, words, found.gathering, words.own_or_last if depends else ""))
    if found.tail:
        edits.append(_repeated(use, found, words, found.tail, words.own, guarded=True))
    return edits


def _set(use: MemoryUse, found: _Sums, words: _Words, total: CudaVariable) -> Edit:
    """Return the edit that gives each output's sum its first value."""
    declaration, value = total.declaration, total.value
    if declaration is None or value is None:
        raise NotApplicableError("a sum without a first value")
    pad = indent_at(use.scopes.tree.file.text, declaration.start_byte)
    line = f"{total.name}[{words.at}] = {text_of(value)};"
    if use.scopes.uses(found.axis.variable, value):
        line = f"{{\n{pad}{words.unit}{words.own_or_last}\n{pad}{words.unit}{line}\n{pad}}}"
    return Edit(span_of(declaration), f"{total.type} {total.name}[{words.size}];\n{pad}{words.loop} {line}")


def _repeated(
    use: MemoryUse, found: _Sums, words: _Words, nodes: Sequence[Node], head: str, *, guarded: bool = False
) -> Edit:
    """Return the edit that repeats statements for each of a thread's outputs, or for those that exist."""
    text, start, end = use.scopes.tree.file.text, nodes[0].start_byte, nodes[-1].end_byte
    uses = [n for v in found.totals for one in nodes for n in use.scopes.uses(v, one)]
    inner = [Edit(Span(n.start_byte - start, n.end_byte - start), f"{text_of(n)}[{words.at}]") for n in uses]
    pad = indent_at(text, start)
    body = dedent(pad + apply_edits(text.encode()[start:end].decode(), inner))
    if guarded:
        test = f"if ({words.number[0]} < {words.count})"
        single = len(nodes) == 1 and "\n" not in body
        body = f"{test} {body}" if single else f"{test} {{\n{indent(body, words.unit)}\n}}"
    shown = indent("\n".join(filter(None, [head, body])), pad + words.unit)
    return Edit(Span(start, end), f"#pragma unroll\n{pad}{words.loop} {{\n{shown}\n{pad}}}")


def _count(axis: _Axis, sites: Sequence[LaunchSite], kernel: Kernel) -> str:
    """Return the parameter that says how many numbers there are, as all launches say.

    Raises:
        NotApplicableError: none does, or more than one.
    """
    if axis.count is not None:
        return axis.count
    scalars = {p.name for p in kernel.parameters if "*" not in p.type}
    found = [
        {name for name, given in site.arguments.items() if name in scalars and given == _component(axis, site)}
        for site in sites
    ]
    same = set[str].intersection(*found)
    if len(same) != 1:
        raise NotApplicableError("the number of outputs is not known")
    return same.pop()


def _component(axis: _Axis, site: LaunchSite) -> str:
    """Return the size of the grid along an axis."""
    sizes = site.sizes(site.grid)
    at = "xyz".index(axis.letter)
    text = text_of(sizes[at]) if at < len(sizes) else "1"
    if not re.search(r"[A-Za-z_]", text):
        raise NotApplicableError("a number that may stand for anything")
    return text


def _launched(axis: _Axis, outputs: int, site: LaunchSite) -> list[Edit]:
    sizes, at = [text_of(n) for n in site.sizes(site.grid)], "xyz".index(axis.letter)
    parts = [_component(axis, site)]
    if axis.count is not None:
        parts = re.split(r"\s*\*\s*", parts[0])
        given = site.arguments.get(axis.count)
        if given not in parts or any(not re.fullmatch(r"[\w.]+(\[\w+\]|\(\w*\))?", part) for part in parts):
            raise NotApplicableError("a grid of another size")
        parts.sort(key=lambda part: part != given)
    fewer = closed(site.ceil_div(parts[0], outputs)) if len(parts) > 1 else site.ceil_div(parts[0], outputs)
    sizes[at] = " * ".join([*parts[1:], fewer])
    return [site.with_grid(*sizes)]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 8 and 4 outputs a thread, for each axis along which they share what they load."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet or kernel.launch_bounds:
            return
        use = MemoryUse(Scopes(tree))
        sites = find_launches(tree, workload_file)
        axes = list(_axes(use)) if sites is not None else []
    except LookupError:
        return
    for axis in axes:
        try:
            found, count = _find(use, axis), _count(axis, sites or [], kernel)
            for outputs in _OUTPUTS:
                edits, change = _edits(use, found, count, outputs), partial(_launched, axis, outputs)
                files = relaunched(tree, workload_file, sites or [], edits, change)
                label = f"{outputs} outputs a thread along `{axis.variable.name}`"
                yield Candidate(kernel.language, *files, label, "rewrite:several_outputs")
        except LookupError:
            continue
