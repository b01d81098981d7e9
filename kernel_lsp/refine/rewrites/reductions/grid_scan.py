"""Let the whole GPU compute the running sums of an array, in three launches for the one of a single thread.

In the first, each block adds up a part of the array; in the second, one block makes the last value of each part the
whole sum up to there; in the third, all other elements get what lies before their part (Blelloch, "Prefix Sums and
Their Applications", 1990). No memory is needed beside the array itself. Arrays of other names are taken for other
arrays.

A thread for each element that adds up all elements up to its own is read as the same.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses.output_axes import typed_limit
from kernel_lsp.refine.rewrites.reading.affine import number
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    bare,
    body_unit,
    indent_at,
    only_returns,
    statements_of,
)
from kernel_lsp.refine.rewrites.reading.reductions import WHOLE, ZERO
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError, serial_loop
from kernel_lsp.refine.rewrites.reading.thread_rows import find_thread_rows, thread_macros
from kernel_lsp.refine.rewrites.reductions.carried_sums import with_carried_sums
from kernel_lsp.refine.rewrites.reductions.first_thread import unguarded
from kernel_lsp.refine.rewrites.reductions.scans import added_to, find_scan
from kernel_lsp.refine.rewrites.reductions.team import block_team
from kernel_lsp.refine.rewrites.writing.inlining import with_values
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed, zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel, Parameter
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_ORIGIN = "rewrite:grid_scan"
_PLACE = r"threadIdx|blockIdx|blockDim|gridDim"
_PART, _THREADS, _TOTALS = 4096, 256, 1024  # elements of a part, threads for it, and threads for the parts' last values


@dataclass(frozen=True)
class _ArrayScan:
    """The running sums of an array, which are all that a kernel computes.

    Attributes:
        total: the sum.
        once: statements that are done once, ahead of the sums.
        counter: the number of an element.
        start: the first number.
        limit: the end.
        summand: what an element adds.
        inner: the number in `summand`.
        store: the statement that stores a sum.
    """

    total: CudaVariable
    once: tuple[Node, ...]
    counter: CudaVariable
    start: Node
    limit: Node
    summand: Node
    inner: CudaVariable
    store: Node

    @property
    def target(self) -> Node:
        """Return the element that a sum is stored to."""
        return field(self.store.named_children[0], "left")


def _by_one_thread(use: MemoryUse) -> _ArrayScan:
    """Return the sums of a kernel that is a loop which adds to a variable and stores it.

    Raises:
        NotApplicableError: it is something else.
    """
    statements = statements_of(use.scopes.tree.body)
    loop = serial_loop(use.scopes, statements[-1]) if statements else None
    scan = find_scan(use, loop) if loop is not None else None
    if loop is None or scan is None or scan.exclusive or scan.ahead or len(scan.behind) != 1:
        raise NotApplicableError("no running sum")
    if text_of(field(loop.condition, "operator")) != "<":
        raise NotApplicableError("a running sum of another form")
    own = (scan.variable.declaration, loop.variable.declaration)
    once, counter = tuple(n for n in statements[:-1] if n not in own), loop.variable
    return _ArrayScan(scan.variable, once, counter, loop.start, loop.limit, scan.summand, counter, scan.behind[0])


def _by_all_threads(use: MemoryUse) -> _ArrayScan:
    """Return the sums of a kernel in which each thread adds up all elements to its own.

    Raises:
        NotApplicableError: it is something else.
    """
    rows, statements = find_thread_rows(use), statements_of(use.scopes.tree.body)
    if rows.guard is None or rows.end is None or rows.update is not None:
        raise NotApplicableError("no number of a thread")
    held = field(rows.guard, "consequence")
    region = statements[statements.index(rows.guard) + 1 :] if only_returns(held) else statements_of(held)
    if len(region) != 3 or region[-1].end_byte < statements[-1].start_byte:
        raise NotApplicableError("no running sum")
    loop = serial_loop(use.scopes, region[1])
    inside = statements_of(loop.body) if loop is not None else []
    added = added_to(use, inside[0], loop) if loop is not None and len(inside) == 1 else None
    if loop is None or added is None or added[0].declaration != region[0] or use.indices.of(loop.start).value != 0:
        raise NotApplicableError("no running sum")
    reach = use.indices.of(loop.limit) + number(text_of(field(loop.condition, "operator")) == "<=")
    if reach != use.indices.of(rows.value) + number(1) or use.scopes.uses(rows.variable, added[1]):
        raise NotApplicableError("another reach")
    return _ArrayScan(added[0], (), rows.variable, loop.start, rows.end, added[1], loop.variable, region[2])


def _check(use: MemoryUse, found: _ArrayScan) -> None:
    """Refuse sums that blocks cannot compute part by part, or beside which something else happens."""
    scopes, total, change = use.scopes, found.total, found.store.named_children[0]
    if change.type != "assignment_expression" or text_of(field(change, "operator")) != "=":
        raise NotApplicableError("a running sum that is not stored")
    value = bare(field(change, "right"))
    if value.type != "identifier" or scopes.of(value) is not total or total.value is None or len(total.changes) != 1:
        raise NotApplicableError("a running sum that is not stored as it is")
    stored = {a.node.id: a for a in use.accesses(found.store)}.get(found.target.id)
    offset, index = (stored.offset if stored is not None else None), use.indices.of_value(found.counter)
    step = (offset - index).names() & index.names() if offset is not None else {""}
    if stored is None or stored.pointer is None or offset is None or step:
        raise NotApplicableError("sums that do not lie side by side")
    kinds = {scopes.tree.named_type(kind) for kind in (stored.pointer.type.removesuffix("*"), total.type)}
    if len(kinds) != 1 or scopes.tree.kernel.template_parameters:
        raise NotApplicableError("sums that are rounded as they are stored")
    if not kinds & {"float", "double"} and _is_rounded(use, found.summand):
        raise NotApplicableError("whole sums of what is not whole")
    first = offset - index + use.indices.of(found.start)
    for one in (a for n in found.once for a in use.accesses(n)):
        apart = (first - one.offset).value if one.offset is not None else None
        if not one.written and one.pointer is not stored.pointer:
            continue
        if one.pointer is not stored.pointer or not one.written or apart is None or apart < 1:
            raise NotApplicableError("other work")
    if any(n.type != "expression_statement" for n in found.once):
        raise NotApplicableError("other work")
    for one in (*use.accesses(found.summand), *use.accesses(total.value)):
        apart = (first - one.offset).value if one.offset is not None else None
        kept = one.offset == offset or (apart is not None and apart >= 1 and not found.once)
        if one.written or one.pointer is None or (one.pointer is stored.pointer and not kept):
            raise NotApplicableError("sums that go into sums")
    known = {found.counter, found.inner, total}
    nodes = (found.summand, found.limit, found.start, found.target, total.value, *found.once)
    names = [scopes.of(n) for one in nodes for n in walk(one) if n.type == "identifier"]
    if any(v is not None and v.declaration is not None and v not in known for v in names):
        raise NotApplicableError("a variable that only the one kernel has")
    hidden = "|".join([_PLACE, *(rf"\b{name}\b" for name in thread_macros(scopes.tree.root))])
    if any(re.search(hidden, text_of(n)) for n in nodes):
        raise NotApplicableError("something else depends on the thread")


def _is_rounded(use: MemoryUse, summand: Node) -> bool:
    """Return True unless all that a summand is made of is of an integer type."""
    loaded = (a.pointer.type.removesuffix("*") if a.pointer is not None else "" for a in use.accesses(summand))
    named = (v.type for n in walk(summand) if n.type == "identifier" and (v := use.scopes.of(n)) and not v.pointer)
    if any(use.scopes.tree.named_type(kind) not in WHOLE for kind in (*loaded, *named)):
        return True
    return any(n.type == "call_expression" or (n.type == "number_literal" and "." in text_of(n)) for n in walk(summand))


@dataclass(frozen=True)
class _Kernels:
    """Writes the three kernels.

    Attributes:
        use: the accesses of the kernel as it is.
        found: its sums.
        scan: the function that adds up a block's values.
    """

    use: MemoryUse
    found: _ArrayScan
    scan: str

    @property
    def tree(self) -> KernelTree:
        """Return the kernel as it is."""
        return self.use.scopes.tree

    @cached_property
    def part(self) -> str:
        """Return the name of a part's size."""
        return self.tree.fresh("PART")

    @cached_property
    def totals(self) -> str:
        """Return the name of the second kernel."""
        return self.tree.fresh(f"{self.tree.kernel.name}_of_parts")

    @cached_property
    def rest(self) -> str:
        """Return the name of the third kernel."""
        return self.tree.fresh(f"{self.tree.kernel.name}_before_parts")

    @cached_property
    def parameters(self) -> list[Parameter]:
        """Return the parameters of the second and third kernel: those that the place of an element needs."""
        nodes = (self.found.target, self.found.start, self.found.limit)
        names = {text_of(n) for one in nodes for n in walk(one) if n.type == "identifier"}
        return [p for p in self.tree.kernel.parameters if p.name in names]

    @property
    def zero(self) -> str:
        """Return a sum of nothing."""
        return zero_of(self.tree.named_type(self.found.total.type))

    def plus_start(self, text: str) -> str:
        """Return the number of an element from its place among all."""
        start = text_of(self.found.start)
        return text if start == "0" else f"{closed(start)} + {text}"

    def before_start(self, text: str) -> str:
        """Return the number of an element from its place, counted from 1."""
        start = text_of(self.found.start)
        if start.isdigit():
            return f"{int(start) - 1} + {text}" if int(start) > 1 else f"{text}{' - 1' * (start == '0')}"
        return f"{closed(start)} + {text} - 1"

    def first(self) -> str:
        """Return the body of the first kernel."""
        found, total, name = self.found, self.found.total, self.found.counter.name
        kind, here = found.counter.type, f"{total.name}_here"
        value = text_of(total.value) if total.value is not None else "0"
        begin, end, at = (self.tree.fresh(one) for one in ("begin", "end", f"first_{name}"))
        start = value if ZERO.fullmatch(value) else f"blockIdx.x == 0 ? {value} : {self.zero}"
        summand = (
            f"static_cast<{total.type}>({name} < {end} ? {_named(self.use, found.summand, found.inner, name)} : 0)"
        )
        once = "if (blockIdx.x == 0 && threadIdx.x == 0) "
        limit = typed_limit(self.use, kind, found.limit)
        lines = [
            "// A block adds up its own part of the array.",
            f"{total.type} {total.name} = {start};",
            *(f"{once}{text_of(node)}" for node in found.once),
            f"const {kind} {begin} = {self.plus_start(f'blockIdx.x * {self.part}')};",
            f"const {kind} {end} = min({begin} + {self.part}, {limit});",
            f"for ({kind} {at} = {begin}; {at} < {end}; {at} += blockDim.x) {{",
            f"    const {kind} {name} = {at} + threadIdx.x;",
            f"    const {total.type} {here} = {self.scan}({total.name}, {summand});",
            f"    if ({name} < {end}) {_named(self.use, found.store, total, here)}",
            "}",
        ]
        return self._body(lines)

    def of_parts(self) -> str:
        """Return the body of the second kernel."""
        total, name, target = self.found.total, self.found.counter.name, text_of(self.found.target)
        kind, here, start = self.found.counter.type, f"{total.name}_here", text_of(self.found.start)
        at, part, parts = (self.tree.fresh(one) for one in ("first_part", "part", "parts"))
        count = text_of(self.found.limit) + (f" - {closed(start)}" if start != "0" else "")
        last = self.before_start(f"({part} + 1) * {self.part}")
        value = f"{self.scan}({total.name}, {part} < {parts} ? {target} : {self.zero})"
        return self._body([
            "// The last value of each whole part becomes the sum of all up to there.",
            f"{total.type} {total.name} = {self.zero};",
            f"const {kind} {parts} = {closed(count)} / {self.part};",
            f"for ({kind} {at} = 0; {at} < {parts}; {at} += blockDim.x) {{",
            f"    const {kind} {part} = {at} + threadIdx.x, {name} = {last};",
            f"    const {total.type} {here} = {value};",
            f"    if ({part} < {parts}) {target} = {here};",
            "}",
        ])  # fmt: skip

    def before_parts(self) -> str:
        """Return the body of the third kernel."""
        kind, name, starts = self.found.counter.type, self.found.counter.name, text_of(self.found.start) != "0"
        last, place = self.tree.fresh("last"), self.tree.fresh("place") if starts else name
        also = f", {name} = {self.plus_start(place)}" if starts else ""
        ends = f"{name} >= {text_of(self.found.limit)} || {place} % {self.part} == {self.part} - 1"
        before = _named(self.use, self.found.target, self.found.counter, last)
        return self._body([
            "// What stands before a part is added to its elements; a whole part's last one has it.",
            f"const {kind} {place} = blockIdx.x * blockDim.x + threadIdx.x{also};",
            f"if ({place} < {self.part} || {ends}) return;",
            f"const {kind} {last} = {self.before_start(f'{place} / {self.part} * {self.part}')};",
            f"{text_of(self.found.target)} += {before};",
        ])  # fmt: skip

    def others(self) -> str:
        """Return the second and the third kernel."""
        given = ", ".join(f"{p.type} {p.name}" for p in self.parameters)
        bodies = (self.totals, self.of_parts()), (self.rest, self.before_parts())
        return "".join(f"\n\n__global__ void {name}({given}) {body}" for name, body in bodies)

    def _body(self, lines: list[str]) -> str:
        unit = body_unit("") or "    "
        return "\n".join(["{", *(f"{unit}{line}" for line in lines), "}"])

    def launched(self, site: LaunchSite) -> list[Edit]:
        """Return the edit that puts three launches in the place of one."""
        limit = site.spelled(self.use.indices.of(self.found.limit))
        if limit is None or any(p.name not in site.arguments for p in self.tree.kernel.parameters):
            raise NotApplicableError("a size that the launch does not say")
        name, call = self.tree.kernel.name, site.call
        parts, names = site.ceil_div(limit, _PART), [p.name for p in self.parameters]
        every = [p.name for p in self.tree.kernel.parameters]
        launches = [
            site.launched(name, name, parts, str(_THREADS), every),
            site.launched(name, self.totals, "1", str(_TOTALS), names),
            site.launched(name, self.rest, site.ceil_div(limit, _THREADS), str(_THREADS), names),
        ]
        return [Edit(span_of(call), (";" * (not site.python) + "\n" + _pad(call)).join(launches))]


