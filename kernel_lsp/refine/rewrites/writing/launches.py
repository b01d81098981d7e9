"""Change the grid of a kernel's launch: in a workload's `launch` or in host code beside the kernel."""

from collections.abc import Callable, Sequence

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.refine.rewrites.reading.bindings import bound_value, function_of, launched_name
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.text import Edit, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_NUMBERS = ("len", "min", "max", "int", "triton.cdiv", "math.ceil")
Change = Callable[[str], str]
"""From the text of one component of the grid to its replacement, in the language of the file."""


def _workload_grids(root: Node, kernel: str) -> list[list[Node]] | None:
    """Return the grid components of `module.kernel[(x, ...), ...]` and `module["kernel"][...]`; None if unclear."""
    grids: list[list[Node]] = []
    for node in walk(root):
        if node.type != "subscript":
            continue
        called = field(node, "value")
        if launched_name(called) != kernel:
            continue
        grid = field(node, "subscript")
        grid = bound_value(function_of(node) or root, grid)
        if grid.type == "tuple" and grid.named_children:
            grids.append(grid.named_children)
        elif _is_number(grid):
            grids.append([grid])
        else:
            return None
    return grids


def _is_number(grid: Node) -> bool:
    """Return True for an expression of Python that is no tuple: a number, or arithmetic with one."""
    if grid.type == "parenthesized_expression":
        return _is_number(grid.named_children[0])
    if grid.type == "call":
        return text_of(field(grid, "function")) in _NUMBERS
    if grid.type not in ("integer", "binary_operator", "unary_operator"):
        return False
    return not any(n.type in ("tuple", "list") for n in walk(grid))


def _host_grids(root: Node, kernel: str) -> list[list[Node]] | None:
    """Return the grid components of all `kernel<<<grid, ...>>>` in the file itself; None if one is unclear."""
    grids: list[list[Node]] = []
    for node in walk(root):
        if node.type != "call_expression" or text_of(field(node, "function")).split("<")[0].split("::")[-1] != kernel:
            continue
        configuration = next((c for c in node.children if c.type == "kernel_call_syntax"), None)
        if configuration is None or not configuration.named_children:
            continue
        grid = configuration.named_children[0]
        launcher = function_of(node) or root  # others have a `grid` of their own
        declared = [d for d in walk(launcher) if d.type == "init_declarator"]
        declared = [d for d in declared if text_of(field(d, "declarator")) == text_of(grid)]
        if len(declared) == 1:
            grid = field(declared[0], "value")
        elif grid.type == "identifier":
            return None
        if grid.type == "argument_list":
            grids.append(grid.named_children)
        elif grid.type == "call_expression" and text_of(field(grid, "function")) == "dim3":
            grids.append(field(grid, "arguments").named_children)
        else:
            grids.append([grid])
    return grids


def change_grid(
    tree: KernelTree, workload: SourceFile | None, python: Sequence[Change], cuda: Sequence[Change]
) -> tuple[SourceFile, SourceFile | None] | None:
    """Return kernel file and workload file with the first grid components of each launch of the kernel changed.

    `python` and `cuda` give the new expressions from the old, one change for each component, x first. None when there
    is no launch, one with fewer components or one not understood.
    """
    name = tree.kernel.name.split("::")[-1]
    host = _host_grids(tree.root, name)
    driver = _workload_grids(parse_python(workload.text.encode()).root_node, name) if workload else []
    if host is None or driver is None or not (host or driver):
        return None
    if any(len(grid) < len(python) for grid in (*host, *driver)):
        return None
    kernel_file = SourceFile(tree.file.path, _changed(tree.file.text, host, cuda))
    return kernel_file, SourceFile(workload.path, _changed(workload.text, driver, python)) if workload else None


def _changed(text: str, grids: Sequence[Sequence[Node]], changes: Sequence[Change]) -> str:
    edits = {Edit(span_of(n), change(text_of(n))) for grid in grids for n, change in zip(grid, changes, strict=False)}
    return apply_edits(text, edits)


def fewer_blocks(
    tree: KernelTree, workload: SourceFile | None, *by: int
) -> tuple[SourceFile, SourceFile | None] | None:
    """Return both files with one block for every `by` blocks along each of the grid's first axes, rounded up."""
    python = [lambda x, by=each: f"-(-({x}) // {by})" for each in by]
    cuda = [lambda x, by=each: f"(({x}) + {by - 1}) / {by}" for each in by]
    return change_grid(tree, workload, python, cuda)
