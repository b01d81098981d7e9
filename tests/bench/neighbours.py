"""Keeps the other GPUs of this machine busy with `bench kernelbench`, and the processor with what that compiles."""

import asyncio
import contextlib
import itertools
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from unittest import mock

from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.workload.suite import find_problems
from tests.bench.pool_gpus import ROOT, START, chosen_samples, environment
from tests.bench.shards import STUDY_GPUS

PROBLEMS = Path(__file__).parents[1] / "fixtures/kernelbench"
_END_WITH_ITS_PARENT = "import ctypes, signal; ctypes.CDLL(None).prctl(1, signal.SIGKILL)"  # PR_SET_PDEATHSIG
_FIRST_VERDICT_SECONDS = 180.0


@asynccontextmanager
async def busy_neighbours() -> AsyncGenerator[Callable[[], int]]:
    """Within it a bench runs on the other GPUs again and again, each time with nothing built or kept.

    It has given its first verdict before the block begins. Yields a function that returns the number of verdicts so
    far, and raises an AssertionError if the bench has failed. Without a GPU the bench is on the emulator.
    """
    gpus = other_gpus()
    assert gpus or not find_gpus(), "there is no other GPU to keep busy"
    with tempfile.TemporaryDirectory(prefix="n", dir="/tmp", ignore_cleanup_errors=True) as scratch:
        folder = Path(scratch)
        working = asyncio.create_task(_judge_again_and_again(folder, gpus))

        def judged() -> int:
            if working.done():
                working.result()
            return sum(ledger.read_bytes().count(b"\n") for ledger in folder.glob("*/ledger.jsonl"))

        try:
            try:
                async with asyncio.timeout(_FIRST_VERDICT_SECONDS):
                    while not judged():
                        await asyncio.sleep(0.2)
            except TimeoutError:
                said = [log.read_text(errors="replace")[-2000:] for log in folder.glob("*/log")]
                raise AssertionError(
                    f"the bench beside gave no verdict in {_FIRST_VERDICT_SECONDS:g} s: {said}"
                ) from None
            yield judged
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)


def other_gpus() -> tuple[Gpu, ...]:
    """The GPUs of the study that this process of it may not use."""
    ours = find_gpus()
    with mock.patch.dict(os.environ, CUDA_VISIBLE_DEVICES=os.environ.get(STUDY_GPUS, "")):
        return tuple(gpu for gpu in find_gpus() if gpu not in ours)


async def _judge_again_and_again(folder: Path, gpus: Sequence[Gpu]) -> None:
    (candidates := folder / "candidates").mkdir()
    for sample in chosen_samples(find_problems(PROBLEMS), None):
        shutil.copy(sample.path, candidates)
    command = (sys.executable, "-c", f"{_END_WITH_ITS_PARENT}; {START}", "bench", "kernelbench")
    given = ("--root", PROBLEMS, "--candidates", candidates, "--no-compiled", "--pool", "local")
    lanes = ("--gpus", len(gpus)) if gpus else ()
    for turn in map(str, itertools.count()):
        (own := folder / turn).mkdir()
        asked = map(str, (*command, *given, *lanes, "--ledger", own / "ledger.jsonl"))
        log = own / "log"
        with log.open("wb") as said:
            process = await asyncio.create_subprocess_exec(
                *asked, env=environment(own, gpus), stdout=said, stderr=said, cwd=ROOT, start_new_session=True
            )
        try:
            code = await process.wait()
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()
        assert code in (0, 3), f"the bench beside has failed: {log.read_text(errors='replace')[-2000:]}"
