"""Runs a captured function in the oracle, on the most precise rung of its ladder that works.

The oracle runs no candidate: this is the function as it stood when it was captured.
"""

import contextlib
import importlib
from collections.abc import Generator, Sequence
from pathlib import Path

import torch
from torch import Tensor

from kernel_lsp.compiler.emulated import STANDS_IN
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.runner.workers.error_bounds import table_bounds
from kernel_lsp.workload.captured import RUNGS, CapturedFunction, Rung
from kernel_lsp.workload.leaves import Leaves

_SEED = 0xCA97
_WORDS: dict[Rung, str] = {"float64": "in float64", "wider": "in float32", "itself": "by its own outputs"}


@contextlib.contextmanager
def emulated(path: Path) -> Generator[None]:
    """Return a context in which a function's Triton kernels run on the emulator."""
    importlib.import_module("torch._dynamo")  # while torch does not yet believe in a GPU
    from kernel_lsp.runner.workers.emulator import Emulator

    emulator = Emulator(STANDS_IN)
    emulator.expect(path, triton=True)
    with emulator.placement():
        emulator.begin((), ())
        yield


def settle(function: CapturedFunction, draws: Draws) -> str:
    """Choose the first rung on which the function agrees with itself on every case; return its name and the reason.

    The results of a rung must be within the tolerance of a baseline; those of `itself` always are.
    """
    why: list[str] = []
    for rung in RUNGS[:-1]:
        if not (said := _disagreement(function, draws, rung)):
            function.rung = rung
            break
        why.append(said)
    else:
        function.rung = RUNGS[-1]
    return f"as right as the captured function, {_WORDS[function.rung]}" + (f" ({'; '.join(why)})" if why else "")


def _disagreement(function: CapturedFunction, draws: Draws, rung: Rung) -> str:
    for number, case in enumerate(draws.workload.cases):
        with draws.placing():
            leaves = draws.fresh(number, _SEED)
        if rung == "wider" and not _has_narrow(leaves):
            return "wider: no input has 16 bits"
        with draws.placing(), function.running():
            own = function.on("itself", case, leaves)
            try:
                wide = function.on(rung, case, leaves)
            except (CannotJudgeError, WorkloadError) as error:
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
