"""What has been judged in full is checked on plain inputs only, beside another baseline of the same workload."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Verdict
from kernel_lsp.source.candidate import SourceFile

pytestmark = pytest.mark.skipif(bool(find_gpus()), reason="a GPU gives other verdicts")

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
RIGHT = MIXER.read_text().replace("Model", "ModelNew").replace("x + y", "y + x")


def judged(folder: Path, text: str, *, known: bool) -> Verdict:
    async def run() -> Verdict:
        settings = Settings(paths=PathSettings(data=folder, cache=folder))
        async with open_session(make_target(MIXER), settings) as session:
            answer = session.target.answer(SourceFile(folder / "answer.py", text), "answer", "user")
            return await session.judge(answer, known=known)

    return asyncio.run(run())


def families(verdict: Verdict) -> set[str]:
    passed = (check for check in verdict.evidence.checks if check.status is not CheckStatus.SKIPPED)
    return {check.name for check in passed if check.name.startswith("inputs")}


def test_plain_inputs_are_enough_where_it_is_known(tmp_path):
    in_full, again = (judged(tmp_path, RIGHT, known=known) for known in (False, True))
    assert in_full.verdict is again.verdict is Outcome.UNTIMED, again.reason
    assert families(again) == {"inputs: normal"} < families(in_full)


def test_a_wrong_answer_is_wrong_even_so(tmp_path):
    assert judged(tmp_path, RIGHT.replace("+ shift", "- shift"), known=True).verdict is Outcome.WRONG
