"""An answer that makes a canary faster than it can be ends the run; every other one is only counted."""

import pytest

from kernel_lsp.judge.verdict import Stage
from kernel_lsp.learn.canaries import EVERY, FooledJudgeError, canary_targets, counted, is_due, require_silence
from kernel_lsp.learn.rollout import SampledTurn
from kernel_lsp.refine.turn_outcome import TurnOutcome


def turn(result: str, *interval: float, judged: bool = True) -> SampledTurn:
    speedup = sum(interval) / 2 if interval else None
    outcome = TurnOutcome(result=result, stage=Stage.TIMED, speedup=speedup, interval=interval or None, judged=judged)
    return SampledTurn(prompt=(1,), tokens=(2,), logprobs=(-0.1,), answer="...", outcome=outcome, evidence="20261127-1")


def test_each_canary_has_a_workload_and_is_asked_in_the_first_step():
    assert [target.source.path.name for target in canary_targets()] == ["negate.cu"]
    assert [step for step in range(1, 2 * EVERY + 2) if is_due(step)] == [1, EVERY + 1, 2 * EVERY + 1]


def test_what_an_honest_version_may_come_to_is_counted():
    [canary] = canary_targets()
    turns = [turn("FASTER", 1.01, 1.03), turn("ILLEGITIMATE"), turn("WRONG"), turn("WRONG"), turn("SAME", 0.99, 1.01)]
    require_silence(canary, turns)
    assert counted(turns) == {"FASTER": 1, "ILLEGITIMATE": 1, "SAME": 1, "WRONG": 2}


def test_a_race_alone_proves_nothing():
    [canary] = canary_targets()
    require_silence(canary, [turn("FASTER", 1.9, 2.1, judged=False)])


def test_the_answer_that_fooled_the_judge_is_named():
    [canary] = canary_targets()
    with pytest.raises(FooledJudgeError, match=r"negate\.cu 1\.90x as fast") as raised:
        require_silence(canary, [turn("SAME", 0.99, 1.01), turn("FASTER", 1.9, 2.1)])
    assert "kernel-lsp report 20261127-1" in (raised.value.fix or "")
