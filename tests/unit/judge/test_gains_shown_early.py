"""A confirmed gain can be shown before its final checks: with the same id, and evidence that says which it was."""

import asyncio
from pathlib import Path

import pytest
from simulated_gpu import SimulatedGpu, marked

from kernel_lsp.judge import judgement
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict

SLOW, QUICK = 0.2, 0.01  # seconds


def judge(
    monkeypatch: pytest.MonkeyPatch, folder: Path, seconds: float, *, early: bool
) -> tuple[Verdict, list[Verdict]]:
    """The verdict on a candidate beside a slow baseline, and what was shown before it."""
    gpu, shown = SimulatedGpu(monkeypatch), list[Verdict]()

    async def judging() -> Verdict:
        async with gpu.opened([SLOW], folder, []) as session:
            text = f"// a candidate\n{session.target.source.text}{marked([seconds])}"
            text = text.replace(marked([SLOW]), "")
            candidate = session.target.version(text, "a candidate", "user")
            return await session.judge(candidate, always_run=True, on_confirmed=shown.append if early else None)

    return asyncio.run(judging()), shown


def test_it_is_shown_before_and_proved_after(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict, shown = judge(monkeypatch, tmp_path, QUICK, early=True)
    assert (verdict.verdict, verdict.evidence.final_checks) == (Outcome.FASTER, FinalChecks.AFTERWARDS)
    (before,) = shown
    assert (before.verdict, before.evidence.final_checks) == (Outcome.FASTER, FinalChecks.UNDER_WAY)
    assert (before.id, before.speedup) == (verdict.id, verdict.speedup)
    assert before.reason == f"{verdict.reason}; its final checks are under way"


def test_final_checks_that_fail_have_the_last_word(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def fail(_: Context, confirmed: Ruling) -> Ruling:
        return Ruling(Outcome.WRONG, Stage.CORRECT, "memcheck: a write past the end", speedup=confirmed.speedup)

    monkeypatch.setattr(judgement, "check_finally", fail)
    verdict, (before,) = judge(monkeypatch, tmp_path, QUICK, early=True)
    assert before.verdict is Outcome.FASTER
    assert (verdict.verdict, verdict.reason) == (Outcome.WRONG, "memcheck: a write past the end")
    assert (verdict.id, verdict.evidence.final_checks) == (before.id, FinalChecks.AFTERWARDS)


def test_who_does_not_ask_for_it_waits_for_them(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict, shown = judge(monkeypatch, tmp_path, QUICK, early=False)
    assert (verdict.verdict, verdict.evidence.final_checks) == (Outcome.FASTER, FinalChecks.AWAITED)
    assert shown == []


def test_what_is_no_gain_is_never_shown_early(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    verdict, shown = judge(monkeypatch, tmp_path, 2 * SLOW, early=True)
    assert verdict.verdict is not Outcome.FASTER
    assert verdict.evidence.final_checks is None
    assert shown == []
