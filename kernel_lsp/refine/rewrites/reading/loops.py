"""Find loops that distribute an index range over threads, and convert one-element-per-thread kernels to that form."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import (
    KernelTree,
    assigned,
    bare,
    canonical,
    indent_at,
    names,
    only_returns,
    whole_line,
    without_trailing_blanks,
)
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_GRID = re.compile(r"\(\((?P<a>[\w.]+)\*(?P<b>[\w.]+)\)\+threadIdx\.(?P<axis>[xyz])\)")
LANES = {"(threadIdx.x&31)", "(threadIdx.x%32)", "(threadIdx.x%warpSize)", "(threadIdx.x&(warpSize-1))"}
"""A thread's number in its warp, in one spelling for each way to write it."""


@dataclass(frozen=True, slots=True)
class IndexLoop:
    """`for (type variable = start; variable < limit; variable += stride) body`, each index met by exactly one thread.

    Attributes:
        node: the statement.
        span: the statement with its unroll pragma.
        type: type of the variable without `const`.
        variable: its name.
        start: first index of this thread, as text.
        limit: end of the range, as text.
        stride: distance between this thread's indices, as text.
        body: what is repeated.
        over_grid: the whole grid shares the range out, not each block.
        serial: one thread walks the whole range.
    """

    node: Node
    span: Span
    type: str
    variable: str
    start: str
    limit: str
    stride: str
    body: Node
    serial: bool
    over_grid: bool


def grid_stride(start: str) -> str | None:
    """Return the stride, as text, with which threads numbered `start` cover any range; None if unknown."""
    if not (match := _GRID.fullmatch(start)):
        return None
    block = f"blockIdx.{match['axis']}"
    width = match["a"] if match["b"] == block else match["b"] if match["a"] == block else None
    if width is None or "Idx" in width:
        return None
    return f"gridDim.{match['axis']} * {width}"


def _shares_out(start: str, stride: str) -> bool:
    if grid := grid_stride(start):
        return stride == "({}*{})".format(*sorted(grid.split(" * ")))
    if match := re.fullmatch(r"threadIdx\.([xyz])", start):
        return stride == f"blockDim.{match[1]}" or re.fullmatch(r"\w+", stride) is not None
    return (start in LANES and stride in ("32", "warpSize")) or (start == "0" and stride == "1")


def loop_step(update: Node, variable: str) -> Node | str | None:
    """Return by how much an update counts a variable up: an expression, or `1`; None for another kind of update."""
    if update.type == "update_expression":
        return "1" if text_of(update) in (f"++{variable}", f"{variable}++") else None
    if update.type != "assignment_expression" or text_of(field(update, "left")) != variable:
        return None
    right = field(update, "right")
    operator = text_of(field(update, "operator"))
    if operator == "+=":
        return right
    if operator == "=" and right.type == "binary_expression" and text_of(field(right, "operator")) == "+":
        sides = [field(right, "left"), field(right, "right")]
        others = [side for side in sides if text_of(side) != variable]
        return others[0] if len(others) == 1 else None
    return None


def _loop(tree: KernelTree, node: Node) -> IndexLoop | None:
    declaration, condition = field(node, "initializer"), field(node, "condition")
    update, body = field(node, "update"), field(node, "body")
    declarators = declaration.children_by_field_name("declarator")
    if declaration.type != "declaration" or len(declarators) != 1 or declarators[0].type != "init_declarator":
        return None
    variable = text_of(field(declarators[0], "declarator"))
    start = field(declarators[0], "value")
    if condition.type != "binary_expression" or text_of(field(condition, "operator")) != "<":
        return None
    if text_of(bare(field(condition, "left"))) != variable:
        return None
    limit = field(condition, "right")
    step = loop_step(update, variable)
    if step is None:
        return None
    stride = step if isinstance(step, str) else text_of(step)
    stride_form = step if isinstance(step, str) else tree.canonical(step)
    start_form = tree.canonical(start)
    if not _shares_out(start_form, stride_form):
        return None
    changing = assigned(body)
    used = names(limit) | ({variable} if isinstance(step, str) else names(step))
    if changing & (used | {variable}) or any(n.type == "call_expression" for n in walk(limit)):
        return None
    begin = node.start_byte
    previous = node.prev_sibling
    if previous is not None and previous.type == "preproc_call" and "unroll" in text_of(previous):
        begin = previous.start_byte
    return IndexLoop(
        node,
        Span(begin, node.end_byte),
        text_of(field(declaration, "type")),
        variable,
        text_of(start),
        text_of(limit),
        stride,
        body,
        start_form == "0",
        "gridDim" in stride_form,
    )


