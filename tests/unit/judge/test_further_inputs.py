"""What a session tries on larger cases: everything where it is quick, and no more than there is time for."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from judge_support import draw, fake_harness
from simulated_gpu import Oracle, SimulatedGpu, judged

from kernel_lsp import policy
from kernel_lsp.judge.inputs import check
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.plan import LAYOUTS, NONFINITE
from kernel_lsp.judge.verdict import CheckStatus
from kernel_lsp.runner.messages import oracle as truth
from kernel_lsp.runner.messages.oracle_answers import Compared


def profile_of(gpu: SimulatedGpu, tmp_path: Path) -> BaselineProfile:
    """The baseline's profile on two cases; its launches take a tenth of a millisecond."""

    async def opening() -> BaselineProfile:
        async with gpu.opened([1e-4, 1e-4], tmp_path, []) as session:
            assert session.measured is not None
            return session.measured.profile

    return asyncio.run(opening())


def test_larger_cases_have_all_inputs_where_right_answers_are_quick(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profile = profile_of(SimulatedGpu(monkeypatch), tmp_path)
    first, second = ({d.family for d in profile.draws if d.case == case} for case in (0, 1))
    assert first == second
    assert {
        "unaligned",
        "strided",
        "padded",
        "misaligned-1",
        "signed",
        "nonfinite",
        "spiked",
        "below",
        "ties",
    } <= second


def test_a_session_opens_no_later_than_the_budget_where_right_answers_are_slow(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, slow = SimulatedGpu(monkeypatch), 0.45
    usual = Oracle.ask

    async def ask(self: Oracle, request: Any, *, deadline: float) -> Any:
        if isinstance(request, truth.Prepare):
            gpu.clock.s += slow if request.case else 0.0
        return await usual(self, request, deadline=deadline)

    monkeypatch.setattr(Oracle, "ask", ask)
    profile = profile_of(gpu, tmp_path)
    second = [d.family for d in profile.draws if d.case == 1]
    assert {"unaligned", "strided", "nonfinite"} <= set(second)
    values = [f for f in second if f not in ("normal", "touched", "other `x`", *LAYOUTS)]
    assert len(values) == policy.FAMILIES_PER_TIMED_CASE + int(policy.FURTHER_INPUTS_SECONDS / slow)
    left_out = [c for c in profile.findings.checks if c.status is CheckStatus.SKIPPED and "take long" in c.detail]
    assert [c.case for c in left_out] == ["n=1"]
    assert len(profile.further) == int(policy.FURTHER_INPUTS_SECONDS / slow) - len(NONFINITE)
    by_chance = {key.split("/")[1] for key in profile.further}
    assert not by_chance & set(NONFINITE), "every candidate meets these, however busy it is"


def test_a_candidate_meets_some_of_them_however_slow_the_machine_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    gpu, usual = SimulatedGpu(monkeypatch), Oracle.ask

    async def slowly(self: Oracle, request: Any, *, deadline: float) -> Any:
        gpu.clock.s += 2 * policy.FURTHER_CHECKS_SECONDS if isinstance(request, truth.Compare) else 0.0
        return await usual(self, request, deadline=deadline)

    async def judging() -> tuple[int, list[str]]:
        async with gpu.opened([1e-4, 1e-4], tmp_path, []) as session:
            assert session.measured is not None
            monkeypatch.setattr(Oracle, "ask", slowly)
            checks = (await judged(session, [1e-4, 1e-4])).evidence.checks
            left_out = [c.detail for c in checks if c.name == "inputs: other families and values"]
            return len(session.measured.profile.further), left_out

    known, left_out = asyncio.run(judging())
    assert known > policy.FURTHER_CHECKS_LEAST
    more = known - policy.FURTHER_CHECKS_LEAST
    assert left_out == [f"{more} more sets of them: the time for others by chance was used up"]


def test_an_output_may_be_as_long_as_values_make_it() -> None:
    first, other = draw(), draw(1)
    profile = BaselineProfile(places={first.key: ("",), other.key: ("",)})
    forms = {first.key: ("float32", (564,), (1,)), other.key: ("float32", (577,), (1,))}
    profile.outputs |= {key: [form] for key, form in forms.items()}
    target: Any = type("Target", (), {"workload": type("Workload", (), {"problem": False})})

    def form(of: Any, like: str) -> Any:
        dtype, shape, strides = forms[like]
        spec = type("Spec", (), {"dtype": dtype, "shape": shape})
        published = type("Published", (), {"outputs": (spec,), "strides": (strides,)})
        ran: Any = type("Ran", (), {"published": published, "places": ("",)})
        return check._form(fake_harness(target=target), of, ran, Compared(), profile)

    assert form(first, first.key) is None
    assert form(other, other.key) is None
    assert "output 0 has shape [577] where the baseline's has [564]" in form(first, other.key).reason
