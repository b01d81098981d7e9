"""Find loops that distribute an index range over threads."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, assigned, bare, comment_free, names
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import field, text_of, walk

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
        return "1" if comment_free(update) in (f"++{variable}", f"{variable}++") else None
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


def holds(nodes: Iterable[Node], inner: Node) -> bool:
    """Return True if a node lies within one of others."""
    return any(node.start_byte <= inner.start_byte and inner.end_byte <= node.end_byte for node in nodes)
