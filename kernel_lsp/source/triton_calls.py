"""Reads from the launches in a file, `kernel[grid](x, x.stride(0), n, BLOCK=128)`, the types of kernel parameters.

Nothing is run: names are followed through the launching function and to constants of the file.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from kernel_lsp.source.triton_uses import dotted

_TYPES = {
    "float16": "fp16",
    "half": "fp16",
    "bfloat16": "bf16",
    "float32": "fp32",
    "float": "fp32",
    "float64": "fp64",
    "double": "fp64",
    "int8": "i8",
    "uint8": "u8",
    "int16": "i16",
    "int32": "i32",
    "int": "i32",
    "int64": "i64",
    "long": "i64",
    "bool": "i1",
    "float8_e4m3fn": "fp8e4nv",
    "float8_e5m2": "fp8e5",
}
"""Torch's type names -> Triton's."""
_FACTORIES = frozenset(
    ("empty", "zeros", "ones", "full", "rand", "randn", "randint", "arange", "tensor", "empty_strided")
)
_UNTYPED = {"arange": "i64", "randint": "i64", "tensor": "", "full": ""}
"""Element type these factories default to, if not float32; empty: that of their arguments."""
_METHODS = frozenset(
    [
        "contiguous",
        "view",
        "reshape",
        "flatten",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "clone",
        "detach",
        "expand",
        "t",
        "cuda",
        "new_empty",
        "new_zeros",
        "view_as",
        "requires_grad_",
    ]
)
_NUMBERS = frozenset(
    ("stride", "size", "numel", "element_size", "cdiv", "len", "int", "dim", "next_power_of_2", "item")
)
_OPTIONS = frozenset(("num_warps", "num_stages", "num_ctas"))
_DEEPEST = 8


@dataclass(frozen=True, slots=True)
class Given:
    """The argument that a launch gives a parameter, as far as it can be read.

    Attributes:
        type: Triton's name (`i32`, `*fp16`); `*` for an array of unknown elements; "" where only the value counts.
        value: a literal number, string, bool or type; None if it is computed.
    """

    type: str = ""
    value: bool | int | float | str | None = None


@dataclass
class LaunchArguments:
    """The arguments (by parameter; the first launch takes precedence) and options in the launches of one kernel."""

    given: dict[str, Given] = field(default_factory=dict[str, Given])
    options: dict[str, int] = field(default_factory=dict[str, int])


def launches_in(tree: ast.Module, parameters: Mapping[str, Sequence[str]]) -> dict[str, LaunchArguments]:
    """Return the arguments in a file's launches, by kernel.

    Args:
        tree: the file.
        parameters: the names of each kernel's parameters, in order.
    """
    found: dict[str, LaunchArguments] = {}
    for function, call in _calls(tree):
        assert isinstance(call.func, ast.Subscript)
        name = dotted(call.func.value).rpartition(".")[2]
        if name not in parameters:
            continue
        launch, scope = found.setdefault(name, LaunchArguments()), _Scope(tree, function)
        positional = zip(parameters[name], _positional(call.args), strict=False)
        pairs = [*positional, *((k.arg, k.value) for k in call.keywords if k.arg)]
        for parameter, value in pairs:
            given = scope.given(value)
            if given is None:
                continue
            if parameter in _OPTIONS and parameter not in parameters[name]:
                if isinstance(given.value, int):
                    launch.options.setdefault(parameter, given.value)
            else:
                launch.given.setdefault(parameter, given)
    return found


def _positional(arguments: Sequence[ast.expr]) -> Iterator[ast.expr]:
    """Yield positional arguments, those of `*(a, b)` too, up to the first `*` of unknown length."""
    for argument in arguments:
        if not isinstance(argument, ast.Starred):
            yield argument
            continue
        value = argument.value
        sides = [value.body, value.orelse] if isinstance(value, ast.IfExp) else [value]
        listed = [side.elts for side in sides if isinstance(side, (ast.Tuple, ast.List))]
        starred = any(isinstance(one, ast.Starred) for elements in listed for one in elements)
        if starred or len(listed) != len(sides) or len({len(elements) for elements in listed}) != 1:
            return
        yield from listed[0]


def _calls(tree: ast.Module) -> Iterator[tuple[ast.AST, ast.Call]]:
    """Yield the calls of the form `a[b](c)`, each with the top-level statement that contains it."""
    for top in tree.body:
        for node in ast.walk(top):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Subscript):
                yield top, node


class _Scope:
    """Resolves names at the place of a launch."""

    def __init__(self, tree: ast.Module, function: ast.AST) -> None:
        self._file = _assigned(tree.body)
        functions = [node for node in ast.walk(function) if isinstance(node, ast.FunctionDef)]
        self._own = _assigned([function]) if functions else {}
        self._defaults: dict[str, ast.expr] = {}
        self._arguments: set[str] = set()
        for made in functions:
            arguments = [*made.args.posonlyargs, *made.args.args]
            self._arguments |= {argument.arg for argument in (*arguments, *made.args.kwonlyargs)}
            pairs = [*zip(reversed(arguments), reversed(made.args.defaults), strict=False)]
            pairs += [(a, d) for a, d in zip(made.args.kwonlyargs, made.args.kw_defaults, strict=True) if d is not None]
            self._defaults |= {argument.arg: default for argument, default in pairs}

    def given(self, node: ast.expr, depth: int = 0) -> Given | None:
        """Return the type and value of an expression; None if they cannot be read."""
        if depth > _DEEPEST:
            return None
        match node:
            case ast.Constant(value=bool(value)):
                return Given("i1", value)
            case ast.Constant(value=int(value)):
                return Given("i32" if abs(value) < 1 << 31 else "i64", value)
            case ast.Constant(value=float(value)):
                return Given("fp32", value)
            case ast.Constant(value=str(value)):
                return Given("", value)
            case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value) | float(value))):
                return Given("i32" if isinstance(value, int) else "fp32", -value)
            case ast.Name(id=name):
                return self._named(name, depth)
            case ast.Attribute(attr=attribute) if attribute in _TYPES and dotted(node).partition(".")[0] in (
                "torch",
                "tl",
            ):
                return Given("", f"tl.{attribute}")
            case ast.Attribute(attr="shape" | "ndim") | ast.Subscript(value=ast.Attribute(attr="shape")):
                return Given("i32")
            case ast.Call():
                return self._called(node, depth)
            case ast.BinOp(left=left, right=right, op=op):
                return _result(self.given(left, depth + 1), self.given(right, depth + 1), op)
            case ast.IfExp(body=body, orelse=other):
                return self.given(body, depth + 1) or self.given(other, depth + 1)
            case ast.Compare() | ast.UnaryOp(op=ast.Not()):
                return Given("i1")
            case _:
                return None

    def _named(self, name: str, depth: int) -> Given | None:
        for values in (self._own, *([] if name in self._arguments else [self._file])):
            if name in values:
                found = [one for value in values[name] if (one := self.given(value, depth + 1)) is not None]
                # A name with several assigned values has a type, and no value.
                return found[0] if len(values[name]) == 1 and found else Given(found[0].type) if found else None
        return self.given(self._defaults[name], depth + 1) if name in self._defaults else None

    def _called(self, node: ast.Call, depth: int) -> Given | None:
        name = dotted(node.func)
        last = node.func.attr if isinstance(node.func, ast.Attribute) else name
        owner = node.func.value if isinstance(node.func, ast.Attribute) else None
        typed = next((keyword.value for keyword in node.keywords if keyword.arg == "dtype"), None)
        kind = self._kind(typed, depth) if typed is not None else ""
        if last == "stride" and node.args and isinstance(node.args[0], ast.UnaryOp):
            return Given("i32", 1)  # almost always 1 for the last dimension
        if last in _NUMBERS:
            return Given("i32")
        if last in _FACTORIES and name.startswith("torch."):
            return Given(f"*{kind if typed is not None else _UNTYPED.get(last, 'fp32')}")
        if last.endswith("_like") and node.args:
            return Given(f"*{kind}") if kind else self.given(node.args[0], depth + 1) or Given("*")
        if last in ("to", "type") and owner is not None:
            to = next((found for value in node.args if (found := self._kind(value, depth))), kind)
            return Given(f"*{to}")
        if last in _METHODS and owner is not None:
            base = self.given(owner, depth + 1)
            return base if base is not None and base.type.startswith("*") and not kind else Given(f"*{kind}")
        if last in ("float", "half", "bfloat16", "int", "long") and owner is not None and not node.args:
            return Given(f"*{_TYPES[last]}")
        return None

    def _kind(self, node: ast.expr, depth: int) -> str:
        """Return Triton's name of a type, that of an array for `x.dtype`; empty if it cannot be read."""
        if isinstance(node, ast.Attribute) and node.attr == "dtype":
            given = self.given(node.value, depth + 1)
            return given.type.removeprefix("*") if given is not None and given.type.startswith("*") else ""
        return _kind(node)


