"""Replace `load_inline` and `load` of `torch.utils.cpp_extension`, which build extensions. Worker processes only.

A candidate's text is run in three places, and its calls of these functions mean something else in each:

1. `recording()`: what is asked for is noted (`ExtensionRequest`), and modules come back whose functions cannot be
   called yet. For the process that finds out what there is to build.
2. `build_extension(request, ...)` builds one request on the fast path and runs none of its code; where it answers
   with a reason instead, `build_fully` builds it as torch does, in a process of its own. Either way the outcome is an
   `ExtensionBuild`, a record that may travel; its `host` goes into the evidence.
3. `serving(builds, device)`: each request is answered with what was built for it, found by its digest, and launches go
   to `device`: a `GpuLaunches` or an `EmulatedLaunches`. For a subject, which may start no compiler.

Both replace the functions in torch's module for good, since a candidate may call them whenever it likes: at import, in
`__init__`, or at the first `forward`. A name imported before that is replaced where it was imported to, if told so.
"""

import contextlib
import ctypes
import os
import tempfile
import types
from bisect import bisect_right
from collections.abc import Callable, Generator, Iterable, Sequence
from pathlib import Path
from typing import Never, ParamSpec, Protocol
from unittest import mock

import torch
from torch import Tensor

from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild, Launchable
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.host.build import fast_build
from kernel_lsp.compiler.host.full import full_build
from kernel_lsp.compiler.host.request import ExtensionRequest, file_request, inline_request
from kernel_lsp.compiler.host.torch_extension import cpp_extension
from kernel_lsp.compiler.machine_code.occupancy import occupancy
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.device.architectures import BLOCK_THREADS, STATIC_SHARED_BYTES
from kernel_lsp.device.arguments import LaunchShape
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers.torch_types import device_properties
from kernel_lsp.source.candidate import SourceFile

_P = ParamSpec("_P")
_DEFAULTS = BuildOptions()


@contextlib.contextmanager
def recording() -> Generator[list[ExtensionRequest]]:
    """Collect the extensions that are asked for in the block, each once, without building them."""
    asked: list[ExtensionRequest] = []

    def answer(request: ExtensionRequest) -> types.ModuleType:
        if request not in asked:
            asked.append(request)
        return _Unbuilt(request.name)

    with answering(answer):
        yield asked


@contextlib.contextmanager
def answering(answer: Callable[[ExtensionRequest], types.ModuleType]) -> Generator[None]:
    """Let `load_inline` and `load` return `answer(request)` in the block."""

    def answered(request: Callable[_P, ExtensionRequest]) -> Callable[_P, types.ModuleType]:
        return lambda *arguments, **named: answer(request(*arguments, **named))

    with (
        mock.patch.object(cpp_extension, "load_inline", answered(inline_request)),
        mock.patch.object(cpp_extension, "load", answered(file_request)),
    ):
        yield


def build_extension(
    request: ExtensionRequest,
    arch: str,
    origin: SourceFile,
    cache: Path,
    cache_limit: int,
    options: BuildOptions = _DEFAULTS,
) -> ExtensionBuild | str:
    """Build one request on the fast path; return a reason for `build_fully` if that is impossible.

    It runs none of the extension's code, and keeps host and device parts in `cache` apart from each other.

    Args:
        request: what was asked for.
        arch: `sm_90` and the like.
        origin: the file whose text holds the sources.
        cache: folder of builds.
        cache_limit: bytes it may hold.
        options: the user's own compiler options.
    """
    kept = FileCache(cache, cache_limit, ".host")
    return fast_build(request, arch, origin, cache, options, BuildCache(cache, cache_limit), kept)


def build_fully(
    request: ExtensionRequest,
    arch: str,
    origin: SourceFile,
    folder: Path,
    reason: str,
    options: BuildOptions = _DEFAULTS,
) -> ExtensionBuild:
    """Build one request with torch's own headers and nvcc, into `folder`; torch imports it, which runs its code.

    Raises:
        CannotJudgeError: see `build.host.full`.
    """
    return full_build(request, arch, origin, folder, options, reason)


class _Unbuilt(types.ModuleType):
    """Stands for an extension that is not built yet: it has every function, but none can be called."""

    def __getattr__(self, name: str) -> Callable[..., Never]:
        if name.startswith("__"):
            raise AttributeError(name)

        def call(*_: object, **__: object) -> Never:
            raise WorkloadError(f"`{self.__name__}.{name}` is called before the extension is built")

        return call


class Launches(Protocol):
    """The device of one worker, as host libraries use it."""

    def pointer(self, tensor: Tensor) -> int:
        """Return the address of a tensor's first element; kernels may receive it from now on."""
        ...

    def launch(
        self, build: ExtensionBuild, kernel: Launchable, shape: LaunchShape, stream: int, arguments: int
    ) -> None:
        """Launch a kernel; `arguments` is the address of an array of pointers, one for each argument."""
        ...

    def resident_blocks(self, build: ExtensionBuild, kernel: Launchable, threads: int, shared_bytes: int) -> int:
        """Return the number of blocks that one multiprocessor can hold at a time."""
        ...

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Set bytes."""
        ...

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes from device to device."""
        ...


@contextlib.contextmanager
def serving(builds: Iterable[ExtensionBuild], device: Launches) -> Generator[None]:
    """Answer each request for an extension in the block with the build of the same texts and options.

    A request without a build raises `WorkloadError`.
    """
    known = {build.digest: build for build in builds}
    loaded: dict[str, types.ModuleType] = {}

    def answer(request: ExtensionRequest) -> types.ModuleType:
        build = known.get(request.digest)
        if build is None:
            raise WorkloadError(
                f"the extension `{request.name}` was not built before the kernel was run",
                fix="Give `load_inline` the same texts and options each time, when the file is imported.",
            )
        if request.digest not in loaded:
            loaded[request.digest] = load_extension(build, device)
        return loaded[request.digest]

    with answering(answer):
        yield


