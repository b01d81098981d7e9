"""KernelBench's published way to judge a candidate, for comparison with our own. Worker processes only.

Written from the description and code of its harness (`eval_kernel_against_ref` and `time_execution_with_cuda_event`,
MIT licence, github.com/ScalingIntelligence/KernelBench), in words of our own:

- The problem's arguments, the two models' weights and the timed inputs come from seed 42; the seeds of the trials are
  drawn from it. Weights agree because both models are made after the same seed, in the same order of calls.
- Unlike there, inputs are drawn on the GPU: the same distributions with other numbers, and on a CPU more than a billion
  of them take ten seconds, six times over.
- Every tensor is cast to the one type of the run, integers too.
- A trial passes if the one output has the model's shape and is `allclose` with a tolerance by type, both absolute and
  relative; a candidate is correct if all trials pass.
- A time is between two events on the current stream round one call, after 256 MiB were written to flush the L2 cache;
  after three calls to warm up and one that is not counted, the mean of all is what it takes, to three digits.
"""

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.runner.workers.inline import from_json, serving
from kernel_lsp.workload.answer import on_device
from kernel_lsp.workload.execute import load_module

SEED = 42
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_WARM_UPS, _DISCARDED = 3, 1
_FLUSHED_BYTES = 256 << 20
_EXCESSIVE = 10.0
_DEVICE = torch.device("cuda", 0)


def methods(device: str, arch: str = "sm_80") -> Mapping[str, Callable[..., Any]]:
    """What this role answers to. On `cpu` kernels are emulated as on `arch`, and nothing is timed."""
    if device != "cpu":
        from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

        def judge_on_gpu(*, extensions: list[Any], triton: bool, **asked: Any) -> dict[str, Any]:
            with serving(map(from_json, extensions), GpuLaunches()):
                return judge_published(**asked)

        return {"judge": judge_on_gpu}
    from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator

    emulator = Emulator(arch)

    def judge(*, extensions: list[Any], triton: bool, path: str, **asked: Any) -> dict[str, Any]:
        emulator.expect(Path(path), triton=triton)
        emulator.begin((), ())
        with emulator.placement(), serving(map(from_json, extensions), EmulatedLaunches(emulator)):
            return judge_published(path=path, **asked)

    return {"judge": judge}


def judge_published(
    *, problem: str, candidate: str, path: str, trials: int, repeats: int, precision: str = "float32"
) -> dict[str, Any]:
    """The verdict, as the fields of `bench.records.Published`.

    Args:
        problem: text that defines `Model`, `get_inputs` and `get_init_inputs`.
        candidate: text that defines `ModelNew`.
        path: where the candidate lies.
        trials: how many sets of inputs are tried.
        repeats: how many calls are timed, where the candidate is correct; 0 times none.
        precision: name of the type that all tensors are cast to.

    Raises:
        CannotJudgeError: the candidate needs more than this machine has.
        Exception: the problem itself fails.
    """
    started, dtype = time.perf_counter(), getattr(torch, precision)
    said: dict[str, Any] = {"compiled": False, "correct": False, "trials": (0, trials), "detail": ""}
    said |= {"mean_ms": None, "reference_ms": None, "excessive": False, "scaled": False}
    with torch.no_grad():
        given = load_module(problem, Path(path).with_name("problem.py"))
        _seed(SEED)
        arguments = _cast(given.get_init_inputs(), dtype)
        _seed(SEED)
        model = given.Model(*arguments)
        try:
            made = load_module(candidate, Path(path)).ModelNew
            said["compiled"] = True
            _seed(SEED)
            other = made(*arguments).to(device=_DEVICE, dtype=dtype)
            model = model.to(device=_DEVICE, dtype=dtype)
            passed, said["detail"] = _try_out(model, other, given.get_inputs, trials, dtype)
            said |= {"trials": (passed, trials), "correct": passed == trials}
        except CannotJudgeError:
            raise
        except Exception as error:
            said["detail"] = _words(error)
            return said | {"seconds": time.perf_counter() - started}
        if said["correct"] and repeats:
            _seed(SEED)
            inputs = _drawn(given.get_inputs, dtype)
            said["mean_ms"], said["reference_ms"] = _mean_ms(other, inputs, repeats), _mean_ms(model, inputs, repeats)
            said["excessive"] = said["reference_ms"] > _EXCESSIVE * said["mean_ms"]
    return said | {"seconds": time.perf_counter() - started}


def _try_out(
    model: nn.Module, other: nn.Module, get_inputs: Callable[[], list[Any]], trials: int, dtype: torch.dtype
) -> tuple[int, str]:
    """How many trials passed, and what was wrong with the last that did not; another shape ends them."""
    _seed(SEED)
    seeds = [int(torch.randint(0, 2**32 - 1, (1,)).item()) for _ in range(trials)]
    passed, detail = 0, ""
    for number, seed in enumerate(seeds, 1):
        _seed(seed)
        inputs = _drawn(get_inputs, dtype)
        _seed(seed)
        expected = model(*inputs)
        torch.cuda.synchronize()
        actual = other(*inputs)
        torch.cuda.synchronize()
        if expected.shape != actual.shape:
            return passed, f"trial {number}: the output's shape is {tuple(actual.shape)}, not {tuple(expected.shape)}"
        tolerance = TOLERANCES[dtype]
        if torch.allclose(expected, actual, atol=tolerance, rtol=tolerance):
            passed += 1
        else:
            furthest = (expected - actual).abs().max().item()
            detail = f"trial {number}: an element is {furthest:.3g} off, with a tolerance of {tolerance:g}"
        del inputs, expected, actual  # the next ones are drawn on the same GPU
    return passed, detail


def _mean_ms(model: nn.Module, inputs: list[Any], repeats: int) -> float:
    """Mean milliseconds of a call, to three digits."""
    for _ in range(_WARM_UPS):
        model(*inputs)
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    times: list[float] = []
    for _ in range(_DISCARDED + repeats):
        torch.cuda.synchronize()
        begun, ended = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.empty(_FLUSHED_BYTES // 8, dtype=torch.int64, device=_DEVICE).fill_(1)
        begun.record()
        model(*inputs)
        ended.record()
        torch.cuda.synchronize()
        times.append(begun.elapsed_time(ended))
    counted = times[_DISCARDED:]
    return float(f"{sum(counted) / len(counted):.3g}")


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    torch.cuda.manual_seed(seed)


def _drawn(get_inputs: Callable[[], list[Any]], dtype: torch.dtype) -> list[Any]:
    with on_device():
        return _cast(get_inputs(), dtype)


def _cast(values: list[Any], dtype: torch.dtype) -> list[Any]:
    return [value.to(device=_DEVICE, dtype=dtype) if isinstance(value, Tensor) else value for value in values]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"
