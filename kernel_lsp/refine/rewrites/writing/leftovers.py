"""Remove what nothing uses any longer: declarations of a kernel, and functions and macros of its file."""

import re
from collections.abc import Iterator, Sequence

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_identifier, function_names, whole_line
from kernel_lsp.refine.rewrites.writing.insertions import first_comment
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_NAMES = ("identifier", "type_identifier")
_CALLS = ("call_expression", "assignment_expression", "update_expression", "gnu_asm_expression")


def without_unused(tree: KernelTree, suspects: set[str]) -> KernelTree:
    """Return the kernel without declarations, functions and macros that have a name of `suspects` and are not used.

    Those follow that only these used; one that nothing used before, as a kernel, stays.
    """
    while edits := list(_unused(tree, suspects)):
        data, used = tree.file.text.encode(), _counts(tree)
        words = set[str]().union(*(re.findall(r"\w+", data[e.span.start : e.span.end].decode()) for e in edits))
        suspects = suspects | {word for word in words if used.get(word, 0) > 1}
        tree = tree.edited(*edits)
    return tree


def _unused(tree: KernelTree, suspects: set[str]) -> Iterator[Edit]:
    """Yield the edits that remove what nothing uses now."""
    counts = _counts(tree)
    lonely = {name for name in suspects if counts.get(name) == 1}
    for node in walk(tree.body):
        if node.type == "declaration":
            yield from without_declarators(tree, _idle(node, lonely))
    for node in tree.root.named_children:
        defined = function_names(node) if node.type == "function_definition" else set[str]()
        if node.type in ("preproc_function_def", "preproc_def"):
            defined = {text_of(field(node, "name"))}
        if node.type == "declaration":
            yield from without_declarators(tree, _idle(node, lonely))
        elif defined & lonely:
            yield Edit(_with_comment(tree, node), "")


def _counts(tree: KernelTree) -> dict[str, int]:
    """Return how often each name stands in the file."""
    counts: dict[str, int] = {}
    for node in walk(tree.root):
        if node.type in _NAMES and not _is_qualified(node):
            counts[text_of(node)] = counts.get(text_of(node), 0) + 1
        elif node.type == "preproc_arg":
            for word in re.findall(r"\w+", text_of(node)):
                counts[word] = counts.get(word, 0) + 1
    return counts


def _is_qualified(node: Node) -> bool:
    """Return True for a name of a namespace, as is none that the kernel or its file declares here."""
    return node.parent is not None and node.parent.type == "qualified_identifier"


def _idle(declaration: Node, lonely: set[str]) -> list[Node]:
    """Return the declarators of names that nothing uses, and whose initial values do nothing."""
    declarators = declaration.children_by_field_name("declarator")
    return [one for one in declarators if text_of(declared_identifier(one)) in lonely and not _acts(one)]


def without_declarators(tree: KernelTree, gone: Sequence[Node]) -> Iterator[Edit]:
    """Yield the edits that take declarators out of their declarations, which vanish with their last one."""
    for declaration in dict.fromkeys(node.parent for node in gone):
        assert declaration is not None, "a declarator stands in a declaration"
        every = declaration.children_by_field_name("declarator")
        if all(node in gone for node in every):
            span = Span(declaration.start_byte, with_remark(declaration))
            yield Edit(whole_line(tree.file.text, span), "")
            continue
        first = next(at for at, node in enumerate(every) if node not in gone)
        for at, node in enumerate(every):
            if node in gone:
                before, behind = every[at - 1].end_byte, every[min(at + 1, len(every) - 1)].start_byte
                yield Edit(Span(before, node.end_byte) if at > first else Span(node.start_byte, behind), "")


def with_remark(node: Node) -> int:
    """Return the byte offset of the end of a statement, with a comment behind it on its line."""
    after = node.next_sibling
    remark = after is not None and after.type == "comment" and after.start_point.row == node.end_point.row
    return after.end_byte if after is not None and remark else node.end_byte


def without_wmma(tree: KernelTree) -> KernelTree:
    """Return the kernel's file without the header of `wmma`, if nothing uses that; 16-bit types have their own."""
    if re.search(r"\bwmma\b", tree.file.text):
        return tree
    edits: list[Edit] = []
    for node in tree.root.named_children:
        text = text_of(node)
        if node.type == "preproc_include" and "mma.h" in text:
            wanted = "#include <cuda_bf16.h>\n" if "bfloat16" in tree.file.text else "#include <cuda_fp16.h>\n"
            edits.append(Edit(span_of(node), "" if wanted in tree.file.text else wanted))
        elif node.type == "using_declaration" and "nvcuda" in text:
            edits.append(Edit(_with_comment(tree, node), ""))
    return tree.edited(*edits) if edits else tree


def _acts(declarator: Node) -> bool:
    """Return True for an initial value that may do something."""
    value = declarator.child_by_field_name("value")
    return value is not None and any(n.type in _CALLS for n in walk(value))


def _with_comment(tree: KernelTree, node: Node) -> Span:
    """Return the lines of a definition with the comments right above it, and an empty line behind."""
    text = tree.file.text
    span = whole_line(text, Span(first_comment(node).start_byte, node.end_byte))
    data = text.encode()
    blank = data[span.end : span.end + 1] == b"\n" and (data[: span.start].endswith(b"\n\n") or not span.start)
    return Span(span.start, span.end + 1) if blank else span
