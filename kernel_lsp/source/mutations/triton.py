"""Mutations of Triton kernels. Text and syntax only: a mutant may not compile, or may not change the program."""

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property

from tree_sitter import Node

from kernel_lsp.source.grammar import parse_python
from kernel_lsp.source.mutations.mutation import Bug, Mutation
from kernel_lsp.source.mutations.planting import Change, operands, other_strictness, short
from kernel_lsp.source.trees import field, span_of, text_of, walk

_ORDER = ("<", "<=", ">", ">=")
_FACTOR = re.compile(
    r"eps|epsilon|scale|rescale|rstd|alpha|beta|gamma|weight|bias|mean|highest|peak|max", re.IGNORECASE
)
_ZERO = re.compile(r"-?0(?:\.0*)?")
_LOWEST = re.compile(r"""float\(["']-inf["']\)|-\s*float\(["']inf["']\)|-\d[\d.]*e\+?\d+|-\s*math\.inf""")
_JIT = re.compile(r"@(?:triton\.|gluon\.)?jit\b")
_MODULES = ("tl", "triton.language", "gl")
_STRIDE = re.compile(r"stride_?(?P<rest>\w*)|(?P<before>\w+)_stride")


@dataclass(frozen=True)
class _Function:
    """A Triton function and its syntax tree."""

    node: Node

    @property
    def name(self) -> str:
        return text_of(field(self.node, "name"))

    @cached_property
    def parameters(self) -> list[str]:
        given = [node for node in field(self.node, "parameters").named_children if node.type != "comment"]
        return [text_of(node.named_children[0] if node.named_children else node) for node in given]

    @cached_property
    def nodes(self) -> list[Node]:
        return list(walk(field(self.node, "body")))

    @cached_property
    def language(self) -> str:
        """Return the name of the language's module: `gl` in a Gluon function, else `tl`."""
        return "gl" if any(text_of(node).startswith("gl.") for node in self.of("attribute")) else "tl"

    def of(self, *types: str) -> Iterator[Node]:
        """Yield all nodes of these types in the body."""
        return (node for node in self.nodes if node.type in types)

    def calls(self, *names: str) -> Iterator[Node]:
        """Yield the calls of `tl.NAME` for these names, or of Gluon's `gl.NAME`."""
        wanted = {f"{module}.{name}" for name in names for module in _MODULES}
        return (node for node in self.of("call") if text_of(field(node, "function")) in wanted)

    @cached_property
    def floats(self) -> set[str]:
        """Return the variables that begin as a float32 accumulator."""
        found: set[str] = set()
        for node in self.of("assignment"):
            value = text_of(node.child_by_field_name("right") or node)
            made = re.match(rf"{self.language}\.(?:zeros|full|zeros_like)\b", value) and "float32" in value
            if made or re.fullmatch(r"-?\d+\.\d*(?:e[+-]?\d+)?", value):
                found.add(text_of(field(node, "left")))
        return found


def find(text: str) -> Iterator[Mutation]:
    """Yield the mutations of the Triton functions of a file, kind by kind."""
    for node in walk(parse_python(text.encode()).root_node):
        if node.type != "decorated_definition" or node.has_error:
            continue
        definition = field(node, "definition")
        if not any(n.type == "decorator" and _JIT.match(text_of(n)) for n in node.named_children):
            continue
        function = _Function(definition)
        for plant in _PLANTERS:
            for change in plant(function):
                yield change.mutation(function.name)


def _given(call: Node) -> list[Node]:
    """Return the arguments of a call, without comments."""
    return [node for node in field(call, "arguments").named_children if node.type != "comment"]


def _keyword(call: Node, name: str) -> Node | None:
    """Return the argument of this name as written, `name=value`; None if there is none."""
    for given in _given(call):
        if given.type == "keyword_argument" and text_of(field(given, "name")) == name:
            return given
    return None


def _masks(function: _Function) -> Iterator[Change]:
    for call in function.calls("load", "store"):
        mask = _keyword(call, "mask")
        if mask is None:
            continue
        gone = {span_of(given) for given in (mask, _keyword(call, "other")) if given is not None}
        kept = [text_of(n) for n in _given(call) if span_of(n) not in gone]
        text = f"{text_of(field(call, 'function'))}({', '.join(kept)})"
        yield Change(Bug.DROPPED_GUARD, call, text, f"`{text_of(mask)}` left out")
        for dropped, other in _conjuncts(field(mask, "value")):
            yield Change(Bug.DROPPED_GUARD, field(mask, "value"), text_of(other), f"`{text_of(dropped)}` left out")
    for call in function.calls("where"):
        given = _given(call)
        if len(given) == 3 and given[0].type == "comparison_operator":
            yield Change(Bug.DROPPED_GUARD, call, text_of(given[1]), f"`tl.where({text_of(given[0])}, ...)` left out")


