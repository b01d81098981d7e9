"""Add up a block's part of an array in registers and by shuffles, however the kernel's block adds it up in memory.

Courses reduce in steps: each thread adds its neighbour's element, then one twice as far, with a barrier between, in
shared memory or in the array itself. Each step goes through memory, and few threads have work. A run of the block on
symbols (`block_run`) tells what such a kernel computes: if a thread stores the sum of elements that lie one after the
other, the new kernel adds up the same ones, each thread its own in a register, and combines these by shuffles.

A kernel that reduces in the array itself leaves partial sums there, which the new one does not: it applies only where
host code or workload do not look at the array again behind the launch.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import LOOPS, KernelTree, around, body_unit, names
from kernel_lsp.refine.rewrites.reading.bindings import function_of, is_local
from kernel_lsp.refine.rewrites.reading.block_run import BeyondError, BlockRun, BlockStore
from kernel_lsp.refine.rewrites.reading.reductions import TYPES, WHOLE
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.reductions.team import block_team
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches
from kernel_lsp.refine.rewrites.writing.spelling import zero_of
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, text_of, walk

_MANY = 1 << 28  # elements: no limit is in a block's way
_SIZES = (256, 64, 1024)  # threads of a block whose size no launch says
_ARRAY = re.compile(r"(?P<name>[A-Za-z_]\w*)(\.data_ptr<\w+>\(\))?")
_OVERWRITING = ("cudaMemcpy", "cudaMemcpyAsync", "cudaMemset", "cudaMemsetAsync", "cudaFree")
"""Functions of the host that do not read their first argument."""


@dataclass(frozen=True)
class _Sum:
    """The elements that a block adds up, and where it stores their sum.

    Attributes:
        source: the array.
        each: how many elements a thread has.
        shifts: blocks have parts one after the other; else all of them have the first one.
        limit: the parameter that says where the array ends, if the kernel keeps to one.
        leaves: a block without an element stores nothing.
        store: the statement's expression that stores the sum.
        in_place: partial sums are left in the array.
    """

    source: str
    each: int
    shifts: bool
    limit: str | None
    leaves: bool
    store: Node
    in_place: bool


@dataclass(frozen=True)
class _Effect:
    """One store of a block, and what it read to get there."""

    store: BlockStore
    run: BlockRun

    @property
    def source(self) -> str:
        """Return the array whose elements are added up."""
        (source,) = {array for array, _ in self.store.elements} or {""}
        return source

    @property
    def part(self) -> range:
        """Return the indices of the elements, which lie one after the other."""
        found = sorted(index for _, index in self.store.elements)
        if not found or found != list(range(found[0], found[-1] + 1)):
            raise NotApplicableError("elements that do not lie one after the other")
        return range(found[0], found[-1] + 1)


def _run(tree: KernelTree, threads: int, block: int, size: int, end: int = _MANY) -> tuple[_Effect | None, BlockRun]:
    """Return what a block stores, and its run, with one value for all numbers that the kernel is given."""
    numbers = [p.name for p in tree.kernel.parameters if tree.plain_type(p.type) in WHOLE]
    run = BlockRun(tree, threads, block, dict.fromkeys(numbers, size), end)
    stores = run.stores()
    if len(stores) > 1 or len({array for one in stores for array, _ in one.elements}) > 1:
        raise NotApplicableError("several stores, or a sum over several arrays")
    return (_Effect(stores[0], run) if stores else None), run


def _find(tree: KernelTree, threads: int) -> _Sum:
    """Return what a block of a number of threads adds up.

    Raises:
        LookupError: it does anything else.
    """
    (first, _), (second, run) = (_run(tree, threads, block, _MANY) for block in (0, 1))
    if first is None or second is None or first.store.node != second.store.node:
        raise NotApplicableError("no store")
    count, shifts = len(first.part), second.part.start != 0
    if first.part.start or first.source != second.source or count % threads or len(second.part) != count:
        raise NotApplicableError("a part of another size")
    if second.part.start not in (0, count) or len(run.asked) > 1:
        raise NotApplicableError("parts that do not lie one after the other")
    if not run.changed <= {first.source, first.store.array} or first.store.array == first.source:
        raise NotApplicableError("other arrays are written")
    limit, leaves = None, False
    if run.asked and _keeps_to(tree, threads, second):
        (limit,) = run.asked
        leaves = _stores_nothing(tree, threads, second.part.start)
    each, in_place = count // threads, first.source in run.changed
    return _Sum(first.source, each, shifts, limit, leaves, first.store.node, in_place)


def _stores_nothing(tree: KernelTree, threads: int, end: int) -> bool:
    """Return True if the second block stores nothing where the array ends with the first one's part."""
    try:
        return _run(tree, threads, 1, end, end)[0] is None
    except BeyondError:
        return False


