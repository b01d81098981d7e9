"""Stands in for a GPU in a worker under test: launches of a workload run on the emulator. Worker processes only.

Tensors live on the CPU. What kernels reach of them are buffers of the emulated memory, without a copy: the inputs,
what torch's factory functions made during the run, and whatever else a launch is given. CUDA launches arrive through
`module.kernel[grid, block](...)`, Triton's through a driver that takes the kernels it has compiled.
"""

import contextlib
import ctypes
import time
from collections import Counter
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

from torch import Tensor

from kernel_lsp.build.binary import Binary
from kernel_lsp.build.emulated import emulated_archs
from kernel_lsp.build.host.record import ExtensionBuild, Launchable
from kernel_lsp.build.occupancy import LIMITS
from kernel_lsp.build.pretend import pretend_gpu
from kernel_lsp.device.arguments import LaunchShape, launch_shape, pack_argument, pack_arguments
from kernel_lsp.emulate.counters import Counters
from kernel_lsp.emulate.errors import EmulationError, NeedsGpu
from kernel_lsp.emulate.findings import Finding
from kernel_lsp.emulate.machine import Result, run
from kernel_lsp.emulate.memory import Buffer, GlobalMemory
from kernel_lsp.emulate.program import Location, Program
from kernel_lsp.emulate.ptx import load
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.workers.inline import packed_arguments, resident_blocks

_MOST_SHARED_BYTES = max(limits.block_shared_bytes for limits in LIMITS.values())


