"""One launch as input of the emulator, from CUDA or from Triton. Worker processes only."""

from collections.abc import Generator, Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from math import prod
from typing import cast

from torch import Tensor

from kernel_lsp.compiler.triton.launchers import Kind, TensorDescriptor, TritonMetadata, TritonSource
from kernel_lsp.device.arguments import LaunchShape, pack_argument
from kernel_lsp.emulate.errors import NeedsGpu, internal
from kernel_lsp.emulate.program import Program
from kernel_lsp.emulate.ptx import load
from kernel_lsp.emulate.tensormap import TensorMap
from kernel_lsp.errors import KernelLspError
from kernel_lsp.runner.workers.triton_maps import TritonMap, tensor_map


@dataclass(frozen=True, slots=True)
class Emulated:
    """One launch: the kernel `entry` of `ptx`, called `name` by the user, with its arguments by parameter name."""

    ptx: str
    entry: str
    name: str
    shape: LaunchShape
    packed: tuple[bytes, ...]
    arguments: tuple[tuple[str, object], ...]

    def parameter_block(self) -> bytes:
        """Return the arguments as they lie in the kernel's parameter space, each at its offset."""
        function = read_program(self.ptx).functions[self.entry]
        block = bytearray(function.parameter_bytes)
        for parameter, data in zip(function.parameters, self.packed, strict=True):
            offset = function.parameter_offsets[parameter.name]
            block[offset : offset + len(data)] = data
        return bytes(block)


@dataclass(eq=False, slots=True)
class TritonKernel:
    """A kernel that Triton has compiled; the launch receives it."""

    symbol: str
    ptx: str = ""


@dataclass(frozen=True, slots=True)
class _Map:
    """The map through which a kernel reads a tensor."""

    map: TensorMap
    base: Tensor


def triton_launch(
    source: TritonSource,
    metadata: TritonMetadata,
    kernel: TritonKernel,
    grid: tuple[int, int, int],
    arguments: Sequence[object],
) -> Emulated:
    """Return a launch that Triton makes, as input of the emulator.

    Raises:
        NeedsGpu: the kernel asks for memory to profile itself.
        WorkloadError: an argument cannot be what the kernel reads.
    """
    program, name = read_program(kernel.ptx), source.fn.__name__
    kinds = source.signature.values()
    maps = iter(getattr(metadata, "tensordesc_meta", None) or ())
    named = [
        (parameter, value)
        for parameter, kind, argument in zip(source.fn.arg_names, kinds, arguments, strict=True)
        for value in _values(kind, argument, maps)
    ]
    sizes = [parameter.size for parameter in program.functions[kernel.symbol].parameters]
    # Pointers to scratch memory follow the function's parameters, null where the kernel needs none.
    if getattr(metadata, "profile_scratch_size", 0):
        raise NeedsGpu("scratch memory for profiling a Triton kernel")
    if metadata.global_scratch_size:
        named.append(("scratch memory", _scratch(metadata, grid)))
    named += [("", None)] * (len(sizes) - len(named))
    packed = [
        value.map.encode()
        if isinstance(value, _Map)
        else pack_argument(0 if value is None else value, size, "", f"`{name}` argument `{parameter}`")
        for (parameter, value), size in zip(named, sizes, strict=True)
    ]
    reached = tuple((parameter, value.base if isinstance(value, _Map) else value) for parameter, value in named)
    blocks = (grid[0] * getattr(metadata, "num_ctas", 1), *grid[1:])
    shape = LaunchShape(blocks, (32 * metadata.num_warps, 1, 1), metadata.shared)
    return Emulated(kernel.ptx, kernel.symbol, name, shape, tuple(packed), reached)


def _scratch(metadata: TritonMetadata, grid: tuple[int, int, int]) -> object:
    """Return memory for all blocks from the allocator that the program has given to Triton, as its launcher does.

    Raises:
        RuntimeError: the program has set none.
    """
    from triton.runtime import _allocation  # here, as CUDA's launches need no Triton

    allocate = _allocation._allocator.get()  # pyright: ignore[reportPrivateUsage]
    count = prod(grid) * getattr(metadata, "num_ctas", 1)
    return allocate(count * metadata.global_scratch_size, metadata.global_scratch_align, 0)


@lru_cache(maxsize=32)
def read_program(ptx: str) -> Program:
    """Return the program in PTX text; parsed once and cached.

    Raises:
        EmulatorFault: the text cannot be read.
    """
    try:
        return load(ptx)
    except KernelLspError:
        raise
    except Exception as error:
        raise internal(error, None) from error


def parameter_sizes(ptx: str, entry: str) -> list[int]:
    """Return the bytes of each parameter of a kernel."""
    return [parameter.size for parameter in read_program(ptx).functions[entry].parameters]


def _values(kind: Kind, argument: object, maps: Iterator[TritonMap]) -> Generator[object]:
    """Yield the machine's arguments for one argument of a Triton function; none for a compile-time constant.

    `maps` are those that the kernel reads its tensor descriptors through, in order; before sm_90 there are none.
    """
    if kind == "constexpr":
        return
    if isinstance(kind, tuple):
        for one, value in zip(kind, cast(Sequence[object], argument), strict=True):
            yield from _values(one, value, maps)
    elif kind.startswith("tensordesc"):
        read = cast(TensorDescriptor, argument)
        if (map_ := next(maps, None)) is not None:
            base = cast(Tensor, read.base)
            yield from (_Map(tensor_map(read, base, map_), base), *read.shape, *read.strides)
            return
        # Without a map it is passed in parts, with shape and strides twice.
        flags = (read.padding == "nan", getattr(read, "round_f32_to_tf32", False))
        yield from (read.base, *read.shape, *read.strides, *flags, *read.shape, *read.strides)
    else:
        yield float(cast(float, argument)) if kind.startswith(("fp", "bf")) else argument