def _keeps_to(tree: KernelTree, threads: int, whole: _Effect) -> bool:
    """Return True if a block adds up the elements ahead of a limit within its part, wherever it reads no others.

    Raises:
        NotApplicableError: it adds up some of them.
    """
    start, stop, kept = whole.part.start, whole.part.stop, False
    cuts = {start + at for at in (1, threads // 2 + 1, threads, threads + 3)} | {stop - threads + 3, stop - 1}
    for end in sorted(cut for cut in cuts if cut < stop):
        try:
            part, _ = _run(tree, threads, int(start > 0), end, end)
        except BeyondError:
            continue  # the array is longer: that block cannot be launched
        if part is None or part.part != range(start, end):
            raise NotApplicableError("a part of the elements ahead of the limit")
        kept = True
    return kept


def _text(tree: KernelTree, found: _Sum, kind: str) -> str:
    """Return the kernel's body, in braces."""
    team, pad = block_team(tree), body_unit("    ")
    own, total, first = (tree.fresh(name) for name in ("own_sum", "block_sum", "first"))
    many = f"{found.each} * " if found.each > 1 else ""
    lines = ["// Each thread adds up elements in a register, the block these by shuffles: no step goes through memory."]
    if found.shifts:
        lines.append(f"const size_t {first} = {many}blockDim.x * (size_t)blockIdx.x;")
    if found.leaves and found.limit is not None:
        lines.append(f"if ({first if found.shifts else 0} >= {found.limit}) return;")
    start = f"{first} + " if found.shifts else ""
    index, step = tree.fresh("at"), tree.fresh("k")
    if found.each == 1:
        place = f"{start}threadIdx.x"
        value = f"{found.source}[{place}]"
        chosen = value if found.limit is None else f"{place} < {found.limit} ? {value} : {zero_of(kind)}"
        lines.append(f"const {kind} {own} = {chosen};")
    else:
        guard = "" if found.limit is None else f"if ({index} < {found.limit}) "
        lines += [
            f"{kind} {own} = {zero_of(kind)};",
            "#pragma unroll",
            f"for (int {step} = 0; {step} < {found.each}; ++{step}) {{",
            f"    const size_t {index} = {start}{step} * blockDim.x + threadIdx.x;",
            f"    {guard}{own} += {found.source}[{index}];",
            "}",
        ]
    lines += [
        f"const {kind} {total} = {team.helper}({own}, []({kind} a, {kind} b) {{ return a + b; }});",
        f"if ({team.alone}) {_stored(found.store, total)};",
    ]
    return "{\n" + "".join(f"{'' if line[0] == '#' else pad}{line}\n" for line in lines) + "}"


def _parts(store: Node) -> tuple[Node, Node]:
    """Return place and value of an assignment or an atomic addition."""
    if store.type == "assignment_expression":
        return field(store, "left"), field(store, "right")
    place, value = field(store, "arguments").named_children
    return place, value


def _stored(store: Node, total: str) -> str:
    """Return what stores a value as the kernel's own expression does."""
    (_, value), start = _parts(store), store.start_byte
    return apply_edits(text_of(store), [Edit(Span(value.start_byte - start, value.end_byte - start), total)])


def _check_store(tree: KernelTree, store: Node) -> None:
    """Refuse a place that the new kernel cannot name."""
    place, _ = _parts(store)
    known = {one.name for one in tree.kernel.parameters} | {"blockIdx"}
    if not names(place) <= known or any(n.type == "call_expression" for n in walk(place)):
        raise NotApplicableError("a place that depends on the thread")


def _is_forgotten(site: LaunchSite, parameter: str) -> bool:
    """Return True if nobody looks at an array behind a launch that leaves partial sums in it."""
    given, function = _ARRAY.fullmatch(site.arguments.get(parameter, "")), function_of(site.grid)
    if given is None or function is None or any(n.type in LOOPS for n in around(site.grid, function)):
        return False
    name, root = given["name"], function
    while root.parent is not None:
        root = root.parent
    if site.python:  # what a workload says is changed in place is compared
        contract = [n for n in walk(root) if n.type in ("keyword_argument", "pair") and "mutates" in text_of(n)[:10]]
        if any(re.search(rf"['\"]{name}['\"]", text_of(n)) for n in contract):
            return False
    elif not is_local(function, name):
        return False
    end = site.call.end_byte
    behind = (n for n in walk(function) if n.type == "identifier" and text_of(n) == name and n.start_byte >= end)
    following = next(behind, None)
    return following is None or _is_overwritten(following, site.call)


def _is_overwritten(name: Node, launch: Node) -> bool:
    """Return True for an array behind a launch that a function of the host writes or frees, in any case."""
    given = name.parent
    call = given.parent if given is not None and given.type == "argument_list" else None
    if call is None or given is None or call.type != "call_expression" or given.named_children[0] != name:
        return False
    block = next((n for n in around(call) if n.type == "compound_statement"), None)
    return text_of(field(call, "function")) in _OVERWRITING and block in list(around(launch))


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with the sums of its blocks in registers."""
    try:
        tree = KernelTree(kernel_file, kernel)
        sites = find_launches(tree, workload_file)
        sizes = {site.threads() for site in sites or ()}
        known = [size for size in sizes if size is not None]
        if any(size % 32 or size > 1024 for size in known) or not all(site.flat for site in sites or ()):
            return
        found = {_find(tree, size) for size in (known if known and None not in sizes else _SIZES)}
        if len(found) > 1:
            return
        (one,) = found
        kind = tree.pointers[one.source]
        _check_store(tree, one.store)
        if tree.plain_type(kind) not in TYPES and kind not in tree.type_parameters:
            return
        if one.in_place and (not sites or not all(_is_forgotten(site, one.source) for site in sites)):
            return
        body = tree.kernel.body
        edits = [Edit(Span(body.start, body.end), _text(tree, one, kind)), defined_before(tree, block_team(tree).text)]
        file = tree.edited(*edits).file
    except LookupError:
        return
    yield Candidate(kernel.language, file, workload_file, "sums of blocks in registers", "rewrite:block_sums")
