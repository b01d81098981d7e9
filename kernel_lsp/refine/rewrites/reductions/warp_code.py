"""Spell code of one warp in one way: `threadIdx.x % 32` for a lane, `reduce(value, function)` for what a warp combines.

People number the lanes of a warp by cooperative groups or by hand, and combine their values by `cg::reduce`, by a
function with a loop of shuffles, or by such a loop in place. Code that is spelled in one way is easier to recognise.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass

from tree_sitter import Node

from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, comment_free, function_names, whole_line
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_SPACE = r"(?:cg|cooperative_groups)::"
_MADE = re.compile(
    rf"(?:const)?(?:auto|{_SPACE}thread_block_tile<32>)(?P<tile>\w+)={_SPACE}tiled_partition<32>\((?P<of>.*)\);"
)
_TAKEN = re.compile(rf"(?:const)?{_SPACE}thread_block_tile<32>(?:const)?&?(?P<tile>\w+)")
_BLOCK = re.compile(rf"(?:const)?(?:auto|{_SPACE}thread_block)(?P<block>\w+)={_SPACE}this_thread_block\(\);")
_METHODS = {
    "thread_rank": "threadIdx.x % 32",
    "size": "32",
    "num_threads": "32",
    "meta_group_size": "(blockDim.x / 32)",
    "meta_group_rank": "(threadIdx.x / 32)",
}
_OTHER = r"__shfl_(?:xor|down)_sync\([^,]+,(?P=v),(?P=o)\)"
_LOOP = re.compile(
    r"for\((?:int|unsigned|unsignedint)(?P<o>\w+)=(?:16|warpSize/2|32/2);(?P=o)>0;(?P=o)(?:>>=1|/=2)\)\{?"
    rf"(?P<v>\w+)(?:\+={_OTHER}|=(?P=v)\+{_OTHER}|=(?P<f>fmaxf|fminf|max|min|fmax|fmin)\((?P=v),{_OTHER}\));\}}?"
)
_LAMBDA = "[]({kind} a, {kind} b) {{ return {value}; }}"


@dataclass(frozen=True)
class WarpCode:
    """A kernel in which all code of its warps is spelled in one way.

    Attributes:
        tree: the kernel.
        functions: names of the file's functions that it alone calls, and that combine values.
        reduce: name of the function that combines values; the file does not define it.
    """

    tree: KernelTree
    functions: tuple[str, ...]
    reduce: str


def spelled_alike(tree: KernelTree, reduce: str) -> WarpCode:
    """Return a kernel with its warps' code, and that of the functions which it hands its warp, spelled alike.

    Raises:
        NotApplicableError: a warp is used in another way, or another kernel uses the same function.
    """
    functions = [n for n in walk(tree.root) if n.type == "function_definition"]
    reducers = {next(iter(function_names(n))): found for n in functions if (found := _reducer(n)) is not None}
    called = {text_of(field(n, "function")) for n in walk(tree.body) if n.type == "call_expression"}
    helpers = [n for n in functions if function_names(n) & called and _tiles(n)]
    edits = [*_of_function(tree, tree.body, reduce, reducers)]
    for helper in helpers:
        _check_own(tree, helper)
        edits += _of_function(tree, field(helper, "body"), reduce, reducers)
    if not edits:
        raise NotApplicableError("nothing that a warp combines")
    text = apply_edits(tree.file.text, set(edits))
    for kernel in find_kernels(text, tree.file.path):
        if kernel.name == tree.kernel.name:
            done = KernelTree(SourceFile(tree.file.path, text), kernel)
            return WarpCode(done, tuple(next(iter(function_names(n))) for n in helpers), reduce)
    raise NotApplicableError("the kernel is not found again")


def function_named(tree: KernelTree, name: str) -> Node:
    """Return a function of a kernel's file.

    Raises:
        NotApplicableError: there is not just one of that name.
    """
    found = [n for n in walk(tree.root) if n.type == "function_definition" and name in function_names(n)]
    if len(found) != 1:
        raise NotApplicableError(f"several functions `{name}`")
    return found[0]


def _reducer(function: Node) -> tuple[str, str] | None:
    """Return the function that combines two values, and its type, of one that combines a warp's values."""
    head, body = function.child_by_field_name("declarator"), function.child_by_field_name("body")
    if head is None or body is None or head.type != "function_declarator" or not function_names(function):
        return None
    parameters = field(head, "parameters").named_children
    text = re.sub(r"#pragmaunroll(\d+)?", "", comment_free(body))
    match = re.fullmatch(r"\{(?P<loop>for.*)return(?P<r>\w+);\}", text)
    loop = _LOOP.fullmatch(match["loop"]) if match else None
    if match is None or loop is None or len(parameters) != 1 or match["r"] != loop["v"]:
        return None
    return loop["f"] or "+", text_of(field(parameters[0], "type"))


