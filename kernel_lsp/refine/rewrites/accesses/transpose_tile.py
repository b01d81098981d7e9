"""Let a tile of a transposed copy go through shared memory: loads and stores both touch neighbours then.

Where one element of a matrix goes to its transposed place, either the loads or the stores of a warp touch 32 places far
apart, whichever axis `threadIdx.x` runs along. In the new kernel a block of 32 x 8 threads loads a tile of 32 x 32
elements by rows, and stores it by columns. A spare column keeps the columns out of one bank (Ruetsch and Micikevicius,
"Optimizing Matrix Transpose in CUDA", NVIDIA 2009).
"""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.products.naive_product import ProductAxis, guarded_axes
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, indent_at, statements_of
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryAccess, MemoryUse, NotApplicableError
from kernel_lsp.refine.rewrites.writing.inlining import with_values
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, text_of

_TILE, _ROWS = 32, 8
_PLACE = re.compile(r"threadIdx|blockDim|blockIdx\.[xy]|gridDim")


@dataclass(frozen=True)
class _Transposed:
    """A copy of one element.

    Attributes:
        axes: the thread's numbers, in the order of their declarations.
        loaded: the one along which loads touch neighbours.
        stored: the one along which stores do.
        guard: the statement that tests both.
        ahead: statements before it that stay.
        steps: names of values on the way from the numbers to the element, which take their names' places.
        statement: the store.
        load: the load.
    """

    axes: tuple[ProductAxis, ProductAxis]
    loaded: ProductAxis
    stored: ProductAxis
    guard: Node
    ahead: tuple[Node, ...]
    steps: tuple[CudaVariable, ...]
    statement: Node
    load: MemoryAccess


def _find(use: MemoryUse) -> _Transposed:
    """Return a kernel as such a copy.

    Raises:
        NotApplicableError: it is none.
    """
    body = use.scopes.tree.body
    guard, leaves, axes = guarded_axes(use)
    statements = statements_of(body)
    at = statements.index(guard)
    region = statements[at + 1 :] if leaves else statements_of(field(guard, "consequence"))
    if not region or (not leaves and statements[at + 1 :]):
        raise NotApplicableError("more than one statement")
    own, named = {axis.statement.id for axis in axes}, {axis.name for axis in axes}
    for node in statements[:at]:
        if node.type != "declaration" or (node.id not in own and _PLACE.search(text_of(node))):
            raise NotApplicableError("other work")
        if node.id in own and not all(_is_axis(one, named) for one in node.children_by_field_name("declarator")):
            raise NotApplicableError("another number beside those of the thread")
    between = [n for n in statements[:at] if n.id not in own]
    steps = _steps(use, [axis.variable for axis in axes], between, region[:-1])
    moved = {one.declaration.id for one in steps if one.declaration is not None}
    accesses = [a for n in (*(n for n in between if n.id in moved), *region) for a in use.accesses(n)]
    stores, loads = [a for a in accesses if a.written], [a for a in accesses if not a.written]
    inner = region[-1].named_children[0] if region[-1].type == "expression_statement" else region[-1]
    if inner.type != "assignment_expression" or text_of(field(inner, "operator")) != "=":
        raise NotApplicableError("no copy")
    if len(stores) != 1 or len(loads) != 1 or loads[0].pointer is stores[0].pointer or loads[0].pointer is None:
        raise NotApplicableError("more than one element")
    if any(_PLACE.search(text_of(n)) for n in (*region, *(axis.limit for axis in axes))):
        raise NotApplicableError("something else depends on the thread")
    loaded, stored = (_near(use, one, axes) for one in (loads[0], stores[0]))
    if loaded is stored:
        raise NotApplicableError("loads and stores touch neighbours along one axis")
    first, second = sorted(axes, key=lambda axis: axis.value.start_byte)
    ahead = tuple(n for n in between if n.id not in moved)
    return _Transposed((first, second), loaded, stored, guard, ahead, steps, region[-1], loads[0])


def _steps(
    use: MemoryUse, numbers: Sequence[CudaVariable], between: Sequence[Node], region: Sequence[Node]
) -> tuple[CudaVariable, ...]:
    """Return the constants that are made from a thread's numbers ahead of the store, and all of `region`.

    Raises:
        NotApplicableError: other statements stand there, or other variables are declared with these.
    """
    scopes, found = use.scopes, list[CudaVariable]()
    for node in (*between, *region):
        declared = [v for v in scopes.variables if v.declaration == node]
        depends = [
            v for v in declared if v.value is not None and any(scopes.uses(n, v.value) for n in (*numbers, *found))
        ]
        if not depends and node not in region:
            continue
        names = node.children_by_field_name("declarator")
        plain = node.type == "declaration" and len(declared) == len(names)
        whole = node in region or len(depends) == len(declared)
        if not plain or not whole or any(v.constant is None or v.pointer for v in declared):
            raise NotApplicableError("other work")
        found += declared
    return tuple(found)


