"""A whole judgement that keeps nothing in memory finds what one that keeps everything finds."""

import asyncio
from dataclasses import replace
from pathlib import Path
from typing import Any

import msgspec
import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Check, Verdict
from kernel_lsp.runner.messages.oracle import LoadWorkload
from kernel_lsp.source.candidate import SourceFile

pytestmark = pytest.mark.skipif(bool(find_gpus()), reason="a GPU gives other verdicts")

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
ANSWERS = {
    "right": MIXER.read_text().replace("Model", "ModelNew").replace("x + y", "y + x"),
    "wrong": MIXER.read_text().replace("Model", "ModelNew").replace("+ shift", "- shift"),
}


def judge(folder: Path, monkeypatch: pytest.MonkeyPatch, *, lean: bool) -> dict[str, Verdict]:
    """Verdicts on the answers; `lean` keeps no inputs but those in use, and frees memory between any two uses."""
    path = folder / "mixer.py"
    path.write_text(MIXER.read_text())
    opened, asked = Harness.open, Harness.oracle

    async def open_harness(harness: Harness) -> None:
        harness.seed = 5
        await opened(harness)
        harness.workload = replace(harness.workload, large=lean)

    async def ask(harness: Harness, request: Any, **options: Any) -> Any:
        if lean and isinstance(request, LoadWorkload):
            request = msgspec.structs.replace(request, keep=0)
        return await asked(harness, request, **options)

    async def run() -> dict[str, Verdict]:
        settings = Settings(paths=PathSettings(data=folder, cache=folder))
        async with open_session(make_target(path), settings) as session:
            found: dict[str, Verdict] = {}
            for name, text in ANSWERS.items():
                answer = session.target.answer(SourceFile(folder / f"{name}.py", text), name, "user")
                found[name] = await session.judge(answer)
                assert session.measured is not None
                await session.measured.harness.rest(session.measured.baseline)
            return found

    with monkeypatch.context() as patch:
        patch.setattr(Harness, "open", open_harness)
        patch.setattr(Harness, "oracle", ask)
        return asyncio.run(run())


def described(checks: tuple[Check, ...]) -> list[Check]:
    """All but the family that large inputs are spared."""
    return [check for check in checks if check.name != "inputs: sorted"]


@pytest.mark.thorough
def test_errors_are_allowed_several_times_over_where_pytorch_runs_on_the_cpu(tmp_path, monkeypatch):
    checks = judge(tmp_path, monkeypatch, lean=True)["right"].evidence.checks
    said = {check.name: check.detail for check in checks}
    assert "allowed 4 times over" in said["the baseline's error on a GPU"]
    assert "ten times their memory" in said["inputs: sorted"]


@pytest.mark.thorough
def test_what_is_kept_in_memory_changes_no_verdict(tmp_path, monkeypatch):
    lavish, lean = (judge(tmp_path, monkeypatch, lean=lean) for lean in (False, True))
    assert lavish["right"].evidence.errors
    for name in ANSWERS:
        assert lean[name].reason == lavish[name].reason
        assert described(lean[name].evidence.checks) == described(lavish[name].evidence.checks)
        spared = [error for error in lavish[name].evidence.errors if error.family != "sorted"]
        assert sorted(lean[name].evidence.errors, key=repr) == sorted(spared, key=repr), "in an order by chance"
        assert lean[name].evidence.mismatch == lavish[name].evidence.mismatch
