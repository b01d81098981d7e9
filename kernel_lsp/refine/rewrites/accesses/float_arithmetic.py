"""Compute in single precision what is of it, and multiply where `pow` is asked for a square or a cube.

A literal without an `f` makes an expression of floats one of doubles: each value is converted, and a division by double
costs over a hundred instructions. So does `pow`, whose exponent nobody looks at. The judge says what that loses.

Kernels and the functions they call are changed where all types that they name are known, and none of them is `double`.
"""

import re
from collections.abc import Iterator

from tree_sitter import Node

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, bare, declared_identifier, function_names
from kernel_lsp.refine.rewrites.writing.insertions import defined_before
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_DOUBLE = re.compile(r"(\d+\.\d*|\.\d+|\d+)([eE][+-]?\d+)?")
_RANGE = (1.2e-38, 3.4e38)
_FLOATS = {"float", "float2", "float3", "float4"}
_OTHERS = re.compile(
    r"void|bool|auto|size_t|dim3|u?int\d+_t|uint|uchar|ushort|ulong|((un)?signed|char|short|int|long| )+"
    r"|u?(char|short|int|long)[1-4]"
)
_MATH = re.compile(r"(std::)?(__)?f?(pow|sqrt|rsqrt|exp|exp2|log|log2|log10|sin|cos|tan|tanh|abs|max|min|ma|mod)f?")
_POWER = re.compile(r"(std::)?powf?")
_EXPONENT = re.compile(r"([23])(\.0*)?[fF]?")
_POWERS = {
    "2": ("squared", "value * value"),
    "3": ("cubed", "value * value * value"),
}
_HELPER = "template <typename T>\n__device__ T {name}(T value) {{ return {value}; }}\n"


def _functions(tree: KernelTree) -> Iterator[Node]:
    """Yield the kernel and the functions of its file that it calls, one through another."""
    defined = {name: n for n in walk(tree.root) if n.type == "function_definition" for name in function_names(n)}
    waiting, seen = [tree.body.parent or tree.body], set[int]()
    while waiting:
        function = waiting.pop()
        if function.id in seen or function.type != "function_definition":
            continue
        seen.add(function.id)
        yield function
        waiting += [
            called
            for n in walk(function)
            if n.type == "call_expression" and (called := defined.get(text_of(field(n, "function")))) is not None
        ]


def _is_single(tree: KernelTree, function: Node) -> bool:
    """Return True for a function all of whose types are known, and some are `float`, but none is `double`."""
    used = {text_of(n) for n in walk(function) if n.type == "identifier"}
    globals_ = (n for n in tree.root.children if n.type == "declaration" and _declared(n) & used)
    named = {
        tree.named_type(text_of(n).strip())
        for node in (function, *globals_)
        for n in walk(node)
        if n.type in ("primitive_type", "type_identifier", "sized_type_specifier")
    }
    others = named - _FLOATS
    return bool(named & _FLOATS) and all(_OTHERS.fullmatch(one) for one in others)


def _declared(declaration: Node) -> set[str]:
    return {text_of(declared_identifier(n)) for n in declaration.children_by_field_name("declarator")}


def _literals(function: Node, called: set[str]) -> Iterator[Node]:
    """Yield a function's double literals that floats can stand for; not arguments of functions of unknown types."""
    for node in walk(field(function, "body")):
        text = text_of(node)
        if node.type != "number_literal" or text.isdigit() or not _DOUBLE.fullmatch(text):
            continue
        size, call = abs(float(text)), _call_of(node)
        name = text_of(field(call, "function")) if call is not None else ""
        known = call is None or _MATH.fullmatch(name) or name in called
        if known and (size == 0 or _RANGE[0] < size < _RANGE[1]):
            yield node


def _call_of(node: Node) -> Node | None:
    """Return the call that an expression is an argument of; None where it is none."""
    outer = node.parent
    while outer is not None and outer.type in ("parenthesized_expression", "binary_expression", "unary_expression"):
        outer = outer.parent
    return outer.parent if outer is not None and outer.type == "argument_list" else None


