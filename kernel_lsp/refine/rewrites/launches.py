"""The grid of a kernel's launch, as a text to change: in a workload's `launch` or in host code beside the kernel."""

from collections.abc import Callable

import tree_sitter_python
from tree_sitter import Language, Node, Parser

from kernel_lsp.refine.rewrites.ast_cuda import KernelTree, field, span_of, text_of, walk
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.text import Edit, apply_edits

_PYTHON = Parser(Language(tree_sitter_python.language()))
Change = Callable[[str], str]
"""From the text of the grid's first component to its replacement, in the language of the file."""


def _workload_grids(root: Node, kernel: str) -> list[Node] | None:
    """First components of all `module.kernel[(x, ...), ...]` and `module["kernel"][...]`; None when one is hidden."""
    components: list[Node] = []
    for node in walk(root):
        if node.type != "subscript":
            continue
        called = field(node, "value")
        if _called(called) != kernel:
            continue
        grid = field(node, "subscript")
        if grid.type == "identifier":
            grid = _value(root, text_of(grid)) or grid
        if grid.type != "tuple" or not grid.named_children:
            return None
        first = grid.named_children[0]
        components.append(first)
    return components


def _called(node: Node) -> str | None:
    if node.type == "attribute":
        return text_of(field(node, "attribute"))
    if node.type == "subscript" and field(node, "subscript").type == "string":
        return text_of(field(node, "subscript")).strip("\"'").split("<")[0].split("::")[-1]
    return None


def _value(root: Node, name: str) -> Node | None:
    values = [
        n.child_by_field_name("right")
        for n in walk(root)
        if n.type == "assignment" and text_of(field(n, "left")) == name
    ]
    return values[0] if len(values) == 1 else None


def _host_grids(root: Node, kernel: str) -> list[Node] | None:
    components: list[Node] = []
    for node in walk(root):
        if node.type != "call_expression" or text_of(field(node, "function")).split("<")[0].split("::")[-1] != kernel:
            continue
        configuration = next((c for c in node.children if c.type == "kernel_call_syntax"), None)
        if configuration is None or not configuration.named_children:
            continue
        grid = configuration.named_children[0]
        declared = [
            d for d in walk(root) if d.type == "init_declarator" and text_of(field(d, "declarator")) == text_of(grid)
        ]
        if len(declared) == 1:
            declaration, value = declared[0].parent, field(declared[0], "value")
            kind = text_of(field(declaration, "type")) if declaration is not None else ""
            if kind != "dim3" and value.type != "argument_list":
                components.append(value)
                continue
        return None
    return components


def change_grid(
    tree: KernelTree, workload: SourceFile | None, python: Change, cuda: Change
) -> tuple[SourceFile, SourceFile | None] | None:
    """Kernel file and workload file with the first grid component of each launch of the kernel changed.

    `python` and `cuda` give the new expression from the old. None when there is no launch or one not understood.
    """
    name = tree.kernel.name.split("::")[-1]
    host = _host_grids(tree.root, name)
    driver = _workload_grids(_PYTHON.parse(workload.text.encode()).root_node, name) if workload else []
    if host is None or driver is None or not (host or driver):
        return None
    kernel_text = apply_edits(tree.file.text, {Edit(span_of(n), cuda(text_of(n))) for n in host})
    kernel_file = SourceFile(tree.file.path, kernel_text)
    if workload is None:
        return kernel_file, None
    edits = {Edit(span_of(n), python(text_of(n))) for n in driver}
    return kernel_file, SourceFile(workload.path, apply_edits(workload.text, edits))


def fewer_blocks(tree: KernelTree, workload: SourceFile | None, by: int) -> tuple[SourceFile, SourceFile | None] | None:
    """The launch with one block for every `by` blocks of the grid's first axis, rounded up."""
    return change_grid(tree, workload, lambda x: f"-(-({x}) // {by})", lambda x: f"(({x}) + {by - 1}) / {by}")