def _is_axis(declarator: Node, named: set[str]) -> bool:
    return declarator.type == "init_declarator" and text_of(field(declarator, "declarator")) in named


def _near(use: MemoryUse, access: MemoryAccess, axes: list[ProductAxis]) -> ProductAxis:
    """Return the axis along which an access touches neighbours; along the other one they are far apart."""
    found: list[ProductAxis] = []
    for axis in axes:
        factor = access.offset.factor(f"threadIdx.{_along(use, axis)}") if access.offset is not None else None
        if factor is None or not factor.terms or (factor.value is not None and 1 < abs(factor.value) < _TILE):
            raise NotApplicableError("an element that one number does not choose")
        found += [axis] if factor.value == 1 else []
    if len(found) != 1:
        raise NotApplicableError("no neighbours")
    return found[0]


def _along(use: MemoryUse, axis: ProductAxis) -> str:
    return "x" if "threadIdx.x" in use.indices.of(axis.value).names() else "y"


def _tiled(use: MemoryUse, found: _Transposed) -> list[Edit]:
    """Return the edits of the kernel."""
    tree = use.scopes.tree
    text, pointer = tree.file.text, found.load.pointer
    assert pointer is not None, "it was looked at"
    width, tile, step = tree.fresh("TILE"), tree.fresh("tile"), tree.fresh("step")
    scopes, node = use.scopes, found.load.node
    loaded = with_values(scopes, node, found.steps, {})
    stored = with_values(scopes, found.statement, found.steps, {node.id: f"{tile}[threadIdx.x][{step}]"})
    pad = indent_at(text, found.guard.start_byte)
    tests = " && ".join(f"{axis.name} < {text_of(axis.limit)}" for axis in found.axes)

    def phase(near: ProductAxis, moved: str) -> list[str]:
        lines = [f"for (int {step} = threadIdx.y; {step} < {width}; {step} += blockDim.y) {{"]
        for axis in found.axes:
            place = "threadIdx.x" if axis is near else step
            at = f"blockIdx.{_along(use, axis)} * {width} + {place}"
            lines.append(f"    const {axis.variable.type} {axis.name} = {at};")
        return [*lines, f"    if ({tests}) {moved}", "}"]

    lines = [
        "// A tile goes through shared memory: loads and stores both touch neighbours.",
        f"constexpr int {width} = {_TILE};",
        f"__shared__ {pointer.type.rstrip('*')} {tile}[{width}][{width} + 1];  // one more, against bank conflicts",
        *phase(found.loaded, f"{tile}[{step}][threadIdx.x] = {loaded};"),
        "__syncthreads();",
        *phase(found.stored, stored),
    ]
    first = min(axis.statement.start_byte for axis in found.axes)
    kept = [text_of(n) for n in found.ahead if n.start_byte >= first]
    end = max(found.guard.end_byte, found.statement.end_byte)
    return [Edit(Span(first, end), f"\n{pad}".join([*kept, *lines]))]


def _launched(use: MemoryUse, found: _Transposed, site: LaunchSite) -> list[Edit]:
    counts = {_along(use, axis): site.spelled(axis.amount) for axis in found.axes}
    if counts.get("x") is None or counts.get("y") is None:
        raise NotApplicableError("the size of the matrix is not known at a launch")
    x, y = (site.ceil_div(str(counts[axis]), _TILE) for axis in "xy")
    return [site.with_grid(x, y), site.with_block(str(_TILE), str(_ROWS))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with tiles of 32 x 32 in shared memory."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet or kernel.launch_bounds:
            return
        use = MemoryUse(Scopes(tree))
        found = _find(use)
        sites = find_launches(tree, workload_file)
        if sites is None:
            return
        files = relaunched(tree, workload_file, sites, _tiled(use, found), partial(_launched, use, found))
    except LookupError:
        return
    label = f"tiles of {_TILE} x {_TILE} through shared memory"
    yield Candidate(kernel.language, *files, label, "rewrite:transpose_tile")
