"""What other harnesses measure of the same pair: `triton.testing.do_bench` and KernelBench's way.

`Stopwatches` starts `python -m tests.bench.stopwatches`, which imports torch and Triton, loads two builds of one kernel
as a user's script would, on the same inputs in one process, and times one after the other.

KernelBench (its `timing.py`, method `cuda_event`, which its scripts call with 100 trials): three launches to warm up,
each waited for, and the allocator's cache emptied; then 101 times: wait for the GPU, fill 256 MiB of fresh memory to
clear the L2 cache, an event, one launch, an event, wait again. The first is dropped and the mean of 100 taken, rounded
to three digits in what it prints; it is not rounded here. `do_bench` has its defaults (25 ms to warm up, 100 ms of
repetitions, the L2 cache cleared before each) and its mean.
"""

import asyncio
import base64
import contextlib
import json
import pickle
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.judge.session import Session
from kernel_lsp.source.candidate import Candidate

TRIALS = 100
_WARM_UPS = 3
_CLEARED_WORDS = 32 << 20  # of 8 bytes
_SECONDS = 120.0


@dataclass(frozen=True, slots=True)
class Measured:
    """Mean milliseconds of a launch by one harness."""

    baseline_ms: float
    candidate_ms: float

    @property
    def says_faster(self) -> bool:
        """Whether a tool that believes the means calls the candidate faster by more than 1 %."""
        return self.candidate_ms < 0.99 * self.baseline_ms


class Stopwatches:
    """The process that times. Start it with `start`; it ends with `close`, or when this process does."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    @property
    def pid(self) -> int:
        """Its process, which the judge would else take for a stranger's on the same GPU."""
        return self._process.pid

    @classmethod
    async def start(cls) -> Self:
        """Start it on the first visible GPU; it is ready when the first answer comes."""
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.bench.stopwatches"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        return cls(process)

    async def measure(self, session: Session, candidate: Candidate) -> dict[str, Measured]:
        """Time the baseline and a candidate of a session with the harnesses, by name."""
        target = session.target
        builds = [await session.builders.build(target.workload, c) for c in (target.baseline, candidate)]
        binaries = [build.build.binary for build in builds]
        assert None not in binaries, "only what builds is timed"
        workload = target.workload.source
        request = {
            "binaries": base64.b64encode(pickle.dumps(binaries)).decode(),
            "path": str(workload.path.absolute()),
            "text": workload.text,
        }
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(request).encode() + b"\n")
        await self._process.stdin.drain()
        async with asyncio.timeout(_SECONDS):
            answer = json.loads(await self._process.stdout.readline())
        return {name: Measured(*times) for name, times in answer.items()}

    async def close(self) -> None:
        """End it."""
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()
        await self._process.wait()


def do_bench_ms(launch: Callable[[], Any]) -> float:
    """Mean milliseconds by Triton's `do_bench`, with its defaults."""
    from triton.testing import do_bench

    return float(do_bench(launch, return_mode="mean"))


def kernelbench_ms(launch: Callable[[], Any]) -> float:
    """Mean milliseconds in KernelBench's way."""
    import torch

    for _ in range(_WARM_UPS):
        launch()
        torch.cuda.synchronize()
    torch.cuda.empty_cache()
    times: list[float] = []
    for _ in range(TRIALS + 1):
        torch.cuda.synchronize()
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.empty(_CLEARED_WORDS, dtype=torch.int64, device="cuda").fill_(42)
        start.record()
        launch()
        end.record()
        torch.cuda.synchronize()
        times.append(start.elapsed_time(end))
    return sum(times[1:]) / TRIALS


HARNESSES: dict[str, Callable[[Callable[[], Any]], float]] = {
    "do_bench": do_bench_ms,
    "kernelbench": kernelbench_ms,
}


def _measure(binaries: Sequence[Binary], path: Path, text: str) -> dict[str, list[float]]:
    import torch

    from kernel_lsp.device.driver import LoadedModule
    from kernel_lsp.workload.load import bind_launch, load_workload
    from kernel_lsp.workload.workload import make_inputs

    torch.cuda.init()
    torch.cuda.synchronize()
    workload = load_workload(text, path)
    inputs = make_inputs(workload, workload.cases[0])
    launches = [bind_launch(LoadedModule(binary, {}), path, text, path) for binary in binaries]
    with torch.no_grad():
        return {
            name: [measure(lambda run=run: run(*inputs)) for run in launches] for name, measure in HARNESSES.items()
        }


def main() -> None:
    """Answer requests until standard input closes."""
    import torch

    torch.zeros(1, device="cuda")
    for line in sys.stdin:
        request = json.loads(line)
        binaries = pickle.loads(base64.b64decode(request["binaries"]))  # from our own parent
        print(json.dumps(_measure(binaries, Path(request["path"]), request["text"])), flush=True)
        torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
