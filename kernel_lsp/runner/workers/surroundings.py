"""Detect changes that a version makes to its process: torch's settings, functions that others call, ours, threads.

Worker processes only. A `Surroundings` is made before a version is loaded and asked afterwards.
"""

import hashlib
import importlib
import sys
import threading
import time
import types
from collections.abc import Callable
from pathlib import Path

import torch
import torch.profiler
from torch.overrides import _get_current_function_mode_stack  # pyright: ignore[reportPrivateUsage]
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack  # pyright: ignore[reportPrivateUsage]

_backends = torch.backends
_SETTINGS: dict[str, Callable[[], object]] = {
    "torch's default type": torch.get_default_dtype,
    "torch's default device": torch.get_default_device,
    "torch.backends.cuda.matmul.allow_tf32": lambda: _backends.cuda.matmul.allow_tf32,
    "torch.backends.cudnn.allow_tf32": lambda: _backends.cudnn.allow_tf32,
    "torch's precision of float32 products": torch.get_float32_matmul_precision,
    "torch.backends.cuda.matmul.allow_fp16_reduced_precision_reduction": lambda: (
        _backends.cuda.matmul.allow_fp16_reduced_precision_reduction
    ),
    "torch.backends.cuda.matmul.allow_bf16_reduced_precision_reduction": lambda: (
        _backends.cuda.matmul.allow_bf16_reduced_precision_reduction
    ),
    "torch.backends.cudnn.enabled": lambda: _backends.cudnn.enabled,
    "torch.backends.cudnn.benchmark": lambda: _backends.cudnn.benchmark,
    "torch.backends.cudnn.deterministic": lambda: _backends.cudnn.deterministic,
    "torch's demand for deterministic algorithms": torch.are_deterministic_algorithms_enabled,
    "torch's gradient mode": torch.is_grad_enabled,
    "torch's inference mode": torch.is_inference_mode_enabled,
    "torch's autocast": lambda: torch.is_autocast_enabled("cuda"),
    "torch's number of CPU threads": torch.get_num_threads,
    "torch's random numbers": lambda: _digest(torch.get_rng_state()),
    "modes that change what torch's operations do": lambda: (
        len(_get_current_function_mode_stack()) + len(_get_current_dispatch_mode_stack())
    ),
}
_ON_GPU: dict[str, Callable[[], object]] = {
    "torch's random numbers on the GPU": lambda: _digest(torch.cuda.get_rng_state()),
    "the current device": torch.cuda.current_device,
    "the current stream": lambda: torch.cuda.current_stream().cuda_stream,
    "the L2 cache set aside for persisting accesses": lambda: _persisting_l2(),
}
_WATCHED: dict[str, object] = {
    "torch": torch,
    "torch.Tensor": torch.Tensor,
    "torch.cuda": torch.cuda,
    "torch.cuda.Event": torch.cuda.Event,
    "torch.cuda.Stream": torch.cuda.Stream,
    "torch.cuda.CUDAGraph": torch.cuda.CUDAGraph,
    "torch.profiler": torch.profiler,
    "torch.profiler.profile": torch.profiler.profile,
    "torch.autograd.profiler": torch.autograd.profiler,
    "torch.autograd.profiler.profile": torch.autograd.profiler.profile,
    "time": time,
    "threading.Thread": threading.Thread,
}
_OURS = __name__.partition(".")[0]
_COMPILED = (types.BuiltinFunctionType, type)
_CALLED = (
    *_COMPILED,
    types.FunctionType,
    types.MethodDescriptorType,
    types.GetSetDescriptorType,
    staticmethod,
    classmethod,
    property,
)


class Surroundings:
    """A snapshot of the process, to be compared with its later state."""

    def __init__(self, device: str) -> None:
        self._settings = _SETTINGS | (_ON_GPU if device == "cuda" else {})
        self._before = {name: ask() for name, ask in self._settings.items()}
        self._driver = _driver() if device == "cuda" else None
        self._functions = _functions(self._driver)
        self._threads = set(threading.enumerate())
        self.native_threads = native_threads()

    def changes(self) -> list[str]:
        """Return the names of changed settings and of replaced functions."""
        changed = [name for name, ask in self._settings.items() if ask() != self._before[name]]
        now = _functions(self._driver)
        replaced = {name for name, function in self._functions.items() if now.get(name) is not function}
        covered = {name for name in now.keys() - self._functions.keys() if _covers(name)}
        return changed + sorted(replaced | covered)

    def threads(self) -> list[str]:
        """Return the names of Python threads that were started since the snapshot and still run."""
        return sorted(thread.name for thread in threading.enumerate() if thread not in self._threads)


def native_threads() -> int:
    """Return the number of threads of this process, native ones included."""
    return sum(1 for _ in Path("/proc/self/task").iterdir())


def _driver() -> types.ModuleType:
    return importlib.import_module("cuda.bindings.driver")


def _functions(driver: types.ModuleType | None) -> dict[str, object]:
    """Return watched functions by name. Of torch's top level only compiled ones: torch itself wraps others at times."""
    found: dict[str, object] = {}
    for name, owner in _WATCHED.items():
        kinds = _COMPILED if owner is torch else _CALLED
        found |= {f"{name}.{a}": value for a, value in list(vars(owner).items()) if isinstance(value, kinds)}
    if driver is not None:
        calls = {name: value for name, value in vars(driver).items() if name.startswith("cu") and callable(value)}
        found |= {f"cuda.bindings.driver.{name}": value for name, value in calls.items()}
    return found | _own_parts()


def _own_parts() -> dict[str, object]:
    """Return what modules of the harness bind, also what they import, methods of their classes, and functions' code."""
    found: dict[str, object] = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != _OURS:
            continue
        for attribute, value in list(vars(module).items()):
            found[f"{name}.{attribute}"] = value
            if isinstance(value, type) and value.__module__ == name:
                found |= {f"{name}.{attribute}.{a}": v for a, v in list(vars(value).items()) if _is_called(v)}
            elif isinstance(value, types.SimpleNamespace):  # as the driver's functions are kept
                found |= {f"{name}.{attribute}.{a}": v for a, v in vars(value).items()}
    ran = ((name, value) for name, value in found.items() if isinstance(value, types.FunctionType))
    return found | {f"{name}.__code__": function.__code__ for name, function in ran}


def _is_called(value: object) -> bool:
    return isinstance(value, _CALLED)


def _covers(name: str) -> bool:
    """Return True if a new attribute of a class hides an inherited one."""
    owner, _, attribute = name.rpartition(".")
    watched = _WATCHED.get(owner)
    return isinstance(watched, type) and any(hasattr(base, attribute) for base in watched.__bases__)


def _digest(state: torch.Tensor) -> str:
    return hashlib.sha256(state.cpu().numpy().tobytes()).hexdigest()


def _persisting_l2() -> int:
    from kernel_lsp.device.driver import check, cu

    return int(check(cu.cuCtxGetLimit(cu.CUlimit.CU_LIMIT_PERSISTING_L2_CACHE_SIZE), "asking for the L2 set aside"))