def _pad(node: Node) -> str:
    """Return the white space that begins the line of a node."""
    root = node
    while root.parent is not None:
        root = root.parent
    return indent_at(text_of(root), node.start_byte - root.start_byte)


def _named(use: MemoryUse, node: Node, variable: CudaVariable, text: str) -> str:
    """Return a node's text with another text for a variable."""
    uses = use.scopes.uses(variable, node)
    return with_values(use.scopes, node, (), {n.id: text for n in uses})


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel's sums in three launches."""
    for single in unguarded(kernel_file, workload_file, kernel):
        yield from (replace(one, origin=_ORIGIN) for one in followed_by(single, kernel, device, rewrite))
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.collective(tree.body) or kernel.launch_bounds or "::" in kernel.name:
            return
        tree = with_carried_sums(tree) or tree
        use = MemoryUse(Scopes(tree))
        sites = find_launches(tree, workload_file)
        alone = sites is not None and all(site.is_single(site.grid) and site.is_single(site.block) for site in sites)
        found = _by_one_thread(use) if alone else _by_all_threads(use)
        _check(use, found)
        team = block_team(tree)
        kernels = _Kernels(use, found, team.scan)
        constant = f"constexpr int {kernels.part} = {_PART};  // elements that a block adds up\n"
        end = tree.kernel.span.end
        edits = [
            Edit(tree.kernel.body, kernels.first()),
            Edit(Span(end, end), kernels.others()),
            defined_before(tree, f"{team.scan_text}\n{constant}"),
        ]
        files = relaunched(tree, workload_file, sites or [], edits, kernels.launched)
    except LookupError:
        return
    yield Candidate(kernel.language, *files, "running sums in three launches", _ORIGIN)