def _conjuncts(mask: Node) -> Iterator[tuple[Node, Node]]:
    """Yield each side of `a & b`, with the other one."""
    if mask.type == "binary_operator" and text_of(field(mask, "operator")) == "&":
        left, right = field(mask, "left"), field(mask, "right")
        yield left, right
        yield right, left


def _barriers(function: _Function) -> Iterator[Change]:
    for call in function.calls("debug_barrier"):
        yield Change(Bug.DROPPED_BARRIER, call, "pass", f"`{text_of(call)}` left out")


def _off_by_one(function: _Function) -> Iterator[Change]:
    for node in function.of("comparison_operator"):
        operator = next((child for child in node.children if text_of(child) in _ORDER), None)
        if operator is not None and (change := other_strictness(node, operator)) is not None:
            yield change


def _tails(function: _Function) -> Iterator[Change]:
    for loop in function.of("for_statement"):
        called = field(loop, "right")
        if called.type != "call" or text_of(field(called, "function")) not in ("range", "tl.range"):
            continue
        given = field(called, "arguments").named_children
        if len(given) >= 3:
            end, step = text_of(given[1]), text_of(given[2])
            yield Change(
                Bug.DROPPED_TAIL, given[1], f"({end}) - ({step}) + 1", f"`{text_of(called)}` ends a tile early"
            )


def _accumulators(function: _Function) -> Iterator[Change]:
    """Yield each accumulation rounded to bfloat16, as a variable of that type would be."""
    for node in function.of("assignment", "augmented_assignment"):
        target, value = field(node, "left"), node.child_by_field_name("right")
        name = text_of(target)
        if value is None or name not in function.floats:
            continue
        sums = node.type == "augmented_assignment" or re.search(rf"\b{name}\b", text_of(value))
        if sums and not text_of(value).startswith(f"{function.language}.maximum"):
            operator = text_of(field(node, "operator"))[:-1] if node.type == "augmented_assignment" else ""
            whole = f"{name} {operator} ({text_of(value)})" if operator else text_of(value)
            bfloat16, float32 = f"{function.language}.bfloat16", f"{function.language}.float32"
            text = f"{name} = ({whole}).to({bfloat16}).to({float32})"
            yield Change(Bug.NARROW_ACCUMULATOR, node, text, f"`{text_of(node)}` in bfloat16")
    for call in function.calls("sum"):
        inside = _given(call)[0]
        if not any(text_of(field(n, "left")) in function.floats for n in _above(call, "augmented_assignment")):
            text = f"({text_of(inside)}).to({function.language}.bfloat16)"
            yield Change(Bug.NARROW_ACCUMULATOR, inside, text, f"`{text_of(call)}` of bfloat16")


def _above(node: Node, kind: str) -> Iterator[Node]:
    above = node.parent
    while above is not None:
        if above.type == kind:
            yield above
        above = above.parent


def _indices(function: _Function) -> Iterator[Change]:
    programs = {text_of(call): call for call in function.calls("program_id")}
    body = text_of(field(function.node, "body"))
    for text, call in programs.items():
        other = text.replace("(0)", "(1)") if "(0)" in text else text.replace("(1)", "(0)")
        if other != text and other in body:
            yield Change(Bug.SWAPPED_INDEX, call, other)
    for call in function.calls("trans"):
        given = _given(call)
        yield Change(Bug.SWAPPED_INDEX, call, text_of(given[0]), f"`{text_of(call)}` not transposed")
    for call in function.calls("max", "min", "sum") if "[None, :]" in body else ():
        axis = _keyword(call, "axis")
        if axis is not None and text_of(field(axis, "value")) in "01":
            other = "0" if text_of(field(axis, "value")) == "1" else "1"
            yield Change(Bug.SWAPPED_INDEX, field(axis, "value"), other, f"`{text_of(call)}` along axis {other}")


def _strides(function: _Function) -> Iterator[Change]:
    """Yield, for `a * stride_m + b`, the replacement of the stride by another stride or size."""
    sizes = [name for name in function.parameters if not name.endswith("_ptr") and not _FACTOR.search(name)]
    strides = [name for name in sizes if _STRIDE.fullmatch(name)]
    for node in function.of("binary_operator"):
        if text_of(field(node, "operator")) != "*":
            continue
        for side in ("left", "right"):
            factor = field(node, side)
            name = text_of(factor)
            if factor.type != "identifier" or name not in sizes:
                continue
            alike = [other for other in strides if other != name] if name in strides else []
            alike.sort(key=lambda other: other[:-1] != name[:-1])  # the other axis of the same tensor first
            others = alike or [other for other in sizes if other != name and other not in strides]
            if others:
                told = f"`{name}` → `{others[0]}` in `{text_of(node)}`"
                yield Change(Bug.WRONG_STRIDE, factor, others[0], told)