class Emulator:
    """The GPU of one worker. `begin` and `end` enclose a run of the workload.

    It is of the first architecture of `emulated_archs(arch)`, and of the next one from `grow` on.
    """

    def __init__(self, arch: str) -> None:
        self._archs = list(emulated_archs(arch))
        self._path: Path | None = None
        self._triton = False
        self._memory = GlobalMemory()
        self._unnamed: list[Buffer] = []
        self.results: list[Outcome] = []
        self._began = 0.0

    @contextlib.contextmanager
    def placement(self) -> Generator[None]:
        """Within it torch believes in one GPU, which is this one, and so does Triton where it is expected."""
        with pretend_gpu(self._archs[0], values=True), self._driver():
            yield

    def grow(self) -> bool:
        """Become a GPU of the next architecture, for which something may compile; whether there was one."""
        if self._triton and len(self._archs) > 1:
            del self._archs[0]
            return True
        return False

    def expect(self, path: Path, *, triton: bool) -> None:
        """What is launched comes from the file `path`, through Triton or not."""
        self._path, self._triton = path, triton

    def _driver(self) -> contextlib.AbstractContextManager[None]:
        if not self._triton:
            return contextlib.nullcontext()
        from kernel_lsp.build.triton_driver import received_by

        return received_by(self, self._archs[0], shared_bytes=_MOST_SHARED_BYTES)

    def begin(self, names: Sequence[str], inputs: Sequence[Any]) -> None:
        """Start a run on these inputs of the workload, called by these names."""
        self._memory, self._unnamed, self.results = GlobalMemory(), [], []
        self._began = time.process_time()
        for number, value in enumerate(inputs):
            if isinstance(value, Tensor) and value.numel():
                name = names[number] if number < len(names) else f"input {number}"
                self._memory.attach(name, value.data_ptr(), _span(value), initialised=True, owner=value)

    def end(self) -> dict[str, Any]:
        """What the run's launches did: the fields of `judge.emulation.EmulatedRun` that a worker knows."""
        return {
            "findings": self._findings(),
            "counters": self._counters(),
            "totals": self._totals(),
            "seconds": sum(outcome.seconds for outcome in self.results) or time.process_time() - self._began,
        }

    def module(
        self, binary: Binary, types: dict[str, tuple[str, ...]], names: dict[str, tuple[str, ...]]
    ) -> "EmulatedModule":
        """The kernels of a compiled CUDA file."""
        return EmulatedModule(self, binary, types, names)

    # What torch does to memory: see `allocations.Listener`.

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Make a buffer of what a factory function made."""
        if tensor.numel():
            made = (tensor.data_ptr(), _span(tensor))
            self._unnamed.append(self._memory.attach("scratch", *made, initialised=initialised, owner=tensor))

    def written(self, tensor: Tensor) -> None:
        """Take note that torch has written to a tensor."""
        buffer = self._memory.find(tensor.data_ptr()) if tensor.numel() else None
        if buffer is not None:
            buffer.initialise(tensor.data_ptr() - buffer.address, _span(tensor))

    # What host code reaches: see `EmulatedLaunches`.

    def reach(self, tensor: Tensor) -> None:
        """Make sure that a tensor lies in a buffer."""
        if tensor.numel() and self._memory.find(tensor.data_ptr()) is None:  # the result of an operation of torch's
            storage = tensor.untyped_storage()
            made = (storage.data_ptr(), storage.nbytes())
            self._unnamed.append(self._memory.attach("scratch", *made, initialised=True, owner=tensor))

    def name(self, address: int, name: str) -> None:
        """Name the buffer at an address by the first parameter that it is passed as."""
        buffer = self._memory.find(address)
        if buffer is not None and buffer in self._unnamed:
            buffer.name = name
            self._unnamed.remove(buffer)

    def inside(self, address: int, nbytes: int) -> Buffer:
        """The buffer that holds these bytes.

        Raises:
            WorkloadError: none holds all of them.
        """
        buffer = self._memory.find(address)
        if buffer is None or address + nbytes > buffer.end:
            raise WorkloadError(f"host code copies or sets {nbytes} bytes that do not all lie in one tensor")
        return buffer

    def write(self, address: int, nbytes: int) -> None:
        """Take note that host code writes these bytes; raises as `inside`."""
        buffer = self.inside(address, nbytes)
        buffer.initialise(address - buffer.address, nbytes)

    # What Triton compiles and launches: see `triton_driver.Receiver`.

    def load(self, symbol: str, cubin: bytes) -> "_TritonKernel":
        """Take in a compiled kernel."""
        return _TritonKernel(symbol)

    def loaded(self, kernel: "_TritonKernel", ptx: str | None) -> None:
        """Take in its PTX."""
        kernel.ptx = ptx or ""

    def benchmark(self, call: Callable[[], object]) -> None:
        """Take the autotuner's first configuration, for none can be timed."""

    def launch(
        self, source: Any, metadata: Any, kernel: "_TritonKernel", grid: tuple[int, int, int], arguments: Sequence[Any]
    ) -> None:
        """Run a Triton kernel."""
        if not all(grid):
            return  # Triton skips it too
        program, name = read_program(kernel.ptx), source.fn.__name__
        kinds = source.signature.values()
        named = [
            (parameter, value)
            for parameter, kind, argument in zip(source.fn.arg_names, kinds, arguments, strict=True)
            for value in _values(kind, argument)
        ]
        sizes = [parameter.size for parameter in program.functions[kernel.symbol].parameters]
        # Past those of the function come pointers to scratch memory, null where the kernel asks for none.
        scratch = (metadata.global_scratch_size, getattr(metadata, "profile_scratch_size", 0))
        if any(scratch):
            raise NeedsGpu("scratch memory of a Triton kernel")
        named += [("", None)] * (len(sizes) - len(named))
        packed = [
            pack_argument(0 if value is None else value, size, "", f"`{name}` argument `{parameter}`")
            for (parameter, value), size in zip(named, sizes, strict=True)
        ]
        shape = LaunchShape(grid, (32 * metadata.num_warps, 1, 1), metadata.shared)
        self.run(Emulated(kernel.ptx, kernel.symbol, name, shape, tuple(packed), tuple(named)))

    def run(self, launch: "Emulated") -> None:
        """Run one launch."""
        for parameter, value in launch.arguments:
            if isinstance(value, Tensor) and value.numel():
                self.reach(value)
                self.name(value.data_ptr(), parameter)
        program, shape = read_program(launch.ptx), launch.shape
        function = program.functions[launch.entry]
        parameters = bytearray(function.parameter_bytes)
        for parameter, data in zip(function.parameters, launch.packed, strict=True):
            offset = function.parameter_offsets[parameter.name]
            parameters[offset : offset + len(data)] = data
        started = time.process_time()
        try:
            result = run(
                program, launch.entry, shape.grid, shape.block, shape.shared_bytes, bytes(parameters), self._memory
            )
        except NeedsGpu as error:
            place = None if error.path is None or error.line is None else Location(str(error.path), error.line)
            path, line = self._place(place)
            raise CannotJudgeError(error.message, Path(path) if path else None, line or None, error.cure) from error
        except EmulationError as error:
            raise WorkloadError(f"launching `{launch.name}`: {error.message}") from error
        self.results.append(Outcome(launch.name, result, time.process_time() - started))

    def _place(self, location: Location | None) -> tuple[str, int]:
        """The place in the user's file that code comes from, else the place itself."""
        if location is None:
            return "", 0
        here = (location.within(self._path) if self._path else None) or location
        return here.file, here.line

    def _findings(self) -> list[dict[str, Any]]:
        found: dict[tuple[object, ...], dict[str, Any]] = {}
        for outcome in self.results:
            for finding in outcome.result.findings:
                path, line = self._place(finding.location)
                at = finding.location.within(path) if finding.location else None
                key = (finding.kind, path, line, outcome.kernel, finding.space, finding.access, finding.buffer)
                if key in found:
                    found[key]["count"] += finding.count
                    continue
                found[key] = {
                    "kind": finding.kind.value,
                    "message": finding.message,
                    "path": path,
                    "line": line,
                    "kernel": outcome.kernel,
                    "column": (at.column or None) if at else None,
                    "space": finding.space,
                    "access": finding.access,
                    "values": _values_of(finding),
                    "other": self._place(finding.other) if finding.other else None,
                    "count": finding.count,
                }
        return list(found.values())

    def _counters(self) -> list[dict[str, Any]]:
        lines: dict[tuple[str, str, int], Counters] = {}
        for outcome in self.results:
            for location, counters in outcome.result.counters.lines.items():
                lines.setdefault((outcome.kernel, *self._place(location)), Counters()).add(counters)
        return [
            {"kernel": kernel, "path": path, "line": line} | asdict(counters)
            for (kernel, path, line), counters in sorted(lines.items())
        ]

    def _totals(self) -> list[dict[str, Any]]:
        totals: dict[str, dict[str, Any]] = {}
        for outcome in self.results:
            result = outcome.result
            total = totals.setdefault(
                outcome.kernel,
                {"kernel": outcome.kernel, "launches": 0, "blocks": 0, "opcodes": Counter[str](), "approximate": False}
                | {"least_bytes_read": 0, "least_bytes_written": 0},
            )
            total["launches"] += 1
            total["blocks"] += result.blocks
            total["opcodes"].update(result.counters.opcodes)
            total["approximate"] |= result.approximate
            total["least_bytes_read"] += result.counters.least_bytes_read
            total["least_bytes_written"] += result.counters.least_bytes_written
        return list(totals.values())


