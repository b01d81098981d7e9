"""Wraps the parts of CUDA's driver interface that we use, in torch's primary context and current stream.

Worker processes only. Functions are bound here at import, before any candidate is loaded, so that code under
judgement which patches `torch.cuda` or `cuda.bindings` does not reach them.
"""

import ctypes
from collections.abc import Callable, Mapping, Sequence
from itertools import accumulate
from threading import Lock
from types import SimpleNamespace
from typing import Any, Protocol

from cuda.bindings import driver  # pyright: ignore[reportAttributeAccessIssue]

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.arguments import LaunchShape, launch_shape, missing_kernel, pack_arguments

cu: Any = SimpleNamespace(**vars(driver))
"""The bindings as they are at import."""

Listener = Callable[[bytes, str, LaunchShape, Sequence[bytes], Sequence[Any]], None]
"""Called before each launch: cubin, entry, grid and block, arguments as packed and as given."""
Ear = Callable[[str, LaunchShape], None]
"""Called before each launch without references to its memory: entry, grid and block."""


def unheard(_entry: str, _shape: LaunchShape) -> None:
    """Ignore a launch."""


class CudaError(Exception):
    """A driver call failed; `code` is CUDA's own name for it."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


def check(result: tuple[Any, ...], what: str) -> Any:
    """Return the value of a driver call.

    Raises:
        CudaError: the call failed, or an earlier launch did and this call is the first to say so.
    """
    status = result[0]
    if status != cu.CUresult.CUDA_SUCCESS:
        raise CudaError(cu.CUresult(status).name, what)
    return result[1] if len(result) == 2 else result[1:]


class _Bytes:
    """Device memory as a flat array of bytes, for `torch.as_tensor`."""

    def __init__(self, pointer: int, nbytes: int) -> None:
        self.pointer = pointer
        self.__cuda_array_interface__ = {
            "shape": (nbytes,),
            "typestr": "|u1",
            "data": (pointer, False),
            "strides": None,
            "version": 3,
        }


class Allocation(_Bytes):
    """A plain `cuMemAlloc`, outside torch's caching allocator, freed with the object."""

    def __init__(self, nbytes: int) -> None:
        super().__init__(int(check(cu.cuMemAlloc(nbytes), "allocating device memory")), nbytes)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            cu.cuMemFree(self.pointer)


class ImportedMemory(_Bytes):
    """Device memory of another process, closed with the object."""

    def __init__(self, handle: bytes, nbytes: int) -> None:
        ipc = ipc_handle(handle)
        flags = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        super().__init__(int(check(cu.cuIpcOpenMemHandle(ipc, flags), "opening another process's memory")), nbytes)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            cu.cuIpcCloseMemHandle(self.pointer)


def export_memory(pointer: int) -> bytes:
    """Return the handle under which another process can open the allocation at `pointer`."""
    return ipc_bytes(check(cu.cuIpcGetMemHandle(pointer), "sharing device memory"))


# By address, for bindings before 13.5 give its bytes a name that later ones do not have.


def ipc_handle(data: bytes) -> Any:
    """Return CUDA's handle of shared memory with these bytes."""
    handle = cu.CUipcMemHandle()
    ctypes.memmove(handle.getPtr(), data, cu.CU_IPC_HANDLE_SIZE)
    return handle


def ipc_bytes(handle: Any) -> bytes:
    """Return the bytes of CUDA's handle of shared memory."""
    return ctypes.string_at(handle.getPtr(), cu.CU_IPC_HANDLE_SIZE)


class Entry(Protocol):
    """A kernel of an image: its name there, and offset and size of each parameter."""

    @property
    def entry(self) -> str:
        """Return its name in the cubin."""
        ...

    @property
    def parameters(self) -> tuple[tuple[int, int], ...]:
        """Return offset and size of each parameter, in bytes."""
        ...


class Image(Protocol):
    """The input for loading a module: a cubin, its kernels, and launch name -> entry."""

    @property
    def cubin(self) -> bytes:
        """Return the machine code."""
        ...

    @property
    def entries(self) -> Mapping[str, str]:
        """Return launch name -> name in the cubin."""
        ...

    @property
    def kernels(self) -> Sequence[Entry]:
        """Return all kernels that can be launched."""
        ...


