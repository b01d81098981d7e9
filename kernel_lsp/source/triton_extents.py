"""The shapes of the tensors that a Triton kernel's host function takes, as far as its text tells.

Shapes follow from `rows, cols = x.shape`, `x.shape[-1]`, `x.view(-1, n)`, `x.numel()`, tests that raise, and the
masks of the kernel, `offsets < n`. Dimensions that are said to be equal, or bound to one name, are one extent.
"""

import ast
from collections.abc import Iterator
from dataclasses import dataclass

from kernel_lsp.source.triton_host import Host

_MATRIX = 2  # dimensions: those of vectors and matrices are told apart
_SAME_SHAPE = frozenset(
    ["contiguous", "clone", "detach", "to", "float", "half", "bfloat16", "cuda", "requires_grad_", "data"]
)
_LIKE = frozenset(("empty_like", "zeros_like", "ones_like", "full_like", "rand_like", "randn_like"))


@dataclass(frozen=True, slots=True)
class Extents:
    """The sizes that a host function tells.

    Attributes:
        shapes: the names of a tensor's extents, for each tensor whose shape is known.
        multiples: what an extent must be a multiple of, or one of.
        powers: extents that must be powers of two, as the lengths of blocks are.
        numbers: parameters that are no tensors but the length of one, each with the extent's name.
        known: extents of one size only.
    """

    shapes: dict[str, tuple[str, ...]]
    multiples: dict[str, int]
    powers: frozenset[str]
    numbers: dict[str, str]
    known: dict[str, int]


@dataclass(frozen=True, slots=True)
class _Tensor:
    """A tensor of the shape of a parameter; `flat` where all dimensions but the last have become one."""

    of: str
    flat: bool = False


@dataclass(frozen=True, slots=True)
class _Shape:
    tensor: _Tensor


@dataclass(frozen=True, slots=True)
class _Rank:
    of: str


@dataclass(frozen=True, slots=True)
class _Total:
    """Return the number of a tensor's elements."""

    of: str


@dataclass(frozen=True, slots=True)
class _Dimension:
    """Return one dimension of a parameter, counted from the end if negative."""

    of: str
    index: int


_Node = _Dimension | _Total | str
_Value = _Tensor | _Shape | _Rank | _Node | None


def extents_of(host: Host) -> Extents:
    """Read the host function and the kernel's masks once."""
    return _Reader(host).read()


