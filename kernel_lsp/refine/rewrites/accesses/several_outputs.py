"""Let a thread compute several outputs at once that need the same inputs, as those of a convolution's filters do.

Where each output is a sum over several loops, a thread loads two values for each product. Outputs whose numbers differ
along an axis of the grid on which some of these loads do not depend are given to one thread, with their sums side by
side in registers: a value that is loaded once serves for all of them. Threads for outputs past the last one compute
that one again, and write nothing. Outputs that neighbouring threads had stay with neighbouring threads.

Arrays of other names are taken for other arrays, as in `restrict`, and what a loop loads in some of its turns, such as
a filter's weight where the image goes on, is taken to be there in all of them.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from textwrap import dedent, indent

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.output_axes import OutputAxis, count_of, fewer_along, output_axes
from kernel_lsp.refine.rewrites.products.naive_product import find_product
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, KernelTree, around, body_unit, indent_at, whole_line
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, ZERO
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryAccess, MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_OUTPUTS = (8, 4)
_JUMPS = ("break_statement", "continue_statement", "return_statement", "goto_statement", "labeled_statement")


@dataclass(frozen=True)
class _Sums:
    """Sums, one of each for each number of an axis.

    Attributes:
        axis: the numbers.
        held: variables that each number has one of, declared ahead of the loops: those that gather, and what they need.
        gathering: neighbouring statements within the loops that depend on the number.
        tail: statements behind the loops.
        shared: loads of `gathering` that all numbers have in common.
    """

    axis: OutputAxis
    held: tuple[CudaVariable, ...]
    gathering: tuple[Node, ...]
    tail: tuple[Node, ...]
    shared: tuple[MemoryAccess, ...]


def _find(use: MemoryUse, axis: OutputAxis) -> _Sums:
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
    gathering = _gathering(scopes, loop, [*totals, *depends])
    _check_statements(use, loop, gathering, tail, totals)
    if any(one.declaration == v.declaration and one not in held for v in held for one in scopes.variables):
        raise NotApplicableError("a declaration of something else, too")
    uses = [n for v in (axis.variable, *held) for n in scopes.uses(v, scopes.tree.body) if n != axis.tested]
    starts = [span_of(v.declaration) for v in held if v.declaration is not None]
    places = [*starts, *map(span_of, gathering), *map(span_of, tail)]
    if any(not any(place.holds(span_of(n)) for place in places) for n in uses):
        raise NotApplicableError("something else depends on the number")
    top = [n for n in scopes.tree.body.named_children if n.end_byte < block.start_byte]
    if any(v.declaration not in (*ahead, *top) for v in held):
        raise NotApplicableError("a sum from elsewhere")
    values = [v.value for v in held if v.value is not None]
    if axis.tested is not None and any(n.start_byte < axis.tested.start_byte and use.accesses(n) for n in values):
        raise NotApplicableError("a load ahead of the test")
    if any(a.written for n in (*ahead, *top) for a in use.accesses(n)):
        raise NotApplicableError("a write for each output ahead of the sums")
    loads = use.accesses(loop)
    mine = [any(scopes.uses(v, a.node) for v in depends) for a in loads]
    if not totals or all(mine) or not any(scopes.uses(v, n) for v in depends for n in gathering):
        raise NotApplicableError("nothing that several outputs share")
    if axis.tested is not None and any(_is_of_row(a) for a, own in zip(loads, mine, strict=True) if own):
        raise NotApplicableError("a row for each thread, which many threads had better share")
    shared = tuple(_shared(use, gathering, [*held, *depends]))
    return _Sums(axis, held, gathering, tuple(tail), shared)


def _is_of_row(access: MemoryAccess) -> bool:
    """Return True if neighbouring threads are a row of some length apart."""
    step = access.offset.factor("threadIdx.x") if access.offset is not None else None
    return step is not None and step.value is None


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
    """Return the variables within a loop that are made from some others."""
    found = [*marked]
    for one in scopes.variables:  # in source order
        inside = one.declaration is not None and span_of(loop).holds(span_of(one.declaration))
        if inside and one.value is not None and any(scopes.uses(v, one.value) for v in found):
            found.append(one)
    return found[len(marked) :]


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


@dataclass(frozen=True)
class _Words:
    """Names of the new kernel.

    Attributes:
        number: the axis's number, and its type.
        first: the first number of a thread.
        step: from one of its numbers to the next, as a factor; empty where they are neighbours.
        size: how many it has.
        at: counts them.
        count: how many numbers there are.
        unit: one level of indent.
    """

    number: tuple[str, str]
    first: str
    step: str
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
        return f"const {kind} {name} = {self.first} + {self.at}{self.step};"

    @property
    def own_or_last(self) -> str:
        """Return the declaration of an output's number, or the last one's for those past it."""
        name, kind = self.number
        return f"const {kind} {name} = min({self.first} + {self.at}{self.step}, {closed(self.count)} - 1);"


def _edits(use: MemoryUse, found: _Sums, count: str, outputs: int) -> list[Edit]:
    """Return the edits of the kernel."""
    tree, number, declaration = use.scopes.tree, found.axis.variable, found.axis.variable.declaration
    assert declaration is not None, "it was looked at"
    text, axis = tree.file.text, found.axis
    pad = indent_at(text, declaration.start_byte)
    first, size, at = (tree.fresh(name) for name in (f"first_{number.name}", "OUTPUTS", "output"))
    step = tree.fresh("step") if axis.tested is not None else ""
    words = _Words((number.name, number.type), first, f" * {step}" * bool(step), size, at, count, body_unit(pad))
    lines = [
        f"// A thread computes {outputs} outputs, which share what does not depend on `{number.name}`.",
        f"constexpr int {size} = {outputs};",
        *_first_number(tree, axis, words, step),
    ]
    edits = [Edit(span_of(declaration), f"\n{pad}".join(lines))]
    edits += [Edit(span_of(node), f"blockIdx.{axis.letter} / {tree.fresh('groups')}") for node in axis.others]
    edits += [Edit(whole_line(text, span_of(node)), "") for node in axis.aliases]
    edits += [Edit(span_of(axis.tested), first)] if axis.tested is not None else []
    edits += [_set(use, found, words, group) for group in _declared_together(found)]
    edits.append(_repeated(use, found, words, found.gathering))
    if found.tail:
        edits.append(_repeated(use, found, words, found.tail, guarded=True))
    return edits


def _first_number(tree: KernelTree, axis: OutputAxis, words: _Words, step: str) -> list[str]:
    """Return the lines that declare a thread's first number, and how far the next one is from it."""
    block, kind, count = f"blockIdx.{axis.letter}", words.number[1], closed(words.count)
    if axis.tested is not None:
        threads = f"blockDim.{axis.letter}"
        value = f"{block} * {words.size} * {threads} + threadIdx.{axis.letter}"
        return [f"const {kind} {words.first} = {value}, {step} = {threads};"]
    if axis.count is None:
        return [f"const {kind} {words.first} = {block} * {words.size};"]
    groups = tree.fresh("groups")
    return [
        f"const {kind} {groups} = ({count} + {words.size} - 1) / {words.size};",
        f"const {kind} {words.first} = {block} % {groups} * {words.size};",
    ]