def _powers(tree: KernelTree, function: Node) -> Iterator[tuple[Node, str, Node]]:
    """Yield the calls of `pow` that multiplications replace: the call, its exponent, and the value."""
    for node in walk(field(function, "body")):
        if node.type != "call_expression" or not _POWER.fullmatch(text_of(field(node, "function"))):
            continue
        given = field(node, "arguments").named_children
        exponent = _EXPONENT.fullmatch(text_of(given[1])) if len(given) == 2 else None
        if exponent is not None and _is_floating(tree, function, given[0]):
            yield node, exponent[1], given[0]


def _is_floating(tree: KernelTree, function: Node, value: Node) -> bool:
    """Return True for a value of type float, by the variables and literals that it is made of."""
    value = bare(value)
    match value.type:
        case "binary_expression":
            if text_of(field(value, "operator")) not in ("+", "-", "*", "/"):
                return False
            return any(_is_floating(tree, function, field(value, side)) for side in ("left", "right"))
        case "unary_expression":
            return _is_floating(tree, function, field(value, "argument"))
        case "number_literal":
            return "." in text_of(value)
        case "subscript_expression":
            return _is_floating(tree, function, field(value, "argument"))
        case "identifier":
            return text_of(value) in _floats(tree, function)
        case _:
            return False


def _floats(tree: KernelTree, function: Node) -> set[str]:
    """Return the names of a function that are floats, or pointers to floats, wherever they are declared."""
    found: dict[str, set[bool]] = {}
    for outer in (function, *(n for n in tree.root.children if n.type == "declaration")):
        for node in walk(outer):
            if node.type not in ("declaration", "parameter_declaration", "optional_parameter_declaration"):
                continue
            single = tree.named_type(text_of(field(node, "type"))) == "float"
            for declarator in node.children_by_field_name("declarator"):
                found.setdefault(text_of(declared_identifier(declarator)), set()).add(single)
    return {name for name, kinds in found.items() if kinds == {True}}


def _edits(tree: KernelTree) -> list[Edit]:
    """Return the edits of a file; none where only first values would change, which compilers round themselves."""
    functions = [one for one in _functions(tree) if _is_single(tree, one)]
    called = {name for one in functions for name in function_names(one)}
    edits: list[Edit] = []
    helpers: dict[str, str] = {}
    counts = False
    for function in functions:
        powers = list(_powers(tree, function))
        for call, exponent, value in powers:
            name, text = _POWERS[exponent]
            if bare(value).type == "identifier":
                product = " * ".join([text_of(bare(value))] * int(exponent))
                edits.append(Edit(span_of(call), f"({product})" if _is_operand(call) else product))
                continue
            name = tree.fresh(name)
            helpers[name] = _HELPER.format(name=name, value=text)
            edits.append(Edit(Span(call.start_byte, value.start_byte), f"{name}("))
            edits.append(Edit(Span(value.end_byte, call.end_byte), ")"))
        replaced, literals = [edit.span for edit in edits], list(_literals(function, called))
        literals = [n for n in literals if not any(span.holds(span_of(n)) for span in replaced)]
        edits += [Edit(span_of(n), f"{text_of(n)}f") for n in literals]
        counts |= bool(powers) or any(_is_operand(n) or _call_of(n) is not None for n in literals)
    if not counts:
        return []
    return [*edits, *([defined_before(tree, "\n".join(helpers.values()))] if helpers else [])]


def _is_operand(node: Node) -> bool:
    kinds = ("binary_expression", "unary_expression", "cast_expression", "conditional_expression")
    return node.parent is not None and node.parent.type in kinds


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with floats for doubles among floats, and products for powers."""
    try:
        tree = KernelTree(kernel_file, kernel)
        edits = _edits(tree)
    except LookupError:
        return
    if edits:
        file = tree.edited(*edits).file
        yield Candidate(kernel.language, file, workload_file, "single precision", "rewrite:float_arithmetic")