class LoadedModule:
    """A cubin on the GPU whose kernels are launched as `module.name[grid, block](...)` or `module["name<256>"][...]`.

    `grid` and `block` are ints or tuples; a third entry is dynamic shared memory in bytes. All `listeners` are called
    before each launch.
    """

    def __init__(
        self,
        binary: Image,
        parameter_types: dict[str, tuple[str, ...]],
        listeners: Sequence[Listener] = (),
        ear: Ear = unheard,
    ) -> None:
        self._listeners, self._ear = listeners, ear
        self._binary = binary
        self._types = parameter_types
        self._module = check(cu.cuModuleLoadData(binary.cubin), "loading the compiled kernel")
        self._kernels: dict[str, _Kernel] = {}

    def __getitem__(self, name: str) -> "_Kernel":
        if name not in self._kernels:
            entry = self._binary.entries.get(name)
            if entry is None:
                raise missing_kernel(name, self._binary.entries, self._types)
            facts = next(k for k in self._binary.kernels if k.entry == entry)
            function = check(cu.cuModuleGetFunction(self._module, entry.encode()), f"finding the kernel {name}")
            types = self._types.get(name) or self._types.get(name.split("<")[0], ())
            sizes = tuple(size for _, size in facts.parameters)
            self._kernels[name] = _Kernel(name, function, sizes, types, self._tell(entry))
        return self._kernels[name]

    def _tell(self, entry: str) -> Callable[[LaunchShape, Sequence[bytes], Sequence[Any]], None]:
        def tell(shape: LaunchShape, packed: Sequence[bytes], arguments: Sequence[Any]) -> None:
            self._ear(entry, shape)
            for listener in self._listeners:
                listener(self._binary.cubin, entry, shape, packed, arguments)

        return tell

    def __getattr__(self, name: str) -> "_Kernel":
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]


class _Kernel:
    def __init__(
        self,
        name: str,
        function: Any,
        sizes: tuple[int, ...],
        types: tuple[str, ...],
        tell: Callable[[LaunchShape, Sequence[bytes], Sequence[Any]], None],
    ) -> None:
        self._name, self._function, self._sizes, self._types, self._tell = name, function, sizes, types, tell
        self._shared = STATIC_SHARED_BYTES
        # The driver copies arguments at each launch, so that one place for them serves all.
        self._memory = ctypes.create_string_buffer(sum(sizes))
        starts = accumulate(sizes, initial=ctypes.addressof(self._memory))
        self._pointers = (ctypes.c_void_p * (len(sizes) + 1))(*starts)
        self._pointers_at = ctypes.addressof(self._pointers)
        self._filling = Lock()

    def __getitem__(self, shape: Any) -> "_Configured":
        made = launch_shape(shape, self._name)
        if made.shared_bytes > self._shared:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            status = cu.cuFuncSetAttribute(self._function, attribute, made.shared_bytes)
            check(status, f"giving {self._name} {made.shared_bytes} bytes")
            self._shared = made.shared_bytes
        return _Configured(self, made)

    def launch(self, shape: LaunchShape, arguments: Sequence[Any]) -> None:
        import torch

        packed = pack_arguments(self._name, arguments, self._sizes, self._types)
        self._tell(shape, packed, arguments)
        stream = torch.cuda.current_stream().cuda_stream
        with self._filling:
            ctypes.memmove(self._memory, b"".join(packed), len(self._memory))
            status = cu.cuLaunchKernel(
                self._function, *shape.grid, *shape.block, shape.shared_bytes, stream, self._pointers_at, 0
            )
        if status[0] != cu.CUresult.CUDA_SUCCESS:
            check(status, f"launching {self._name} with grid {shape.grid}, block {shape.block}")


class _Configured:
    def __init__(self, kernel: _Kernel, shape: LaunchShape) -> None:
        self._kernel, self._shape = kernel, shape

    def __call__(self, *arguments: Any) -> None:
        self._kernel.launch(self._shape, arguments)
