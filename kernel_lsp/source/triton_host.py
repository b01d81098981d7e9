"""The Python function that launches a Triton kernel: its parameters, the kernel's arguments, its results.

Only text is read. A function at the top of the file is called by its name; a `forward` of an `autograd.Function` by
`NAME.apply`.
"""

import ast
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from kernel_lsp.source.triton_uses import Function, Uses, dotted, uses_in

_TENSOR_ATTRIBUTES = frozenset(
    [
        "shape",
        "stride",
        "size",
        "dim",
        "ndim",
        "numel",
        "dtype",
        "device",
        "is_cuda",
        "is_contiguous",
        "contiguous",
        "view",
        "reshape",
        "flatten",
        "transpose",
        "permute",
        "unsqueeze",
        "squeeze",
        "element_size",
        "new_empty",
        "new_zeros",
        "data_ptr",
        "expand",
        "chunk",
        "T",
        "clone",
        "detach",
        "to",
    ]
)
_SAME_MEMORY = frozenset(
    ["contiguous", "view", "reshape", "flatten", "squeeze", "unsqueeze", "detach", "view_as", "requires_grad_"]
)
_MAKES_LIKE = frozenset(("empty_like", "zeros_like", "ones_like", "full_like"))


@dataclass(frozen=True, slots=True)
class Taken:
    """One parameter of the function: its name, its annotation as text, its default where it has one."""

    name: str
    annotation: str
    default: ast.expr | None


@dataclass(frozen=True)
class Host:
    """The function that launches a kernel.

    Attributes:
        call: how it is called from outside, below the module: `softmax` or `Norm.apply`.
        by_position: whether its arguments can be given by position only.
        function: its text.
        parameters: what it is called with.
        handed: what the launch gives to each parameter of the kernel.
        uses: what the kernel does with its parameters.
    """

    call: str
    by_position: bool
    function: ast.FunctionDef
    parameters: tuple[Taken, ...]
    handed: Mapping[str, ast.expr]
    uses: Uses
    _values: dict[str, list[ast.expr]] = field(init=False, default_factory=dict[str, list[ast.expr]])

    def __post_init__(self) -> None:
        """Collect the values of local names."""
        for node in ast.walk(self.function):
            for target, value in assignments(node):
                self._values.setdefault(target, []).append(value)

    @cached_property
    def names(self) -> frozenset[str]:
        """Return the names of the parameters."""
        return frozenset(taken.name for taken in self.parameters)

    @cached_property
    def read(self) -> frozenset[str]:
        """Return all names that the function reads."""
        return frozenset(
            node.id for node in ast.walk(self.function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load)
        )

    @cached_property
    def tensors(self) -> frozenset[str]:
        """Return the parameters that are used as tensors."""
        found = {taken.name for taken in self.parameters if "Tensor" in taken.annotation}
        for node in ast.walk(self.function):
            match node:
                case ast.Attribute(value=ast.Name(id=name), attr=attribute) if attribute in _TENSOR_ATTRIBUTES:
                    found.add(name)
                case ast.Call(args=[ast.Name(id=name), *_]) if dotted(node.func).rpartition(".")[2] in _MAKES_LIKE:
                    found.add(name)
                case _:
                    pass
        pointers = (self.handed[name] for name in self.uses.pointers if name in self.handed)
        found |= {value.id for value in pointers if isinstance(value, ast.Name)}
        return frozenset(found & self.names)

    @cached_property
    def written(self) -> frozenset[str]:
        """Return the parameters whose memory the kernel writes."""
        return self._given_at(self.uses.stored)

    @cached_property
    def loaded(self) -> frozenset[str]:
        """Return the parameters whose memory the kernel reads."""
        return self._given_at(self.uses.loaded)

    @cached_property
    def returns(self) -> list[str] | None:
        """Return, for each returned element, the name of the written tensor in it, else an empty string.

        A function that returns one thing has one element; None where it returns nothing.
        """
        found = [node.value for node in _own(self.function) if isinstance(node, ast.Return) and node.value]
        if not found:
            return None
        value = found[-1]
        if isinstance(value, ast.Constant) and value.value is None:
            return None
        parts = value.elts if isinstance(value, ast.Tuple) else [value]
        stored = {root for name in self.uses.stored if name in self.handed for root in self.roots(self.handed[name])}
        return [next((r for r in self.roots(part) if r in stored), "") for part in parts]

    def roots(self, node: ast.expr, seen: frozenset[str] = frozenset()) -> list[str]:
        """Return the names of tensors whose memory an expression may share, its own first."""
        match node:
            case ast.Name(id=name):
                if name in seen:
                    return [name]
                below = [r for value in self._values.get(name, ()) for r in self.roots(value, seen | {name})]
                return [name, *below]
            case ast.Call(func=ast.Attribute(value=value, attr=method)) if method in _SAME_MEMORY:
                return self.roots(value, seen)
            case _:
                return []

    def _given_at(self, parameters: set[str]) -> frozenset[str]:
        values = [self.handed[name] for name in parameters if name in self.handed]
        return frozenset(root for value in values for root in self.roots(value)) & self.names


