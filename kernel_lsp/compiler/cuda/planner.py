"""Traces the launches of a CUDA workload by running its `launch` on a fake GPU.

Worker processes only: it runs the user's code. Triton files are traced by `kernel_lsp.compiler.triton.build`.
"""

from collections.abc import Callable, Collection
from dataclasses import dataclass, replace
from traceback import extract_tb
from typing import Any

from torch import Tensor

from kernel_lsp.compiler.builds.plan import Launch, LaunchTrace
from kernel_lsp.compiler.fakes.gpu import fake_gpu
from kernel_lsp.compiler.fakes.shortfall import shortfall
from kernel_lsp.device.arguments import launch_shape
from kernel_lsp.device.device import Device
from kernel_lsp.errors import WorkloadError
from kernel_lsp.workload.execute import blame
from kernel_lsp.workload.load import call_the_module, ignores_its_module
from kernel_lsp.workload.workload import Workload, describe_case, file_of, line_of, make_inputs

_OWN_LAUNCH = (
    "Call one of these; a candidate with kernels of other names brings a `launch` of its own: write "
    "CANDIDATE_workload.py beside it."
)


@dataclass(frozen=True, slots=True)
class CudaPlan:
    """The launches and host calls that a workload makes of a CUDA file.

    Attributes:
        plans: the launches of each case.
        host_functions: host functions of the file that `launch` calls, such as the wrapper of a
            torch extension; if there are any, the whole file is built as an extension and `plans` has no launches.
    """

    plans: tuple[LaunchTrace, ...]
    host_functions: tuple[str, ...] = ()

    @property
    def needs_extension(self) -> bool:
        """Return True if `launch` calls host code of the file."""
        return bool(self.host_functions)

    @property
    def names(self) -> tuple[str, ...]:
        """Return every kernel name that is launched, once, in order."""
        return tuple(dict.fromkeys(launch.kernel for plan in self.plans for launch in plan.launches))


def plan_cuda(
    workload: Workload, kernels: Collection[str], device: Device, launch: Callable[..., Any] | None = None
) -> CudaPlan:
    """Return the launches of each case.

    Args:
        workload: its cases and inputs.
        kernels: names of the file's kernels, with their namespaces and without template arguments.
        device: the GPU that the code is told to run on.
        launch: called with the module and the inputs; the workload's own if None.

    Raises:
        WorkloadError: `launch` is missing, raises, or launches something impossible.
        CannotJudgeError: `launch` needs more of a GPU than is faked.
    """
    launch = launch or workload.launch
    if launch is None:
        raise WorkloadError(
            "the workload has no `launch`, and kernels of a .cu file cannot be called without one",
            workload.path,
            fix="Define `launch(module, ...)`: allocate the output and call `module.kernel[grid, block](...)`.",
        )
    known = {short for name in kernels for short in (name, name.rpartition("::")[2])}
    plans: list[LaunchTrace] = []
    with fake_gpu(device):
        for number, case in enumerate(workload.cases):
            inputs = make_inputs(workload, case)
            module = _RecordingModule(known)
            try:
                with blame(file_of(launch, workload.path), f"`launch` raised for case {describe_case(case)}"):
                    launch(module, *inputs)
            except WorkloadError as error:
                if isinstance(error.__cause__, _HostFunctionError):
                    return CudaPlan((), (error.__cause__.name,))
                if error.__cause__ is not None and (lacking := shortfall(error.__cause__)) is not None:
                    raise lacking from error
                if error.path is None:  # raised below, where neither file nor line is known
                    path = file_of(launch, workload.path)
                    frames = [frame for frame in extract_tb(error.__traceback__) if frame.filename == str(path)]
                    error.path, error.line = path, frames[-1].lineno if frames else None
                raise
            plans.append(LaunchTrace(number, tuple(module.launches)))
    if not any(plan.launches for plan in plans):
        fix = call_the_module("module") if ignores_its_module(launch) else None
        raise WorkloadError("`launch` launches no kernel", file_of(launch, workload.path), line_of(launch), fix)
    return CudaPlan(tuple(plans))


class _HostFunctionError(Exception):
    def __init__(self, name: str) -> None:
        super().__init__(f"`{name}` is a host function")
        self.name = name


class _RecordingModule:
    """Takes the place of the loaded file and records `module.name[grid, block](...)`, `module["name<2>"][...](...)`."""

    def __init__(self, known: Collection[str]) -> None:
        self._known = known
        self.launches: list[Launch] = []

    def __getattr__(self, name: str) -> "_RecordingKernel":
        if name.startswith("__"):
            raise AttributeError(name)
        return self[name]

    def __getitem__(self, name: str) -> "_RecordingKernel":
        return _RecordingKernel(name, self._known, self.launches)


@dataclass(frozen=True, slots=True)
class _RecordingKernel:
    name: str
    known: Collection[str]
    launches: list[Launch]

    @property
    def is_kernel(self) -> bool:
        return self.name.split("<")[0].strip().removeprefix("::") in self.known

    def __getitem__(self, shape: Any) -> Callable[..., None]:
        if not self.is_kernel:
            has = ", ".join(f"`{name}`" for name in sorted(self.known)) or "none"
            raise WorkloadError(
                f"`launch` asks for a kernel `{self.name}` that the file does not have (it has {has})", fix=_OWN_LAUNCH
            )
        wanted = launch_shape(shape, self.name)
        if min(*wanted.grid, *wanted.block) < 1:
            raise WorkloadError(f"`{self.name}` is launched with {shape!r}; a grid or block has no extent below one")
        made = Launch(self.name, wanted.grid, wanted.block, wanted.shared_bytes)

        def launch(*arguments: object) -> None:
            numbers = (one if isinstance(one, (bool, int, float)) else None for one in arguments)
            types = (str(one.dtype).removeprefix("torch.") if isinstance(one, Tensor) else None for one in arguments)
            self.launches.append(replace(made, arguments=tuple(numbers), tensors=tuple(types)))

        return launch

    def __call__(self, *_: object, **__: object) -> None:
        if self.is_kernel:
            raise WorkloadError(f"`{self.name}` is a kernel: call it as `module.{self.name}[grid, block](...)`")
        raise _HostFunctionError(self.name)
