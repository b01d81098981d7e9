from rich.console import Console

from kernel_lsp.refine.progress import Best, SearchProgress, Talking
from kernel_lsp.report.live import progress_view, time_left


def moment(**changes) -> SearchProgress:
    given = {"doing": "racing 4 candidates", "proposed": 34, "built": 30, "correct": 28, "raced": 12}
    return SearchProgress(**given | {"elapsed": 48.0, "budget": 120.0} | changes)


def drawn(progress: SearchProgress, width: int = 80) -> list[str]:
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        console.print(progress_view(progress))
    return [line.strip() for line in capture.get().splitlines()]


def test_stage_counts_best_and_time_left():
    best = Best("BLOCK 128 -> 256", 1.42, (1.4, 1.44), confirmed=True)
    doing, counts, leader, clock = drawn(moment(best=best))
    assert doing == "racing 4 candidates"
    assert counts == "34 candidates · 30 built · 28 correct · 12 raced"
    assert leader == "best 1.42x (1.40-1.44) BLOCK 128 -> 256"
    assert clock.endswith("1:12 left")


def test_a_best_that_may_yet_fall_says_so():
    assert drawn(moment(best=Best("x", 1.42, (1.4, 1.44))))[2].endswith("to be confirmed")


def test_nothing_yet_claims_nothing():
    assert drawn(moment())[2] == "nothing faster yet"


def test_the_budget_overrun_is_no_negative_time():
    assert time_left(moment(elapsed=130.0)) == "0:00 left"
    assert drawn(moment(elapsed=130.0))[3].endswith("0:00 left")


def test_the_height_never_changes():
    long = Best("a very long label " * 10, 1.42, (1.4, 1.44))
    assert len(drawn(moment())) == len(drawn(moment(best=long, doing="x" * 200), 60)) == 4


def test_a_conversation_has_a_line_of_its_own():
    lines = drawn(moment(doing="the model is writing", talking=Talking(3, 8, 12345, 57.2)))
    assert lines[1] == "turn 3 of 8 · 12,345 tokens · 57 tokens/s"
    assert lines[2].startswith("34 candidates")
    assert len(lines) == len(drawn(moment())) + 1
