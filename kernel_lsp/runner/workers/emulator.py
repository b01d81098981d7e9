"""Stand in for a GPU in a worker under test: a workload's launches run on the emulator. Worker processes only.

Tensors live on the CPU. CUDA launches arrive through `module.kernel[grid, block](...)`, Triton's through a driver that
takes the kernels it has compiled, those of extensions through their host library.
"""

import contextlib
import ctypes
import secrets
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import asdict, dataclass, replace
from math import prod
from pathlib import Path

import msgspec
from torch import Tensor

from kernel_lsp.compiler.builds.extension import ExtensionBuild, Launchable
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.fakes.shortfall import shortfall
from kernel_lsp.compiler.fakes.streams import capturing
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.toolchain.emulated import STANDS_IN, emulated_devices
from kernel_lsp.compiler.triton.launchers import TritonMetadata, TritonSource
from kernel_lsp.device.architectures import ARCHITECTURES
from kernel_lsp.device.arguments import LaunchShape, launch_shape, missing_kernel, pack_arguments
from kernel_lsp.device.device import Device
from kernel_lsp.emulate.errors import LaunchError, Unfinished, internal
from kernel_lsp.emulate.machine import Options, run
from kernel_lsp.emulate.program import Location
from kernel_lsp.emulate.sampling import BlockSample
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.emulated import EmulatedReport, SampledLaunch, SampledRun
from kernel_lsp.runner.workers.emulated_launch import (
    Emulated,
    TritonKernel,
    parameter_sizes,
    read_program,
    triton_launch,
)
from kernel_lsp.runner.workers.emulated_memory import EmulatedMemory
from kernel_lsp.runner.workers.emulated_report import LaunchOutcome, place, report
from kernel_lsp.runner.workers.inline import packed_arguments, resident_blocks
from kernel_lsp.runner.workers.unfilled import Unfilled
from kernel_lsp.workload.host_tensors import HostTensors

_MOST_SHARED_BYTES = max(limits.block_shared_bytes for limits in ARCHITECTURES.values())


def read_device(data: bytes) -> Device:
    """Return the `Device` that `data` holds as msgpack; the default device if it is empty."""
    return msgspec.msgpack.decode(data, type=Device) if data else STANDS_IN


