"""Launches that no graph repeats: the host's part differs from process to process, and none of that is a claim."""

import asyncio
import math
import random
from pathlib import Path
from typing import Any

import pytest
from simulated_gpu import SimulatedGpu, Version, judged

from kernel_lsp import policy
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.runner.messages.subject import Load, RecordSegment
from kernel_lsp.runner.protocol import WorkerFailure

LAUNCH_S = 4e-4


def verdict_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, share: float, luck: float, seed: int) -> Verdict:
    """The verdict on a candidate that takes a share of the baseline's time, where processes differ by their luck."""
    gpu, rng, ask = SimulatedGpu(monkeypatch), random.Random(seed), Version.ask

    async def hosted(version: Version, request: Any, *, deadline: float) -> Any:
        if isinstance(request, RecordSegment) and request.capture:
            raise WorkerFailure("RuntimeError", "operation not permitted when stream is capturing")
        answer = await ask(version, request, deadline=deadline)
        if isinstance(request, Load):
            version.seconds = [one * math.exp(rng.gauss(0, luck)) for one in version.seconds]
        return answer

    monkeypatch.setattr(Version, "ask", hosted)

    async def judging() -> Verdict:
        async with gpu.opened([LAUNCH_S], tmp_path, []) as session:
            return await judged(session, [LAUNCH_S * share])

    return asyncio.run(judging())


def test_a_kernel_beside_itself_is_neither_faster_nor_slower(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    seeds = range(12)
    verdicts = [verdict_on(monkeypatch, tmp_path, 1.0, 0.2, seed) for seed in seeds]
    claims = [v for v in verdicts if v.verdict in (Outcome.FASTER, Outcome.SLOWER)]
    assert len(claims) <= 1, "one in twenty by the intervals"
    again = [v for v in verdicts if "it looked" in v.reason]
    assert len(again) > len(seeds) / 2, "in one pair of processes nearly all look like a claim"


def test_a_gain_that_all_processes_show_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict = verdict_on(monkeypatch, tmp_path, 0.25, 0.1, seed=1)
    assert verdict.verdict is Outcome.FASTER, verdict.reason
    assert verdict.interval is not None
    assert verdict.interval[0] < 4 < verdict.interval[1]
    assert verdict.interval[1] / verdict.interval[0] > 1.1, "pairs of processes tell how sure it is"
    fresh = policy.HOSTED_PROCESS_PAIRS * policy.CONFIRMATION_BLOCKS
    assert [case.confirmation_blocks for case in verdict.cases] == [fresh]
