"""Sweeps judged in lanes elsewhere: what travels, what comes back, and options that need a sweep."""

import asyncio
import shutil
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest
from test_sweeps_by_turns import KERNEL, WORKLOAD
from typer.testing import CliRunner

from kernel_lsp.cli.refine import app
from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.target import Target
from kernel_lsp.pool.files import PackedFile, packed, unpacked
from kernel_lsp.pool.lane import opened_lane
from kernel_lsp.pool.remote import find_work
from kernel_lsp.refine import batch_lane
from kernel_lsp.refine.batch_lane import JUDGE_ANSWERS, AnswerStep, SweptKernel, WaitingAnswer
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.source.candidate import Candidate

ANSWER = """```
<<<<<<< SEARCH
    if (i < n) y[i] = 2 * x[i];
=======
    if (i < n) y[i] = 3 * x[i] - x[i];
>>>>>>> REPLACE
```
"""
PROFILE = (Path(__file__).parents[3] / "kernel_lsp/model/profiles/general.toml").read_text()


@pytest.mark.asyncio
async def test_a_machine_without_the_files_judges_an_answer_as_one_that_has_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    monkeypatch.chdir(tmp_path)
    (mine := tmp_path / "mine").mkdir()
    (mine / "scale.cu").write_text(KERNEL.format(n=2))
    (mine / "far_workload.py").write_text("from beside import EXTRA\n" + WORKLOAD.format(n=2))
    (mine / "beside.py").write_text("EXTRA = 1\n")
    (mine / "talker.toml").write_text(PROFILE)
    request = SweptKernel(
        number=7,
        path=Path("mine/scale.cu"),
        kernel=None,
        workload=Path("mine/far_workload.py"),
        profile=str(mine / "talker.toml"),
        model="m",
        write=None,
        turn=3,
        answers=tuple(
            WaitingAnswer(id=f"0007-{n:02}", answer=ModelAnswer(text), prompt="[]", seed=n)
            for n, text in enumerate((ANSWER, "I cannot."))
        ),
    )
    files = msgspec.json.decode(msgspec.json.encode(packed(JUDGE_ANSWERS.files(request))), type=list[PackedFile])
    assert {Path(file.name).name for file in files} == {"scale.cu", "far_workload.py", "beside.py", "talker.toml"}
    shutil.rmtree(mine)
    placed = unpacked(files, tmp_path / "there")
    work = find_work(JUDGE_ANSWERS.name)
    there = work.request.model_validate_json(placed.request(request.model_dump_json()))
    told: list[str] = []
    settings = Settings(
        paths=PathSettings(data=tmp_path / "data", cache=tmp_path / "cache"), judge=JudgeSettings(families=["normal"])
    )
    async with opened_lane(None, settings, "lane 1", lambda _: None) as lane:
        await work.attend(lane, there, lambda step: told.append(placed.answer(step.model_dump_json())), None)
    steps = [AnswerStep.model_validate_json(text) for text in told]
    assert str(tmp_path / "there") not in "".join(told)
    assert {step.number for step in steps} == {7}
    assert [step.id for step in steps if (step.verdict, step.exchange, step.line) == (None,) * 3] == [
        "0007-00",
        "0007-01",
    ]
    [verdict] = [step.verdict for step in steps if step.verdict]
    assert (verdict.verdict, verdict.evidence.where.lane) == ("UNTIMED", "lane 1")
    lines = {step.id: step.line for step in steps if step.line}
    assert [line["outcome"] for line in lines.values()] == ["UNTIMED", "REJECTED"]
    assert lines["0007-00"]["verdict"] == verdict.id
    said = [step.exchange for step in steps if step.exchange and step.id == "0007-00"]
    assert [one.verdict is not None for one in said] == [False, True]
    assert said[-1].candidate is not None
    assert said[-1].candidate.kernel.path == Path("mine/scale.cu")


def test_one_kernel_is_not_refined_on_a_pool() -> None:
    error = CliRunner().invoke(app, ["kernel.cu", "--pool", "ray"]).exception
    assert isinstance(error, ConfigurationError)
    assert error.message == "--pool is for --turn-batch."


@pytest.mark.asyncio
async def test_the_next_kernels_session_opens_and_its_answers_are_built_while_those_for_this_one_are_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    log: list[str] = []

    class Builders:
        """Writes down what is built."""

        async def build(self, _: object, candidate: Candidate) -> None:
            log.append(f"build {candidate.kernel.path.name}")

        def forget(self, candidate: Candidate) -> None:
            log.append(f"forget {candidate.kernel.path.name}")

    @asynccontextmanager
    async def opened(target: Target, *, keep: bool) -> AsyncGenerator[None]:
        await asyncio.sleep(0)
        assert not keep
        log.append(f"open {target.source.path.name}")
        yield

    async def judged(*_: object) -> dict[str, Any]:
        await asyncio.sleep(0)
        log.append("judge")
        return {}

    def foresee(target: Target) -> None:
        log.append(f"foresee {target.source.path.name}")

    monkeypatch.setattr(batch_lane, "_judge", judged)
    lane: Any = SimpleNamespace(
        builders=Builders(), settings=Settings(), say=lambda _: None, session=opened, foresee=foresee
    )

    def request(name: str) -> SweptKernel:
        (tmp_path / f"{name}.cu").write_text(KERNEL.format(n=2))
        (tmp_path / f"{name}_workload.py").write_text(WORKLOAD.format(n=2))
        texts = enumerate((ANSWER, "I cannot."))
        answers = tuple(WaitingAnswer(id=f"{n}", answer=ModelAnswer(text), prompt="[]", seed=n) for n, text in texts)
        given = {"kernel": None, "workload": None, "profile": "general", "model": "m", "write": None, "turn": 1}
        return SweptKernel(number=0, path=tmp_path / f"{name}.cu", answers=answers, **given)

    await batch_lane.judge_answers(lane, request("one"), lambda _: None, request("next"))
    begun, then = (
        ["build one.cu", "open one.cu", "foresee next.cu"],
        ["build next.cu", "judge", "judge", "forget one.cu"],
    )
    assert log == begun + then
