"""Steps that a model plans, and what becomes of them."""

from typing import Any, cast

import pytest

from kernel_lsp.refine.dialogue.conversation import PastTurn
from kernel_lsp.refine.strategies.steps import MOST_FAILURES, PlannedStep, StepTree, read_plan

FAILED = float("inf")
PLAN = """Here is my plan:
0.8 | 0 | Stage tiles in shared memory. | Each value is read sixteen times.
- .5 | 2 | Use `cp.async`. |
`1 | 0 | Widen the loads.`
2.5 | 0 | A chance above one. | no
0.9 | none | No number. | no
0.3 | 1 |  Swizzle | a | b
"""


def turn(text: str) -> PastTurn:
    return cast(PastTurn, text)


def step(text: str, chance: float = 0.5, after: int = 0) -> PlannedStep:
    return PlannedStep(text, "", after, chance)


def test_a_plan_is_read_line_by_line_and_the_rest_left_out() -> None:
    assert read_plan(PLAN) == [
        PlannedStep("Stage tiles in shared memory.", "Each value is read sixteen times.", 0, 0.8),
        PlannedStep("Use `cp.async`.", "", 2, 0.5),
        PlannedStep("Widen the loads.", "", 0, 1.0),
        PlannedStep("Swizzle", "a | b", 1, 0.3),
    ]
    assert read_plan("I would unroll | the loop.") == []


def test_the_likeliest_are_taken_and_a_new_plan_takes_the_place_of_the_rest() -> None:
    tree = StepTree()
    tree.plan([step("a", 0.2), step("b", 0.9), step("c", 0.9), step("A.", 0.8)])
    assert [one.text for one in tree.planned] == ["a", "b", "c"], "of one step only the first"
    assert [one.text for one in tree.take(2)] == ["b", "c"]
    assert [one.text for one in tree.planned] == ["a"]
    tree.plan([step("d")])
    assert [one.text for one in tree.planned] == ["d"]


def test_what_is_done_is_not_planned_again_and_nothing_builds_on_a_failure() -> None:
    tree = StepTree()
    tree.finish(step("wide loads"), 0.7, [turn("1")])
    tree.finish(step("tiles"), FAILED, [turn("2")])
    tree.plan([step("Wide loads!"), step("tiles"), step("x", after=1), step("y", after=2), step("z", after=9)])
    assert [one.text for one in tree.planned] == ["tiles", "x"]
    for _ in range(MOST_FAILURES - 1):
        tree.finish(step("tiles"), FAILED, [turn("2")])
    tree.plan([step("tiles"), step("x", after=1)])
    assert [one.text for one in tree.planned] == ["x"]


def test_a_step_goes_on_from_its_last_failure_or_from_what_it_builds_on() -> None:
    tree = StepTree()
    first, second, third = ([turn(text)] for text in ("right", "wrong", "worse"))
    tree.finish(step("wide loads"), 0.7, first)
    tree.finish(step("tiles", after=1), FAILED, second)
    tree.finish(step("tiles", after=1), FAILED, third)
    assert list(tree.conversation(step("Tiles.", after=1))) == third
    assert list(tree.conversation(step("swizzle", after=1))) == first
    assert list(tree.conversation(step("tiles"))) == [], "that is another step: it builds on the file"


@pytest.mark.parametrize(("ratio", "right"), [(0.5, True), (1.0, True), (3.0, True), (FAILED, False)])
def test_what_is_slower_is_right_all_the_same(ratio: float, right: bool) -> None:
    tree: Any = StepTree()
    tree.finish(step("a"), ratio, [])
    assert tree.done[0].right is right
