"""The little of CUDA's driver interface that we use, in torch's primary context and current stream.

Worker processes only. Functions are bound here at import, before any candidate is loaded, so that code under
judgement which patches `torch.cuda` or `cuda.bindings` does not reach them.
"""

import ctypes
import math
import re
import struct
from collections.abc import Sequence
from typing import Any

from cuda.bindings import driver as cu  # pyright: ignore[reportAttributeAccessIssue]

from kernel_lsp.build.binary import Binary
from kernel_lsp.errors import WorkloadError

_DEFAULT_SHARED_LIMIT = 48 << 10
_FLOATS = {2: "<e", 4: "<f", 8: "<d"}
_FLOATING = re.compile(r"float|double|half")
_INTEGRAL = re.compile(r"int|long|short|char|bool|size_t|unsigned|\*")
_UNSIGNED = re.compile(r"\bu|\bsize_t|bool|\*")
_VECTOR = re.compile(r"(char|short|int|long|float|double|half|bfloat16)[234]\b(?!.*\*)")


class CudaError(Exception):
    """A driver call failed; `code` is CUDA's own name for it."""

    def __init__(self, code: str, what: str) -> None:
        super().__init__(f"{what}: {code}")
        self.code = code


def check(result: tuple[Any, ...], what: str) -> Any:
    """The value of a driver call.

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
    """Device memory of another process, unmapped with the object."""

    def __init__(self, handle: bytes, nbytes: int) -> None:
        ipc = cu.CUipcMemHandle()
        ipc.reserved = handle
        flags = cu.CUipcMem_flags.CU_IPC_MEM_LAZY_ENABLE_PEER_ACCESS
        super().__init__(int(check(cu.cuIpcOpenMemHandle(ipc, flags), "opening another process's memory")), nbytes)

    def __del__(self) -> None:
        if hasattr(self, "pointer"):
            cu.cuIpcCloseMemHandle(self.pointer)


def export_memory(pointer: int) -> bytes:
    """Handle under which another process can open the allocation at `pointer`."""
    return bytes(check(cu.cuIpcGetMemHandle(pointer), "sharing device memory").reserved)


class LoadedModule:
    """A cubin on the GPU whose kernels are launched as `module.name[grid, block](...)` or `module["name<256>"][...]`.

    `grid` and `block` are ints or tuples; a third entry is dynamic shared memory in bytes.
    """

    def __init__(self, binary: Binary, parameter_types: dict[str, tuple[str, ...]]) -> None:
        self._binary = binary
        self._types = parameter_types
        self._module = check(cu.cuModuleLoadData(binary.cubin), "loading the compiled kernel")
        self._kernels: dict[str, _Kernel] = {}

    def __getitem__(self, name: str) -> "_Kernel":
        if name not in self._kernels:
            entry = self._binary.entries.get(name)
            if entry is None:
                known = ", ".join(sorted(self._binary.entries)) or "none"
                raise WorkloadError(
                    f"`launch` asks for a kernel `{name}` that the file does not have (it has: {known})"
                )
            facts = next(k for k in self._binary.kernels if k.entry == entry)
            function = check(cu.cuModuleGetFunction(self._module, entry.encode()), f"finding the kernel {name}")
            types = self._types.get(name) or self._types.get(name.split("<")[0], ())
            self._kernels[name] = _Kernel(name, function, tuple(size for _, size in facts.parameters), types)
        return self._kernels[name]

    def __getattr__(self, name: str) -> "_Kernel":
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]


class _Kernel:
    def __init__(self, name: str, function: Any, sizes: tuple[int, ...], types: tuple[str, ...]) -> None:
        self._name, self._function, self._sizes, self._types = name, function, sizes, types
        self._shared = _DEFAULT_SHARED_LIMIT

    def __getitem__(self, shape: Any) -> "_Configured":
        if not isinstance(shape, tuple) or len(shape) not in (2, 3):
            raise WorkloadError(f"launch `{self._name}` as `module.{self._name}[grid, block](...)`")
        shared = int(shape[2]) if len(shape) == 3 else 0
        if shared > self._shared:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(self._function, attribute, shared), f"giving {self._name} {shared} bytes")
            self._shared = shared
        return _Configured(self, _three(shape[0]), _three(shape[1]), shared)

    def launch(self, grid: Sequence[int], block: Sequence[int], shared: int, arguments: Sequence[Any]) -> None:
        import torch

        if len(arguments) != len(self._sizes):
            raise WorkloadError(f"`{self._name}` takes {len(self._sizes)} arguments, `launch` gives {len(arguments)}")
        packed = [
            pack_argument(value, size, self._types[i] if i < len(self._types) else "", f"`{self._name}` argument {i}")
            for i, (value, size) in enumerate(zip(arguments, self._sizes, strict=True))
        ]
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(b) for b in buffers))
        stream = torch.cuda.current_stream().cuda_stream
        check(
            cu.cuLaunchKernel(self._function, *grid, *block, shared, stream, ctypes.addressof(pointers), 0),
            f"launching {self._name} with grid {tuple(grid)}, block {tuple(block)}",
        )


class _Configured:
    def __init__(self, kernel: _Kernel, grid: tuple[int, ...], block: tuple[int, ...], shared: int) -> None:
        self._kernel, self._grid, self._block, self._shared = kernel, grid, block, shared

    def __call__(self, *arguments: Any) -> None:
        self._kernel.launch(self._grid, self._block, self._shared, arguments)


def pack_argument(value: Any, size: int, declared: str, what: str) -> bytes:
    """One kernel argument as the `size` bytes the compiled kernel reads; `declared` is its type in the source.

    A tensor passes its address. A Python number takes the parameter's size; the declared type decides between signed,
    unsigned and floating point, and where a template hides it, the Python type does. For a pointer, a number is an
    address. A numpy scalar passes its own bytes.

    Raises:
        WorkloadError: the value cannot be what the kernel reads.
    """
    if hasattr(value, "data_ptr"):
        return _sized(struct.pack("<Q", value.data_ptr()), size, what, "a tensor")
    if hasattr(value, "tobytes") and hasattr(value, "dtype"):
        return _sized(value.tobytes(), size, what, f"a {value.dtype} scalar")
    if not isinstance(value, (bool, int, float)):
        raise WorkloadError(f"{what} is a {type(value).__name__}; pass a tensor, a number or a numpy scalar")
    if _VECTOR.search(declared):
        raise WorkloadError(f"{what} is the number {value}, but the kernel declares `{declared.strip()}`")
    floating = bool(_FLOATING.search(declared)) and "*" not in declared
    integral = not floating and bool(_INTEGRAL.search(declared))
    if isinstance(value, float) and integral:
        raise WorkloadError(f"{what} is the float {value}, but the kernel declares `{declared.strip()}`")
    try:
        if floating or isinstance(value, float):
            if size not in _FLOATS:
                raise WorkloadError(f"{what} is a float, but the kernel reads {size} bytes there")
            number = float(value)
            return _bfloat16(number) if "bfloat16" in declared and size == 2 else struct.pack(_FLOATS[size], number)
        if "bool" in declared:
            value = bool(value)
        signed = not _UNSIGNED.search(declared) if integral else value < 0
        return int(value).to_bytes(size, "little", signed=signed)
    except OverflowError:
        raise WorkloadError(f"{what} is {value}, which does not fit the {size} bytes the kernel reads") from None


def _bfloat16(value: float) -> bytes:
    """Rounded to nearest, ties to even."""
    (bits,) = struct.unpack("<I", struct.pack("<f", value))
    if math.isfinite(value):
        bits += 0x7FFF + (bits >> 16 & 1)
        if bits & 0x7F80_0000 == 0x7F80_0000:
            raise OverflowError
    return struct.pack("<I", bits)[2:]


def _sized(data: bytes, size: int, what: str, kind: str) -> bytes:
    if len(data) != size:
        raise WorkloadError(f"{what} is {kind} of {len(data)} bytes, but the kernel reads {size} bytes there")
    return data


def _three(shape: Any) -> tuple[int, int, int]:
    extents = tuple(int(e) for e in shape) if isinstance(shape, (tuple, list)) else (int(shape),)
    if not 1 <= len(extents) <= 3:
        raise WorkloadError(f"a grid or block has one to three extents, not {len(extents)}")
    return (*extents, 1, 1)[:3]  # type: ignore[return-value]
