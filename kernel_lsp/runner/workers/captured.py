"""Runs a captured function in the oracle, on the most precise rung of its ladder that works.

The oracle runs no candidate: this is the function as it stood when it was captured.
"""

import contextlib
import importlib
from collections.abc import Generator, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor

from kernel_lsp import policy
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.toolchain.emulated import STANDS_IN
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator
from kernel_lsp.runner.workers.error_bounds import table_bounds
from kernel_lsp.runner.workers.inline import Launches, load_extension
from kernel_lsp.source.lift_cuda import LiftError
from kernel_lsp.source.python import is_python
from kernel_lsp.workload.capture import RUNGS, Rung
from kernel_lsp.workload.captured import CapturedFunction
from kernel_lsp.workload.leaves import Leaves

_SEED = 0xCA97
_WORDS: dict[Rung, str] = {"float64": "in float64", "wider": "in float32", "itself": "by its own outputs"}


def place(function: CapturedFunction, device: str, builds: Mapping[str, ExtensionBuild]) -> None:
    """Let a captured function run in this process: on the GPU or, where `device` is `cpu`, on the emulator.

    `builds` has those of a CUDA file by their texts.
    """
    path = Path(function.capture.kernel)
    if device == "cpu":
        emulator = Emulator(STANDS_IN)
        emulator.expect(path, triton=is_python(path))
        function.running = partial(_emulated, emulator)
        launches: Launches = EmulatedLaunches(emulator)
    else:
        from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

        launches = GpuLaunches()
    if not is_python(path):
        function.loading = partial(_loaded, builds, launches)


@contextlib.contextmanager
def _emulated(emulator: Emulator) -> Generator[None]:
    importlib.import_module("torch._dynamo")  # while torch does not yet believe in a GPU
    with emulator.placement():
        emulator.begin((), ())
        yield


def _loaded(builds: Mapping[str, ExtensionBuild], launches: Launches, text: str) -> ModuleType:
    """Return the module of a text of a CUDA file.

    Raises:
        WorkloadError: it could not be built.
    """
    build = builds.get(text)
    if build is None:
        raise WorkloadError("it cannot be built")
    if not build.ok:
        errors = (one.message for one in build.build.diagnostics if one.severity is Severity.ERROR)
        raise WorkloadError(f"it does not compile: {next(errors, 'the compiler gave no reason')}")
    return load_extension(build, launches)


def settle(function: CapturedFunction, draws: Draws, known: Rung | None = None) -> str:
    """Choose the first rung on which the function agrees with itself on every case; return its name and the reason.

    The results of a rung must be within the tolerance of a baseline; those of `itself` always are. One that is `known`
    is taken as it is, and a case that would take the emulator minutes is not asked.
    """
    why: list[str] = []
    cases = [case for case, size in enumerate(draws.sizes()) if draws.on_gpu or size <= policy.EMULATED_RUNG_BYTES]
    if known is None and not cases:
        why.append("its inputs are too large for the emulator to compute them otherwise")
    for rung in RUNGS[:-1] if known is None and cases else ():
        if not (said := _disagreement(function, draws, cases, rung)):
            function.rung = rung
            break
        why.append(said)
    else:
        function.rung = known or RUNGS[-1]
    return f"as right as the captured function, {_WORDS[function.rung]}" + (f" ({'; '.join(why)})" if why else "")


def _disagreement(function: CapturedFunction, draws: Draws, cases: Sequence[int], rung: Rung) -> str:
    for number in cases:
        case = draws.workload.cases[number]
        with draws.placing():
            leaves = draws.fresh(number, _SEED)
        if rung == "wider" and not _has_narrow(leaves):
            return "wider: no input has 16 bits"
        with draws.placing(), function.running():
            own = function.on("itself", case, leaves)
            try:
                wide = function.on(rung, case, leaves)
            except (CannotJudgeError, LiftError, WorkloadError) as error:
                return f"{rung}: {error.message}"
            except Exception as error:
                first = (str(error).strip().splitlines() or [""])[0]
                return f"{rung}: {type(error).__name__} {first[:160]}"
        if difference := _difference(own, wide):
            return f"{rung}: {difference} in case {number}"
    return ""


def _has_narrow(leaves: Leaves) -> bool:
    return any(isinstance(leaf, Tensor) and leaf.is_floating_point() and leaf.itemsize == 2 for leaf in leaves)


def _difference(own: Sequence[object], wide: Sequence[object]) -> str:
    if len(own) != len(wide):
        return f"{len(wide)} outputs for {len(own)}"
    for number, (actual, truth) in enumerate(zip(own, wide, strict=True)):
        assert isinstance(actual, Tensor), "only tensors are outputs"
        assert isinstance(truth, Tensor), "only tensors are outputs"
        if actual.shape != truth.shape:
            return f"output {number} has shape {list(truth.shape)}, not {list(actual.shape)}"
        if not actual.is_floating_point():
            if not torch.equal(actual, truth.to(actual.dtype)):
                return f"output {number} differs"
            continue
        scale = comparison.scale(truth, actual.dtype)
        found = comparison.distance(actual, truth, scale, table_bounds(actual.dtype))
        if found.first_wrong is not None:
            return f"output {number} is {found.max:.3g} units off"
    return ""
