"""Mutations of CUDA C++. Text and syntax only: a mutant may not compile, or may not change the program."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.source.grammar import parse_cuda
from kernel_lsp.source.mutations.mutation import Bug, Mutation
from kernel_lsp.source.mutations.planting import Change, operands, other_strictness, short
from kernel_lsp.source.trees import field, text_of, walk

_BARRIER = re.compile(
    r"__syncthreads(?:_and|_or|_count)?\(|__syncwarp\(|__threadfence(?:_block|_system)?\("
    r"|(?:\w+\.sync|(?:cg|cooperative_groups)::sync|__pipeline_wait_prior|\w+\.(?:arrive_and_wait|wait))\("
)
_ORDER = ("<", "<=", ">", ">=")
_CONSTANT = re.compile(r"[A-Z0-9_]+")
_JUMPS = ("return_statement", "continue_statement", "break_statement")
_FLOATS = re.compile(r"\b(?:float|double|half|__half|__nv_bfloat16|float[234]|T|scalar_t)\b")
_INTEGERS = re.compile(r"\b(?:int|unsigned|long|short|size_t|u?int\d+_t)\b")
_ZERO = re.compile(r"\(?(?:0|0\.|0\.0)[fFuUlL]*\)?")
_LOWEST = re.compile(r"-\s*(?:INFINITY|FLT_MAX|DBL_MAX|1e\d+f?|CUDART_INF_F?)|(?:-\s*)?__int_as_float\(.*\)")
_ATOMIC = {"atomicAdd": "{0} += {1}", "atomicMax": "{0} = max({0}, {1})", "atomicMin": "{0} = min({0}, {1})"}


@dataclass(frozen=True)
class _Function:
    """A device function and its syntax tree."""

    node: Node

    @cached_property
    def name(self) -> str:
        return text_of(field(field(self.node, "declarator"), "declarator"))

    @cached_property
    def body(self) -> Node:
        return field(self.node, "body")

    @cached_property
    def nodes(self) -> list[Node]:
        return list(walk(self.body))

    def of(self, *types: str) -> Iterator[Node]:
        """Yield all nodes of these types in the body."""
        return (node for node in self.nodes if node.type in types)

    @cached_property
    def types(self) -> dict[str, str]:
        """Return the declared type of every parameter and local, by name; `*` and `[]` mark pointers and arrays."""
        found: dict[str, str] = {}
        for node in walk(self.node):
            if node.type not in ("declaration", "parameter_declaration"):
                continue
            kind = text_of(field(node, "type"))
            for declarator in node.children_by_field_name("declarator"):
                marks, inner = "", declarator
                while (deeper := inner.child_by_field_name("declarator")) is not None:
                    marks += {"pointer_declarator": "*", "array_declarator": "[]"}.get(inner.type, "")
                    inner = deeper
                if inner.type == "identifier":
                    shared = "__shared__ " if "__shared__" in text_of(node) else ""
                    found[text_of(inner)] = f"{shared}{kind} {marks}"
        return found

    @cached_property
    def parameters(self) -> list[str]:
        declared = field(field(self.node, "declarator"), "parameters")
        names = (name for name in (text_of(n) for n in walk(declared) if n.type == "identifier") if name in self.types)
        return list(dict.fromkeys(names))

    @cached_property
    def accumulators(self) -> set[str]:
        """Return the variables whose new value depends on their old one."""
        found: set[str] = set()
        for node in self.of("assignment_expression"):
            target = text_of(field(node, "left"))
            within = {text_of(n) for n in walk(field(node, "right")) if n.type == "identifier"}
            if text_of(field(node, "operator")) != "=" or target in within:
                found.add(target)
        return found

    def is_float(self, node: Node) -> bool:
        """Return True if an operand is a named floating-point variable or array element."""
        name = _base(node)
        kind = self.types.get(name or "", "")
        element = node.type == "subscript_expression"
        return bool(_FLOATS.search(kind)) and ("*" in kind or "[]" in kind) == element


def find(text: str) -> Iterator[Mutation]:
    """Yield the mutations of the device functions of a CUDA file, kind by kind."""
    root = parse_cuda(text.encode()).root_node
    for node in walk(root):
        if node.type != "function_definition" or node.has_error:
            continue
        head = text_of(node).split("{", 1)[0]
        if "__global__" not in head and "__device__" not in head:
            continue
        function = _Function(node)
        for plant in _PLANTERS:
            for change in plant(function):
                yield change.mutation(function.name)


def _conditions(function: _Function) -> Iterator[tuple[Node, Node]]:
    """Yield each condition of an `if` or `?:` with its owner."""
    for owner in function.of("if_statement", "conditional_expression"):
        condition = field(owner, "condition")
        yield owner, field(condition, "value") if condition.type == "condition_clause" else condition


def _guards(function: _Function) -> Iterator[Change]:
    for owner, condition in _conditions(function):
        leaves_early = owner.type == "if_statement" and _only_jumps(field(owner, "consequence"))
        for leaf, joined in _leaves(condition):
            order = text_of(field(leaf, "operator")) in _ORDER
            if leaves_early and joined != "&&":
                yield Change(Bug.DROPPED_GUARD, leaf, "false")
            elif order and joined != "||":
                yield Change(Bug.DROPPED_GUARD, leaf, "true")


def _leaves(condition: Node, joined: str = "") -> Iterator[tuple[Node, str]]:
    """Yield the comparisons of a condition, each with the operator that joins it to the others."""
    if condition.type == "parenthesized_expression":
        yield from _leaves(condition.named_children[0], joined)
    elif condition.type == "binary_expression":
        operator = text_of(field(condition, "operator"))
        if operator in ("&&", "||"):
            for side in ("left", "right"):
                yield from _leaves(field(condition, side), operator)
        elif operator in (*_ORDER, "==", "!="):
            yield condition, joined


def _only_jumps(statement: Node) -> bool:
    last = statement.named_children[-1] if statement.type == "compound_statement" and statement.named_children else None
    return (last or statement).type in _JUMPS


def _barriers(function: _Function) -> Iterator[Change]:
    for node in function.of("expression_statement"):
        if _BARRIER.match(text_of(node)):
            yield Change(Bug.DROPPED_BARRIER, node, ";", f"`{text_of(node)}` left out")


def _off_by_one(function: _Function) -> Iterator[Change]:
    conditions = [condition for _, condition in _conditions(function)]
    loops = [node for node in function.of("for_statement") if not _is_tiled(node)]
    counted = [loop for loop in loops if _step(loop)]  # others, as `s >>= 1`, would never end
    conditions += [node for loop in counted if (node := loop.child_by_field_name("condition"))]
    for condition in conditions:
        for leaf, _ in _leaves(condition):
            change = other_strictness(leaf, field(leaf, "operator"))
            if change is not None:
                yield change
            right = field(leaf, "right")
            if change is None and right.type == "binary_expression" and text_of(right).replace(" ", "").endswith("-1"):
                yield Change(Bug.OFF_BY_ONE, right, text_of(field(right, "left")))
    for loop in loops:
        condition = loop.child_by_field_name("condition")
        if condition is not None and condition.type == "binary_expression":
            right, operator = field(condition, "right"), text_of(field(condition, "operator"))
            if operator == "<" and _step(loop) == "1":
                yield Change(Bug.OFF_BY_ONE, right, f"{text_of(right)} - 1", f"`{text_of(condition)}` stops one early")
            elif operator == ">" and text_of(right) == "0":
                yield Change(Bug.OFF_BY_ONE, right, "1", f"`{text_of(condition)}` stops one early")


def _step(loop: Node) -> str | None:
    """Return the step of a `for` loop: `1`, or the expression of its `+=`; None for other loops."""
    update = loop.child_by_field_name("update")
    if update is None:
        return None
    if update.type == "update_expression":
        return "1"
    if update.type == "assignment_expression" and text_of(field(update, "operator")) == "+=":
        return text_of(field(update, "right"))
    return None


def _is_tiled(loop: Node) -> bool:
    """Return True if a loop runs from 0 in steps of more than one: one iteration more or less may then change
    nothing.
    """
    start = loop.child_by_field_name("initializer")
    return _step(loop) not in ("1", None) and start is not None and bool(re.search(r"=\s*0\s*;?$", text_of(start)))


def _tails(function: _Function) -> Iterator[Change]:
    for loop in function.of("for_statement"):
        condition, step = loop.child_by_field_name("condition"), _step(loop)
        if step in (None, "1") or condition is None or condition.type != "binary_expression":
            continue
        bound = text_of(field(condition, "right"))
        even = _is_tiled(loop) and _CONSTANT.fullmatch(bound) and bound not in function.types
        if text_of(field(condition, "operator")) == "<" and not even:
            left, right = text_of(field(condition, "left")), text_of(field(condition, "right"))
            yield Change(Bug.DROPPED_TAIL, condition, f"{left} + ({step}) <= {right}")


def _accumulators(function: _Function) -> Iterator[Change]:
    """Yield each accumulation rounded to bfloat16 (of doubles: to float), as a variable of that type would be."""
    for node in function.of("expression_statement"):
        inner = node.named_children[0] if node.named_children else node
        if inner.type != "assignment_expression":
            continue
        target = field(inner, "left")
        name = text_of(target)
        value = field(inner, "right")
        sums = text_of(field(inner, "operator")) == "+=" or (
            name in function.accumulators and re.search(r"\bfmaf?\(|\+", text_of(value)) and name in text_of(value)
        )
        kind = function.types.get(_base(target) or "", "")
        if not sums or re.search(r"max|min", text_of(value)):
            continue
        if re.search(r"\bdouble\b", kind):
            rounded = f"{name} = (double)(float)({name});"
        elif re.search(r"\bfloat\b", kind):
            rounded = f"{name} = __uint_as_float((__float_as_uint({name}) + 0x8000u) & 0xffff0000u);"
        else:
            continue
        told = "float" if "double" in kind else "bfloat16"
        yield Change(Bug.NARROW_ACCUMULATOR, node, f"{{ {text_of(node)} {rounded} }}", f"`{text_of(inner)}` in {told}")


def _indices(function: _Function) -> Iterator[Change]:
    for node in function.of("subscript_expression"):
        outer = field(node, "argument")
        if outer.type == "subscript_expression" and (node.parent is None or node.parent.type != "subscript_expression"):
            first, second = text_of(field(outer, "indices")), text_of(field(node, "indices"))
            if first != second:
                array = text_of(field(outer, "argument"))
                yield Change(Bug.SWAPPED_INDEX, node, f"{array}{second}{first}")
    body = text_of(function.body)
    for node in function.of("field_expression"):
        owner, axis = text_of(field(node, "argument")), text_of(field(node, "field"))
        if owner in ("threadIdx", "blockIdx") and axis in "xy":
            other = "y" if axis == "x" else "x"
            if f"{owner}.{other}" in body:
                yield Change(Bug.SWAPPED_INDEX, node, f"{owner}.{other}")


def _strides(function: _Function) -> Iterator[Change]:
    """Yield, for `a * n + b`, the replacement of `n` by another size."""
    sizes = [name for name in function.parameters if _is_size(function.types[name])]
    for node in function.of("binary_expression"):
        if text_of(field(node, "operator")) != "*":
            continue
        for side in ("left", "right"):
            factor = field(node, side)
            if factor.type == "identifier" and text_of(factor) in sizes:
                other = next((name for name in reversed(sizes) if name != text_of(factor)), None)
                if other is not None:
                    told = f"`{text_of(factor)}` → `{other}` in `{text_of(node)}`"
                    yield Change(Bug.WRONG_STRIDE, factor, other, told)


def _is_size(kind: str) -> bool:
    return bool(_INTEGERS.search(kind)) and "*" not in kind and "[]" not in kind


def _shared_stores(function: _Function) -> Iterator[Change]:
    """Yield the removal of each store that first fills shared memory."""
    for node in function.of("expression_statement"):
        inner = node.named_children[0] if node.named_children else node
        if inner.type != "assignment_expression" or text_of(field(inner, "operator")) != "=":
            continue
        name = _base(field(inner, "left"))
        value = text_of(field(inner, "right"))
        if name is None or not function.types.get(name, "").startswith("__shared__") or f"{name}[" in value:
            continue
        yield Change(Bug.UNINITIALISED_SHARED, node, ";", f"`{text_of(node)}` left out")


def _starts(function: _Function) -> Iterator[Change]:
    for node in function.of("init_declarator"):
        name, value = text_of(field(node, "declarator")), field(node, "value")
        if name in function.accumulators and (wrong := _other_start(text_of(value))):
            yield Change(Bug.WRONG_START, value, wrong, f"`{name} = {text_of(value)}` → `{wrong}`")
    for node in function.of("assignment_expression"):
        base, value = _base(field(node, "left")), field(node, "right")
        shared = function.types.get(base or "", "").startswith("__shared__")
        if shared and text_of(field(node, "operator")) == "=" and (wrong := _other_start(text_of(value))):
            yield Change(Bug.WRONG_START, value, wrong, f"`{text_of(node)}` → `{wrong}`")


def _other_start(value: str) -> str | None:
    if _ZERO.fullmatch(value):
        return "1"
    return "0" if _LOWEST.fullmatch(value) else None


def _fills(function: _Function) -> Iterator[Change]:
    for node in function.of("conditional_expression"):
        other = field(node, "alternative")
        if (wrong := _other_start(text_of(other))) is not None:
            yield Change(Bug.WRONG_FILL, other, wrong)


def _rescales(function: _Function) -> Iterator[Change]:
    """Yield the removal of each factor that rescales a running sum before more is added."""
    for node in function.of("assignment_expression"):
        name, value = text_of(field(node, "left")), field(node, "right")
        if text_of(field(node, "operator")) == "*=" and function.is_float(field(node, "left")):
            yield Change(Bug.DROPPED_TERM, value, "1", f"`{short(text_of(node))}` left out")
        for product in walk(value):
            if product.type != "binary_expression" or text_of(field(product, "operator")) != "*":
                continue
            if any(text_of(kept) == name for _, kept in operands(product)):
                yield Change(Bug.DROPPED_TERM, product, name, f"`{name}` for `{short(text_of(product))}`")


def _terms(function: _Function) -> Iterator[Change]:
    for node in function.of("binary_expression"):
        if text_of(field(node, "operator")) not in "+-*/" or _in_index(node):
            continue
        for dropped, kept in operands(node):
            if function.is_float(_unwrapped(dropped)):
                yield Change(Bug.DROPPED_TERM, node, text_of(kept))
                break
    for node in function.of("call_expression"):
        if text_of(field(node, "function")) in ("fmaf", "fma", "__fmaf_rn"):
            given = field(node, "arguments").named_children
            if len(given) == 3 and function.is_float(given[2]):
                yield Change(Bug.DROPPED_TERM, node, f"({text_of(given[0])}) * ({text_of(given[1])})")


def _unwrapped(node: Node) -> Node:
    """Return the operand of a conversion; other nodes unchanged."""
    if node.type == "call_expression":
        given = field(node, "arguments").named_children
        if len(given) == 1:
            return given[0]
    return field(node, "value") if node.type == "cast_expression" else node


def _in_index(node: Node) -> bool:
    above = node.parent
    while above is not None and above.type not in ("compound_statement", "function_definition"):
        if above.type in ("subscript_argument_list", "pointer_expression"):
            return True
        above = above.parent
    return False


def _atomics(function: _Function) -> Iterator[Change]:
    for node in function.of("call_expression"):
        plain = _ATOMIC.get(text_of(field(node, "function")))
        given = field(node, "arguments").named_children
        if plain is None or len(given) != 2 or node.parent is None or node.parent.type != "expression_statement":
            continue
        address = text_of(given[0])
        target = address[1:] if address.startswith("&") else f"*({address})"
        yield Change(Bug.LOST_ATOMIC, node, plain.format(target, text_of(given[1])))


def _base(node: Node) -> str | None:
    """Return the variable that an element or field belongs to; None if there is none."""
    while node.type in ("subscript_expression", "field_expression", "parenthesized_expression"):
        node = node.named_children[0]
    return text_of(node) if node.type == "identifier" else None


_PLANTERS: tuple[Callable[[_Function], Iterator[Change]], ...] = (
    _guards,
    _barriers,
    _off_by_one,
    _tails,
    _accumulators,
    _indices,
    _strides,
    _shared_stores,
    _starts,
    _fills,
    _rescales,
    _terms,
    _atomics,
)
