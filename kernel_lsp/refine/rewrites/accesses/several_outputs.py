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
from kernel_lsp.refine.rewrites.accesses.output_sums import OutputSums, find_output_sums
from kernel_lsp.refine.rewrites.products.naive_product import find_product
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, body_unit, indent_at, whole_line
from kernel_lsp.refine.rewrites.reading.reductions import ZERO
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.launch_sites import find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import span_of, text_of

_OUTPUTS = (8, 4)


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


def _edits(use: MemoryUse, found: OutputSums, count: str, outputs: int) -> list[Edit]:
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
    edits += [_repeated(use, found, words, part) for part in found.gathering]
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


def _declared_together(found: OutputSums) -> list[list[CudaVariable]]:
    """Return the variables of which each output has one, those of neighbouring declarations together."""
    groups: list[list[CudaVariable]] = []
    for one in sorted(found.held, key=lambda v: v.start):
        before = groups[-1][-1].declaration if groups else None
        if before is not None and one.declaration in (before, before.next_sibling):
            groups[-1].append(one)
        else:
            groups.append([one])
    return groups


def _set(use: MemoryUse, found: OutputSums, words: _Words, group: Sequence[CudaVariable]) -> Edit:
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


def _each(use: MemoryUse, found: OutputSums, words: _Words, nodes: Sequence[Node]) -> list[Edit]:
    """Return the edits that name an output's own variables in some nodes."""
    uses = [n for v in found.held for one in nodes for n in use.scopes.uses(v, one)]
    return [Edit(span_of(n), f"{text_of(n)}[{words.at}]") for n in uses]


def _edited(use: MemoryUse, start: int, end: int, edits: Sequence[Edit]) -> str:
    """Return a part of the file after edits within it."""
    moved = [Edit(Span(e.span.start - start, e.span.end - start), e.text) for e in edits]
    return apply_edits(use.scopes.tree.file.text.encode()[start:end].decode(), moved)


def _repeated(
    use: MemoryUse, found: OutputSums, words: _Words, nodes: Sequence[Node], *, guarded: bool = False
) -> Edit:
    """Return the edit that repeats statements for each of a thread's outputs, or for those that exist."""
    start, end = nodes[0].start_byte, nodes[-1].end_byte
    own = [one for one in found.shared if any(span_of(n).holds(span_of(one.node)) for n in nodes)]
    shared = {
        text: named for text, named in _names_of_shared(use, found).items() if any(text_of(n.node) == text for n in own)
    }
    taken = [Edit(span_of(one.node), shared[text_of(one.node)][0]) for one in own]
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


def _names_of_shared(use: MemoryUse, found: OutputSums) -> dict[str, tuple[str, str]]:
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
            found, count = find_output_sums(use, axis), count_of(axis, sites or [], kernel)
            for outputs in _OUTPUTS:
                edits, change = _edits(use, found, count, outputs), partial(fewer_along, axis, outputs)
                files = relaunched(tree, workload_file, sites or [], edits, change)
                label = f"{outputs} outputs a thread along `{axis.variable.name}`"
                yield Candidate(kernel.language, *files, label, "rewrite:several_outputs")
        except LookupError:
            continue
