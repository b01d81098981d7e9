"""Where openings spend their time, from traces: whose parts are added up, and when the GPU was waited for."""

from pathlib import Path

from kernel_lsp.judge.spans import TracedProcess, TracePiece, VerdictTrace
from tests.bench import openings
from tests.bench.pool_gpus import PoolRun

MS = 1000  # microseconds
OPENING = {"wait for its turn": 0.5, "oracle: compute the right answer": 1.5, "total": 3.0}


def trace(began_ms: int, ms: int, *busy: tuple[int, int], opening: dict[str, float] | None = None) -> VerdictTrace:
    pieces = tuple(TracePiece(0, "wait", start * MS, (end - start) * MS, gpu=True) for start, end in busy)
    return VerdictTrace(
        began_ms * 1_000_000, ms * MS, (TracedProcess(7, "subject"),), pieces, opening=dict(opening or {})
    )


def test_parts_of_all_sessions_are_added_up_and_the_longest_comes_first() -> None:
    figures = openings.figures_of(
        [("a", trace(0, 10, opening=OPENING)), ("a", trace(10, 10)), ("b", trace(0, 30, opening=OPENING))]
    )
    assert figures["openings"] == {"a": OPENING, "b": OPENING}
    assert list(figures["opening_parts_s"].items())[:2] == [("total", 6.0), ("oracle: compute the right answer", 3.0)]
    said = openings.table(figures)
    assert "| oracle: compute the right answer | 3.00 | 50% |" in said
    assert "| b | 3.00 | oracle: compute the right answer | 1.50 |" in said


def test_the_gpu_is_waited_for_once_however_many_traces_show_it_and_from_the_first_verdict_on() -> None:
    """An opening ahead is in the trace of the session that judges meanwhile, and in its own."""
    figures = openings.figures_of(
        [("a", trace(0, 10, (0, 10))), ("a", trace(10, 20, (0, 5))), ("b", trace(0, 20, (10, 15)))]
    )
    assert figures["gpu_busy_share"] == 0.25
    assert openings.figures_of([])["gpu_busy_share"] is None


def test_a_run_of_another_program_has_its_folders_name() -> None:
    assert PoolRun.named("local:1").name == "local:1"
    assert PoolRun("local", 1, Path("/elsewhere/before")).name == "local:1 of before"
