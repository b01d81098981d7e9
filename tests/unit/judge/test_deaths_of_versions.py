"""A version whose process ends without a word: somebody else may have killed it once, but twice it did so itself."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from simulated_gpu import SimulatedGpu, Version, judged

from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.runner.messages.subject import Run
from kernel_lsp.runner.worker import WorkerDied


@pytest.mark.parametrize(("deaths", "outcome"), [(1, Outcome.FASTER), (2, Outcome.RUN_FAILED)])
def test_a_death_counts_the_second_time(
    deaths: int, outcome: Outcome, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, died, ask = SimulatedGpu(monkeypatch), list[float](), Version.ask

    async def dies(version: Version, request: Any, *, deadline: float) -> Any:
        if isinstance(request, Run) and version.seconds == [0.001] and len(died) < deaths:
            died.append(deadline)
            version.kill()
            raise WorkerDied("the subject process ended during `Run`")
        return await ask(version, request, deadline=deadline)

    monkeypatch.setattr(Version, "ask", dies)

    async def judging() -> Verdict:
        async with gpu.opened([0.002], tmp_path, []) as session:
            return await judged(session, [0.001])

    verdict = asyncio.run(judging())
    assert (verdict.verdict, len(died)) == (outcome, deaths), verdict.reason
    assert ("its process died" in verdict.reason) is (outcome is Outcome.RUN_FAILED)