def _starts(function: _Function) -> Iterator[Change]:
    for node in function.of("assignment"):
        value = node.child_by_field_name("right")
        name = text_of(field(node, "left"))
        if value is None or name not in function.floats or _is_rescaled(function, name):
            continue
        if value.type == "call":
            given = field(value, "arguments").named_children
            made = text_of(field(value, "function"))
            if made == f"{function.language}.zeros":
                rest = ", ".join(text_of(n) for n in given[1:])
                text = f"{function.language}.full({text_of(given[0])}, 1.0, {rest})"
                yield Change(Bug.WRONG_START, value, text, f"`{name}` begins with 1")
            elif made == f"{function.language}.full" and (wrong := _other_start(text_of(given[1]))):
                yield Change(Bug.WRONG_START, given[1], wrong, f"`{name}` begins with {wrong}")
        elif wrong := _other_start(text_of(value)):
            yield Change(Bug.WRONG_START, value, wrong)


def _is_rescaled(function: _Function, name: str) -> bool:
    """Return True if a sum is multiplied before more is added, as in online reductions, so its start does not
    matter.
    """
    updates = (n for n in function.of("assignment") if text_of(field(n, "left")) == name)
    return any(re.search(rf"\b{name}\s*\*", text_of(n)) for n in updates)


def _other_start(value: str) -> str | None:
    if _ZERO.fullmatch(value):
        return "1.0"
    return "0.0" if _LOWEST.fullmatch(value) else None


def _fills(function: _Function) -> Iterator[Change]:
    for call in function.calls("load"):
        other = _keyword(call, "other")
        if other is not None and (wrong := _other_start(text_of(field(other, "value")))):
            told = (
                f"`{text_of(other)}` → `{wrong}` in a load from `{text_of(field(call, 'arguments').named_children[0])}`"
            )
            yield Change(Bug.WRONG_FILL, field(other, "value"), wrong, told)
    for call in function.calls("where"):
        given = _given(call)
        if len(given) == 3 and (wrong := _other_start(text_of(given[2]))):
            yield Change(Bug.WRONG_FILL, given[2], wrong, f"`{text_of(call)}` with {wrong}")


def _terms(function: _Function) -> Iterator[Change]:
    for node in function.of("binary_operator"):
        if text_of(field(node, "operator")) not in ("+", "-", "*", "/"):
            continue
        for dropped, kept in operands(node):
            name = text_of(dropped.named_children[0] if dropped.type == "subscript" else dropped)
            if dropped.type in ("identifier", "subscript") and _FACTOR.search(name) and not name.endswith("_ptr"):
                yield Change(Bug.DROPPED_TERM, node, text_of(kept))
                break


def _rescales(function: _Function) -> Iterator[Change]:
    """Yield the removal of each factor that rescales a running sum before more is added."""
    for node in function.of("assignment"):
        name = text_of(field(node, "left"))
        for product in walk(node.child_by_field_name("right") or node):
            if product.type != "binary_operator" or text_of(field(product, "operator")) != "*":
                continue
            for _, kept in operands(product):
                if text_of(kept) == name:
                    yield Change(Bug.DROPPED_TERM, product, name, f"`{name}` for `{short(text_of(product))}`")
    for node in function.of("augmented_assignment"):
        if text_of(field(node, "operator")) == "*=":
            yield Change(Bug.DROPPED_TERM, node, "pass", f"`{short(text_of(node))}` left out")


def _atomics(function: _Function) -> Iterator[Change]:
    for call in function.calls("atomic_add"):
        given = _given(call)
        plain = [n for n in given if n.type != "keyword_argument"]
        mask = _keyword(call, "mask")
        masked = f", {text_of(mask)}" if mask is not None else ""
        if len(plain) >= 2:
            where, value = text_of(plain[0]), text_of(plain[1])
            load, store = f"{function.language}.load", f"{function.language}.store"
            yield Change(Bug.LOST_ATOMIC, call, f"{store}({where}, {load}({where}{masked}) + {value}{masked})")


_PLANTERS: tuple[Callable[[_Function], Iterator[Change]], ...] = (
    _masks,
    _barriers,
    _off_by_one,
    _tails,
    _accumulators,
    _indices,
    _strides,
    _starts,
    _fills,
    _rescales,
    _terms,
    _atomics,
)
