"""Pipelines on a GPU, and how far what they wrote is from what the emulator did."""

import ctypes
from dataclasses import dataclass

import numpy as np

from kernel_lsp.device.driver import Allocation, check, cu
from kernel_lsp.emulate.matrix.formats import values
from tests.bench.driver_maps import driver_map
from tests.bench.pipelines.pipeline import ENTRY, Array, Pipeline

_STATIC_SHARED = 48 << 10
_BITS = {1: np.uint8, 2: np.uint16, 4: np.uint32, 8: np.uint64}
_FLOATS = {"f16": 2, "bf16": 2, "f32": 4}


class Gpu:
    """The first GPU, in its primary context."""

    def __init__(self) -> None:
        check(cu.cuInit(0), "starting CUDA")
        device = check(cu.cuDeviceGet(0), "the GPU")
        check(cu.cuCtxSetCurrent(check(cu.cuDevicePrimaryCtxRetain(device), "its context")), "its context")

    def run(self, pipeline: Pipeline, cubin: bytes) -> tuple[Array, ...]:
        """Launch a pipeline; the bytes of its buffers afterwards.

        Raises:
            CudaError: a call of the driver failed, after which the context may be of no use.
        """
        module = check(cu.cuModuleLoadData(cubin), "loading it")
        function = check(cu.cuModuleGetFunction(module, ENTRY.encode()), "finding its kernel")
        if pipeline.shared > _STATIC_SHARED:
            most = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(function, most, pipeline.shared), "giving it shared memory")
        contents = [np.array(buffer.raw) for buffer in pipeline.buffers]
        places = [Allocation(content.nbytes) for content in contents]
        for place, content in zip(places, contents, strict=True):
            check(cu.cuMemcpyHtoD(place.pointer, content.ctypes.data, content.nbytes), "copying there")
        packed = [driver_map(each.at(places[each.buffer].pointer)) for each in pipeline.maps]
        packed += [place.pointer.to_bytes(8, "little") for place in places]
        arguments = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * len(arguments))(*(ctypes.addressof(argument) for argument in arguments))
        extents = (pipeline.grid, 1, 1, pipeline.threads, 1, 1, pipeline.shared)
        check(cu.cuLaunchKernel(function, *extents, 0, ctypes.addressof(pointers), 0), "launching it")
        self.finish()
        for place, content in zip(places, contents, strict=True):
            check(cu.cuMemcpyDtoH(content.ctypes.data, place.pointer, content.nbytes), "copying back")
        check(cu.cuModuleUnload(module), "unloading it")
        return tuple(contents)

    def finish(self) -> None:
        """Wait for all launches.

        Raises:
            CudaError: one of them failed.
        """
        check(cu.cuCtxSynchronize(), "running it")


@dataclass(frozen=True, slots=True)
class Difference:
    """How two contents of a buffer differ.

    Attributes:
        nbytes, other_bytes: all bytes, and those that differ.
        elements, other_elements: likewise.
        largest_ulp: of floats, the most values of their type from one to the other, plus one.
        largest_share: of floats, the largest difference beside the largest number there.
        first: the first element that differs, in words; empty if none does.
    """

    nbytes: int
    other_bytes: int
    elements: int
    other_elements: int
    largest_ulp: int
    largest_share: float
    first: str


def difference(kind: str, emulated: Array, real: Array) -> Difference:
    """Compare two contents of a buffer with elements of a type."""
    size = {"tf32": 4, "e4m3": 1, "e5m2": 1}.get(kind) or int(kind.lstrip("bfsu")) // 8
    a, b = (data[: len(data) // size * size].view(_BITS[size]) for data in (emulated, real))
    wrong, bytes_wrong = np.flatnonzero(a != b), int(np.count_nonzero(emulated != real))
    largest, share, first = 0, 0.0, ""
    if len(wrong):
        at = int(wrong[0])
        first = f"element {at}: emulator {int(a[at]):#x}, GPU {int(b[at]):#x}"
        if kind in _FLOATS:
            largest = int(np.abs(_ordered(a[wrong]) - _ordered(b[wrong])).max())
            x, y = values(kind, a), values(kind, b)
            with np.errstate(invalid="ignore"):
                apart, most = np.nanmax(np.abs(x - y), initial=0), np.nanmax(np.abs(y), initial=0)
            share = float(apart / most) if np.isfinite(apart) and 0 < most < np.inf else 1.0
    return Difference(len(emulated), bytes_wrong, len(a), len(wrong), largest, share, first)


def _ordered(bits: Array) -> Array:
    """Bits of floats as integers in the order of their values."""
    least, wide = 1 << (8 * bits.itemsize - 1), bits.astype(np.int64)
    return np.where(wide >= least, least - wide, wide)
