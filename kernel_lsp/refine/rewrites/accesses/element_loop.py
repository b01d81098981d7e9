"""Convert kernels with one element for each thread to grid-stride loops."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    LOOPS,
    KernelTree,
    around,
    assigned,
    bare,
    canonical,
    condition_parts,
    indent_at,
    names,
    only_returns,
    whole_line,
    without_trailing_blanks,
)
from kernel_lsp.refine.rewrites.reading.loops import grid_stride, holds
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_LOOSE = ("conditional_expression", "assignment_expression", "comma_expression")


@dataclass(frozen=True, slots=True)
class _Guard:
    comparison: Node  # `i < n` or `i >= n`
    rest: tuple[Node, ...]  # the other parts of the condition
    statement: Node
    returns: bool

    def joined(self, parts: Sequence[Node]) -> str:
        """Return parts of the condition as one."""
        joined: list[str] = []
        for text, kind in ((text_of(part), part.type) for part in parts):
            loose = len(parts) > 1 and (kind in _LOOSE or re.search(r"&&|\|\|", text))
            joined.append(f"({text})" if loose else text)
        return (" || " if self.returns else " && ").join(joined)


def _guard(statement: Node, variable: str) -> _Guard | None:
    if statement.type != "if_statement" or statement.child_by_field_name("alternative"):
        return None
    returns = only_returns(field(statement, "consequence"))
    parts = tuple(condition_parts(field(statement, "condition"), "||" if returns else "&&"))
    mine = [p for p in parts if variable in names(p)]
    if not mine or mine[0].type != "binary_expression" or text_of(bare(field(mine[0], "left"))) != variable:
        return None
    if text_of(field(mine[0], "operator")) != (">=" if returns else "<"):
        return None
    return _Guard(mine[0], tuple(p for p in parts if p is not mine[0]), statement, returns)


def as_grid_stride(tree: KernelTree) -> KernelTree | None:
    """Return a one-element kernel, `i = thread number; if (i < n) ...`, as a grid-stride loop; else None.

    The result is right for every grid that has at least one block along the axis.
    """
    statements = [n for n in tree.body.named_children if n.type != "comment"]
    for at, declaration in enumerate(statements):
        declarators = declaration.children_by_field_name("declarator") if declaration.type == "declaration" else []
        if len(declarators) != 1 or declarators[0].type != "init_declarator":
            continue
        variable = text_of(field(declarators[0], "declarator"))
        value = field(declarators[0], "value")
        start = tree.canonical(value)
        stride = grid_stride(start)
        if stride is None or variable not in tree.values:
            continue
        for to in range(at + 1, len(statements)):
            guard = _guard(statements[to], variable)
            if guard:
                return _looped(tree, statements, at, to, guard, variable, text_of(value), stride)
    return None


def _looped(
    tree: KernelTree, statements: list[Node], at: int, to: int, guard: _Guard, variable: str, value: str, stride: str
) -> KernelTree | None:
    declaration = statements[at]
    axis = stride[len("gridDim.")]
    between, after = statements[at + 1 : to], statements[to + 1 :]
    derived: list[Node] = []
    depends = {variable}
    for node in between:
        if names(node) & depends:
            if node.type != "declaration" or assigned(node):
                return None
            derived.append(node)
            for declarator in node.children_by_field_name("declarator"):
                depends |= {text_of(n) for n in walk(declarator) if n.type == "identifier"} - names(
                    field(declarator, "value")
                )
    inside = after if guard.returns else [field(guard.statement, "consequence")]
    outside = [] if guard.returns else after
    tests = [part for part in guard.rest if names(part) & depends]  # of an element
    if any(names(node) & depends for node in outside) or any(t.start_byte < guard.comparison.start_byte for t in tests):
        return None
    numbers = (f"threadIdx.{axis}", f"blockIdx.{axis}")
    outer_values = {n: v for n, v in tree.values.items() if n not in depends and not holds(inside, v)}
    for node in (*derived, *tests, *inside):
        values = (canonical(outer_values[n], outer_values) for n in names(node) & outer_values.keys())
        texts = [text_of(node), *values]
        unsafe = any(number in text for number in numbers for text in texts)
        if unsafe or tree.collective(node) or "__shared__" in texts[0] or "asm" in names(node):
            return None
        if any(
            n.type == "goto_statement" or (n.type == "return_statement" and _nested(n, tree.body)) for n in walk(node)
        ):
            return None
        outer = {n for n in assigned(node) if n in tree.declarations} - depends
        if any(not holds(inside, tree.declarations[n][0]) for n in outer):
            return None
    limit = text_of(field(guard.comparison, "right"))
    if names(field(guard.comparison, "right")) & depends:
        return None
    source = tree.file.text
    pad = indent_at(source, guard.statement.start_byte)
    kind = text_of(field(declaration, "type"))
    data = source.encode()
    # Where the thread returned, it continues with its next element.
    returns = [n for node in inside for n in walk(node) if n.type == "return_statement"]
    if guard.returns and not after:
        return None
    begin, stop = inside[0].start_byte, tree.body.end_byte - 1 if guard.returns else inside[0].end_byte
    continues = [Edit(Span(n.start_byte - begin, n.end_byte - begin), "continue;") for n in returns]
    lines = apply_edits(data[begin:stop].decode().rstrip(), continues)
    if inside[0].type == "compound_statement" and not guard.returns:
        lines = lines[1:-1].strip()
    else:
        lines = lines.replace("\n", "\n    ")
    if tests and guard.returns:
        lines = f"if ({guard.joined(tests)}) continue;\n{pad}    {lines}"
    elif tests:
        deeper = lines.replace("\n", "\n    ")
        lines = f"if ({guard.joined(tests)}) {{\n{pad}        {deeper}\n{pad}    }}"
    prefix = "".join(f"{text_of(node)}\n{pad}    " for node in derived)
    head = f"for ({kind} {variable} = {value}; {variable} < {limit}; {variable} += {stride})"
    loop = f"{head} {{\n{pad}    {prefix}{lines}\n{pad}}}"
    if rest := [part for part in guard.rest if part not in tests]:
        if guard.returns:
            loop = f"if ({guard.joined(rest)}) return;\n{pad}{loop}"
        else:
            loop = f"if ({guard.joined(rest)}) {{\n{pad}    {loop.replace(chr(10), chr(10) + '    ')}\n{pad}}}"
    edits = [Edit(whole_line(source, span_of(node)), "") for node in (declaration, *derived)]
    end = begin + len(data[begin:stop].rstrip()) if guard.returns else guard.statement.end_byte
    return tree.edited(*edits, Edit(Span(guard.statement.start_byte, end), without_trailing_blanks(loop)))


def _nested(node: Node, within: Node) -> bool:
    """Return True if a loop or switch stands between, where `continue` would mean something else than `return` did."""
    return any(parent.type in (*LOOPS, "switch_statement", "lambda_expression") for parent in around(node, within))