def _assigned(nodes: Sequence[ast.AST]) -> dict[str, list[ast.expr]]:
    """Return the values assigned to each name; in a module only those at top level."""
    found: dict[str, list[ast.expr]] = {}
    for top in nodes:
        for node in ast.walk(top) if isinstance(top, (ast.FunctionDef, ast.ClassDef)) else [top]:
            targets = (
                node.targets
                if isinstance(node, ast.Assign)
                else [node.target]
                if isinstance(node, ast.AnnAssign)
                else []
            )
            value = node.value if isinstance(node, (ast.Assign, ast.AnnAssign)) else None
            for target in targets:
                many = isinstance(target, (ast.Tuple, ast.List))
                parts = value.elts if many and isinstance(value, (ast.Tuple, ast.List)) else None
                for at, name in enumerate(target.elts if many else [target]):
                    if not isinstance(name, ast.Name) or value is None:
                        continue
                    own = parts[at] if parts and at < len(parts) else value
                    found.setdefault(name.id, []).append(own)
    return found


def _kind(node: ast.expr) -> str:
    """Return Triton's name of a torch type; empty if the expression is none."""
    return _TYPES.get(dotted(node).rpartition(".")[2], "") if dotted(node).startswith(("torch.", "tl.")) else ""


def _result(left: Given | None, right: Given | None, op: ast.operator) -> Given | None:
    if left is None or right is None:
        return None
    kinds = {left.type, right.type}
    if any(kind.startswith("*") for kind in kinds):
        return Given("*") if all(kind.startswith("*") for kind in kinds) else None
    if isinstance(op, ast.Div) or "fp32" in kinds:
        return Given("fp32")
    return Given("i32") if kinds <= {"i32", "i1"} else None