def load_extension(build: ExtensionBuild, device: Launches, folder: Path | None = None) -> types.ModuleType:
    """Return the Python module of a built extension; `folder`, else the working folder, is written to for a moment.

    Raises:
        WorkloadError: it was not built, or it cannot be imported.
    """
    if build.extension is not None:
        return import_library(Path(build.extension))
    if build.library is None:
        raise WorkloadError(f"the extension `{build.name}` does not build")
    with tempfile.NamedTemporaryFile(suffix=".so", dir=folder or Path.cwd(), delete=False) as file:
        file.write(build.library)
    try:
        library = ctypes.PyDLL(file.name, mode=os.RTLD_NOW | os.RTLD_LOCAL)
    except OSError as error:
        raise WorkloadError(f"the extension `{build.name}` cannot be loaded: {error}") from error
    finally:
        Path(file.name).unlink()
    connect = library.kernel_lsp_connect
    connect.restype, connect.argtypes = ctypes.py_object, [ctypes.py_object]
    module = types.ModuleType(build.name)
    vars(module).update(connect(Runtime(build, device)))
    return module


def import_library(path: Path) -> types.ModuleType:
    """Return the Python module in a shared object, which is named after the file's stem.

    Raises:
        WorkloadError: it is none.
    """
    import importlib.util

    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None:
        raise WorkloadError("the built extension cannot be imported", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


class Runtime:
    """The functions that a host library calls: the thin header's `kernel_lsp::runtime`, with plain numbers."""

    torch = torch

    def __init__(self, build: ExtensionBuild, device: Launches) -> None:
        self._build, self._device = build, device
        self._starts = [kernel.start for kernel in build.kernels]
        self._shared: dict[str, int] = {}
        self.pointer = device.pointer
        self.fill = device.fill
        self.copy = device.copy

    def launch(
        self, place: int, gx: int, gy: int, gz: int, bx: int, by: int, bz: int, shared: int, stream: int, arguments: int
    ) -> None:
        """Launch the kernel whose stub has code at `place`."""
        kernel = self._at(place)
        if shared > self._shared.get(kernel.entry, STATIC_SHARED_BYTES):
            raise WorkloadError(
                f"launching `{kernel.name}` with {shared} bytes of dynamic shared memory: invalid argument",
                fix="Above 48 KiB, allow it with cudaFuncSetAttribute(kernel, "
                "cudaFuncAttributeMaxDynamicSharedMemorySize, bytes).",
            )
        shape = LaunchShape((gx, gy, gz), (bx, by, bz), shared)
        threads = bx * by * bz
        if not (gx and gy and gz and 0 < threads <= BLOCK_THREADS and gy < 65536 and gz < 65536 and bz <= 64):
            raise WorkloadError(
                f"launching `{kernel.name}` with grid {shape.grid}, block {shape.block}: invalid configuration argument"
            )
        self._device.launch(self._build, kernel, shape, stream, arguments)

    def allow_shared(self, place: int, nbytes: int) -> None:
        """Set the dynamic shared memory that the kernel at `place` may use, in bytes."""
        self._shared[self._at(place).entry] = nbytes

    def resident_blocks(self, place: int, threads: int, shared: int) -> int:
        """Return the number of blocks of the kernel at `place` that one multiprocessor can hold."""
        return self._device.resident_blocks(self._build, self._at(place), threads, shared)

    def synchronize(self, _: int) -> None:
        """Wait for all work on the GPU."""
        torch.cuda.synchronize()

    def current_stream(self) -> int:
        """Return the handle of torch's current stream."""
        return torch.cuda.current_stream().cuda_stream

    def current_device(self) -> int:
        """Return the number of torch's current device."""
        return torch.cuda.current_device()

    def device_attribute(self, attribute: int) -> int:
        """Return a value of CUDA's `cudaDeviceAttr`."""
        properties = device_properties(torch.cuda.current_device())
        names = {
            8: "shared_memory_per_block",
            10: "warp_size",
            16: "multi_processor_count",
            39: "max_threads_per_multi_processor",
            75: "major",
            76: "minor",
            81: "shared_memory_per_multiprocessor",
            97: "shared_memory_per_block_optin",
        }
        return BLOCK_THREADS if attribute == 1 else int(getattr(properties, names[attribute]))

    def _at(self, place: int) -> Launchable:
        number = bisect_right(self._starts, place) - 1
        if number < 0 or place > self._build.kernels[number].end:
            raise WorkloadError("a function that is not a kernel is launched")
        return self._build.kernels[number]


def packed_arguments(address: int, sizes: Sequence[int]) -> list[bytes]:
    """Return the arguments of a launch: the bytes that the pointers at `address` point to."""
    pointers = (ctypes.c_void_p * len(sizes)).from_address(address)
    return [ctypes.string_at(pointer, size) for pointer, size in zip(pointers, sizes, strict=True)]


def resident_blocks(build: ExtensionBuild, kernel: Launchable, threads: int, shared_bytes: int) -> int:
    """Return how many blocks of a kernel one multiprocessor can hold, by `compiler.machine_code.occupancy`."""
    binary = build.binary
    assert binary is not None, "only what was built is launched"
    facts = next(facts for facts in binary.kernels if facts.entry == kernel.entry)
    shared = facts.shared_bytes + shared_bytes
    return occupancy(binary.arch, facts.registers, shared, threads, facts.barriers).blocks