def _combined(operation: str, kind: str) -> str:
    return _LAMBDA.format(kind=kind, value="a + b" if operation == "+" else f"{operation}(a, b)")


def _tiles(function: Node) -> list[tuple[Node, str]]:
    """Return the parameters of a function that are warps."""
    head = function.child_by_field_name("declarator")
    parameters = head.child_by_field_name("parameters") if head is not None else None
    nodes = parameters.named_children if parameters is not None else []
    return [(n, match["tile"]) for n in nodes if (match := _TAKEN.fullmatch(comment_free(n)))]


def _check_own(tree: KernelTree, helper: Node) -> None:
    """Refuse to change a function that others call, too."""
    mine = function_names(helper)
    for node in walk(tree.root):
        called = node.type == "call_expression" and text_of(field(node, "function")) in mine
        if called and not span_of(tree.body).holds(span_of(node)):
            raise NotApplicableError("another kernel calls the same function")
    if tree.kernel.template_parameters or helper.parent is None or helper.parent.type == "template_declaration":
        raise NotApplicableError("a template")


def _of_function(tree: KernelTree, body: Node, reduce: str, reducers: dict[str, tuple[str, str]]) -> Iterator[Edit]:
    """Yield the edits of one function."""
    text = tree.file.text
    tiles = {name for _, name in _tiles(body.parent)} if body.parent is not None else set[str]()
    gone: list[Span] = []
    for node in body.named_children:
        if match := _MADE.fullmatch(comment_free(node)):
            tiles.add(match["tile"])
            gone.append(span_of(node))
    gone += [span_of(n) for n in body.named_children if (m := _BLOCK.fullmatch(comment_free(n))) and _once(body, m)]
    yield from (Edit(whole_line(text, span), "") for span in gone)
    if body.parent is not None:
        yield from (Edit(_with_comma(node), "") for node, _ in _tiles(body.parent))
    for node in walk(body):
        if any(span.holds(span_of(node)) for span in gone):
            continue
        if node.type == "call_expression":
            yield from _of_call(node, tiles, reduce, reducers)
        elif node.type == "for_statement" and (loop := _LOOP.fullmatch(comment_free(node))):
            kind = tree.declarations.get(loop["v"])
            if kind is None:
                raise NotApplicableError("a variable of another function")
            first = _unroll(node) or node
            function = _combined(loop["f"] or "+", text_of(field(kind[0], "type")))
            yield Edit(Span(first.start_byte, node.end_byte), f"{loop['v']} = {reduce}({loop['v']}, {function});")


def _once(body: Node, made: re.Match[str]) -> bool:
    """Return True if a thread block's name only serves to make a warp."""
    return sum(text_of(n) == made["block"] for n in walk(body) if n.type == "identifier") == 2


def _unroll(loop: Node) -> Node | None:
    before = loop.prev_sibling
    return before if before is not None and before.type == "preproc_call" and "unroll" in text_of(before) else None


def _of_call(node: Node, tiles: set[str], reduce: str, reducers: dict[str, tuple[str, str]]) -> Iterator[Edit]:
    function, given = field(node, "function"), field(node, "arguments").named_children
    name = text_of(function)
    if function.type == "field_expression" and text_of(field(function, "argument")) in tiles:
        method = text_of(field(function, "field"))
        if method == "sync":
            yield Edit(span_of(node), "__syncwarp()")
        elif method in _METHODS:
            yield Edit(span_of(node), _METHODS[method])
        else:
            raise NotApplicableError(f"a warp's {method}")
    elif re.fullmatch(rf"{_SPACE}reduce", name) and len(given) == 3 and text_of(given[0]) in tiles:
        yield Edit(Span(node.start_byte, given[1].start_byte), f"{reduce}(")
    elif name in reducers and len(given) == 1:
        yield Edit(span_of(function), reduce)
        yield Edit(Span(given[0].end_byte, given[0].end_byte), f", {_combined(*reducers[name])}")
    else:
        yield from (Edit(_with_comma(n), "") for n in given if n.type == "identifier" and text_of(n) in tiles)


def _with_comma(node: Node) -> Span:
    """Return the span of a parameter or argument with the comma that goes with it."""
    after, before = node.next_sibling, node.prev_sibling
    if after is not None and after.type == ",":
        follows = after.next_sibling
        return Span(node.start_byte, follows.start_byte if follows is not None else after.end_byte)
    if before is not None and before.type == ",":
        return Span(before.start_byte, node.end_byte)
    return span_of(node)
