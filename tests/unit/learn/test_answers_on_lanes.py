"""Answers of a policy judged in lanes come to what they come to in sessions here, also where workers are killed."""

import os
import signal
from pathlib import Path
from typing import Any

import pytest
from policy_on_a_pool import RESULTS, SAID, settings_for, trajectories

from kernel_lsp.learn import answer_lane
from kernel_lsp.learn.environment import SessionJudge
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.refine.turn_outcome import NOT_JUDGED
from kernel_lsp.store.store import open_store
from tests.served_model.scale import write_scale
from tests.unit.learn.test_cheats_earn_nothing import RANDOM

pytest.importorskip("torch")
pytestmark = [pytest.mark.asyncio(loop_scope="function"), pytest.mark.timeout(300)]


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    path = write_scale(tmp_path)
    path.with_name("scale_workload.py").write_text(RANDOM)
    return path


async def test_lanes_say_what_a_session_here_says(kernel: Path, tmp_path: Path) -> None:
    settings = settings_for(tmp_path)
    found: dict[str, Any] = {}
    for name, pool in (("here", None), ("lanes", LocalPool((), settings))):
        with open_store(tmp_path / name) as store:
            done = await trajectories(kernel, settings, store, pool)
            turns = [turn for one in done for turn in one]
            kept = [store.find_verdict(turn.evidence) for turn in turns if turn.evidence]
            found[name] = [(turn.outcome.result, turn.outcome.stage, turn.outcome.judged) for turn in turns]
            places = [(verdict or {})["evidence"].get("where") for verdict in kept]
            assert [place and place["lane"] for place in places] == [None if name == "here" else "emulator"] * 6
            assert len(store.list_sessions()) == sum(map(len, SAID))
    assert found["here"] == found["lanes"]
    assert [result for result, _, _ in found["lanes"]] == 2 * RESULTS


async def test_a_killed_process_costs_no_answer_and_one_that_always_kills_its_own_alone(
    kernel: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings, judged, killed = settings_for(tmp_path), SessionJudge.judge, list[str]()

    async def judge(self: SessionJudge, candidate: Any) -> Any:
        right, once = any(f"// {n}" in candidate.launch.text for n in (64, 128)), not killed
        if right or once:
            killed.append("right" if right else "other")
            os.kill(self._session.harness._oracle.pid, signal.SIGKILL)  # pyright: ignore
        return await judged(self, candidate)

    monkeypatch.setattr(answer_lane.SessionJudge, "judge", judge)
    with open_store(tmp_path / "store") as store:
        done = await trajectories(kernel, settings, store, LocalPool((), settings))
    results = [turn.outcome.result for one in done for turn in one]
    assert results == 2 * [NOT_JUDGED, *RESULTS[1:]], killed
    assert killed.count("right") == 4, "twice in each step"
