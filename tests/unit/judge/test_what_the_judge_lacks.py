"""Where the judge itself lacks memory: nothing is said of any version, and the next one is judged as ever."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.bench.records import comparison_of
from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict
from kernel_lsp.refine.dialogue.feedback import message_of
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.runner.messages.oracle import Compare
from kernel_lsp.source.candidate import SourceFile

pytestmark = pytest.mark.skipif(bool(find_gpus()), reason="a GPU gives other verdicts")

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
ANSWER = MIXER.read_text().replace("Model", "ModelNew").replace("x + y", "y + x")


def judge_twice(folder: Path, monkeypatch: pytest.MonkeyPatch, lacking: int) -> list[Verdict]:
    """Verdicts on one answer; the oracle lacks memory for one comparison, `lacking` after the baseline's."""
    path = folder / "mixer.py"
    path.write_text(MIXER.read_text())
    asked, compared = Harness.oracle, iter(range(1000))

    async def ask(harness: Harness, request: Any, **options: Any) -> Any:
        lacks = isinstance(request, Compare) and request.baseline is (lacking < 0)
        if lacks and next(compared) == max(lacking, 0):
            raise UnjudgedError("a check could not be made (Compare): OutOfMemoryError")
        return await asked(harness, request, **options)

    async def run() -> list[Verdict]:
        settings = Settings(paths=PathSettings(data=folder, cache=folder))
        async with open_session(make_target(path), settings) as session:
            answer = session.target.answer(SourceFile(folder / "answer.py", ANSWER), "answer", "user")
            return [await session.judge(answer) for _ in range(2)]

    monkeypatch.setattr(Harness, "oracle", ask)
    return asyncio.run(run())


def test_a_version_that_could_not_be_judged_is_neither_right_nor_wrong(tmp_path, monkeypatch):
    short, usual = judge_twice(tmp_path, monkeypatch, 1)
    assert (short.verdict, short.stage) == (Outcome.UNTIMED, Stage.RUN)
    assert "could not be judged" in short.reason
    assert not comparison_of(short).right
    assert (usual.verdict, usual.stage) == (Outcome.UNTIMED, Stage.CORRECT)
    assert comparison_of(usual).right


def test_a_baseline_that_could_not_be_judged_is_not_called_wrong(tmp_path, monkeypatch):
    with pytest.raises(RunnerError, match="could not be judged") as raised:
        judge_twice(tmp_path, monkeypatch, -1)
    assert "memory" in str(raised.value)


def test_a_model_is_told_why_nothing_was_timed():
    said = "it could not be judged: this GPU has too little memory free"
    assert message_of(Feedback(Stage.RUN, Outcome.UNTIMED, message=said)) == said
