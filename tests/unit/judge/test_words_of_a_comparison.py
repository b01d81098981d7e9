"""From a comparison to a ruling in words: wrong or inexact, where, and by how much."""

from dataclasses import replace

import pytest
from judge_support import draw, fake_harness

from kernel_lsp.judge.inputs.compare import difference, how_wrong, moved, ruling_on
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.oracle_answers import Compared, OutputDistance, TrampledInput
from kernel_lsp.runner.messages.subject_answers import Trampled

RIGHT = OutputDistance(1.0, 0.5, 0, 1000)
WRONG = OutputDistance(1e6, 9e4, 12, 1000, (3, 4), "1.5", "nan", 128.0)
INEXACT = replace(WRONG, max=570.0, actual="1.5001")
DIFFUSE = replace(WRONG, max=100.0, rms=45.678, wrong=0, actual="1.5001", allowed=32.0, diffuse=True)


def test_what_no_rounding_explains_is_wrong() -> None:
    assert how_wrong(WRONG) == ("is wrong from index [3, 4] on: nan where 1.5 is right; 12 of 1,000 elements are wrong")


def test_what_rounding_may_explain_is_inexact_and_says_by_how_much() -> None:
    assert how_wrong(INEXACT) == (
        "is inexact from index [3, 4] on: 1.5001 where 1.5 is right; 12 of 1,000 elements are wrong, by up to 570 "
        "units of rounding where 128 are allowed"
    )


def test_elements_that_are_each_within_their_bound_may_be_inexact_together() -> None:
    assert how_wrong(DIFFUSE) == (
        "is inexact by 45.7 units of rounding (root mean square) where 32 are allowed; most of all at index [3, 4]: "
        "1.5001 where 1.5 is right"
    )


@pytest.mark.parametrize(("times", "inexact"), [(63.9, True), (64.1, False)])
def test_between_the_two_lie_sixty_four_times_the_bound(times: float, inexact: bool) -> None:
    said = how_wrong(replace(WRONG, max=times * 128.0))
    assert said.startswith("is inexact " if inexact else "is wrong ")


def test_nan_and_infinity_are_no_matter_of_rounding() -> None:
    assert how_wrong(replace(WRONG, max=float("inf"))).startswith("is wrong ")


def test_a_right_answer_has_no_ruling() -> None:
    assert ruling_on(fake_harness(), draw(), Compared(distances=(RIGHT,))) is None


def test_the_first_wrong_output_is_named_with_its_inputs() -> None:
    shifted = replace(draw(1), family="shifted")
    ruling = ruling_on(fake_harness(), shifted, Compared(distances=(RIGHT, INEXACT, WRONG)), what=", as it is timed,")
    assert ruling is not None
    assert (ruling.outcome, ruling.stage) == (Outcome.WRONG, Stage.CORRECT)
    assert ruling.reason == (f"on case n=2 with shifted inputs, as it is timed, output 1 {how_wrong(INEXACT)}")
    mismatch = ruling.mismatch
    assert mismatch is not None
    assert (mismatch.case, mismatch.family, mismatch.output, mismatch.index) == ("n=2", "shifted", 1, (3, 4))
    assert (mismatch.expected, mismatch.actual, mismatch.count, mismatch.total) == ("1.5", "1.5001", 12, 1000)


@pytest.mark.parametrize(
    ("compared", "trampled", "said"),
    [
        (Compared(mismatch="output 0 has another shape"), None, "on case n=1 output 0 has another shape"),
        (Compared(changed_inputs=("x",)), None, "on case n=1 it changes its input `x`"),
        (
            Compared(trampled=(TrampledInput("x", "before", 8, 1200),)),
            None,
            "it writes before the end of the input `x`: 1,200 bytes, the first 8 bytes before it",
        ),
        (
            Compared(),
            Trampled((4, 8), "past", 4, 33, 16),
            "of a tensor of shape [4, 8] that `launch` made: 16 bytes, the first at index 33, 4 bytes past it",
        ),
        (Compared(), Trampled((4,), "before", 4, -1, 4), "4 bytes, the first at 4 bytes before it"),
    ],
)
def test_other_faults_say_what_they_are(compared: Compared, trampled: Trampled | None, said: str) -> None:
    ruling = ruling_on(fake_harness(), draw(), compared, (trampled,) if trampled else ())
    assert ruling is not None
    assert ruling.outcome is Outcome.WRONG
    assert said in ruling.reason


def test_outputs_are_held_to_the_baselines_form() -> None:
    row = ("float32", (4, 1), (1, 1))
    assert difference([row], [("float32", (4, 1), (1, 7))], strides=True) is None, "of one element no stride matters"
    column = ("float32", (4, 2), (1, 4))
    assert difference([("float32", (4, 2), (2, 1))], [column], strides=False) is None
    assert difference([("float32", (4, 2), (2, 1))], [column], strides=True) == (
        "output 0 has strides [1, 4] where the baseline's has [2, 1]"
    )
    assert difference([row, row], [row, ("float16", (4, 1), (1, 1))], strides=True) == (
        "output 1 has type float16 where the baseline's has float32"
    )
    assert difference([row], [], strides=True) == "it returns 0 outputs where the baseline returns 1"


@pytest.mark.parametrize(
    ("wanted", "got", "said"),
    [
        ("", "", None),
        ("byte 0 of the inputs", "byte 0 of the inputs", None),
        ("byte 0 of the memory of output 0", "", None),  # memory of its own is no fault
        ("", "byte 4 of the inputs", "output 0 lies in an input, where the baseline's does not"),
        ("byte 0 of the inputs", "", "output 0 does not lie in an input, where the baseline's does"),
        (
            "byte 0 of the inputs",
            "byte 4 of the inputs",
            "output 0 begins at byte 4 of the inputs, where the baseline's begins at byte 0 of the inputs",
        ),
        (
            "",
            "byte 0 of the memory of output 0",
            "output 0 lies in byte 0 of the memory of output 0, where the baseline's does not",
        ),
    ],
)
def test_outputs_share_memory_as_the_baselines_do(wanted: str, got: str, said: str | None) -> None:
    assert moved([wanted], [got]) == said
