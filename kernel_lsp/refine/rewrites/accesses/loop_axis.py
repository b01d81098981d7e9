"""Give each output a thread of its own where one thread computes a whole row of them, or a whole column.

A thread for each row, with a loop over the row's outputs, leaves most of the GPU idle, and its loads are a row's length
apart. Iterations that only write elements of their own can run in any order, so the loop becomes a second axis of
threads; the one along which more accesses are neighbours lies along x. The rewrites of products and transposed copies,
which look for two axes, follow in the same step. Arrays of other names are taken for other arrays, as in `restrict`.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import partial

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites import followed_by
from kernel_lsp.refine.rewrites.accesses import transpose_tile
from kernel_lsp.refine.rewrites.accesses.swap_axes import gained
from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.reading.affine import number, thread_index
from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    declared_identifier,
    declared_names,
    in_loop,
    indent_at,
    names,
    only_returns,
    whole_line,
)
from kernel_lsp.refine.rewrites.reading.scopes import CudaVariable, Scopes
from kernel_lsp.refine.rewrites.reading.serial_loops import MemoryUse, NotApplicableError, SerialLoop, serial_loop
from kernel_lsp.refine.rewrites.reading.thread_rows import ThreadRows, find_thread_rows
from kernel_lsp.refine.rewrites.reading.touches import check_apart
from kernel_lsp.refine.rewrites.writing.insertions import unwrapped
from kernel_lsp.refine.rewrites.writing.launch_sites import LaunchSite, find_launches, relaunched
from kernel_lsp.refine.rewrites.writing.leftovers import with_remark, without_declarators
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_WIDTH, _HEIGHT = 32, 8  # threads of a block: whole warps along x
_LEAVING = ("break_statement", "return_statement", "goto_statement", "labeled_statement")


@dataclass(frozen=True)
class _Outputs:
    """A loop over outputs: the threads' number and its guard, the loop, and the axes that both are to lie along."""

    rows: ThreadRows
    guard: Node
    loop: SerialLoop
    along: str
    across: str


def _find(use: MemoryUse) -> _Outputs:
    """Return a kernel as one of a single loop over outputs for each thread.

    Raises:
        NotApplicableError: it has another form, or iterations that depend on each other.
    """
    rows, body = find_thread_rows(use), use.scopes.tree.body
    declaration, guard = rows.variable.declaration, rows.guard
    if guard is None or declaration is None or rows.update is not None or rows.limit is None:
        raise NotApplicableError("no limit")
    if len(declaration.children_by_field_name("declarator")) != 1:
        raise NotApplicableError("several variables in a declaration")
    statements = [n for n in body.named_children if n.type not in ("comment", "preproc_call")]
    if statements[-1].type == "return_statement":
        statements.pop()
    at, held = statements.index(guard), field(guard, "consequence")
    region = statements[at + 1 :]
    if not only_returns(held):
        region = held.named_children if held.type == "compound_statement" else [held]
        if statements[at + 1 :]:
            raise NotApplicableError("work without regard to the limit")
    *ahead, last = [n for n in region if n.type not in ("comment", "preproc_call")] or [guard]
    loop = serial_loop(use.scopes, last)
    if loop is None or any(n.type != "declaration" for n in [*statements[:at], *ahead]):
        raise NotApplicableError("other work than one loop")
    _check_loop(use, loop, rows)
    check_apart(use, loop)
    wins = gained(use, loop.body, "threadIdx.x", loop.variable.symbol) > 0
    return _Outputs(rows, guard, loop, "x" if wins else "y", "y" if wins else "x")


def _check_loop(use: MemoryUse, loop: SerialLoop, rows: ThreadRows) -> None:
    """Refuse a loop whose iterations hand something on, leave early, or cannot be numbered ahead of the guard."""
    scopes = use.scopes
    if any(n.type in _LEAVING for n in walk(loop.body)):
        raise NotApplicableError("a loop that ends early")
    if any(n.type == "continue_statement" and not in_loop(n, loop.body) for n in walk(loop.body)):
        raise NotApplicableError("an iteration that ends early")
    span = span_of(loop.node)
    same = (v for v in scopes.variables if v.name == loop.variable.name and v is not loop.variable)
    if any(span_of(v.scope).holds(span) for v in same):
        raise NotApplicableError("a name that is taken")
    for end in (loop.start, loop.limit):
        for name in (n for n in walk(end) if n.type in ("identifier", "call_expression", "subscript_expression")):
            known = scopes.of(name) if name.type == "identifier" else None
            if name.type != "identifier" or (known is not None and not _is_known(known, rows.variable)):
                raise NotApplicableError("a number of outputs that is not known ahead")
    inner = loop.body.named_children if loop.body.type == "compound_statement" else []
    own = {name for n in inner if n.type == "declaration" for name in declared_names(n)}
    outside = {v.name for v in scopes.variables if not span.holds(span_of(v.scope))}
    if own & (outside | {loop.variable.name}):
        raise NotApplicableError("names that are taken")
    for one in (v for v in scopes.variables if v is not loop.variable):
        declared = one.declaration is not None and span.holds(span_of(one.declaration))
        if not declared and any(span.holds(span_of(change)) for change in one.changes):
            _check_set_first(use, loop, one)
    uses = scopes.uses(loop.variable, scopes.tree.body)
    if any(not span.holds(span_of(n)) for n in uses):
        raise NotApplicableError("the counter is used elsewhere")


