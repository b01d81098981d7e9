"""Launches of host libraries on a GPU, through the driver. Worker processes only."""

from collections import deque
from collections.abc import Sequence

import torch
from torch import Tensor

from kernel_lsp.compiler.builds.extension import ExtensionBuild, Launchable
from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.arguments import LaunchShape
from kernel_lsp.device.driver import Ear, Listener, check, cu, unheard
from kernel_lsp.runner.workers.inline import packed_arguments, resident_blocks

_REMEMBERED = 256  # latest tensors whose address was asked for, kept for listeners


class GpuLaunches:
    """The GPU as the host library of an extension uses it: see `inline.Launches`.

    Work without a named stream runs on torch's current one. So it is ordered with torch's own work; and timing, which
    launches on a stream of its own, can capture it.
    """

    def __init__(self, listeners: Sequence[Listener] = (), ear: Ear = unheard) -> None:
        self._listeners, self._ear = listeners, ear
        self._functions: dict[tuple[str, str], tuple[object, tuple[int, ...]]] = {}
        self._modules: dict[str, object] = {}
        self._reached: deque[Tensor] = deque(maxlen=_REMEMBERED)

    def pointer(self, tensor: Tensor) -> int:
        """Return the address of a tensor's first element."""
        if self._listeners:
            self._reached.append(tensor)
        return tensor.data_ptr()

    def launch(
        self, build: ExtensionBuild, kernel: Launchable, shape: LaunchShape, stream: int, arguments: int
    ) -> None:
        """Launch a kernel of an extension."""
        function, sizes = self._function(build, kernel)
        self._ear(kernel.entry, shape)
        if self._listeners:
            assert build.binary is not None, "its function was found there"
            packed = packed_arguments(arguments, sizes)
            for listener in self._listeners:
                listener(build.binary.cubin, kernel.entry, shape, packed, tuple(self._reached))
        if shape.shared_bytes > STATIC_SHARED_BYTES:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            status = cu.cuFuncSetAttribute(function, attribute, shape.shared_bytes)
            check(status, f"giving {kernel.name} {shape.shared_bytes} bytes")
        extents = (*shape.grid, *shape.block, shape.shared_bytes)
        check(
            cu.cuLaunchKernel(function, *extents, _current(stream), arguments, 0),
            f"launching {kernel.name} with grid {shape.grid}, block {shape.block}",
        )

    def resident_blocks(self, build: ExtensionBuild, kernel: Launchable, threads: int, shared_bytes: int) -> int:
        """Return the number of blocks that one multiprocessor can hold at a time."""
        return resident_blocks(build, kernel, threads, shared_bytes)

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Set bytes of device memory."""
        check(cu.cuMemsetD8Async(address, value & 0xFF, nbytes, _current(stream)), "setting device memory")

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes from device to device."""
        check(cu.cuMemcpyDtoDAsync(to, source, nbytes, _current(stream)), "copying device memory")

    def _function(self, build: ExtensionBuild, kernel: Launchable) -> tuple[object, tuple[int, ...]]:
        key = (build.digest, kernel.entry)
        if key not in self._functions:
            binary = build.binary
            assert binary is not None, "a library without machine code has no kernels"
            if build.digest not in self._modules:
                self._modules[build.digest] = check(cu.cuModuleLoadData(binary.cubin), "loading the compiled kernels")
            module = self._modules[build.digest]
            function = check(cu.cuModuleGetFunction(module, kernel.entry.encode()), f"finding {kernel.name}")
            facts = next(facts for facts in binary.kernels if facts.entry == kernel.entry)
            self._functions[key] = (function, tuple(size for _, size in facts.parameters))
        return self._functions[key]


def _current(stream: int) -> int:
    return stream or torch.cuda.current_stream().cuda_stream
