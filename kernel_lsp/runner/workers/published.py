"""Judge a candidate by KernelBench's published method, for comparison with our own. Worker processes only.

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
from collections.abc import Callable, Sequence
from typing import Protocol, cast

import torch
from torch import Tensor, nn

from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.runner.messages.published import JudgePublished, PublishedRole, PublishedVerdict
from kernel_lsp.runner.workers.inline import serving
from kernel_lsp.runner.workers.torch_types import seed_random_numbers
from kernel_lsp.workload.answer import on_device
from kernel_lsp.workload.execute import load_module

SEED = 42
TOLERANCES = {torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 1e-2}
_WARM_UPS, _DISCARDED = 3, 1
_FLUSHED_BYTES = 256 << 20
_DEVICE = torch.device("cuda", 0)


class _Problem(Protocol):
    """A problem's module."""

    def get_init_inputs(self) -> list[object]: ...
    def get_inputs(self) -> list[object]: ...
    def Model(self, *arguments: object) -> nn.Module: ...  # noqa: N802 - KernelBench's name


def methods(device: str, emulated: bytes = b"") -> PublishedRole:
    """Return the object that answers this role's requests. On `cpu` kernels are emulated, and nothing is timed."""
    return _Emulated(emulated) if device == "cpu" else _OnGpu()


class _OnGpu:
    def judge(self, request: JudgePublished) -> PublishedVerdict:
        """Judge on the GPU."""
        from kernel_lsp.runner.workers.inline_gpu import GpuLaunches

        with serving(request.extensions, GpuLaunches()):
            return judge_published(request)


class _Emulated:
    def __init__(self, device: bytes) -> None:
        from kernel_lsp.runner.workers.emulator import Emulator, read_device

        self._emulator = Emulator(read_device(device))

    def judge(self, request: JudgePublished) -> PublishedVerdict:
        """Judge on the emulator."""
        from kernel_lsp.runner.workers.emulator import EmulatedLaunches

        emulator = self._emulator
        emulator.expect(request.candidate.path, triton=request.triton)
        emulator.begin((), ())
        with emulator.placement(), serving(request.extensions, EmulatedLaunches(emulator)):
            return judge_published(request)


def judge_published(request: JudgePublished) -> PublishedVerdict:
    """Return the verdict by the published method.

    Raises:
        CannotJudgeError: the candidate needs more than this machine has.
        Exception: the problem itself fails.
    """
    started, dtype, path = time.perf_counter(), getattr(torch, request.precision), request.candidate.path
    with torch.no_grad():
        given = cast(_Problem, load_module(request.problem, path.with_name("problem.py")))
        _seed(SEED)
        arguments = _cast(given.get_init_inputs(), dtype)
        _seed(SEED)
        model, compiled = given.Model(*arguments), False
        try:
            made = load_module(request.candidate.text, path).ModelNew
            compiled = True
            _seed(SEED)
            other = made(*arguments).to(device=_DEVICE, dtype=dtype)
            model = model.to(device=_DEVICE, dtype=dtype)
            passed, detail = _try_out(model, other, given.get_inputs, request.trials, dtype)
        except CannotJudgeError:
            raise
        except Exception as error:
            return PublishedVerdict(compiled, detail=_words(error), seconds=time.perf_counter() - started)
        mean_ms, reference_ms = None, None
        if (correct := passed == request.trials) and request.repeats:
            _seed(SEED)
            inputs = _drawn(given.get_inputs, dtype)
            mean_ms, reference_ms = (_mean_ms(timed, inputs, request.repeats) for timed in (other, model))
    seconds = time.perf_counter() - started
    return PublishedVerdict(compiled, correct, passed, detail, mean_ms, reference_ms, seconds)


def _try_out(
    model: nn.Module, other: nn.Module, get_inputs: Callable[[], list[object]], trials: int, dtype: torch.dtype
) -> tuple[int, str]:
    """Return how many trials passed, and a sentence on the last failed one; a wrong shape ends the trials."""
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


def _mean_ms(model: nn.Module, inputs: Sequence[object], repeats: int) -> float:
    """Return the mean milliseconds of a call, to three digits."""
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
    seed_random_numbers(seed)
    torch.cuda.manual_seed(seed)


def _drawn(get_inputs: Callable[[], list[object]], dtype: torch.dtype) -> list[object]:
    with on_device():
        return _cast(get_inputs(), dtype)


def _cast(values: list[object], dtype: torch.dtype) -> list[object]:
    return [value.to(device=_DEVICE, dtype=dtype) if isinstance(value, Tensor) else value for value in values]


def _words(error: Exception) -> str:
    return f"{type(error).__name__}: {str(error).strip()[:300]}"
