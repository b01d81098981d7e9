"""Tensor maps that Triton's launcher makes of tensor descriptors, for the emulator. Worker processes only.

Source: `make_tensordesc_arg` in the NVIDIA backend's `driver.py`, of Triton 3.6 and 3.7.
"""

from collections.abc import Sequence
from typing import Protocol, TypedDict

from kernel_lsp.compiler.triton.launchers import TensorDescriptor
from kernel_lsp.emulate.errors import LaunchError
from kernel_lsp.emulate.tensormap import DRIVER_TYPES, TF32, TensorMap


class TritonMap(TypedDict):
    """How a compiled kernel reads a tensor through its map; the lengths of a block are the outermost first."""

    swizzle: int
    elem_size: int
    elem_type: int
    block_size: Sequence[int]
    fp4_padded: bool


class _Addressed(Protocol):
    def data_ptr(self) -> int: ...


def tensor_map(descriptor: TensorDescriptor, base: _Addressed, read: TritonMap) -> TensorMap:
    """Return the map of a tensor descriptor for a kernel that reads it as `read`.

    Raises:
        LaunchError: the driver makes no such map.
    """
    shape, strides = ([int(str(each)) for each in values] for values in (descriptor.shape, descriptor.strides))
    if read["fp4_padded"]:
        shape[-1] *= 2
    rounds = getattr(descriptor, "round_f32_to_tf32", False)
    made = TensorMap(
        kind=TF32 if rounds else DRIVER_TYPES.get(read["elem_type"], read["elem_type"]),
        address=base.data_ptr(),
        shape=tuple(reversed(shape)),
        strides=tuple(stride * read["elem_size"] for stride in reversed(strides[:-1])),
        box=tuple(reversed(read["block_size"])),
        steps=(1,) * len(shape),
        swizzle=read["swizzle"],
        fills_with_nan=descriptor.padding == "nan",
    )
    if (fault := made.fault()) is not None:
        raise LaunchError(f"there is no tensor map for a tensor descriptor: {fault}")
    return made
