"""Memory shared by two runner processes: the one that runs a kernel and the one that knows the right results.

A buffer is one allocation, on the GPU (shared through CUDA's inter-process handles) or, for emulated kernels, in an
anonymous file, which ends with the processes that hold it. Tensors lie in it between guard regions of 0xFF bytes: NaN
in every floating-point type, so that a read past an end shows in the result, and a write past an end shows in the
guard. Worker processes only.
"""

import mmap
import os
from collections.abc import Sequence
from io import FileIO
from pathlib import Path

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.device.tensors import Argument, BufferHandle, TensorSpec

_ALIGNMENT = 512
_GRANULE = 2 << 20  # CUDA carves smaller allocations out of shared blocks, which must not be passed between processes


def torch_dtype(name: str) -> torch.dtype:
    """Return `torch.float32` for `float32`."""
    return getattr(torch, name)


def as_argument(constant: bool | int | float | str | torch.dtype | None) -> Argument:
    """Return a constant among a workload's inputs in a form that other processes can hold."""
    return (dtype_name(constant),) if isinstance(constant, torch.dtype) else constant


def constant_of(argument: Argument) -> object:
    """Return the constant that `as_argument` encoded."""
    return torch_dtype(argument[0]) if isinstance(argument, tuple) else argument


def dtype_name(dtype: torch.dtype) -> str:
    """Return `float32` for `torch.float32`."""
    return str(dtype).removeprefix("torch.")


def lay_out(
    tensors: Sequence[tuple[torch.dtype, Sequence[int], Sequence[int]]],
    *,
    shifted: bool = False,
    strided: bool = False,
    padded: bool = False,
    misaligned: int = 0,
) -> tuple[tuple[TensorSpec, ...], int]:
    """Return places for tensors of (dtype, shape, stride) in one buffer, guards between them, and its size in bytes.

    Args:
        tensors: in order.
        shifted: each tensor starts one element past its alignment.
        strided: every stride is doubled, so that only every second element of the memory belongs to a tensor.
        padded: rows lie apart, each one contiguous.
        misaligned: number of the one tensor, from 1, that starts half a vector past its alignment; 0 for none.
    """
    specs: list[TensorSpec] = []
    at = policy.GUARD_BYTES
    for number, (dtype, shape, stride) in enumerate(tensors, 1):
        steps = tuple(2 * step for step in stride) if strided else tuple(stride)
        steps = _with_rows_apart(shape, steps) if padded else steps
        reach = sum((extent - 1) * step for extent, step in zip(shape, steps, strict=True)) + 1 if all(shape) else 0
        offset = at + (dtype.itemsize if shifted else 0)
        if number == misaligned:
            offset += max(dtype.itemsize, policy.MISALIGNED_BYTES)
        span = reach * dtype.itemsize
        specs.append(TensorSpec(dtype_name(dtype), tuple(shape), steps, offset, span))
        at = -(-(offset + span + policy.GUARD_BYTES) // _ALIGNMENT) * _ALIGNMENT
    return tuple(specs), at


def _with_rows_apart(shape: Sequence[int], stride: Sequence[int]) -> tuple[int, ...]:
    """Return strides with padding after each row, which runs along the dimension with stride 1.

    Tensors without rows keep theirs: of one dimension, or where other strides are no multiples of a row.
    """
    row = next((extent for extent, step in zip(shape, stride, strict=True) if step == 1 and extent > 1), 0)
    outer = [step for extent, step in zip(shape, stride, strict=True) if step > 1 and extent > 1]
    if not row or not outer or any(step % row for step in outer):
        return tuple(stride)
    return tuple(step // row * (row + policy.ROW_PADDING_ELEMENTS) if step >= row else step for step in stride)


def row_major(tensor: Tensor, offset: int) -> TensorSpec:
    """Return the place in a buffer of a row-major copy of `tensor`."""
    stride = torch.empty(tensor.shape, device="meta").stride()
    return TensorSpec(dtype_name(tensor.dtype), tuple(tensor.shape), stride, offset, tensor.numel() * tensor.itemsize)


class SharedBuffer:
    """One shared allocation, as a flat tensor of bytes. The maker of a GPU buffer must outlive its users' access."""

    def __init__(self, data: Tensor, handle: BufferHandle, keep: object = None) -> None:
        self.data, self.handle = data, handle
        self._keep = keep

    def view(self, spec: TensorSpec) -> Tensor:
        """Return the tensor that lies at `spec`."""
        dtype = torch_dtype(spec.dtype)
        flat = self.data[spec.offset : spec.offset + max(spec.span, 0)].view(dtype)
        return flat.as_strided(spec.shape, spec.stride) if spec.span else flat.reshape(spec.shape)

    def poison(self, besides: Sequence[TensorSpec] = ()) -> None:
        """Fill everything with 0xFF, except tensors `besides` that will be filled whole: without gaps, in order."""
        at = 0
        for spec in besides:
            if self.view(spec).is_contiguous():
                self.data[at : spec.offset].fill_(policy.POISON_BYTE)
                at = spec.offset + spec.span
        self.data[at:].fill_(policy.POISON_BYTE)


def give_back(*, whatever: bool = False) -> None:
    """Release freed memory that torch keeps, if the GPU has little free memory or `whatever` is set.

    Other processes share this GPU.
    """
    if not whatever:
        free, total = torch.cuda.mem_get_info()
        if free >= policy.SHORT_MEMORY_SHARE * total:
            return
    torch.cuda.empty_cache()


def make_buffer(nbytes: int, device: str) -> SharedBuffer:
    """Return a fresh buffer on `cuda` or `cpu`.

    Raises:
        CudaError: the GPU has no room for it.
    """
    if device == "cpu":
        file = os.fdopen(os.memfd_create("kernel-lsp"), "r+b", buffering=0)
        file.truncate(max(nbytes, 1))
        return _map_file(file, BufferHandle(nbytes, file=f"/proc/{os.getpid()}/fd/{file.fileno()}"))
    from kernel_lsp.device import driver

    nbytes = -(-nbytes // _GRANULE) * _GRANULE
    allocation = driver.Allocation(nbytes)
    handle = BufferHandle(nbytes, ipc=driver.export_memory(allocation.pointer))
    return SharedBuffer(torch.as_tensor(allocation, device="cuda"), handle, allocation)


def open_buffer(handle: BufferHandle) -> SharedBuffer:
    """Return a buffer that another process made and still holds."""
    if handle.file:
        with Path(handle.file).open("r+b", buffering=0) as file:
            return _map_file(file, handle)
    from kernel_lsp.device import driver

    imported = driver.ImportedMemory(handle.ipc, handle.nbytes)
    return SharedBuffer(torch.as_tensor(imported, device="cuda"), handle, imported)


def _map_file(file: FileIO, handle: BufferHandle) -> SharedBuffer:
    mapped = mmap.mmap(file.fileno(), 0)
    return SharedBuffer(torch.frombuffer(mapped, dtype=torch.uint8), handle, (mapped, file))