class _Reader:
    def __init__(self, host: Host) -> None:
        self._host = host
        self._known: dict[str, _Value] = {name: _Tensor(name) for name in host.tensors}
        self._known |= {taken.name: taken.name for taken in host.parameters if taken.name not in host.tensors}
        self._parents: dict[_Node, _Node] = {}
        self._rank: dict[str, int] = {}
        self._front: dict[str, int] = {}  # how many dimensions are counted from the front, at least
        self._back: dict[str, int] = {}
        self._unclear: set[str] = set()  # of several shapes, or viewed in a way that is not followed
        self._like: dict[str, str] = {}
        self._multiples: list[tuple[_Node, int]] = []
        self._only: list[tuple[_Node, int]] = []

    def read(self) -> Extents:
        """Go through the function in its order, then through what the kernel's masks say."""
        for statement in _in_order(self._host.function.body):
            self._statement(statement)
        for name in sorted(self._host.tensors):
            self._by_masks(name)
        self._unnamed_alike()
        powers = [self._value(self._host.handed[k]) for k in self._host.uses.sizes if k in self._host.handed]
        shapes = {name: shape for name in sorted(self._host.tensors) if (shape := self._shape(name)) is not None}
        named = {name for shape in shapes.values() for name in shape}
        others = [taken.name for taken in self._host.parameters if taken.name not in self._host.tensors]
        return Extents(
            shapes,
            {self._name(node): number for node, number in self._multiples},
            frozenset(self._name(node) for node in powers if isinstance(node, _Dimension)),
            {name: self._name(name) for name in others if self._is_known(name) and self._name(name) in named},
            {self._name(node): number for node, number in self._only},
        )

    def _unnamed_alike(self) -> None:
        """Take dimensions of which the host names at most one for those of the first tensor of as many dimensions."""
        first: dict[int, str] = {}
        for name in (taken.name for taken in self._host.parameters if taken.name in self._host.tensors):
            if self._shape(name) is None or name in self._like:
                continue
            rank = self._rank.get(name, 1)
            other = first.setdefault(rank, name)
            for index in range(rank) if rank > _MATRIX and other != name else ():
                one, theirs = _Dimension(name, index), _Dimension(other, index)
                if not (self._is_said(one) and self._is_said(theirs)):
                    self._unite(theirs, one)

    def _is_said(self, node: _Node) -> bool:
        """Return True for an extent that the host names or gives a number."""
        return isinstance(self._root(node), str) or self._root(node) in {self._root(one) for one, _ in self._only}

    def _statement(self, node: ast.stmt) -> None:
        for inner in ast.walk(node) if not isinstance(node, (ast.If, ast.For, ast.With, ast.While)) else ():
            if isinstance(inner, ast.expr):
                self._value(inner)  # what is asked of a tensor anywhere tells its rank
        match node:
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=ast.Tuple(elts=values)):
                for target, value in zip(targets, values, strict=False):
                    self._bind(target, self._value(value))
            case ast.Assign(targets=[ast.Tuple(elts=targets)], value=value):
                self._unpack(targets, self._value(value))
            case ast.Assign(targets=[target], value=value) | ast.AnnAssign(target=target, value=ast.expr() as value):
                self._bind(target, self._value(value))
            case ast.Assert(test=test):
                self._holds(test)
            case ast.If(test=ast.UnaryOp(op=ast.Not(), operand=test), body=[*_, ast.Raise()]):
                self._holds(test)
            case ast.If(test=ast.Compare(left=left, ops=[ast.NotEq()], comparators=[right]), body=[*_, ast.Raise()]):
                self._holds(ast.Compare(left, [ast.Eq()], [right]))
            case _:
                pass

    def _bind(self, target: ast.expr, value: _Value) -> None:
        if not isinstance(target, ast.Name):
            return
        if isinstance(value, (_Dimension, _Total)) and target.id not in self._known:
            self._unite(value, target.id)
        self._known[target.id] = value

    def _unpack(self, targets: list[ast.expr], value: _Value) -> None:
        starred = next((at for at, target in enumerate(targets) if isinstance(target, ast.Starred)), len(targets))
        for at, target in enumerate(targets):
            if isinstance(target, ast.Name):
                dimension = self._dimension(value, at if at < starred else at - len(targets))
                self._known[target.id] = dimension
                if dimension is not None and target.id != "_":
                    self._unite(dimension, target.id)
        if isinstance(value, _Shape) and not value.tensor.flat and starred == len(targets):
            known = self._rank.setdefault(value.tensor.of, len(targets))
            self._unclear |= {value.tensor.of} if known != len(targets) else set()

    def _dimension(self, value: _Value, index: int) -> _Dimension | None:
        if not isinstance(value, _Shape):
            return None
        tensor = value.tensor
        if tensor.flat:
            return _Dimension(tensor.of, -1) if index in (-1, 1) else None
        counted = self._back if index < 0 else self._front
        counted[tensor.of] = max(counted.get(tensor.of, 0), index + 1, -index)
        return _Dimension(tensor.of, index)

    def _value(self, node: ast.expr) -> _Value:
        match node:
            case ast.Name(id=name):
                return self._known.get(name)
            case ast.Attribute(value=value, attr="shape"):
                return _Shape(found) if isinstance(found := self._value(value), _Tensor) else None
            case ast.Attribute(value=value, attr="ndim"):
                return _Rank(found.of) if isinstance(found := self._value(value), _Tensor) and not found.flat else None
            case ast.Subscript(value=value, slice=index) if (at := _whole(index)) is not None:
                return self._dimension(self._value(value), at)
            case ast.Call(func=ast.Name(id="len"), args=[value]):
                found = self._value(value)
                return _Rank(found.tensor.of) if isinstance(found, _Shape) and not found.tensor.flat else None
            case ast.Call(func=ast.Attribute(value=value, attr=method), args=args):
                like = args[0] if method in _LIKE and args else None
                return self._value(like) if like is not None else self._method(self._value(value), method, args)
            case _:
                return None

    def _method(self, owner: _Value, method: str, args: list[ast.expr]) -> _Value:
        if not isinstance(owner, _Tensor):
            return None
        at = _whole(args[0]) if args else None
        match method:
            case "size" | "stride" if at is not None:
                found = self._dimension(_Shape(owner), at)
                return found if method == "size" else None
            case "size":
                return _Shape(owner)
            case "dim":
                return None if owner.flat else _Rank(owner.of)
            case "numel":
                return _Total(owner.of)
            case "chunk" if at is not None and (last := self._dimension(_Shape(owner), -1)) is not None:
                self._multiples.append((last, at))
                return None
            case "view" | "reshape" if len(args) == 2 and _whole(args[0]) == -1:
                last = self._value(args[1])
                if isinstance(last, (_Dimension, str)):
                    self._unite(_Dimension(owner.of, -1), last)
                return _Tensor(owner.of, flat=True)
            case "view" | "reshape" | "permute" | "transpose":
                self._unclear |= set() if owner.of in self._rank or owner.flat else {owner.of}
                return None
            case _:
                return owner if method in _SAME_SHAPE else None

    def _holds(self, test: ast.expr) -> None:
        match test:
            case ast.BoolOp(op=ast.And(), values=values):
                for value in values:
                    self._holds(value)
            case ast.Compare(left=ast.BinOp(left=left, op=ast.Mod(), right=right), ops=[ast.Eq()]):
                number, node = _whole(right), self._value(left)
                if number and isinstance(node, (_Dimension, str)):
                    self._multiples.append((node, number))
            case ast.Compare(left=left, ops=[ast.In()], comparators=[ast.Set(elts=elts) | ast.Tuple(elts=elts)]):
                number, node = _whole(elts[0]) if elts else None, self._value(left)
                if number and isinstance(node, (_Dimension, str)):
                    self._multiples.append((node, number))
            case ast.Compare(left=left, ops=ops, comparators=others) if all(isinstance(op, ast.Eq) for op in ops):
                for other in others:
                    if isinstance(other, ast.Tuple) and isinstance(shape := self._value(left), _Shape):
                        self._has_sizes(shape, other.elts)
                    self._equal(self._value(left), self._value(other), _whole(other))
            case _:
                pass

    def _has_sizes(self, shape: _Shape, sizes: list[ast.expr]) -> None:
        """Take a tensor's dimensions from what its shape is compared with, such as `(batch, n)`."""
        if not shape.tensor.flat:
            self._rank[shape.tensor.of] = len(sizes)
            for at, size in enumerate(sizes):
                self._equal(self._dimension(shape, at), self._value(size), _whole(size))

    def _equal(self, left: _Value, right: _Value, number: int | None) -> None:
        match left, right:
            case _Rank(of=name), _ if number is not None:
                self._rank[name] = number
            case _Shape(tensor=_Tensor(of=one, flat=False)), _Shape(tensor=_Tensor(of=other, flat=False)):
                if one != other:
                    self._like[other] = one
            case ((_Dimension() | str() | _Total()), (_Dimension() | str() | _Total())):
                self._unite(left, right)
            case ((_Dimension() | str()), _) if number is not None and number > 0:
                self._only.append((left, number))
            case _:
                pass

    def _by_masks(self, name: str) -> None:
        """Take the number of dimensions from the kernel's masks for each tensor where the host does not say it."""
        if name in self._rank or name in self._like or (name in self._front and name in self._back):
            return
        for pointer in sorted(self._pointers_of(name)):
            bounds = self._host.uses.bounds.get(pointer, {})
            if len(bounds) != 1:
                continue
            [(bound, over_all)] = bounds.items()
            length = self._value(self._host.handed[bound]) if bound in self._host.handed else None
            others = (other for other in sorted(self._host.tensors - {name}) if self._dimensions(other) == 2)
            like = (other for other in others if self._has_bounds(other, bounds))
            if isinstance(length, _Total) and length.of != name and (self._dimensions(length.of) or 1) > 1:
                self._like[name] = length.of
            elif not over_all and self._dimensions(name) is None and (one := next(like, None)):
                self._like[name] = one  # each program has a row of both
            elif isinstance(length, (_Dimension, _Total, str)):
                self._unite(_Dimension(name, -1), length)
                self._rank[name] = max(1 if over_all else 2, self._front.get(name, 0), self._back.get(name, 0))
            return

    def _pointers_of(self, name: str) -> set[str]:
        handed = self._host.handed
        return {p for p in self._host.uses.pointers if p in handed and name in self._host.roots(handed[p])}

    def _has_bounds(self, name: str, bounds: dict[str, bool]) -> bool:
        return any(self._host.uses.bounds.get(pointer) == bounds for pointer in self._pointers_of(name))

    def _dimensions(self, name: str) -> int | None:
        """Return how many dimensions a tensor has; None if the host only asks for single ones."""
        if name in self._rank:
            return self._rank[name]
        front, back = self._front.get(name, 0), self._back.get(name, 0)
        if back or self._is_known(_Dimension(name, -1)):
            return max(front + 1, back, 2)
        return front if front > 1 else None

    def _shape(self, name: str, seen: frozenset[str] = frozenset()) -> tuple[str, ...] | None:
        if name in self._unclear:
            return None
        if name in self._like and name not in seen:
            return self._shape(self._like[name], seen | {name})
        rank = self._dimensions(name) or self._front.get(name)
        if rank is None:
            return (self._name(_Total(name)),) if self._is_known(_Total(name)) else None
        self._rank[name] = rank
        for index in range(rank):
            self._unite(_Dimension(name, index), _Dimension(name, index - rank))
        return tuple(self._name(_Dimension(name, index)) for index in range(rank))

    def _is_known(self, node: _Node) -> bool:
        return node in self._parents

    def _root(self, node: _Node) -> _Node:
        while (above := self._parents.setdefault(node, node)) != node:
            node = above
        return node

    def _unite(self, one: _Node, other: _Node) -> None:
        """Unite two extents into one, under the first name."""
        a, b = self._root(one), self._root(other)
        if a == b:
            return
        if isinstance(b, str) and not isinstance(a, str):
            a, b = b, a
        self._parents[b] = a

    def _name(self, node: _Node) -> str:
        root = self._root(node)
        match root:
            case str():
                return root
            case _Total(of=name):
                return f"{name}_size"
            case _Dimension(of=name, index=index):
                rank = self._rank.get(name, self._dimensions(name) or 1)
                at = index % rank
                return f"{name}_length" if rank == 1 else ("rows", "cols")[at] if rank == 2 else f"d{at}"


def _in_order(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements of a body in order; nested statements follow the one that contains them."""
    for node in body:
        yield node
        if not isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            for field in ("body", "orelse", "finalbody"):
                yield from _in_order(getattr(node, field, []))


def _whole(node: ast.expr) -> int | None:
    """Return the value of an integer literal; None for anything else."""
    match node:
        case ast.Constant(value=bool()):
            return None
        case ast.Constant(value=int(value)):
            return value
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int(value))):
            return -value
        case _:
            return None