def _declared_together(found: _Sums) -> list[list[CudaVariable]]:
    """Return the variables of which each output has one, those of neighbouring declarations together."""
    groups: list[list[CudaVariable]] = []
    for one in sorted(found.held, key=lambda v: v.start):
        before = groups[-1][-1].declaration if groups else None
        if before is not None and one.declaration in (before, before.next_sibling):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _set(use: MemoryUse, found: _Sums, words: _Words, group: Sequence[CudaVariable]) -> Edit:
    """Return the edit that gives each output its values of variables that are declared together."""
    first, last = group[0].declaration, group[-1].declaration
    assert first is not None, "it was looked at"
    assert last is not None, "it was looked at"
    arrays, lines, numbered = dict[tuple[str, str], list[str]](), list[str](), False
    for one in group:
        value = one.value
        if value is None:
            raise NotApplicableError("a sum without a first value")
        kind = f"const {one.type}" if one.pointer and one.read_only else one.type
        zero = ZERO.fullmatch(text_of(value)) is not None
        alike = arrays.setdefault((kind, one.name if one.pointer else ""), [])
        alike.append(f"{one.name}[{words.size}]{' = {}' if zero else ''}")
        if not zero:
            numbered |= bool(use.scopes.uses(found.axis.variable, value))
            edited = _edited(use, value.start_byte, value.end_byte, _each(use, found, words, [value]))
            lines.append(f"{one.name}[{words.at}] = {edited};")
    pad = indent_at(use.scopes.tree.file.text, first.start_byte)
    lines = [words.own_or_last, *lines] if numbered else lines
    if len(lines) == 1:
        lines = [f"{words.loop} {lines[0]}"]
    elif lines:
        lines = [f"{words.loop} {{", *(words.unit + line for line in lines), "}"]
    declared = (f"{kind} {', '.join(alike)};" for (kind, _), alike in arrays.items())
    return Edit(Span(first.start_byte, last.end_byte), f"\n{pad}".join([*declared, *lines]))


