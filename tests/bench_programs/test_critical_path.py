"""The critical path of a verdict: what was waited for, and nothing that went on beside it."""

from kernel_lsp.judge.spans import TracedProcess, TracePiece, VerdictTrace
from tests.bench.critical_path import COMMAND, Step, added_up, critical_path

PROCESSES = (TracedProcess(1, "kernel-lsp"), TracedProcess(2, "build"), TracedProcess(3, "subject"))


def trace(*pieces: TracePiece, us: int = 100) -> VerdictTrace:
    return VerdictTrace(0, us, PROCESSES, tuple(sorted(pieces, key=lambda p: (p.start, -p.us))))


def test_requests_and_what_lies_between_them_add_up_to_the_whole() -> None:
    path = critical_path(
        trace(
            TracePiece(0, "build", 0, 40, gpu=False),
            TracePiece(1, "BuildCandidate", 5, 30, gpu=False),
            TracePiece(1, "answer BuildCandidate", 6, 28, gpu=False),
            TracePiece(0, "time", 40, 60, gpu=False),
            TracePiece(2, "RunSegments", 50, 40, gpu=False),
            TracePiece(2, "segment", 55, 20, gpu=True),
        )
    )
    assert path == [
        Step("build", COMMAND, "", 5),
        Step("build", "build", "BuildCandidate", 30),
        Step("time", COMMAND, "", 15),
        Step("time", "subject", "RunSegments", 40, 20),
        Step("time", COMMAND, "", 10),
    ]
    assert sum(step.us for step in path) == 100


def test_of_work_side_by_side_only_the_last_to_end_counts() -> None:
    slow, quick = TracePiece(1, "slow", 0, 90, gpu=False), TracePiece(2, "quick", 0, 50, gpu=False)
    assert [(step.who, step.us) for step in critical_path(trace(slow, quick))] == [("build", 90), (COMMAND, 10)]


def test_a_process_made_ready_for_later_is_not_waited_for() -> None:
    (step,) = critical_path(trace(TracePiece(0, "time", 0, 100, gpu=False), TracePiece(2, "Ready", 10, 60, gpu=False)))
    assert step == Step("time", COMMAND, "", 100)


def test_work_that_outlasts_the_verdict_is_not_part_of_the_path() -> None:
    assert [step.who for step in critical_path(trace(TracePiece(1, "late", 50, 90, gpu=False)))] == [COMMAND]


def test_equal_steps_are_added_and_the_longest_comes_first() -> None:
    path = [Step("a", "x", "Run", 3, 1), Step("b", "x", "Run", 5), Step("a", "x", "Run", 4, 2)]
    assert added_up(path) == [Step("a", "x", "Run", 7, 3), Step("b", "x", "Run", 5)]
