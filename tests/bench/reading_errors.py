"""Errors of outputs, read by one kernel and by tensor operations.  `python -m tests.bench.reading_errors`.

Outputs of each floating-point type against float64 truths, rounded and wrong in places, ordinary and special values,
and one with strides: do both ways say the same, and how fast are they? Options: --elements (2^28)
of the outputs that are timed, --record. Needs a GPU.
"""

import argparse
import json
import math
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from kernel_lsp import device
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.device.driver import LoadedModule
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.runner.workers.comparison import ErrorReading, read, scale
from kernel_lsp.runner.workers.fused import FusedMeasure
from kernel_lsp.source.candidate import SourceFile
from tests.bench.record import record

NAME = "reading_errors"
TYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
_SIZES = (1, 1000, 1025, 3_000_001)
_ALLOWED = 4.0
_RUNS = 5
_SPECIAL = (0.0, -0.0, math.inf, -math.inf, math.nan, 65519.9, 65520.0, 3.3895e38, 3.396e38, 3.5e38, 1e300, 5e-324)


def fused_measure() -> FusedMeasure:
    """The kernel on this process's GPU."""
    path = Path(next(iter(device.__path__))) / "distance.cu"
    built = build_cuda(SourceFile(path, path.read_text()), find_gpus()[0].arch)
    assert built.binary is not None, built.log
    torch.zeros(1, device="cuda")  # makes torch's context the current one
    return FusedMeasure(LoadedModule(built.binary, {}))


def pairs(dtype: torch.dtype) -> dict[str, tuple[Tensor, Tensor]]:
    """Outputs and truths by what they are."""
    made: dict[str, tuple[Tensor, Tensor]] = {}
    for size in _SIZES:
        truth = torch.randn(size, dtype=torch.float64, device="cuda")
        made[f"{size} rounded"] = (truth.to(dtype, copy=True), truth)
        wrong = truth.to(dtype, copy=True)
        wrong[size // 3 :: 997] += 1
        made[f"{size} wrong in places"] = (wrong, truth)
    special = torch.tensor(_SPECIAL, dtype=torch.float64, device="cuda")
    for number, value in enumerate(_SPECIAL):
        made[f"special truth {number}"] = (special.to(dtype), torch.full_like(special, value))
        made[f"special output {number}"] = (torch.full_like(special, value).to(dtype), special)
    truth = torch.randn(300, 500, dtype=torch.float64, device="cuda")
    made["strided"] = (truth.to(dtype).t().contiguous().t(), truth)
    return made


def alike(one: ErrorReading | None, other: ErrorReading) -> bool:
    """Whether two readings say the same, but for the order in which squares were added."""
    if one is None or one._replace(squares=0.0) != other._replace(squares=0.0):
        return False
    return one.squares == other.squares or math.isclose(one.squares, other.squares, rel_tol=1e-9)


def seconds(action: Callable[[], Any]) -> float:
    """The quickest of some runs."""
    times: list[float] = []
    for _ in range(_RUNS):
        torch.cuda.synchronize()
        started = time.perf_counter()
        action()
        torch.cuda.synchronize()
        times.append(time.perf_counter() - started)
    return min(times)


def compared(measure: FusedMeasure, dtype: torch.dtype, elements: int) -> dict[str, Any]:
    """What differs for outputs of a type, and what reading `elements` of them takes by either way."""
    differ: list[str] = []
    for name, (actual, truth) in pairs(dtype).items():
        rms = scale(truth, dtype)
        one, other = measure(actual, truth, rms, _ALLOWED), read(actual, truth, rms, _ALLOWED)
        if not alike(one, other):
            differ.append(f"{name}: {one}, {other}")
    truth = torch.randn(elements, dtype=torch.float64, device="cuda")
    actual, rms = truth.to(dtype, copy=True), scale(truth, dtype)
    fused = seconds(partial(measure, actual, truth, rms, _ALLOWED))
    tensor = seconds(partial(read, actual, truth, rms, _ALLOWED))
    nbytes = actual.nbytes + truth.nbytes
    return {
        "differ": differ,
        "fused_ms": round(fused * 1e3, 3),
        "tensor_operations_ms": round(tensor * 1e3, 3),
        "fused_gb_per_s": round(nbytes / fused / 1e9, 1),
        "ratio": round(tensor / fused, 2),
    }


def main() -> None:
    """Print a line for each type and the figures as JSON, and record them when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--elements", type=int, default=1 << 28)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    measure = fused_measure()
    figures = {str(dtype).removeprefix("torch."): compared(measure, dtype, options.elements) for dtype in TYPES}
    print(json.dumps(figures))
    if options.record:
        print(record(NAME, {"elements": options.elements, "by_type": figures}))


if __name__ == "__main__":
    main()