def host_of(tree: ast.Module, kernel: str) -> Host | None:
    """Return the first callable function of a file that launches a kernel; None without one."""
    own = _functions(tree).get(kernel)
    if own is None:
        return None
    uses, parameters = uses_of(tree, kernel), _names(own)
    for node in tree.body:
        match node:
            case ast.FunctionDef() if (call := _launch_in(node, kernel)) is not None:
                return Host(node.name, False, node, _taken(node), _handed(call, parameters), uses)
            case ast.ClassDef() if any(dotted(base).endswith("Function") for base in node.bases):
                forward = next((m for m in node.body if isinstance(m, ast.FunctionDef) and m.name == "forward"), None)
                if forward is not None and (call := _launch_in(forward, kernel)) is not None:
                    call_text = f"{node.name}.apply"
                    return Host(call_text, True, forward, _taken(forward)[1:], _handed(call, parameters), uses)
            case _:
                pass
    return None


def uses_of(tree: ast.Module, kernel: str) -> Uses:
    """Return the uses of the parameters of a module-level kernel; empty for any other."""
    functions = _functions(tree)
    triton = {name: one for name, one in functions.items() if _is_jit(one)}
    return uses_in(functions[kernel], triton.get) if kernel in functions else Uses()


def assignments(node: ast.AST) -> list[tuple[str, ast.expr]]:
    """Return each name that a statement assigns, with its value; `a, b = c, d` has two."""
    if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name) and node.value is not None:
        return [(node.target.id, node.value)]
    if not isinstance(node, ast.Assign):
        return []
    found: list[tuple[str, ast.expr]] = []
    for target in node.targets:
        pairs = [(target, node.value)]
        if isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
            pairs = list(zip(target.elts, node.value.elts, strict=False))
        found += [(one.id, value) for one, value in pairs if isinstance(one, ast.Name)]
    return found


def _own(function: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function, without those of nested functions."""
    waiting: list[ast.AST] = list(reversed(function.body))
    while waiting:
        node = waiting.pop()
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.Lambda)):
            waiting += reversed(list(ast.iter_child_nodes(node)))


def _functions(tree: ast.Module) -> dict[str, ast.FunctionDef]:
    return {node.name: node for node in tree.body if isinstance(node, ast.FunctionDef)}


def _is_jit(function: Function) -> bool:
    return any("jit" in ast.unparse(decorator) for decorator in function.decorator_list)


def _launch_in(function: ast.FunctionDef, kernel: str) -> ast.Call | None:
    if _is_jit(function):
        return None
    compiled = {  # as in `compiled = kernel.warmup(...)`
        name
        for node in ast.walk(function)
        for name, value in assignments(node)
        if isinstance(value, ast.Call) and dotted(value.func).startswith(f"{kernel}.")
    }
    for node in ast.walk(function):
        match node:
            case ast.Call(func=ast.Subscript(value=ast.Call(args=[ast.Name(id=name)]))) if name == kernel:
                return node
            case ast.Call(func=ast.Subscript(value=value)) if dotted(value).rpartition(".")[2] in {kernel, *compiled}:
                return node
            case _:
                pass
    return None


def _names(function: ast.FunctionDef) -> list[str]:
    arguments = function.args
    return [one.arg for one in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs)]


def _handed(call: ast.Call, parameters: Sequence[str]) -> dict[str, ast.expr]:
    named = {keyword.arg: keyword.value for keyword in call.keywords if keyword.arg}
    starred = sum(isinstance(given, ast.Starred) for given in call.args)
    room = len(parameters) - len(named.keys() & set(parameters)) - len(call.args) + starred
    if not starred:
        return dict(zip(parameters, call.args, strict=False)) | named
    if room < 0 or room % starred:
        return named  # which is given to which is not known
    found: dict[str, ast.expr] = {}
    at = 0
    for given in call.args:
        values = _elements(given, room // starred)
        found |= {name: value for name, value in zip(parameters[at:], values, strict=False) if value is not None}
        at += len(values)
    return found | named


def _elements(given: ast.expr, count: int) -> list[ast.expr | None]:
    """Return the arguments that one of a call's stands for: `count` of them for `*x.stride()`, None where unknown."""
    match given:
        case ast.Starred(value=ast.Call(func=ast.Attribute(attr="stride" | "size") as method, args=[])):
            return [ast.Call(method, [ast.Constant(at)], []) for at in range(count)]
        case ast.Starred(value=ast.Attribute(attr="shape") as shape):
            return [ast.Subscript(shape, ast.Constant(at)) for at in range(count)]
        case ast.Starred():
            return [None] * count
        case _:
            return [given]


def _taken(function: ast.FunctionDef) -> tuple[Taken, ...]:
    arguments = [*function.args.posonlyargs, *function.args.args]
    defaults = [None] * (len(arguments) - len(function.args.defaults)) + list(function.args.defaults)
    pairs = [*zip(arguments, defaults, strict=True)]
    pairs += zip(function.args.kwonlyargs, function.args.kw_defaults, strict=True)
    return tuple(Taken(a.arg, ast.unparse(a.annotation) if a.annotation else "", default) for a, default in pairs)
