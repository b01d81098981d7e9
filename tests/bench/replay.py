"""Launches of a workload on the emulator, repeated on a GPU: the same PTX on the same bytes in memory.

Support for the programs that hold the emulator to the hardware. Each launch is repeated by itself, from what lay in
memory before the emulated one, so that a difference is this launch's own. Tensor maps among its arguments are made
anew for the copies on the GPU. An answer to a KernelBench problem is run as
`kernel-lsp check` runs it without a GPU: on sizes that the emulator manages, with its extensions built for it.
"""

import ctypes
import os
import re
import tempfile
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch

from kernel_lsp.check import find_kernel_files
from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.cuda.planner import plan_cuda
from kernel_lsp.device.device import device_named
from kernel_lsp.emulate import tensormap
from kernel_lsp.emulate.sampling import BlockSample
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.runner.workers.allocations import WatchedAllocations
from kernel_lsp.runner.workers.answers import execute_answer, load_answer
from kernel_lsp.runner.workers.emulated_launch import Emulated
from kernel_lsp.runner.workers.emulated_memory import EmulatedMemory
from kernel_lsp.runner.workers.emulated_report import LaunchOutcome
from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator
from kernel_lsp.runner.workers.inline import build_extension, serving
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, read_source
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import bind_launch, load_workload
from kernel_lsp.workload.placement import Instead
from kernel_lsp.workload.problem import choose_for_emulator
from kernel_lsp.workload.spec import find_workload
from kernel_lsp.workload.workload import Workload, make_inputs

ARCH = "sm_80"
SEED = 20_260_101
EXAMPLES = Path(__file__).parents[2] / "examples"
_CACHE_BYTES = 1 << 30
_OLDER = re.compile(r"\.target sm_8\d\b")


@dataclass(frozen=True, slots=True)
class Memory:
    """The storage of one tensor argument: its name, its type, where it lies and what it held."""

    name: str
    dtype: torch.dtype
    address: int
    data: np.ndarray[Any, np.dtype[np.uint8]]


@dataclass(frozen=True, slots=True)
class Step:
    """One emulated launch, with all memory that its arguments reach before and after it."""

    launch: Emulated
    before: tuple[Memory, ...]
    after: tuple[Memory, ...]
    outcome: LaunchOutcome


class _Reached(EmulatedMemory):
    """Memory that knows tensors by their addresses, which are all that host code and tensor maps pass on."""

    def __init__(self, names: Sequence[str], inputs: Sequence[object]) -> None:
        super().__init__(names, inputs)
        self.tensors = {value.data_ptr(): value for value in inputs if isinstance(value, torch.Tensor)}

    def allocated(self, tensor: torch.Tensor, initialised: bool) -> None:
        """Make a buffer for a tensor from a factory function, and keep it."""
        super().allocated(tensor, initialised)
        self.tensors[tensor.data_ptr()] = tensor

    def reach(self, tensor: torch.Tensor) -> None:
        """Make sure that a tensor lies in a buffer, and keep it."""
        super().reach(tensor)
        if tensor.numel():
            self.tensors[tensor.data_ptr()] = tensor


