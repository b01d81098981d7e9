"""A fake GPU: user code written for CUDA tensors runs on the CPU (compare PyTorch's FakeTensor).

Worker processes only. Tensors live on the CPU and report `cuda:0`. Where only shapes, strides and types matter, random
factories give zeros, which the system provides without touching memory; so do a few operations of large tensors with
numbers.
"""

import contextlib
import importlib
import mmap
from collections.abc import Callable, Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves, tree_map

from kernel_lsp.compiler.fakes.driver import fake_driver
from kernel_lsp.compiler.fakes.operations import Operations
from kernel_lsp.compiler.fakes.streams import streams, written
from kernel_lsp.device.architectures import BLOCK_THREADS, REGISTERS, STATIC_SHARED_BYTES, WARP
from kernel_lsp.device.device import Device

_CUDA = torch.device("cuda", 0)
_TAKE_NUMBERS = {"to": 1, "_parse_to": 0}  # where functions take the number of a device among their arguments
_LIKE = ("rand_like", "randn_like", "randint_like", "zeros_like")
_IN_PLACE = ("normal_", "uniform_", "random_", "exponential_", "log_normal_", "bernoulli_", "geometric_", "cauchy_")
_VALUES = ("low", "high", "mean", "std")
_BY_NUMBER = ("add", "sub", "mul", "div", "__radd__", "__rsub__", "__rmul__")
_SMALL = 1 << 20  # bytes
_LARGE = 1 << 24  # bytes
_MAP_NORESERVE = 0x4000  # Linux; not every Python names it


class _Properties(SimpleNamespace):
    """The result of `torch.cuda.get_device_properties`."""


@contextmanager
def fake_gpu(device: Device, *, values: bool = False) -> Generator[None]:
    """Make torch believe within the context in one GPU, `device`; random values are zeros unless `values` is set."""
    with contextlib.ExitStack() as patched:
        answers = _answers(device) | patched.enter_context(streams())
        for name, answer in answers.items():
            patched.enter_context(mock.patch.object(torch.cuda, name, answer))
        for name in ("mark", "range_push", "range_pop"):
            patched.enter_context(mock.patch.object(torch.cuda.nvtx, name, _nothing()))
        # Otherwise recurrent layers call cuDNN to arrange their weights, which takes a GPU.
        patched.enter_context(mock.patch.object(torch.backends.cudnn, "is_acceptable", return_value=False))
        patched.enter_context(mock.patch.object(torch, "Generator", _Generator))
        patched.enter_context(mock.patch.object(torch.Tensor, "record_stream", _nothing()))
        patched.enter_context(_default_device())
        patched.enter_context(fake_driver())
        patched.enter_context(_OnTheCpu(values))
        yield


def on_the_cpu() -> contextlib.AbstractContextManager[object]:
    """Return what a thread enters whose calls for the GPU `fake_gpu` is to answer, too: torch keeps modes by thread."""
    return _OnTheCpu(values=True)


@contextmanager
def _default_device() -> Generator[None]:
    """Let a program within the context name the GPU as the default device: tensors are where they are by default.

    torch would name it to its factories after `_OnTheCpu` has looked at their calls.
    """
    place, default = torch.set_default_device, torch.device("cpu")

    def set_default(device: Any) -> None:
        nonlocal default
        on_gpu = _is_cuda(device) or _is_number(device)
        default = _CUDA if on_gpu else torch.device(device or "cpu")
        place(None if on_gpu else device)

    def get_default() -> torch.device:
        return default

    with (
        mock.patch.object(torch, "set_default_device", set_default),
        mock.patch.object(torch, "get_default_device", get_default),
    ):
        yield


def _answers(device: Device) -> dict[str, Callable[..., Any]]:
    """Return the replacements of `torch.cuda` functions, all distinct, as `torch._dynamo` rejects one object twice."""
    properties = _properties(device)
    return {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "init": _nothing(),
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "set_device": _nothing(),
        "get_device_name": lambda *_: properties.name,
        "get_device_capability": lambda *_: device.capability,
        "get_device_properties": lambda *_: properties,
        "synchronize": _nothing(),
        "empty_cache": _nothing(),
        "ipc_collect": _nothing(),
        "manual_seed": _nothing(),
        "manual_seed_all": _nothing(),
        "mem_get_info": lambda *_: (properties.total_memory, properties.total_memory),
        "memory_allocated": lambda *_: 0,
        "memory_reserved": lambda *_: 0,
        "max_memory_allocated": lambda *_: 0,
        "max_memory_reserved": lambda *_: 0,
        "reset_peak_memory_stats": _nothing(),
        "is_bf16_supported": lambda *_, **__: device.capability >= (8, 0),
        "device": lambda *_: contextlib.nullcontext(),
    }


def _properties(device: Device) -> _Properties:
    limits, (major, minor) = device.limits, device.capability
    return _Properties(
        name=f"NVIDIA {device.name.removeprefix('NVIDIA ')}",
        major=major,
        minor=minor,
        multi_processor_count=device.multiprocessors,
        total_memory=device.memory_bytes,
        warp_size=WARP,
        max_threads_per_block=BLOCK_THREADS,
        max_threads_per_multi_processor=limits.threads,
        regs_per_multiprocessor=REGISTERS,
        shared_memory_per_block=STATIC_SHARED_BYTES,
        shared_memory_per_block_optin=limits.block_shared_bytes,
        shared_memory_per_multiprocessor=limits.shared_bytes,
        L2_cache_size=device.l2_bytes,
    )


class _Generator(torch.Generator):
    """A random generator on the CPU, whatever device is named."""

    def __new__(cls, *_: object, **__: object) -> "_Generator":  # pyright: ignore[reportInconsistentConstructor]
        return super().__new__(cls)