class Emulator:
    """The GPU of one worker. `begin` and `end` enclose a run of the workload; `sample` does both itself.

    It is the first of `emulated_devices(device)`; each call of `grow` moves to the next.

    Attributes:
        host_tensors: what no launch may be given, of what is made while this mode is active.
    """

    def __init__(self, device: Device) -> None:
        self._devices = list(emulated_devices(device))
        self._path: Path | None = None
        self._triton = False
        self.host_tensors = HostTensors()
        self._order = secrets.randbits(32)  # of blocks, which goes backwards in every other run
        self.begin((), ())

    @contextlib.contextmanager
    def placement(self) -> Generator[None]:
        """Make torch, and Triton where expected, see one GPU in this block, which is this one."""
        with fake_gpu(self._devices[0], values=True), self._driver():
            yield

    def grow(self) -> bool:
        """Become a GPU of the next architecture, for which more code may compile; return False if there is none."""
        if self._triton and len(self._devices) > 1:
            del self._devices[0]
            return True
        return False

    def expect(self, path: Path, *, triton: bool) -> None:
        """Set the file that later launches come from, and whether they come through Triton."""
        self._path, self._triton = path, triton

    def _driver(self) -> contextlib.AbstractContextManager[None]:
        if not self._triton:
            return contextlib.nullcontext()
        from kernel_lsp.compiler.triton.driver import received_by

        later = len(self._devices) > 1
        return received_by(self, self._devices[0], shared_bytes=_MOST_SHARED_BYTES, prefer_later=later)

    def begin(self, names: Sequence[str], inputs: Sequence[object], sample: BlockSample | None = None) -> None:
        """Start a run on these inputs of the workload, by name; with `sample`, of a sample of each launch's blocks."""
        self.memory = EmulatedMemory(names, inputs)
        self._largest = max((value.numel() for value in inputs if isinstance(value, Tensor)), default=0)
        self.results: list[LaunchOutcome] = []
        self._sample, self._sampled = sample, list[SampledLaunch]()
        self._refused: CannotJudgeError | None = None
        self._order ^= 1
        self._began = time.process_time()

    def end(self) -> dict[str, object]:
        """Return the report as plain data; raises as `report`."""
        return asdict(self.report())

    def report(self, computed: Sequence[tuple[str, int]] = ()) -> EmulatedReport:
        """Return the report on the run's launches, and on the operations by which torch has `computed` in it.

        Each comes with its elements. Those of less than half of the largest input prepare launches, and are left out.

        Raises:
            CannotJudgeError: one of them could not be emulated, though the user's code caught the error.
        """
        if self._refused is not None:
            raise self._refused
        others = tuple(dict.fromkeys(name for name, elements in computed if 2 * elements >= self._largest))
        return replace(report(self.results, self._path, self._seconds()), computed=others)

    def _seconds(self) -> float:
        return sum(outcome.seconds for outcome in self.results) or time.process_time() - self._began

    def module(
        self, binary: Binary, types: dict[str, tuple[str, ...]], names: dict[str, tuple[str, ...]]
    ) -> "EmulatedModule":
        """Return the kernels of a compiled CUDA file."""
        return EmulatedModule(self, binary, types, names)

    # What torch does to memory: see `allocations.Listener`.

    def allocated(self, tensor: Tensor, initialised: bool) -> None:
        """Make a buffer for a tensor from a factory function."""
        self.memory.allocated(tensor, initialised)

    def written(self, tensor: Tensor) -> None:
        """Note that torch has written to a tensor."""
        self.memory.written(tensor)

    # What Triton compiles and launches: see `triton_driver.Receiver`.

    def load(self, symbol: str, cubin: bytes) -> TritonKernel:
        """Return a handle for a compiled kernel."""
        return TritonKernel(symbol)

    def loaded(self, kernel: TritonKernel, ptx: str | None, ttgir: str | None) -> None:
        """Store the kernel's PTX, which is what runs."""
        kernel.ptx = ptx or ""

    def benchmark(self, call: Callable[[], object]) -> None:
        """Choose the autotuner's first configuration, as nothing can be timed."""

    def launch(
        self,
        source: TritonSource,
        metadata: TritonMetadata,
        kernel: TritonKernel,
        grid: tuple[int, int, int],
        arguments: Sequence[object],
    ) -> None:
        """Run a Triton kernel; raises as `run`."""
        if all(grid):  # Triton skips an empty one too
            with self.answering(source.fn.__name__):
                self.run(triton_launch(source, metadata, kernel, grid, arguments))

    @contextlib.contextmanager
    def answering(self, kernel: str) -> Generator[None]:
        """Turn errors in this block into errors of the emulator, except for launches that no GPU would accept.

        Raises:
            WorkloadError: no GPU would make such a launch of `kernel`.
            CannotJudgeError: the emulator cannot run it.
        """
        try:
            yield
        except (WorkloadError, Unfinished):
            raise
        except LaunchError as error:
            raise WorkloadError(f"launching `{kernel}`: {error.message}") from error
        except Exception as error:
            self._refused = self._refused or self._told(shortfall(error) or internal(error, None))
            raise self._refused from error

    def _told(self, error: CannotJudgeError) -> CannotJudgeError:
        """Return the emulator's error with its place in the user's file."""
        known = None if error.path is None or error.line is None else Location(str(error.path), error.line)
        path, line = place(known, self._path)
        return CannotJudgeError(error.message, Path(path) if path else None, line or None, error.fix)

    def enqueue(self, work: Callable[[], None]) -> None:
        """Run a piece of work at once, or at each replay of the graph that is being captured."""
        graph = capturing()
        if graph is None:
            work()
            return
        reached = self.memory.buffers.buffers

        def again() -> None:
            self.memory.restore(reached)
            work()

        graph.take(again)

    def run(self, launch: Emulated) -> None:
        """Run one launch, or a sample of its blocks; during a graph's capture, at each replay instead.

        Raises:
            WorkloadError: no GPU would make such a launch.
            CannotJudgeError: the emulator cannot run it.
            Unfinished: the instructions for all launches of a sample are spent.
        """
        self.enqueue(lambda: self._run(launch))

    def _run(self, launch: Emulated) -> None:
        with self.answering(launch.name):
            for parameter, value in launch.arguments:
                if isinstance(value, Tensor) and value.numel():
                    what = f"argument `{parameter}` of `{launch.name}`"
                    self.host_tensors.require_gpu(value, what, self._path or Path())
                    self.memory.reach(value)
                    self.memory.name(value.data_ptr(), parameter)
            shape, memory = launch.shape, self.memory.buffers
            program, block, options = read_program(launch.ptx), launch.parameter_block(), self._options(shape)
            started = time.process_time()
            result = run(program, launch.entry, shape.grid, shape.block, shape.shared_bytes, block, memory, options)
            self.results.append(LaunchOutcome(launch.name, result, time.process_time() - started))
            if self._sample is not None:
                self._note(launch, options, self.results[-1])

    # Emulating a few blocks of each launch.

    def sample(
        self, names: Sequence[str], inputs: Sequence[object], sample: BlockSample, launch: Callable[[], object]
    ) -> SampledRun:
        """Call `launch` with only a sample of each launch's blocks emulated; return the faults found in them.

        Nothing is copied or filled, so that inputs may be large; `launch` sees a GPU and may write to them. An
        exception of the user's own code is raised as it is, unless unknown values may have caused it.
        """
        ended: str | None = None
        while True:
            self.begin(names, inputs, sample)
            try:
                with self.placement(), Unfilled(self.memory), self.host_tensors:
                    launch()
            except Unfinished as error:
                ended = str(error)
            except CannotJudgeError as error:
                ended = error.message
            except Exception as error:
                if self.memory.obscured:
                    ended = f"it raised {type(error).__name__} after launches of which some blocks were left out"
                elif (why := shortfall(error)) is not None:
                    ended = why.message
                elif self.grow():
                    continue
                else:
                    raise
            if ended is None and self._refused is not None:
                ended = self._refused.message
            said = report(self.results, self._path, self._seconds())
            launches = tuple(self._sampled)
            return SampledRun(said.findings, launches, ended, said.seconds, said.counters, said.totals)

    def _options(self, shape: LaunchShape) -> Options:
        if self._sample is None:
            return Options(device=self._devices[0], order=self._order)
        left = self._sample.total - sum(launch.instructions for launch in self._sampled)
        if left <= 0:
            raise Unfinished(f"the {self._sample.total:,} instructions for all launches are spent")
        blocks = self._sample.blocks(prod(shape.grid), len(self._sampled))
        # Also without omitted blocks: honest kernels need not keep within this budget.
        return Options(blocks=blocks, budget=min(left, self._sample.budget), partial=True, device=self._devices[0])

    def _note(self, launch: Emulated, options: Options, outcome: LaunchOutcome) -> None:
        """Record which blocks of a launch were run, and mark as unknown what the others would have written."""
        blocks, result, grid_blocks = options.blocks or (), outcome.result, prod(launch.shape.grid)
        self._sampled.append(SampledLaunch(launch.name, blocks, grid_blocks, result.steps, result.ended))
        if len(blocks) < grid_blocks or result.ended:
            self.memory.obscure(result)


