"""Give each row of a kernel that has a warp for each row to a block: more threads where rows are long and few.

A warp a row leaves most of a GPU idle while the rows are few, and reads a long row with 32 threads. In the new kernel
all threads of a block take the elements of a row in turn, and combine what the lanes of the warp combined. It applies
if lanes differ in nothing but the elements that they take and in what the first one does alone, and if all of them
reach whatever they combine. Sums that begin at zero, and extremes, have the same value however many threads there are.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import vectorize
from kernel_lsp.refine.rewrites.reading.affine import Polynomial
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    around,
    comment_free,
    condition_parts,
    indent_at,
    names,
    only_returns,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.loops import LANES
from kernel_lsp.refine.rewrites.reading.reductions import ZERO
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes, all_within
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError, is_written
from kernel_lsp.refine.rewrites.reading.thread_rows import compared
from kernel_lsp.refine.rewrites.reductions.team import block_team
from kernel_lsp.refine.rewrites.reductions.warp_code import WarpCode, function_named, spelled_alike
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel, Parameter
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_THREADS = (1024, 256, 512)
_WARP = {f"(threadIdx.x{by})" for by in ("/32", ">>5", "/warpSize")}
_WARPS = {f"(blockDim.x{by})" for by in ("/32", ">>5", "/warpSize")}
_THREAD = "((blockDim.x*blockIdx.x)+threadIdx.x)"
_ROW = {
    *("({}+{})".format(*sorted(["({}*{})".format(*sorted(["blockIdx.x", n])), w])) for n in _WARPS for w in _WARP),
    *(f"({_THREAD}{by})" for by in ("/32", ">>5", "/warpSize")),
}
_STEPS = ("32", "warpSize")
_PLACE = re.compile(r"(threadIdx|blockIdx|blockDim|gridDim)\.\w")
_HIDDEN = re.compile(
    r"__shared__|__shfl|__ballot|__any_|__all_|__match|__reduce_|__activemask|\basm\b|__syncthreads|goto|"
    r"this_thread_block|this_grid|coalesced_threads|tiled_partition|thread_block_tile"
)
_STRAIGHT = {
    "compound_statement", "expression_statement", "declaration", "init_declarator", "assignment_expression",
    "binary_expression", "parenthesized_expression", "return_statement", "argument_list", "call_expression",
    "initializer_list", "compound_literal_expression", "cast_expression",
}  # fmt: skip
_SUM = re.compile(r"plus<|\ba \+ b\b")


@dataclass(frozen=True)
class _Touched:
    """Arrays that a statement reads and writes, and the head of its loop over a row."""

    reads: frozenset[CudaVariable | None]
    writes: frozenset[CudaVariable | None]
    head: str

    def meets(self, other: "_Touched") -> bool:
        """Return True if two threads may touch one element in both, and one of them writes."""
        if self.head and self.head == other.head:
            return False
        return any(_may_be(a, b) for a in self.writes for b in other.reads | other.writes) or any(
            _may_be(a, b) for a in self.reads for b in other.writes
        )


_ANYTHING = _Touched(frozenset({None}), frozenset({None}), "")


def _may_be(one: CudaVariable | None, other: CudaVariable | None) -> bool:
    if one is None or other is None or one is other:
        return True
    return not (one.restricted or other.restricted)


class _Function:
    """Gathers the edits of one function: the kernel, or one that gets its warp."""

    def __init__(self, code: WarpCode, tree: KernelTree) -> None:
        self.code, self.tree, self.scopes = code, tree, Scopes(tree)
        self.edits: list[Edit] = []
        self.rows: list[CudaVariable] = []
        self.lanes: list[CudaVariable] = []
        self.loops: list[Node] = []
        self.first: list[Node] = []
        self.combining = {code.reduce, *code.functions}

    def find(self) -> None:
        """Find the numbers of rows and lanes, the loops over rows, and what the first lane does.

        Raises:
            NotApplicableError: the function does something else with its lanes.
        """
        body, taken = self.tree.body, list[Span]()
        for one in self.scopes.variables:
            if one.constant is None:
                continue
            form = self.tree.canonical(one.constant)
            if form in LANES or form in _ROW:
                (self.lanes if form in LANES else self.rows).append(one)
                taken.append(span_of(one.constant))
                self.edits.append(Edit(span_of(one.constant), "threadIdx.x" if form in LANES else "blockIdx.x"))
        self._loops(taken)
        self._first(taken)
        for one in reversed(self.scopes.variables):  # later ones use earlier ones
            node = one.declaration
            if node is None or one.constant is None or not _PLACE.search(self.tree.canonical(one.constant)):
                continue
            single = len(node.children_by_field_name("declarator")) == 1
            if single and one not in (*self.rows, *self.lanes) and all_within(self.scopes.uses(one, body), taken):
                taken.append(span_of(node))
                self.edits.append(Edit(whole_line(self.tree.file.text, span_of(node)), ""))
        for node in walk(body):
            lane = node.type == "identifier" and self.scopes.of(node) in self.lanes
            if (lane or _is_place(node)) and not any(span.holds(span_of(node)) for span in taken):
                raise NotApplicableError("lanes differ in something else")

    def _is_lane(self, node: Node) -> bool:
        return self.tree.canonical(node) in LANES

    def _loops(self, taken: list[Span]) -> None:
        """Find the loops in which the lanes take the elements of a row in turn."""
        for node in walk(self.tree.body):
            head = node.child_by_field_name("initializer") if node.type == "for_statement" else None
            starts = head.children_by_field_name("declarator") if head is not None else []
            start = starts[0].child_by_field_name("value") if len(starts) == 1 else None
            if start is None or not self._is_lane(start):
                continue
            variable = text_of(field(starts[0], "declarator"))
            condition, update = field(node, "condition"), field(node, "update")
            limit = compared(condition, "<")
            step = re.fullmatch(rf"{variable}(?:\+=|={variable}\+)(\w+)", comment_free(update))
            if limit is None or text_of(limit[0]) != variable or step is None or step[1] not in _STEPS:
                raise NotApplicableError("a loop of another form")
            taken.append(span_of(start))
            self.loops.append(node)
            self.edits += [Edit(span_of(start), "threadIdx.x"), Edit(span_of(update), f"{variable} += blockDim.x")]

    def _first(self, taken: list[Span]) -> None:
        """Find what the first lane does alone."""
        for node in walk(self.tree.body):
            if node.type != "if_statement" or node.child_by_field_name("alternative") is not None:
                continue
            tested = [p for p in condition_parts(field(node, "condition"), "&&") if self._is_first(p)]
            if tested:
                self.first.append(node)
                for part in tested:
                    lane = field(part, "left")
                    taken.append(span_of(lane))
                    self.edits.append(Edit(span_of(lane), "threadIdx.x"))

    def _is_first(self, part: Node) -> bool:
        if part.type != "binary_expression" or text_of(field(part, "operator")) != "==":
            return False
        return self._is_lane(field(part, "left")) and text_of(field(part, "right")) == "0"

    def check(self) -> None:
        """Refuse what only some threads would reach, or what counts how many there are.

        Raises:
            NotApplicableError: there is such a thing.
        """
        body = self.tree.body
        if _HIDDEN.search(text_of(body)):
            raise NotApplicableError("threads meet in another way")
        alone = [span_of(n) for n in (*self.loops, *self.first)]
        for node in walk(body):
            if node.type == "call_expression" and text_of(field(node, "function")) in self.combining:
                self._check_reached(node)
                if text_of(field(node, "function")) == self.code.reduce:
                    self._check_neutral(node)
            elif node.type == "call_expression" and text_of(field(node, "function")) == "__syncwarp":
                self._check_reached(node)
                self.edits.append(Edit(span_of(node), "__syncthreads()"))
            elif not any(span.holds(span_of(node)) for span in alone):
                self._check_repeated(node)

    def _check_repeated(self, node: Node) -> None:
        """Refuse what has another outcome if more threads do it."""
        if node.type == "call_expression" and text_of(field(node, "function")).startswith("atomic"):
            raise NotApplicableError("an atomic of every lane")
        if node.type == "update_expression" or (
            node.type == "assignment_expression" and text_of(field(node, "operator")) != "="
        ):
            target = field(node, "argument" if node.type == "update_expression" else "left")
            if target.type != "identifier":
                raise NotApplicableError("a change of memory by every lane")

    def _check_reached(self, node: Node) -> None:
        if any(parent.type not in _STRAIGHT for parent in around(node, self.tree.body)):
            raise NotApplicableError("values are combined where not all threads may come")

    def _check_neutral(self, call: Node) -> None:
        """Refuse to combine a variable to which threads without elements would add something."""
        value, function = field(call, "arguments").named_children[:2]
        variable = self.scopes.of(value) if value.type == "identifier" else None
        if variable is None or variable.value is None or variable.declaration is None:
            raise NotApplicableError("a value without a beginning")
        if names(variable.value) & {one.name for one in self.lanes}:
            raise NotApplicableError("lanes begin with values of their own")
        if not _SUM.search(text_of(function)):
            return
        if ZERO.fullmatch(comment_free(variable.value)) is None:
            raise NotApplicableError("a sum that does not begin at zero")
        for change in variable.changes:
            statement = change.parent
            inside = any(span_of(loop).holds(span_of(change)) for loop in self.loops)
            text = comment_free(statement) if statement is not None else ""
            scaled = text.startswith(f"{variable.name}*=") or f"={self.code.reduce}(" in text
            begins = text.startswith(f"{variable.name}=") and ZERO.fullmatch(text.partition("=")[2]) is not None
            if not (inside or scaled or begins):
                raise NotApplicableError("a sum to which every lane adds")

    def order(self, barriers: set[str]) -> None:
        """Put barriers between statements where threads may touch what others do.

        Args:
            barriers: functions behind which no thread is ahead of another one.
        """
        since: list[_Touched] = []
        for node in self.tree.body.named_children:
            called = {text_of(field(n, "function")) for n in walk(node) if n.type == "call_expression"}
            if called & (barriers | {self.code.reduce, "__syncwarp"}):
                if any(one.writes for one in since):
                    self._meet(node)
                writes = any(is_written(n) for n in walk(node) if n.type == "subscript_expression")
                since = [_ANYTHING] if writes else []
                continue
            now = self._touched(node)
            if any(now.meets(one) for one in since):
                self._meet(node)
                since = []
            since.append(now)

    def _meet(self, node: Node) -> None:
        before = node.prev_sibling
        first = before if before is not None and before.type == "preproc_call" else node  # an unroll pragma
        at, pad = first.start_byte, indent_at(self.tree.file.text, first.start_byte)
        self.edits.append(Edit(Span(at, at), f"__syncthreads();\n{pad}"))

    def ends_together(self) -> bool:
        """Return True if no thread touches memory behind the last place where all combine their values."""
        last = 0
        for node in walk(self.tree.body):
            if node.type == "call_expression" and text_of(field(node, "function")) == self.code.reduce:
                last = max(last, node.end_byte)
        behind = [n for n in self.tree.body.named_children if n.end_byte > last]
        return last > 0 and not any(MemoryUse(self.scopes).accesses(n) for n in behind)

    def _touched(self, node: Node) -> _Touched:
        reads, writes = set[CudaVariable | None](), set[CudaVariable | None]()
        for access in MemoryUse(self.scopes).accesses(node):
            (writes if access.written else reads).add(self._origin(access.node))
        head = ""
        if node in self.loops:
            head = "".join(comment_free(field(node, part)) for part in ("initializer", "condition", "update"))
        return _Touched(frozenset(reads), frozenset(writes), head)

    def _origin(self, node: Node) -> CudaVariable | None:
        """Return the parameter that an access goes to; None if it is not known."""
        known = [v for v in self.scopes.variables if v.pointer and v.name in names(node)]
        for one in known:
            base = self.tree.base(one.name)
            for variable in self.scopes.variables:
                if variable.name == base and variable.declaration is None and len(known) == 1:
                    return variable
        return None


def _is_place(node: Node) -> bool:
    return node.type == "field_expression" and _PLACE.fullmatch(text_of(node)) is not None


def _limit(use: MemoryUse, row: CudaVariable) -> Polynomial | None:
    """Return how many rows there are, as the kernel's test says."""
    for node in use.scopes.tree.body.named_children:
        if node.type != "if_statement" or row.name not in names(field(node, "condition")):
            continue
        leaves = only_returns(field(node, "consequence"))
        for part in condition_parts(field(node, "condition"), "||" if leaves else "&&"):
            tested = compared(part, ">=" if leaves else "<")
            if tested is not None and text_of(tested[0]) == row.name:
                return use.indices.of(tested[1])
    return None


