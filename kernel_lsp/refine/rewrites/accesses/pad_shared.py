"""Add a column to a shared tile that is accessed by columns, so that a warp's accesses use different banks."""

from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, canonical
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit
from kernel_lsp.source.trees import field, span_of, text_of, walk

_NARROW = {"half", "__half", "__nv_bfloat16", "nv_bfloat16", "short", "unsigned short", "int16_t", "uint16_t"}


def _tiles(tree: KernelTree) -> Iterator[tuple[str, str, Node]]:
    """Yield name, element type and width of the two-dimensional shared arrays."""
    for node in walk(tree.body):
        if node.type != "declaration" or "__shared__" not in text_of(node).split("[")[0]:
            continue
        for outer in node.children_by_field_name("declarator"):
            inner = outer.child_by_field_name("declarator")
            if outer.type == "array_declarator" and inner is not None and inner.type == "array_declarator":
                name, width = field(inner, "declarator"), outer.child_by_field_name("size")
                if name.type == "identifier" and width is not None:
                    yield text_of(name), text_of(field(node, "type")), width


def _by_column(tree: KernelTree, name: str) -> bool:
    """Return True if `name` is only used as `name[row][column]`, and somewhere x selects the row alone."""
    transposed = False
    for node in walk(tree.body):
        if node.type != "identifier" or text_of(node) != name:
            continue
        row = node.parent
        if row is not None and row.type == "array_declarator":
            continue
        column = row.parent if row is not None and row.type == "subscript_expression" else None
        if row is None or column is None or column.type != "subscript_expression":
            return False
        if column.parent is not None and column.parent.type == "pointer_expression":
            return False
        indices = [canonical(field(n, "indices").named_children[0], tree.values) for n in (row, column)]
        transposed |= "threadIdx.x" in indices[0] and "threadIdx.x" not in indices[1]
    return transposed


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with all such tiles padded by one 4-byte bank."""
    try:
        tree = KernelTree(kernel_file, kernel)
        edits: list[Edit] = []
        for name, element, width in _tiles(tree):
            padding = 2 if element in _NARROW else 1
            even = width.type != "binary_expression" and not (text_of(width).isdigit() and int(text_of(width)) % 2)
            if even and _by_column(tree, name):
                edits.append(Edit(span_of(width), f"{text_of(width)} + {padding}"))
    except LookupError:
        return
    if edits:
        done = tree.edited(*edits)
        yield Candidate(kernel.language, done.file, workload_file, "padded shared tile", "rewrite:pad_shared")
