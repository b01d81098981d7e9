"""Runs code for shapes and element types alone, and computes those of common operations.

Torch computes them in Python on its device `meta`, and the first of them imports its compiler, which takes seconds.
Inputs are seldom made by more than random numbers and some arithmetic. Torch does all else.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, cast

import torch

from kernel_lsp.workload.placement import Instead

_KEEPING = frozenset(
    {"abs", "add", "clamp", "floor", "mul", "neg", "pow", "round", "sign", "sub", "tril", "triu", "where"}
)
_FLOATING = frozenset(
    {"cos", "div", "exp", "log", "log_softmax", "rsqrt", "sigmoid", "sin", "softmax", "sqrt", "tanh", "truediv"}
)
_ALONE = frozenset({"clamp", "log_softmax", "softmax", "tril", "triu"})  # their other arguments are no operands
_TRUTH = frozenset({"eq", "ge", "gt", "le", "logical_not", "lt", "ne"})
_IN_PLACE = frozenset(
    {"add_", "bernoulli_", "clamp_", "div_", "exponential_", "mul_", "normal_", "random_", "sub_", "uniform_"}
)


class Shapes(Instead):
    """While active, replaces every CUDA device by `meta`, and computes what it knows itself."""

    def __init__(self) -> None:
        super().__init__("meta")

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        made = result_of(getattr(func, "__name__", ""), args, self.placed(kwargs))
        return super().__torch_function__(func, types, args, kwargs) if made is None else made


def result_of(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> Any:
    """Return the result of an operation on the device `meta`, or None where it is not known here.

    Args:
        name: of torch's function or method, such as `randn`, `mul` or `__rsub__`.
        args: its arguments.
        named: those that are named.
    """
    if named.get("out") is not None:
        return None
    if name in ("randn", "rand", "randint", "arange"):
        return _made(name, args, named)
    if name in ("randn_like", "rand_like") and isinstance(args[0], torch.Tensor):
        return torch.empty_like(args[0], **named)
    if not args or not isinstance(args[0], torch.Tensor) or args[0].device.type != "meta":
        return None
    if name in _IN_PLACE:
        return args[0]
    if name == "sort" and named.keys() <= {"dim", "descending"}:
        return torch.return_types.sort((torch.empty_like(args[0]), torch.empty_like(args[0], dtype=torch.int64)))
    plain = name.strip("_")
    plain = plain.removeprefix("r") if name.startswith("__r") else plain
    return _computed(plain, args, named) if named.keys() <= {"dim", "dtype", "diagonal"} else None


def _made(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> torch.Tensor | None:
    """Return a tensor as `randn`, `rand`, `randint` or `arange` make it on the device that is named."""
    if torch.device(named.get("device") or "cpu").type != "meta":
        return None
    rest = {key: value for key, value in named.items() if key in ("dtype", "device")}
    if name == "arange":
        first, last, step = {1: (0, *args, 1), 2: (*args, 1), 3: tuple(args)}.get(len(args), (0, 0, 0))
        if not step or not all(isinstance(one, (int, float)) for one in (first, last, step)):
            return None
        whole = all(isinstance(one, int) for one in args)
        rest.setdefault("dtype", torch.int64 if whole else torch.get_default_dtype())
        return torch.empty(max(0, math.ceil((last - first) / step)), **rest)
    size: Any = named.get("size") or (args[-1] if args else None)
    if name == "randint":
        rest.setdefault("dtype", torch.int64)
    elif isinstance(size, int):
        size = args
    whole = isinstance(size, (tuple, list)) and all(type(one) is int for one in cast(Sequence[object], size))
    return torch.empty(tuple(size), **rest) if whole else None


def _computed(name: str, args: Sequence[Any], named: Mapping[str, Any]) -> torch.Tensor | None:
    """Return the result of arithmetic, element by element or along one dimension."""
    if name not in _KEEPING | _FLOATING | _TRUTH:
        return None
    tensors = [one for one in args if isinstance(one, torch.Tensor)]
    shape = _broadcast([tuple(tensor.shape) for tensor in tensors])
    if shape is None:
        return None
    kind = args[-2:] if name == "where" else args[:1] if name in _ALONE else args[:2]
    dtype = torch.result_type(*kind) if len(kind) > 1 else kind[0].dtype
    if named.get("dtype") is not None:
        dtype = named["dtype"]
    elif name in _TRUTH:
        dtype = torch.bool
    elif name in _FLOATING and not dtype.is_floating_point:
        dtype = torch.get_default_dtype()
    return torch.empty(shape, dtype=dtype, device="meta")


def _broadcast(shapes: Sequence[tuple[int, ...]]) -> tuple[int, ...] | None:
    """Return the shape that shapes have in common, or None: torch says what is wrong with them."""
    rank = max(map(len, shapes))
    found: list[int] = []
    for extents in zip(*((1,) * (rank - len(shape)) + shape for shape in shapes), strict=True):
        longer = {extent for extent in extents if extent != 1}
        if len(longer) > 1:
            return None
        found.append(longer.pop() if longer else 1)
    return tuple(found)