def _launched(limit: Polynomial | None, threads: int, site: LaunchSite) -> list[Edit]:
    rows, former = site.spelled(limit) if limit is not None else None, site.threads()
    if rows is None:
        if former is None or former % 32:
            raise NotApplicableError("the number of rows is not known")
        rows = f"{closed(text_of(site.sizes(site.grid)[0]))} * {former // 32}"
    return [site.with_grid(rows), site.with_block(str(threads))]


def _helper_tree(tree: KernelTree, name: str) -> KernelTree:
    """Return a function of a kernel's file in the form of a kernel."""
    node = function_named(tree, name)
    body, made = span_of(field(node, "body")), list[Parameter]()
    for one in field(field(node, "declarator"), "parameters").named_children:
        names_of = [text_of(n) for n in walk(one) if n.type == "identifier"]
        if names_of:
            made.append(Parameter(names_of[-1], text_of(one).rpartition(names_of[-1])[0].strip()))
    kernel = Kernel(name, tree.kernel.language, tree.file.path, span_of(node), body, body, tuple(made))
    return KernelTree(tree.file, kernel)


def _shared_out(tree: KernelTree) -> tuple[WarpCode, list[Edit], Polynomial | None]:
    """Return a kernel spelled alike, the edits that share its rows out among blocks, and how many rows there are."""
    team = block_team(tree)
    code = spelled_alike(tree, team.helper)
    helpers = [_Function(code, _helper_tree(code.tree, name)) for name in code.functions]
    kernel = _Function(code, code.tree)
    functions = [*helpers, kernel]
    for one in functions:
        one.find()
        one.check()
    if len(kernel.rows) != 1 or any(one.rows for one in helpers) or not any(one.loops for one in functions):
        raise NotApplicableError("no rows that warps take")
    for one in helpers:
        one.order(set())
        if not one.ends_together():
            raise NotApplicableError("a function that ends with accesses")
    kernel.order(set(code.functions))
    edits = [edit for one in functions for edit in one.edits]
    uses = [one for one in functions if re.search(rf"\b{code.reduce}\(", text_of(one.tree.body))]
    first = min(uses, key=lambda one: one.tree.body.start_byte)
    statement = kernel.rows[0].declaration
    if statement is None:
        raise NotApplicableError("a parameter")
    pad = indent_at(code.tree.file.text, statement.start_byte)
    start = Span(statement.start_byte, statement.start_byte)
    why = f"// One block a row: more threads for each than a warp has.\n{pad}"
    edits += [defined_before(first.tree, team.text), Edit(start, why)]
    return code, edits, _limit(MemoryUse(kernel.scopes), kernel.rows[0])


