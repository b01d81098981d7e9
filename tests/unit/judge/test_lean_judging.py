"""A whole judgement that keeps nothing in memory finds what one that keeps everything finds."""

import asyncio
from pathlib import Path

import pytest
from kernel_lsp.judge.bench import Bench

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Check, Verdict
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
    opened, asked = Bench.open, Bench.oracle

    async def open_bench(bench: Bench) -> None:
        bench.seed = 5
        await opened(bench)
        bench.large = lean

    async def ask(bench: Bench, method: str, /, **params: object) -> object:
        return await asked(bench, method, **params | ({"keep": 0} if lean and method == "load" else {}))

    async def run() -> dict[str, Verdict]:
        settings = Settings(paths=PathSettings(data=folder, cache=folder))
        async with open_session(make_target(path), settings) as session:
            found: dict[str, Verdict] = {}
            for name, text in ANSWERS.items():
                answer = session.target.answer(SourceFile(folder / f"{name}.py", text), name, "user")
                found[name] = await session.judge(answer)
                assert session.measured is not None
                await session.measured.bench.rest(session.measured.baseline)
            return found

    with monkeypatch.context() as patch:
        patch.setattr(Bench, "open", open_bench)
        patch.setattr(Bench, "oracle", ask)
        return asyncio.run(run())


def described(checks: tuple[Check, ...]) -> list[Check]:
    """All but the family that large inputs are spared."""
    return [check for check in checks if check.name != "inputs: sorted"]


def test_errors_are_allowed_several_times_over_where_pytorch_runs_on_the_cpu(tmp_path, monkeypatch):
    checks = judge(tmp_path, monkeypatch, lean=True)["right"].evidence.checks
    said = {check.name: check.detail for check in checks}
    assert "allowed 4 times over" in said["the baseline's error on a GPU"]
    assert "ten times their memory" in said["inputs: sorted"]


def test_what_is_kept_in_memory_changes_no_verdict(tmp_path, monkeypatch):
    lavish, lean = (judge(tmp_path, monkeypatch, lean=lean) for lean in (False, True))
    assert lavish["right"].evidence.errors
    for name in ANSWERS:
        assert lean[name].reason == lavish[name].reason
        assert described(lean[name].evidence.checks) == described(lavish[name].evidence.checks)
        assert lean[name].evidence.errors == tuple(e for e in lavish[name].evidence.errors if e.family != "sorted")
        assert lean[name].evidence.mismatch == lavish[name].evidence.mismatch