def _is_known(variable: CudaVariable, own: CudaVariable) -> bool:
    """Return True for the thread's number, and for parameters that are no pointers and do not change."""
    return variable is own or (variable.declaration is None and not variable.pointer and not variable.changes)


def _check_set_first(use: MemoryUse, loop: SerialLoop, variable: CudaVariable) -> None:
    """Refuse a variable from outside that an iteration may read before it sets it, or that is read elsewhere."""
    scopes = use.scopes
    if any(not span_of(loop.body).holds(span_of(n)) for n in scopes.uses(variable, scopes.tree.body)):
        raise NotApplicableError(f"`{variable.name}` is used elsewhere, too")
    statements = loop.body.named_children if loop.body.type == "compound_statement" else [loop.body]
    first = next(n for n in statements if scopes.uses(variable, n))
    inner: Node | None = first.named_children[0] if first.type == "expression_statement" else None
    if first.type == "for_statement":
        inner = first.child_by_field_name("initializer")
    is_set = inner is not None and inner.type == "assignment_expression" and text_of(field(inner, "operator")) == "="
    if inner is None or not is_set or text_of(field(inner, "left")) != variable.name:
        raise NotApplicableError(f"`{variable.name}` is handed on")
    if variable.name in names(field(inner, "right")) or variable.array:
        raise NotApplicableError(f"`{variable.name}` is handed on")


def _on_axes(use: MemoryUse, found: _Outputs) -> list[Edit]:
    """Return the edits of the kernel."""
    tree, rows, loop = use.scopes.tree, found.rows, found.loop
    text, counter = tree.file.text, loop.variable.name
    declaration = rows.variable.declaration
    assert declaration is not None, "it was looked at"
    edits = [Edit(whole_line(text, span_of(node)), "") for node in rows.feeding]
    if use.indices.of(rows.value) != thread_index(found.across) or rows.feeding:
        edits.append(Edit(span_of(rows.value), _number(found.across)))
    pad, end = indent_at(text, declaration.start_byte), with_remark(declaration)
    line = f"{loop.variable.type} {counter} = {_number(found.along)};"
    edits.append(Edit(Span(end, end), f"\n{pad}{line}"))
    condition, leaves = field(field(found.guard, "condition"), "value"), only_returns(field(found.guard, "consequence"))
    limit, least = text_of(loop.limit), text_of(loop.start)
    above = text_of(field(loop.condition, "operator")) == "<="
    tests = [] if use.indices.of(loop.start).value == 0 else [f"{counter} {'<' if leaves else '>='} {least}"]
    tests.append(f"{counter} {('>' if above else '>=') if leaves else ('<=' if above else '<')} {limit}")
    joint = " || " if leaves else " && "
    edits.append(Edit(Span(condition.end_byte, condition.end_byte), joint + joint.join(tests)))
    if loop.variable.declaration is not None and loop.variable.declaration.parent != loop.node:
        edits += without_declarators(tree, [_declarator(loop.variable)])
    last = tree.body.named_children[-1]
    if last.type == "return_statement":
        edits.append(Edit(whole_line(text, span_of(last)), ""))
    if (pragma := loop.node.prev_sibling) is not None and pragma.type == "preproc_call":  # ends with its line
        begin = pragma.start_byte - len(indent_at(text, pragma.start_byte).encode())
        edits.append(Edit(Span(begin, pragma.end_byte), ""))
    edits.append(Edit(span_of(loop.node), unwrapped(tree, loop.node, loop.body)))
    return edits


def _number(axis: str) -> str:
    return f"blockIdx.{axis} * blockDim.{axis} + threadIdx.{axis}"


def _declarator(variable: CudaVariable) -> Node:
    """Return the declarator of a local."""
    assert variable.declaration is not None, "a local has a declaration"
    every = variable.declaration.children_by_field_name("declarator")
    return next(one for one in every if text_of(declared_identifier(one)) == variable.name)


def _launched(use: MemoryUse, found: _Outputs, site: LaunchSite) -> list[Edit]:
    above = text_of(field(found.loop.condition, "operator")) == "<="
    limit = use.indices.of(found.loop.limit) + number(above)
    counts = [site.spelled(amount) for amount in (limit, found.rows.limit) if amount is not None]
    if found.along == "y":
        counts.reverse()
    if len(counts) != 2 or counts[0] is None or counts[1] is None:
        raise NotApplicableError("the size is not known at a launch")
    sizes = site.ceil_div(counts[0], _WIDTH), site.ceil_div(counts[1], _HEIGHT)
    return [site.with_grid(*sizes), site.with_block(str(_WIDTH), str(_HEIGHT))]


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with a thread for each output, as tiles where it is a product or a transposed copy first."""
    try:
        tree = KernelTree(kernel_file, kernel)
        if tree.threads_meet or kernel.launch_bounds:
            return
        use = MemoryUse(Scopes(tree))
        found = _find(use)
        sites = find_launches(tree, workload_file)
        if sites is None or not all(site.along_x_alone for site in sites):
            return
        files = relaunched(tree, workload_file, sites, _on_axes(use, found), partial(_launched, use, found))
    except LookupError:
        return
    made = Candidate(kernel.language, *files, "a thread for each output", "rewrite:loop_axis")
    for further in (tile_product.rewrite, transpose_tile.rewrite):
        yield from followed_by(made, kernel, device, further)
    yield made