class Replaying(Emulator):
    """An emulator that keeps every launch, with the memory round it.

    Code is compiled for `ARCH` and runs as on `arch`, where tensor cores add in other steps; code of Hopper is compiled
    for `arch` itself.
    """

    def __init__(self, arch: str) -> None:
        super().__init__(device_named(arch))
        self.arch = arch

    def begin(self, names: Sequence[str], inputs: Sequence[object], sample: BlockSample | None = None) -> None:
        """Start a run; what an earlier one left is let go of."""
        super().begin(names, inputs, sample)
        self.memory = self._reached = _Reached(names, inputs)
        self.steps: list[Step] = []

    def run(self, launch: Emulated) -> None:
        """Run one launch and keep it."""
        ptx = _OLDER.sub(f".target {self.arch}", launch.ptx, count=1)
        arguments = launch.arguments or tuple(self._named(launch.packed))
        launch = replace(launch, ptx=ptx, arguments=(*arguments, *self._mapped(launch.packed)))
        before = _memories(launch)
        super().run(launch)
        self.steps.append(Step(launch, before, _memories(launch), self.results[-1]))

    def _named(self, packed: Sequence[bytes]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors whose addresses are among the arguments of a launch, by the names of their buffers."""
        for data in packed:
            address = int.from_bytes(data, "little")
            if len(data) == 8 and address in self._reached.tensors:
                yield self.memory.inside(address, 1).name, self._reached.tensors[address]

    def _mapped(self, packed: Sequence[bytes]) -> Iterator[tuple[str, torch.Tensor]]:
        """The tensors that the maps among the arguments of a launch tell of, by the names of their buffers."""
        for data in packed:
            if data.startswith(tensormap.MAGIC):
                buffer = self.memory.inside(tensormap.decode(data).address, 1)
                yield buffer.name, self._reached.tensors[buffer.address]


@dataclass(frozen=True, slots=True)
class Subject:
    """A kernel file with its workload, ready to run its cases on the emulator; `launch` gives what runs a case."""

    path: Path
    workload: Workload
    emulator: Replaying
    launch: Callable[[int], Callable[..., Any]]

    def inputs(self, case: int) -> tuple[Any, ...]:
        """Plain inputs of a case, the same ones each time."""
        torch.manual_seed(SEED + case)
        with Instead(), torch.no_grad():
            return make_inputs(self.workload, self.workload.cases[case])

    def steps(self, case: int) -> list[Step]:
        """The launches of one case."""
        while True:
            inputs, launch = self.inputs(case), self.launch(case)
            self.emulator.begin(self.workload.argument_names, inputs)
            try:
                gradients = torch.set_grad_enabled(self.workload.problem is None)  # which workloads may ask for
                with gradients, self.emulator.placement(), WatchedAllocations(self.emulator):
                    launch(*inputs)
                return list(self.emulator.steps)
            except Exception:
                if not self.emulator.grow():  # a later architecture may have what it lacks
                    raise


def load_subject(path: Path, arch: str = ARCH, workload_path: Path | None = None) -> Subject:
    """Build a kernel file for the emulator, to run as on `arch`, and bind its workload to it."""
    source = read_source(path)
    found = find_workload(source, workload_path)
    assert found is not None, f"{path} has no workload"
    os.environ.setdefault("TRITON_CACHE_DIR", tempfile.mkdtemp(prefix="replay-triton-"))
    emulator = Replaying(arch)
    emulator.expect(path, triton=path.suffix == ".py")
    with Instead():
        workload = load_workload(found.source.text, found.source.path, seed=SEED)
        if workload.problem is not None:
            choice = choose_for_emulator(workload.problem)
            cases = tuple(choice.cases[number] for number in (*choice.decisive, *choice.advisory))
            workload = replace(workload, cases=cases)
    if workload.problem is not None:
        return Subject(path, workload, emulator, _load_answer(source, workload, emulator))
    with emulator.placement():
        if path.suffix == ".py":
            module: Any = load_module(source.text, path)
        else:
            kernels = find_kernels(source.text, path)
            names = plan_cuda(workload, [kernel.name for kernel in kernels], device_named(ARCH)).names
            built = _built(source, names, arch)
            assert built.binary is not None, built.log
            types = {k.name: tuple(p.type for p in k.parameters) for k in kernels}
            named = {k.name: tuple(p.name for p in k.parameters) for k in kernels}
            module = emulator.module(built.binary, types, named)
        launch = bind_launch(module, path, found.source.text, found.source.path)
    return Subject(path, workload, emulator, lambda _: launch)


def _built(source: SourceFile, names: Sequence[str], arch: str) -> Build:
    """Build a CUDA file for `ARCH`, or for `arch` where its code names what that alone has, or does not build else."""
    own = build_cuda(source, arch, names)
    if own.binary is not None and f".target {arch}a" in (own.binary.ptx or ""):
        return own
    older = build_cuda(source, ARCH, names)
    return own if older.binary is None else older


def _load_answer(source: SourceFile, workload: Workload, emulator: Replaying) -> Callable[[int], Callable[..., Any]]:
    """The model of an answer, built for all cases, with the extensions that it asks for."""
    asked = execute_answer(source, workload, device_named(ARCH))
    assert not asked.build.diagnostics, asked.build.diagnostics
    with tempfile.TemporaryDirectory(prefix="replay-builds-") as cache:
        builds = [build_extension(request, ARCH, source, Path(cache), _CACHE_BYTES) for request in asked.requests]
    if any(isinstance(build, str) for build in builds):
        raise CannotJudgeError("its host code is built whole, and runs on a GPU only", source.path)
    answer = load_answer(source, workload)
    with serving(builds, EmulatedLaunches(emulator)), emulator.placement():
        for case in range(len(workload.cases)):
            answer.build(case)
    return answer.launch


def each_example(use: Callable[[str, Subject], None], arch: str = ARCH) -> dict[str, str]:
    """Have `use` take every example with its name, to run as on `arch`; why, by name, for those that cannot be."""
    lacking: dict[str, str] = {}
    for source in find_kernel_files([EXAMPLES]):
        name = str(source.path.relative_to(EXAMPLES))
        try:
            use(name, load_subject(source.path, arch))
        except Exception as error:  # one example must not take the others' figures with it
            lacking[name] = f"{type(error).__name__}: {error}"
            print(f"{name}: not replayed: {lacking[name]}", flush=True)
    return lacking


def input_bytes(inputs: Sequence[Any]) -> int:
    """Bytes of all tensors."""
    return sum(value.nbytes for value in inputs if isinstance(value, torch.Tensor))


class Gpu:
    """The first GPU, by the driver alone: the kernels repeated here are the first that run in this process."""

    def __init__(self) -> None:
        from cuda.bindings import driver as cu

        from kernel_lsp.device.driver import check

        self._cu, self._check = cu, check
        check(cu.cuInit(0), "starting CUDA")
        self._context = check(cu.cuDevicePrimaryCtxRetain(check(cu.cuDeviceGet(0), "the GPU")), "its context")
        check(cu.cuCtxSetCurrent(self._context), "its context")
        self._functions: dict[tuple[str, str], Any] = {}

    @property
    def arch(self) -> str:
        """Its architecture, such as `sm_90`."""
        ask, kinds = self._cu.cuDeviceGetAttribute, self._cu.CUdevice_attribute
        device = self._check(self._cu.cuDeviceGet(0), "the GPU")
        major = self._check(ask(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device), "its architecture")
        minor = self._check(ask(kinds.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device), "its architecture")
        return f"sm_{major}{minor}"

    def repeat(self, step: Step) -> tuple[Memory, ...]:
        """Run a launch on the GPU, compiled from its PTX by the driver; what its memory holds afterwards."""
        from kernel_lsp.device.driver import Allocation

        cu, check, launch = self._cu, self._check, step.launch
        places = [Allocation(max(memory.data.nbytes, 1)) for memory in step.before]
        for memory, place in zip(step.before, places, strict=True):
            check(cu.cuMemcpyHtoD(place.pointer, memory.data.ctypes.data, memory.data.nbytes), "copying there")
        function = self._function(launch)
        if launch.shape.shared_bytes > 48 << 10:
            attribute = cu.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            check(cu.cuFuncSetAttribute(function, attribute, launch.shape.shared_bytes), "giving shared memory")
        packed = [_moved(data, step.before, places) for data in launch.packed]
        buffers = [ctypes.create_string_buffer(data, len(data)) for data in packed]
        pointers = (ctypes.c_void_p * max(len(buffers), 1))(*(ctypes.addressof(b) for b in buffers))
        extents = (*launch.shape.grid, *launch.shape.block, launch.shape.shared_bytes)
        check(cu.cuLaunchKernel(function, *extents, 0, ctypes.addressof(pointers), 0), f"launching {launch.name}")
        check(cu.cuCtxSynchronize(), f"running {launch.name}")
        after: list[Memory] = []
        for memory, place in zip(step.before, places, strict=True):
            data = np.empty_like(memory.data)
            check(cu.cuMemcpyDtoH(data.ctypes.data, place.pointer, data.nbytes), "copying back")
            after.append(Memory(memory.name, memory.dtype, memory.address, data))
        return tuple(after)

    def _function(self, launch: Emulated) -> Any:
        key = (launch.ptx, launch.entry)
        if key not in self._functions:
            module = self._check(self._cu.cuModuleLoadData(launch.ptx.encode() + b"\0"), "compiling PTX")
            self._functions[key] = self._check(
                self._cu.cuModuleGetFunction(module, launch.entry.encode()), f"finding {launch.entry}"
            )
        return self._functions[key]


def _memories(launch: Emulated) -> tuple[Memory, ...]:
    return tuple(_storages(launch))


def _storages(launch: Emulated) -> Iterator[Memory]:
    seen: set[int] = set()
    for name, value in launch.arguments:
        if isinstance(value, torch.Tensor) and value.untyped_storage().data_ptr() not in seen:
            storage = value.untyped_storage()
            seen.add(storage.data_ptr())
            yield Memory(name, value.dtype, storage.data_ptr(), _copy(storage.data_ptr(), storage.nbytes()))


def _copy(address: int, nbytes: int) -> np.ndarray[Any, np.dtype[np.uint8]]:
    return np.ctypeslib.as_array((ctypes.c_uint8 * nbytes).from_address(address)).copy()


def _moved(data: bytes, memories: Sequence[Memory], places: Sequence[Any]) -> bytes:
    """An argument as it is on the GPU: an address in emulated memory becomes that of its copy, in a map too."""

    def moved(value: int) -> int:
        for memory, place in zip(memories, places, strict=True):
            if memory.address <= value < memory.address + memory.data.nbytes:
                return place.pointer + value - memory.address
        return value

    if data.startswith(tensormap.MAGIC):
        from tests.bench.driver_maps import driver_map

        tensor = tensormap.decode(data)
        return driver_map(replace(tensor, address=moved(tensor.address)))
    return moved(int.from_bytes(data, "little")).to_bytes(8, "little") if len(data) == 8 else data
