"""Runs CuTe's compiler in place of launches. Imports torch and CuTe: for build workers, on use."""

import re
from collections.abc import Callable, Generator, Sequence
from contextlib import contextmanager
from functools import wraps
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest.mock import patch

import cutlass  # pyright: ignore
import torch
from cutlass import cute  # pyright: ignore
from cutlass.cute import runtime  # pyright: ignore

from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.machine_code.cubin import cubin_arch, read_cubin
from kernel_lsp.errors import KernelLspError

_cutlass: Any = cutlass
_cute: Any = cute
_runtime: Any = runtime
_compile: Any = _cute.compile

_COLOURS = re.compile(r"\x1b\[[0-9;]*m")
_PLACE = re.compile(r"-->\s*(\S+?):(\d+)")
_HEAD = re.compile(r"^error(?:\[\w+\])?:\s*")
_TYPES = {
    torch.float64: "Float64",
    torch.float32: "Float32",
    torch.float16: "Float16",
    torch.bfloat16: "BFloat16",
    torch.int64: "Int64",
    torch.int32: "Int32",
    torch.int16: "Int16",
    torch.int8: "Int8",
    torch.uint8: "Uint8",
    torch.bool: "Boolean",
}


class NotCompiledError(KernelLspError):
    """CuTe's compiler refused a call: its message, and the line of the kernel file that it names."""


class CallCompiler:
    """Compiles the functions that host code calls, for one architecture; `binaries` has each distinct compilation
    once.
    """

    def __init__(self, path: Path, kernels: Sequence[str], arch: str) -> None:
        self._path, self._kernels = path, kernels
        # From Hopper on CuTe compiles for the architecture-specific target, as it does on a GPU.
        self._arch = f"{arch}a" if arch[3:].isdigit() and int(arch[3:]) >= 90 else arch
        self._within = False
        self.binaries: list[Binary] = []

    @contextmanager
    def instead_of_running(self) -> Generator[None]:
        """Within the context, pass tensors by their layouts alone, and make `cute.compile` compile for this target."""
        with patch.object(_runtime, "from_dlpack", _given), patch.object(_cute, "compile", _Compile(self)):
            yield

    def take_over(self, module: ModuleType, names: Sequence[str]) -> None:
        """Make calls of a module's functions under `@cute.jit` compile; calls within a compilation remain CuTe's."""
        for name in names:
            if callable(function := getattr(module, name, None)):
                setattr(module, name, self._compiling(function))

    def compile(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., None]:
        """Compile a call; return a function that does nothing.

        Raises:
            NotCompiledError: the compiler refuses it.
        """
        options = (_cute.GPUArch(self._arch), _cute.KeepPTX(True), _cute.KeepCUBIN(True), _cute.GenerateLineInfo(True))
        given = [_given(one) if isinstance(one, torch.Tensor) else one for one in args]
        self._within = True
        try:
            made = _compile[options](getattr(function, "compiled_by_cute", function), *given, **kwargs)
        except Exception as error:
            raise self._refused(error) from error
        finally:
            self._within = False
        self._take(made.__cubin__, made.__ptx__)
        return lambda *_, **__: None

    def _compiling(self, function: Callable[..., Any]) -> Callable[..., Any]:
        @wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            return function(*args, **kwargs) if self._within else self.compile(function, *args, **kwargs)()

        call.compiled_by_cute = function  # pyright: ignore[reportAttributeAccessIssue]
        return call

    def _take(self, cubin: bytes, ptx: str) -> None:
        if any(one.cubin == cubin for one in self.binaries):
            return
        taken = {name for one in self.binaries for name in one.entries}
        names: dict[str, str] = {}
        for fact in read_cubin(cubin):
            name = plain = next((k for k in self._kernels if fact.entry.startswith(f"kernel_cutlass_{k}_")), fact.entry)
            number = 1
            while name in taken:
                number += 1
                name = f"{plain}#{number}"
            taken.add(name)
            names[fact.entry] = name
        entries = {name: entry for entry, name in names.items()}
        self.binaries.append(Binary(cubin_arch(cubin), cubin, ptx, entries, read_cubin(cubin, names)))

    def _refused(self, error: Exception) -> NotCompiledError:
        text = _COLOURS.sub("", str(error)).strip() or type(error).__name__
        lines = [int(line) for path, line in _PLACE.findall(text) if Path(path) == self._path]
        return NotCompiledError(_HEAD.sub("", text.splitlines()[0]), self._path, lines[0] if lines else 1)


class _Compile:
    """Replaces `cute.compile`, with or without options in brackets."""

    def __init__(self, compiler: CallCompiler) -> None:
        self._compiler = compiler

    def __getitem__(self, _options: Any) -> "_Compile":
        return self

    def __call__(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., None]:
        kwargs.pop("options", None)
        return self._compiler.compile(function, *args, **kwargs)


class _Given(_runtime._FakeTensor):
    """A tensor by its type and layout, with the methods by which host code marks a result of `from_dlpack`."""

    def mark_layout_dynamic(self, leading_dim: int | None = None) -> Any:
        strides = [one if isinstance(one, int) and one in (0, 1) else _cute.sym_int64() for one in self.stride]
        return _Given(self.element_type, tuple(_cute.sym_int() for _ in self.shape), stride=tuple(strides))

    def mark_compact_shape_dynamic(self, mode: int, stride_order: Any = None, divisibility: int = 1) -> Any:
        shape = [_cute.sym_int(divisibility=divisibility) if at == mode else n for at, n in enumerate(self.shape)]
        return _Given(self.element_type, tuple(shape), stride=tuple(self.stride))


def _given(tensor: Any, assumed_align: int | None = None, **_: Any) -> Any:
    """Return a torch tensor in the form that CuTe's compiler takes: its type and layout."""
    kind = getattr(_cutlass, _TYPES[tensor.dtype])
    return _Given(kind, tuple(tensor.shape), stride=tuple(tensor.stride()), assumed_align=assumed_align)