def _vectorized(found: Candidate, kernel: Kernel, helpers: tuple[str, ...], device: Device) -> Iterator[Candidate]:
    """Yield a candidate with 128-bit loads in the functions that get a row, then in the kernel, too."""
    wide = found
    for name in helpers:
        inner = _helper_tree(KernelTree(wide.kernel, kernel), name)
        for one in vectorize.rewrite(wide.kernel, None, inner.kernel, device):
            label = f"{wide.label}, 128-bit loads in {name}"
            wide = replace(one, launch=found.launch, label=label, origin=found.origin)
            break
    if wide is not found:
        yield wide
    yield from followed_by(wide, kernel, device, vectorize.rewrite, 1)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with a block of 1024, 256 and 512 threads for each row; then with 128-bit loads."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if kernel.launch_bounds:
            return
        code, edits, limit = _shared_out(tree)
        sites = find_launches(code.tree, workload_file)
        if sites is None or not all(site.flat for site in sites):
            return
        found: list[Candidate] = []
        for threads in _THREADS:
            files = relaunched(code.tree, workload_file, sites, edits, partial(_launched, limit, threads))
            label = f"one block of {threads} threads a row"
            found.append(Candidate(kernel.language, *files, label, "rewrite:block_rows"))
    except LookupError:
        return
    yield from found
    yield from _vectorized(found[0], kernel, code.functions, device)