def _each(use: MemoryUse, found: _Sums, words: _Words, nodes: Sequence[Node]) -> list[Edit]:
    """Return the edits that name an output's own variables in some nodes."""
    uses = [n for v in found.held for one in nodes for n in use.scopes.uses(v, one)]
    return [Edit(span_of(n), f"{text_of(n)}[{words.at}]") for n in uses]


def _edited(use: MemoryUse, start: int, end: int, edits: Sequence[Edit]) -> str:
    """Return a part of the file after edits within it."""
    moved = [Edit(Span(e.span.start - start, e.span.end - start), e.text) for e in edits]
    return apply_edits(use.scopes.tree.file.text.encode()[start:end].decode(), moved)


def _repeated(use: MemoryUse, found: _Sums, words: _Words, nodes: Sequence[Node], *, guarded: bool = False) -> Edit:
    """Return the edit that repeats statements for each of a thread's outputs, or for those that exist."""
    start, end = nodes[0].start_byte, nodes[-1].end_byte
    shared = {} if guarded else _names_of_shared(use, found)
    taken = [Edit(span_of(one.node), shared[text_of(one.node)][0]) for one in found.shared if not guarded]
    numbered = guarded or any(use.scopes.uses(found.axis.variable, n) for n in nodes)
    head = (words.own if guarded else words.own_or_last) if numbered else ""
    pad = indent_at(use.scopes.tree.file.text, start)
    body = dedent(pad + _edited(use, start, end, [*_each(use, found, words, nodes), *taken]))
    if guarded:
        test = f"if ({words.number[0]} < {words.count})"
        single = len(nodes) == 1 and "\n" not in body
        body = f"{test} {body}" if single else f"{test} {{\n{indent(body, words.unit)}\n}}"
    inner = indent("\n".join(filter(None, [head, body])), words.unit)
    lines = [*(line for _, line in shared.values()), f"#pragma unroll\n{words.loop} {{\n{inner}\n}}"]
    block = nodes[0].parent is not None and nodes[0].parent.type == "compound_statement"
    text = "\n".join(lines) if block or not shared else "{\n" + indent("\n".join(lines), words.unit) + "\n}"
    return Edit(Span(start, end), indent(text, pad).removeprefix(pad))


def _names_of_shared(use: MemoryUse, found: _Sums) -> dict[str, tuple[str, str]]:
    """Return a name for each element that all outputs need, and the line that loads it, by the element's text."""
    named: dict[str, tuple[str, str]] = {}
    for one in found.shared:
        pointer, text = one.pointer, text_of(one.node)
        assert pointer is not None, "it was looked at"
        stem = f"{pointer.name}_value"
        name = use.scopes.tree.fresh(stem + (str(len(named) + 1) if named else ""))
        named.setdefault(text, (name, f"const {pointer.type.removesuffix('*')} {name} = {text};"))
    return named


def _is_product(use: MemoryUse) -> bool:
    """Return True for a product of matrices, of which tiles share more."""
    try:
        find_product(use)
    except LookupError:
        return False
    return True


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
        axes = list(output_axes(use)) if sites is not None else []
    except LookupError:
        return
    if axes and _is_product(use):
        return
    for axis in axes:
        try:
            found, count = _find(use, axis), count_of(axis, sites or [], kernel)
            for outputs in _OUTPUTS:
                edits, change = _edits(use, found, count, outputs), partial(fewer_along, axis, outputs)
                files = relaunched(tree, workload_file, sites or [], edits, change)
                label = f"{outputs} outputs a thread along `{axis.variable.name}`"
                yield Candidate(kernel.language, *files, label, "rewrite:several_outputs")
        except LookupError:
            continue