class EmulatedModule:
    """A compiled CUDA file, launched like `driver.LoadedModule`: `module.name[grid, block](...)`."""

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
            raise missing_kernel(name, self._binary.entries, self._types)
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

    def __getitem__(self, shape: object) -> Callable[..., None]:
        made = launch_shape(shape, self.name)

        def launch(*arguments: object) -> None:
            with self.emulator.answering(self.name):
                sizes = parameter_sizes(self.ptx, self.entry)
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
        """Return the address of a tensor, and make sure that it lies in a buffer."""
        self._emulator.memory.reach(tensor)
        return tensor.data_ptr()

    def launch(
        self, build: ExtensionBuild, kernel: Launchable, shape: LaunchShape, stream: int, arguments: int
    ) -> None:
        """Run a kernel of an extension."""
        if build.binary is None or build.binary.ptx is None:
            raise CannotJudgeError("the compiler gave no PTX, so that only a GPU can run the kernel")
        ptx = build.binary.ptx
        with self._emulator.answering(kernel.name):
            packed = packed_arguments(arguments, parameter_sizes(ptx, kernel.entry))
            for name, data in zip(kernel.parameters, packed, strict=False):
                if len(data) == 8:
                    self._emulator.memory.name(int.from_bytes(data, "little"), name)
        self._emulator.run(Emulated(ptx, kernel.entry, kernel.name, shape, tuple(packed), ()))

    def resident_blocks(self, build: ExtensionBuild, kernel: Launchable, threads: int, shared_bytes: int) -> int:
        """Return the number of blocks that one multiprocessor can hold at a time."""
        return resident_blocks(build, kernel, threads, shared_bytes)

    def fill(self, address: int, value: int, nbytes: int, stream: int) -> None:
        """Set bytes of a tensor."""

        def fill() -> None:
            self._emulator.memory.filled(address, nbytes)
            ctypes.memset(address, value, nbytes)

        if nbytes:
            self._emulator.enqueue(fill)

    def copy(self, to: int, source: int, nbytes: int, stream: int) -> None:
        """Copy bytes from tensor to tensor."""

        def copy() -> None:
            self._emulator.memory.copied(to, source, nbytes)
            ctypes.memmove(to, source, nbytes)

        if nbytes:
            self._emulator.enqueue(copy)