@dataclass(frozen=True, slots=True)
class Emulated:
    """One launch: the kernel `entry` of `ptx`, called `name` by the user, with arguments by the parameters' names."""

    ptx: str
    entry: str
    name: str
    shape: LaunchShape
    packed: tuple[bytes, ...]
    arguments: tuple[tuple[str, Any], ...]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one launch: the kernel's name, what the machine says of it, and processor seconds."""

    kernel: str
    result: Result
    seconds: float


@dataclass(eq=False, slots=True)
class _TritonKernel:
    """What stands for a loaded kernel: Triton hands it to the launch."""

    symbol: str
    ptx: str = ""


class EmulatedModule:
    """A compiled CUDA file, launched as `driver.LoadedModule` is: `module.name[grid, block](...)`."""

    def __init__(
        self,
        emulator: Emulator,
        binary: Binary,
        types: dict[str, tuple[str, ...]],
        names: dict[str, tuple[str, ...]],
    ) -> None:
        if binary.ptx is None:
            raise CannotJudgeError("the compiler gave no PTX, so that only a GPU can run the kernel")
        self._emulator, self._binary, self._types, self._names = emulator, binary, types, names
        self._ptx = binary.ptx

    def __getitem__(self, name: str) -> "_EmulatedKernel":
        entry = self._binary.entries.get(name)
        if entry is None:
            known = ", ".join(sorted(self._binary.entries)) or "none"
            raise WorkloadError(f"`launch` asks for a kernel `{name}` that the file does not have (it has: {known})")
        plain = name.split("<")[0]
        types, names = (table.get(name) or table.get(plain, ()) for table in (self._types, self._names))
        return _EmulatedKernel(self._emulator, self._ptx, entry, name, types, names)

    def __getattr__(self, name: str) -> "_EmulatedKernel":
        if name.startswith("_"):
            raise AttributeError(name)
        return self[name]


