"""Sweeps in which something breaks: the others go on, and what could not be judged is kept with the reason."""

import json
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from test_sweeps_by_turns import KERNEL, WORKLOAD

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import KernelLspError, RunnerError
from kernel_lsp.judge.target import Target
from kernel_lsp.pool import lane
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.refine import batch_lane
from kernel_lsp.refine.batch import NOT_JUDGED, Batch, Stand, advance_batch
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.store.store import Store

Fault = Callable[[str], Exception | None]


def begun(folder: Path, kernels: int) -> Batch:
    """A sweep of one turn, each of whose kernels has an answer."""
    paths = [folder / f"k{n}.cu" for n in range(kernels)]
    batch = Batch(folder, tuple(map(str, paths)), "general", "m", 1, 1, "batch-x")
    turn = batch.turn(1)
    turn.mkdir(parents=True)
    for path in paths:
        path.write_text(KERNEL.format(n=2))
        path.with_name(f"{path.stem}_workload.py").write_text(WORKLOAD.format(n=2))
    asked, said = [], []
    for one in batch.ids():
        asked.append({"custom_id": one, "body": {"messages": []}})
        message = {"content": f"answer to {one}"}
        said.append({"custom_id": one, "response": {"body": {"choices": [{"message": message}]}}})
    for name, lines in (("requests", asked), ("answers", said)):
        (turn / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return batch


@pytest.fixture
def faults(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[Exception]]:
    """What opening a kernel's session, or judging one answer, raises next; both are otherwise done in no time."""
    due: dict[str, list[Exception]] = {}

    def break_if_due(what: str) -> None:
        if due.get(what):
            raise due[what].pop(0)

    @asynccontextmanager
    async def opened(target: Target, *_: object) -> AsyncGenerator[SimpleNamespace]:
        break_if_due(target.source.path.name)
        yield SimpleNamespace(whole=True)

    async def judged(*arguments: Any) -> dict[str, Any]:
        break_if_due(arguments[4].answer.text)
        return {"told": "", "candidate": "c", "verdict": "v", "outcome": "SAME", "speedup": None}

    monkeypatch.setattr(lane, "open_session", opened)
    monkeypatch.setattr(batch_lane, "_judge", judged)
    monkeypatch.setattr(batch_lane, "kernel_parts", lambda *_: (None, None, NoCandidates()))
    return due


class NoCandidates:
    """A task that finds nothing to build in any answer."""

    def candidate(self, answer: ModelAnswer) -> Candidate:
        raise RejectedAnswer(f"there is no code in {answer.text}")


async def advanced(batch: Batch, tmp_path: Path) -> tuple[Stand, dict[str, dict[str, Any]]]:
    with Store(tmp_path / "store") as store:
        stand = await advance_batch(batch, Settings(), store, LocalPool((), Settings()))
    lines = (batch.turn(1) / "outcomes.jsonl").read_text().splitlines()
    return stand, {line["custom_id"]: line for line in map(json.loads, lines)}


@pytest.mark.asyncio
@pytest.mark.parametrize(
    "error",
    [WorkerFailure("KeyError", "'0/c029d183@0'"), RunnerError("the oracle process ended"), KeyError("an own mistake")],
    ids=["a worker fails", "a worker is killed", "this program errs"],
)
async def test_what_breaks_twice_is_not_judged_and_the_others_are(
    error: Exception, faults: dict[str, list[Exception]], tmp_path: Path
) -> None:
    faults["answer to 0001-00"] = [error, error]
    stand, lines = await advanced(begun(tmp_path / "sweep", 3), tmp_path)
    assert [lines[f"000{n}-00"]["outcome"] for n in range(3)] == ["SAME", NOT_JUDGED, "SAME"]
    assert str(error).strip("'") in lines["0001-00"]["told"]
    assert lines["0001-00"]["answer"] == "answer to 0001-00"
    assert (stand.judged, stand.waits_for, stand.troubles) == (3, None, ())


@pytest.mark.asyncio
async def test_what_breaks_once_is_judged_by_other_workers(faults: dict[str, list[Exception]], tmp_path: Path) -> None:
    faults["answer to 0000-00"] = [RunnerError("the process that starts workers is gone")]
    faults["k1.cu"] = [RunnerError("the process that starts workers is gone")]
    stand, lines = await advanced(begun(tmp_path / "sweep", 2), tmp_path)
    assert [line["outcome"] for line in lines.values()] == ["SAME", "SAME"]
    assert stand.troubles == ()


@pytest.mark.asyncio
async def test_what_no_session_can_be_opened_for_is_not_judged(
    faults: dict[str, list[Exception]], tmp_path: Path
) -> None:
    faults["k0.cu"] = [RunnerError("the oracle process ended"), RunnerError("the oracle process ended again")]
    stand, lines = await advanced(begun(tmp_path / "sweep", 2), tmp_path)
    assert [lines[f"000{n}-00"]["outcome"] for n in range(2)] == [NOT_JUDGED, "SAME"]
    assert "the oracle process ended again" in lines["0000-00"]["told"]
    assert (stand.judged, stand.waits_for, stand.troubles) == (2, None, ())


@pytest.mark.asyncio
async def test_a_kernel_that_cannot_be_opened_is_a_trouble(faults: dict[str, list[Exception]], tmp_path: Path) -> None:
    faults["k0.cu"] = [KernelLspError("the kernel does not build as it stands")]
    stand, lines = await advanced(begun(tmp_path / "sweep", 2), tmp_path)
    assert list(lines) == ["0001-00"]
    assert stand.troubles == ("the kernel does not build as it stands",)
