"""Add `__restrict__` to pointer parameters, and `const` to those only read, so that loads may move or use the cache.

The caller must keep this promise: a kernel that is launched with overlapping arrays becomes wrong, which the judge
finds.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, names
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, text_of, walk


def _parameters(tree: KernelTree) -> Iterator[tuple[Node, Node]]:
    """Yield plain one-star pointer parameters: the declaration and its identifier."""
    function = tree.body.parent
    declarator = field(function, "declarator") if function is not None else None
    if declarator is None:
        raise LookupError("declarator")
    for parameter in field(declarator, "parameters").named_children:
        pointer = parameter.child_by_field_name("declarator")
        if pointer is None or pointer.type != "pointer_declarator":
            continue
        identifier = field(pointer, "declarator")
        if identifier.type == "identifier":
            yield parameter, identifier


def _only_read(tree: KernelTree, name: str) -> bool:
    """Return True if every use is a plain read `name[...]`, or makes a pointer to const."""
    for node in walk(tree.body):
        if node.type != "identifier" or text_of(node) != name:
            continue
        use, parent = node, node.parent
        while parent is not None and parent.type in ("parenthesized_expression", "binary_expression"):
            use, parent = parent, parent.parent
        if parent is None:
            return False
        if parent.type == "subscript_expression" and parent.child_by_field_name("argument") == use:
            holder = parent.parent
            writes = holder is not None and holder.type in ("update_expression", "pointer_expression")
            if holder is not None and holder.type == "assignment_expression":
                writes = field(holder, "left") == parent
            if writes or (holder is not None and holder.type in ("argument_list", "field_expression")):
                return False
        elif parent.type == "init_declarator" and parent.parent is not None:
            if not re.match(r"const\b|.*\bconst\s*\*", text_of(parent.parent).split("=")[0]):
                return False
        else:
            return False
    return True


def _declared_elsewhere(tree: KernelTree) -> bool:
    """Return True if a declaration or explicit instantiation repeats the parameter types."""
    name = tree.kernel.name.split("::")[-1]
    return any(
        n.type == "function_declarator"
        and name in names(field(n, "declarator")) | {text_of(field(n, "declarator")).split("<")[0]}
        and n.start_byte > 0
        and not tree.kernel.span.start <= n.start_byte < tree.kernel.span.end
        for n in walk(tree.root)
    )


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with both qualifiers added wherever the text shows that they hold."""
    try:
        tree = KernelTree(kernel_file, kernel)
        edits: list[Edit] = []
        repeated = _declared_elsewhere(tree)
        for parameter, identifier in _parameters(tree):
            text = text_of(parameter)
            if "volatile" in text:
                continue
            if "__restrict" not in text:
                edits.append(Edit(Span(identifier.start_byte, identifier.start_byte), "__restrict__ "))
            if not re.search(r"\bconst\b.*\*", text) and not repeated and _only_read(tree, text_of(identifier)):
                edits.append(Edit(Span(parameter.start_byte, parameter.start_byte), "const "))
    except LookupError:
        return
    if edits:
        done = tree.edited(*edits)
        yield Candidate(kernel.language, done.file, workload_file, "__restrict__ and const", "rewrite:restrict")