@dataclass(frozen=True, slots=True)
class _EmulatedKernel:
    emulator: Emulator
    ptx: str
    entry: str
    name: str
    types: tuple[str, ...]
    names: tuple[str, ...]

    def __getitem__(self, shape: Any) -> Callable[..., None]:
        made = launch_shape(shape, self.name)

        def launch(*arguments: Any) -> None:
            sizes = [parameter.size for parameter in read_program(self.ptx).functions[self.entry].parameters]
            packed = pack_arguments(self.name, arguments, sizes, self.types)
            names = (*self.names, *(f"argument {number}" for number in range(len(self.names), len(arguments))))
            named = tuple(zip(names, arguments, strict=False))
            self.emulator.run(Emulated(self.ptx, self.entry, self.name, made, tuple(packed), named))

        return launch


class EmulatedLaunches:
    """The emulated GPU as the host library of an extension uses it: see `inline.Launches`."""

    def __init__(self, emulator: Emulator) -> None:
        self._emulator = emulator

    def pointer(self, tensor: Tensor) -> int:
        """The address of a tensor, which lies in a buffer from now on."""
        self._emulator.reach(tensor)
        return tensor.data_ptr()

    def launch(
        self, build: ExtensionBuild, kernel: Launchable, shape: LaunchShape, stream: int, arguments: int
    ) -> None:
        """Run a kernel of an extension."""
        if build.binary is None or build.binary.ptx is None:
            raise CannotJudgeError("the compiler gave no PTX, so that only a GPU can run the kernel")
        ptx = build.binary.ptx
        sizes = [parameter.size for parameter in read_program(ptx).functions[kernel.entry].parameters]
        packed = packed_arguments(arguments, sizes)
        for name, data in zip(kernel.parameters, packed, strict=False):
            if len(data) == 8:
                self._emulator.name(int.from_bytes(data, "little"), name)
        self._emulator.run(Emulated(ptx, kernel.entry, kernel.name, shape, tuple(packed), ()))

    def resident_blocks(self, build: ExtensionBuild, kernel: Launchable, threads: int, shared_bytes: int) -> int:
        """Blocks that one multiprocessor holds at a time."""
        return resident_blocks(build, kernel, threads, shared_bytes)

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Set bytes of a tensor."""
        if nbytes:
            self._emulator.write(address, nbytes)
            ctypes.memset(address, value, nbytes)

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes from tensor to tensor."""
        if nbytes:
            self._emulator.inside(source, nbytes)
            self._emulator.write(to, nbytes)
            ctypes.memmove(to, source, nbytes)


@lru_cache(maxsize=32)
def read_program(ptx: str) -> Program:
    """The program in PTX text, read once."""
    return load(ptx)


def _values(kind: Any, argument: Any) -> Generator[Any]:
    """The machine's arguments for one of a Triton function's; none for what is known at compile time."""
    if kind == "constexpr":
        return
    if isinstance(kind, tuple):
        for one, value in zip(kind, argument, strict=True):
            yield from _values(one, value)
    elif kind.startswith("tensordesc"):  # before sm_90 the compiler takes it apart; shape and strides come twice
        flags = (argument.padding == "nan", getattr(argument, "round_f32_to_tf32", False))
        yield from (argument.base, *argument.shape, *argument.strides, *flags, *argument.shape, *argument.strides)
    else:
        yield float(argument) if kind.startswith(("fp", "bf")) else argument


def _values_of(finding: Finding) -> dict[str, int | str]:
    """The values of a finding that are known, a thread or block as `(0, 1, 0)`."""
    known = {name: getattr(finding, name) for name in ("buffer", "address", "index", "size", "thread", "block")}
    return {name: str(v) if isinstance(v, tuple) else v for name, v in known.items() if v is not None}


def _span(tensor: Tensor) -> int:
    """Bytes from the first element of a tensor to its last."""
    if not tensor.numel():
        return 0
    reach = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    return reach * tensor.itemsize