class _OnTheCpu(TorchFunctionMode):
    """Redirects calls for the GPU to the CPU, and gives zeros for random values unless `values` is set."""

    def __init__(self, values: bool) -> None:
        super().__init__()
        self._values = values

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        named = dict(kwargs or {})
        if func is torch.device:
            return func("cuda", *args) if _is_number(args[0] if args else None) else func(*args, **named)
        name = getattr(func, "__name__", "")
        if name == "__get__":
            # Attributes of a tensor arrive as the getters of its descriptors.
            owner = getattr(getattr(func, "__self__", None), "__name__", "")
            return {"is_cuda": True, "device": _CUDA}[owner] if owner in ("is_cuda", "device") else func(*args, **named)
        if name == "get_device":
            return 0
        if name in ("cuda", "pin_memory"):
            return args[0]
        if _is_cuda(named.get("device")) or _is_number(named.get("device")):
            named["device"] = "cpu"
        named.pop("pin_memory", None)
        place = _TAKE_NUMBERS.get(name)
        args = tuple(
            "cpu" if _is_cuda(argument) or (at == place and _is_number(argument)) else argument
            for at, argument in enumerate(args)
        )
        if self._values:
            return func(*args, **named)
        named.pop("generator", None)
        zeros = _zeros(name, args, named)
        return func(*args, **named) if zeros is None else zeros


class ShapesOnly(Operations):
    """A mode that computes only the shape of large results, which are zeros without memory of their own.

    For problems whose tensors are too large for a CPU. Small tensors keep their values, on which sizes and branches of
    host code may depend; so do results whose shape torch cannot infer.
    """

    def __init__(self) -> None:
        """Import what torch needs for shapes; call this before torch believes in a GPU."""
        super().__init__()
        importlib.import_module("torch._dynamo")  # torch would do so with the first shape

    def operation(self, func: Any, args: tuple[Any, ...], named: dict[str, Any]) -> Any:
        """Execute the operation; by shape alone if its tensors are large."""
        given = [value for value in tree_leaves((args, named)) if isinstance(value, torch.Tensor)]
        writes = [argument.alias_info for argument in func._schema.arguments if argument.alias_info is not None]
        if not any(value.nbytes >= _LARGE for value in given) or (writes and not any(a.is_write for a in writes)):
            return func(*args, **named)
        if any(a.is_write for a in writes):
            return written(func, args, named)
        meta = lambda value: value.to("meta") if isinstance(value, torch.Tensor) else value  # noqa: E731
        try:
            shapes = func(*tree_map(meta, args), **tree_map(meta, named))
        except (NotImplementedError, RuntimeError):
            return func(*args, **named)
        return tree_map(lambda v: _untouched_zeros(v) if isinstance(v, torch.Tensor) else v, shapes)


def _zeros(name: str, args: tuple[Any, ...], named: dict[str, Any]) -> torch.Tensor | None:
    """Return the zeros for a factory of zeros or random values; None if `name` is another function."""
    shape_only: dict[str, Any] = {key: value for key, value in named.items() if key not in _VALUES} | {"device": "meta"}
    if name in ("rand", "randn", "zeros"):
        return _untouched_zeros(torch.empty(*args, **shape_only))
    if name in _LIKE:
        return _untouched_zeros(torch.empty_like(args[0], **shape_only))
    if name in ("randint", "normal"):
        size = shape_only.pop("size", None) or next((a for a in reversed(args) if isinstance(a, (tuple, list))), None)
        if size is None:  # `normal` of tensors
            return _untouched_zeros(torch.empty_like(args[0], device="meta"))
        if name == "randint":
            shape_only.setdefault("dtype", torch.int64)
        return _untouched_zeros(torch.empty(size, **shape_only))
    if name == "randperm":
        return torch.arange(args[0], **named)
    if name in _BY_NUMBER and _moved_by_a_number(args, named):
        return _untouched_zeros(torch.empty_like(args[0], device="meta"))
    if name in _IN_PLACE:
        return args[0] if args else named["tensor"]  # `torch.nn.init` has functions of these names
    return None


def _moved_by_a_number(args: tuple[Any, ...], named: dict[str, Any]) -> bool:
    """Return True if a large floating-point tensor is combined with a number alone, so that zeros may stand for it.

    Tensors that require a gradient are computed properly.
    """
    if named or len(args) != 2 or not isinstance(args[0], torch.Tensor) or not isinstance(args[1], (int, float)):
        return False
    return args[0].is_floating_point() and not args[0].requires_grad and args[0].nbytes >= _LARGE


def _untouched_zeros(like: torch.Tensor) -> torch.Tensor:
    """Return zeros with the shape, strides and type of a `meta` tensor; large ones take no memory until read."""
    size = like.untyped_storage().nbytes()
    if size < _SMALL:
        zeros = torch.zeros((size // like.element_size(),), dtype=like.dtype, device="cpu")
    else:
        pages = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | _MAP_NORESERVE)
        zeros = torch.frombuffer(pages, dtype=like.dtype)
    return zeros.as_strided(like.size(), like.stride()).requires_grad_(like.requires_grad)


def _is_cuda(value: object) -> bool:
    if isinstance(value, torch.device):
        return value.type == "cuda"
    return isinstance(value, str) and (value == "cuda" or value.startswith("cuda:"))


def _is_number(device: object) -> bool:
    """Return True for a device that is named by its number, which is one of the GPU's."""
    return isinstance(device, int) and not isinstance(device, bool)


def _nothing() -> Callable[..., None]:
    """Return a function that does nothing."""

    def nothing(*_: object, **__: object) -> None:
        return None

    return nothing
