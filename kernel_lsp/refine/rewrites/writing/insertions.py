"""Put text ahead of a kernel, ahead of a statement, or around a kernel's body."""

from collections.abc import Iterable
from textwrap import dedent, indent

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    condition_parts,
    indent_at,
    only_returns,
    without_trailing_blanks,
)
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.reading.thread_rows import compared
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk


def first_comment(node: Node) -> Node:
    """Return the first of the comments right above a node, with no empty line between; the node if there is none."""
    while (before := node.prev_sibling) is not None and before.type == "comment":
        if node.start_point.row - before.end_point.row > 1:
            break
        node = before
    return node


def ahead_of_kernel(tree: KernelTree, text: str) -> Edit:
    """Return the edit that puts a text ahead of a kernel and its comment."""
    node = tree.body
    while node.parent is not None and node.parent != tree.root:
        node = node.parent
    at = first_comment(node).start_byte
    return Edit(Span(at, at), text)


def defined_before(tree: KernelTree, text: str) -> Edit:
    """Return the edit that defines functions ahead of a kernel, outside of `extern "C"` and the comment above it."""
    node = tree.body
    while node.parent is not None and node.parent.type not in ("translation_unit", "declaration_list"):
        node = node.parent
    outer = node.parent
    while outer is not None and outer.type != "translation_unit":
        if outer.type == "linkage_specification":
            node = outer
        outer = outer.parent
    at = first_comment(node)
    previous = at.prev_sibling
    close = previous is not None and at.start_point.row - previous.end_point.row == 1 and previous.type[:7] != "preproc"
    return Edit(Span(at.start_byte, at.start_byte), "\n" * close + f"{text}\n")


def ahead_of(tree: KernelTree, statement: Node, lines: Iterable[str]) -> Edit:
    """Return the edit that puts lines, of which directives get no indent, ahead of a statement with its comments."""
    text, first = tree.file.text, statement
    while (before := first.prev_sibling) is not None and before.type in ("preproc_call", "comment"):
        first = before
    at = first.start_byte - len(indent_at(text, first.start_byte).encode())
    pad = indent_at(text, statement.start_byte)
    placed = (line if line.startswith("#") else pad + line for line in lines)
    return Edit(Span(at, at), without_trailing_blanks("".join(f"{line}\n" for line in placed)))


def unwrapped(tree: KernelTree, statement: Node, body: Node) -> str:
    """Return the body of a statement as the statement's own neighbours would be written."""
    pad = indent_at(tree.file.text, statement.start_byte)
    if body.type != "compound_statement":
        return text_of(body)
    lines = text_of(body)[1:-1].replace("\r\n", "\n").strip("\n").rstrip()  # `dedent` takes "\r" for text
    return indent(dedent(lines), pad).strip()


def around_body(tree: KernelTree, ahead: list[str], behind: list[str]) -> list[Edit]:
    """Return the edits that put lines around a kernel's body, to whose end every thread comes.

    `if (i >= n) return;` becomes a block, `if (i < n) { ... }`.

    Raises:
        NotApplicableError: a thread may leave elsewhere.
    """
    text, body = tree.file.text, tree.body
    statements = [n for n in body.named_children if n.type != "comment"]
    returns = [n for n in walk(body) if n.type == "return_statement"]
    guards = [n for n in statements if n.type == "if_statement" and only_returns(field(n, "consequence"))]
    if len(returns) != len(guards) or len(guards) > 1 or not statements:
        raise NotApplicableError("threads that leave early")
    pad = indent_at(text, statements[0].start_byte) or "    "
    first, last = statements[0].start_byte, body.named_children[-1].end_byte
    edits = [Edit(Span(first, first), "".join(f"{line}\n{pad}" for line in ahead))]
    close = ""
    if guards:
        guard = guards[0]
        if guard.child_by_field_name("alternative") is not None or guard == statements[-1]:
            raise NotApplicableError("threads that leave early")
        edits.append(Edit(span_of(guard), f"if ({_stays(field(guard, 'condition'))}) {{"))
        data, begin = text.encode(), guard.end_byte
        at = data.find(b"\n", begin, last)
        while at >= 0:  # what follows stands in a block now
            if data[at + 1 : at + 2] not in (b"\n", b"#"):
                edits.append(Edit(Span(at + 1, at + 1), "    "))
            at = data.find(b"\n", at + 1, last)
        close = f"\n{pad}}}"
    edits.append(Edit(Span(last, last), close + "".join(f"\n{pad}{line}" for line in behind)))
    return edits


def _stays(condition: Node) -> str:
    """Return the condition under which a thread goes on."""
    parts = [compared(part, ">=") for part in condition_parts(condition, "||")]
    if all(part is not None for part in parts):
        return " && ".join(f"{text_of(part[0])} < {text_of(part[1])}" for part in parts if part is not None)
    return f"!{text_of(condition)}"
