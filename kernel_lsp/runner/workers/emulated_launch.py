"""One launch as input of the emulator, from CUDA or from Triton. Worker processes only."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import cast

from kernel_lsp.compiler.launchers import Kind, TensorDescriptor, TritonMetadata, TritonSource
from kernel_lsp.device.arguments import LaunchShape, pack_argument
from kernel_lsp.emulate.errors import NeedsGpu, internal
from kernel_lsp.emulate.program import Program
from kernel_lsp.emulate.ptx import load
from kernel_lsp.errors import KernelLspError


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


def triton_launch(
    source: TritonSource,
    metadata: TritonMetadata,
    kernel: TritonKernel,
    grid: tuple[int, int, int],
    arguments: Sequence[object],
) -> Emulated:
    """Return a launch that Triton makes, as input of the emulator.

    Raises:
        NeedsGpu: the kernel asks for scratch memory.
        WorkloadError: an argument cannot be what the kernel reads.
    """
    program, name = read_program(kernel.ptx), source.fn.__name__
    kinds = source.signature.values()
    named = [
        (parameter, value)
        for parameter, kind, argument in zip(source.fn.arg_names, kinds, arguments, strict=True)
        for value in _values(kind, argument)
    ]
    sizes = [parameter.size for parameter in program.functions[kernel.symbol].parameters]
    # Pointers to scratch memory follow the function's parameters, null where the kernel needs none.
    scratch = (metadata.global_scratch_size, getattr(metadata, "profile_scratch_size", 0))
    if any(scratch):
        raise NeedsGpu("scratch memory of a Triton kernel")
    named += [("", None)] * (len(sizes) - len(named))
    packed = [
        pack_argument(0 if value is None else value, size, "", f"`{name}` argument `{parameter}`")
        for (parameter, value), size in zip(named, sizes, strict=True)
    ]
    shape = LaunchShape(grid, (32 * metadata.num_warps, 1, 1), metadata.shared)
    return Emulated(kernel.ptx, kernel.symbol, name, shape, tuple(packed), tuple(named))


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


def _values(kind: Kind, argument: object) -> Generator[object]:
    """Yield the machine's arguments for one argument of a Triton function; none for a compile-time constant."""
    if kind == "constexpr":
        return
    if isinstance(kind, tuple):
        for one, value in zip(kind, cast(Sequence[object], argument), strict=True):
            yield from _values(one, value)
    elif kind.startswith("tensordesc"):  # before sm_90 it is passed in parts, with shape and strides twice
        read = cast(TensorDescriptor, argument)
        flags = (read.padding == "nan", getattr(read, "round_f32_to_tf32", False))
        yield from (read.base, *read.shape, *read.strides, *flags, *read.shape, *read.strides)
    else:
        yield float(cast(float, argument)) if kind.startswith(("fp", "bf")) else argument
