"""Real workers are killed in the middle of a sweep on the emulator: every answer is judged, or it is said why not."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest
from test_sweeps_by_turns import KERNEL, WORKLOAD

from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.judge.session import Session
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.refine import batch_lane
from kernel_lsp.refine.batch import NOT_JUDGED, Batch, advance_batch
from kernel_lsp.runner.pool import Flavour
from kernel_lsp.store.store import Store


def begun(folder: Path, count: int) -> Batch:
    """A sweep of one turn over so many kernels, each with a right answer."""
    names = tuple(str(folder / f"scale_{n}.cu") for n in range(2, 2 + count))
    batch = Batch(folder / "sweep", names, "general", "m", 1, 1, "batch-x")
    turn = batch.turn(1)
    turn.mkdir(parents=True)
    asked, said = [], []
    for n, (one, name) in enumerate(zip(batch.ids(), names, strict=True), 2):
        Path(name).write_text(KERNEL.format(n=n))
        Path(name).with_name(f"scale_{n}_workload.py").write_text(WORKLOAD.format(n=n))
        new = f"if (i < n) {{ float v = x[i]; y[i] = v * {n} + 0 * v * v; }}"
        text = f"```\n<<<<<<< SEARCH\n    if (i < n) y[i] = {n} * x[i];\n=======\n    {new}\n>>>>>>> REPLACE\n```\n"
        asked.append({"custom_id": one, "body": {"messages": []}})
        said.append({"custom_id": one, "response": {"body": {"choices": [{"message": {"content": text}}]}}})
    for name, lines in (("requests", asked), ("answers", said)):
        (turn / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return batch


def pid_of(what: str, session: Session) -> int:
    """The process of a session that does one part of its work."""
    assert session.harness is not None
    match what:
        case "oracle":
            return session.harness._oracle.pid  # pyright: ignore
        case "builder":
            return session.builders._idle[-1].pid  # pyright: ignore
        case _:
            return session.pool._zygotes[Flavour.EMULATE].result().process.pid  # pyright: ignore


@pytest.mark.thorough
@pytest.mark.asyncio
async def test_every_answer_is_judged_or_says_why_not(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    due = {"scale_2.cu": ["oracle", "oracle"], "scale_3.cu": ["builder"], "scale_4.cu": ["zygote"]}
    judge_one = batch_lane._judge  # pyright: ignore[reportPrivateUsage]

    async def judged(lane: Lane, session: Session, *arguments: Any) -> dict[str, Any]:
        if waiting := due[session.target.source.path.name]:
            os.kill(pid_of(waiting.pop(0), session), signal.SIGKILL)
        return await judge_one(lane, session, *arguments)

    monkeypatch.setattr(batch_lane, "_judge", judged)
    batch = begun(tmp_path, 3)
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    settings = Settings(paths=paths, judge=JudgeSettings(families=["normal"]))
    with Store(tmp_path / "store") as store:
        stand = await advance_batch(batch, settings, store, LocalPool((), settings))
    assert (stand.waits_for, stand.judged, stand.troubles) == (None, 3, ())
    written = map(json.loads, (batch.turn(1) / "outcomes.jsonl").read_text().splitlines())
    lines = sorted(written, key=lambda line: line["custom_id"])  # what broke is judged again behind what was prepared
    assert not any(due.values()), "all were killed"
    assert [line["outcome"] for line in lines] == [NOT_JUDGED, "UNTIMED", "UNTIMED"], [line["told"] for line in lines]
    assert "oracle process" in lines[0]["told"]
    assert "SEARCH" in lines[0]["answer"]
