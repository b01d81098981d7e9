"""Rulings and outcomes: what is out, what was timed, and what an error says of a version."""

import dataclasses
from pathlib import Path

import pytest

from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.inputs.findings import Findings, ruling_of
from kernel_lsp.judge.ruling import Ruling, rejected, wrong
from kernel_lsp.judge.verdict import CheckStatus, Mismatch, Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut

MISMATCH = Mismatch(case="n=1", family="normal", output=0, index=(3,), expected="1", actual="2", count=1, total=4)


@pytest.mark.parametrize("outcome", Outcome)
def test_who_is_out_whatever_its_speed(outcome: Outcome) -> None:
    failures = {"WRONG", "ILLEGITIMATE", "BUILD_FAILED", "RUN_FAILED", "TIMED_OUT"}
    assert outcome.is_failure is (outcome.name in failures), f"{outcome}: in `_FAILURES` and here, or in neither"


def test_who_cheats_is_rejected() -> None:
    assert rejected("it remembers answers") == Ruling(
        Outcome.ILLEGITIMATE, Stage.LEGITIMATE, "rejected: it remembers answers"
    )


def test_a_wrong_answer_keeps_its_first_wrong_element() -> None:
    assert wrong("output 0 is wrong", MISMATCH) == Ruling(Outcome.WRONG, Stage.CORRECT, "output 0 is wrong", MISMATCH)
    assert wrong("it changes its input").mismatch is None


def test_a_ruling_is_a_value() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        wrong("no").outcome = Outcome.FASTER  # type: ignore[misc]


def test_a_check_that_fails_keeps_its_ruling() -> None:
    findings, ruling = Findings(), wrong("it changes its input")
    findings.passed("inputs: normal", case="n=1")
    assert findings.ruling is None
    assert findings.fail("inputs: shifted", ruling, "n=2") is ruling is findings.ruling
    assert [(check.status, check.detail, check.case) for check in findings.checks] == [
        (CheckStatus.PASSED, "", "n=1"),
        (CheckStatus.FAILED, "it changes its input", "n=2"),
    ]


NO_ROOM = "memory: CUDA_ERROR_OUT_OF_MEMORY (2)"


@pytest.mark.parametrize(
    ("error", "outcome", "said"),
    [
        (WorkerTimedOut("no answer in 2 s"), Outcome.TIMED_OUT, "it did not finish running on case n=1: no answer"),
        (WorkerDied("signal 11"), Outcome.RUN_FAILED, "its process died running on case n=1: signal 11"),
        (
            WorkerFailure("ValueError", "no\nTraceback", ""),
            Outcome.RUN_FAILED,
            "it failed running on case n=1: ValueError: no",
        ),
        (WorkerFailure("KeyError", "", ""), Outcome.RUN_FAILED, "it failed running on case n=1: KeyError: KeyError"),
        (WorkloadError("`launch` returned None", Path("w.py")), Outcome.RUN_FAILED, "it failed running on case n=1: "),
        (WorkerFailure("CudaError", NO_ROOM, ""), Outcome.UNTIMED, "this GPU has too little memory free"),
        (WorkerFailure("OutOfMemoryError", "tried to", ""), Outcome.RUN_FAILED, "OutOfMemoryError: tried to"),
        (UnjudgedError("a check could not be made"), Outcome.UNTIMED, "it could not be judged, running on case n=1"),
        (CannotJudgeError("no `mma`", Path("k.cu")), Outcome.UNTIMED, "it could not be judged, running on case n=1"),
    ],
)
def test_an_error_says_of_a_version_what_it_did_and_nothing_of_what_the_judge_lacks(
    error: Exception, outcome: Outcome, said: str
) -> None:
    ruling = ruling_of(error, "running", "n=1")
    assert (ruling.outcome, ruling.stage) == (outcome, Stage.RUN)
    assert said in ruling.reason
    assert "\n" not in ruling.reason