def find_loops(tree: KernelTree) -> Iterator[IndexLoop]:
    """Yield all such loops of a kernel, inner ones first."""
    for node in reversed([n for n in walk(tree.body) if n.type == "for_statement"]):
        try:
            loop = _loop(tree, node)
        except LookupError:
            continue
        if loop:
            yield loop


@dataclass(frozen=True, slots=True)
class _Guard:
    comparison: Node  # `i < n` or `i >= n`
    rest: tuple[Node, ...]  # the other parts of the condition
    statement: Node
    returns: bool


def _split(node: Node, operator: str) -> list[Node]:
    node = bare(node)
    if node.type == "binary_expression" and text_of(field(node, "operator")) == operator:
        return _split(field(node, "left"), operator) + _split(field(node, "right"), operator)
    return [node]


def _guard(statement: Node, variable: str) -> _Guard | None:
    if statement.type != "if_statement" or statement.child_by_field_name("alternative"):
        return None
    clause = field(statement, "condition")
    returns = only_returns(field(statement, "consequence"))
    parts = _split(clause.named_children[0], "||" if returns else "&&")
    mine = [p for p in parts if variable in names(p)]
    if len(mine) != 1 or mine[0].type != "binary_expression" or text_of(bare(field(mine[0], "left"))) != variable:
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
    if any(names(node) & depends for node in (*outside, *guard.rest)):
        return None
    numbers = (f"threadIdx.{axis}", f"blockIdx.{axis}")
    outer_values = {n: v for n, v in tree.values.items() if n not in depends and not holds(inside, v)}
    for node in (*derived, *inside):
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
    prefix = "".join(f"{text_of(node)}\n{pad}    " for node in derived)
    head = f"for ({kind} {variable} = {value}; {variable} < {limit}; {variable} += {stride})"
    loop = f"{head} {{\n{pad}    {prefix}{lines}\n{pad}}}"
    if guard.rest:
        joined = (" || " if guard.returns else " && ").join(text_of(p) for p in guard.rest)
        if guard.returns:
            loop = f"if ({joined}) return;\n{pad}{loop}"
        else:
            loop = f"if ({joined}) {{\n{pad}    {loop.replace(chr(10), chr(10) + '    ')}\n{pad}}}"
    edits = [Edit(whole_line(source, span_of(node)), "") for node in (declaration, *derived)]
    end = after[-1].end_byte if guard.returns else guard.statement.end_byte
    return tree.edited(*edits, Edit(Span(guard.statement.start_byte, end), without_trailing_blanks(loop)))


def _nested(node: Node, within: Node) -> bool:
    """Return True if a loop or switch stands between, where `continue` would mean something else than `return` did."""
    parent = node.parent
    while parent is not None and parent != within:
        if parent.type in ("for_statement", "while_statement", "do_statement", "switch_statement", "lambda_expression"):
            return True
        parent = parent.parent
    return False


def holds(nodes: Iterable[Node], inner: Node) -> bool:
    """Return True if a node lies within one of others."""
    return any(node.start_byte <= inner.start_byte and inner.end_byte <= node.end_byte for node in nodes)
