"""The reward against figures worked out by hand."""

import pytest

from kernel_lsp.judge.verdict import WEAK, Outcome, Stage
from kernel_lsp.learn.reward import CHEATING, GAMMA, RIGHT, RewardedTurn, advantages, returns, samples_of, score
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, REJECTED, TurnOutcome

UNSURE = TurnOutcome(result=NOT_JUDGED)
CHEAT = TurnOutcome(result="ILLEGITIMATE", stage=Stage.LEGITIMATE, judged=True, speedup=40.0, interval=(39.0, 41.0))
WRONG = TurnOutcome(result="WRONG", stage=Stage.CORRECT)


def timed(low: float, high: float, result: str = "FASTER", *, judged: bool = True) -> TurnOutcome:
    return TurnOutcome(
        result=result, stage=Stage.TIMED, speedup=(low * high) ** 0.5, interval=(low, high), judged=judged
    )


def test_the_constants_are_the_papers():
    assert (RIGHT, GAMMA) == (0.3, 0.4)


def test_a_right_answer_is_paid_by_the_lower_end_of_its_interval():
    assert score(timed(1.5, 2.5)) == pytest.approx(0.3 + 1.5)
    assert score(timed(0.4, 0.6, "SLOWER")) == pytest.approx(0.3 + 0.4)


def test_a_gain_in_a_race_is_not_paid_before_the_judge_has_seen_it():
    assert score(timed(1.5, 2.5, "AMBIGUOUS", judged=False)) == pytest.approx(0.3 + 1.0)
    assert score(timed(0.4, 0.6, "SLOWER", judged=False)) == pytest.approx(0.3 + 0.4)


def test_no_outlier_is_paid_in_full():
    assert score(timed(300.0, 310.0)) == pytest.approx(0.3 + 10.0)


def test_right_but_untimed_is_paid_for_being_right_alone():
    right = TurnOutcome(result="UNTIMED", stage=Stage.CORRECT, reason="right on the emulator", judged=True)
    assert score(right) == pytest.approx(0.3)
    assert score(right.model_copy(update={"reason": f"{WEAK}: all zeros pass"})) == 0.0
    assert score(right.model_copy(update={"stage": Stage.BUILD})) == 0.0


@pytest.mark.parametrize("failure", [one for one in Outcome if one.is_failure and one is not Outcome.ILLEGITIMATE])
def test_what_fails_earns_nothing_however_fast(failure):
    fast = TurnOutcome(result=failure, stage=Stage.CORRECT, speedup=50.0, interval=(49.0, 51.0), judged=True)
    assert score(fast) == 0.0


def test_a_rejected_answer_earns_nothing_and_an_unjudged_one_has_no_score():
    assert score(TurnOutcome(result=REJECTED, reason="no code")) == 0.0
    assert score(UNSURE) is None


def test_a_cheat_is_worth_less_than_a_wrong_answer():
    assert score(CHEAT) == CHEATING < score(WRONG) == 0.0


def test_a_return_is_the_discounted_sum_of_later_scores():
    # 1 + 0.4 * 0 + 0.16 * 2 = 1.32; 0 + 0.4 * 2 = 0.8; 2
    assert returns([1.0, 0.0, 2.0], 0.4) == pytest.approx([1.32, 0.8, 2.0])
    assert returns([]) == []


def test_a_cheat_ends_its_trajectory():
    [first, second] = samples_of([[timed(1.0, 1.2, "AMBIGUOUS"), CHEAT, timed(5.0, 6.0)]])
    assert (second.score, second.reward) == (CHEATING, CHEATING)
    assert first.reward == pytest.approx(1.3 - 0.4), "what came after the cheat is worth nothing to what came before"


def test_a_turn_that_was_not_judged_is_no_sample_and_ends_the_sum():
    [only] = samples_of([[timed(1.0, 1.2, "AMBIGUOUS"), UNSURE, timed(5.0, 6.0)]])
    assert only.reward == pytest.approx(1.3)
    assert samples_of([[UNSURE]]) == []


def rewards(*given: tuple[int, int, float]) -> list[RewardedTurn]:
    return [RewardedTurn(trajectory, turn, 0.0, reward) for trajectory, turn, reward in given]


def test_advantages_are_normalised_in_the_group():
    # mean 2, deviation sqrt((1 + 0 + 1) / 3) = 0.81650
    group = rewards((0, 0, 1.0), (1, 0, 2.0), (2, 0, 3.0))
    assert advantages(group) == pytest.approx([-1.224745, 0.0, 1.224745])


def test_advantages_compare_the_same_turn_or_all():
    group = rewards((0, 0, 3.0), (1, 0, 5.0), (0, 1, 0.0), (1, 1, 2.0))
    assert advantages(group) == pytest.approx([-1.0, 1.0, -1.0, 1.0])
    # mean 2.5, deviation sqrt((0.25 + 6.25 + 6.25 + 0.25) / 4) = 1.802776
    expected = [0.277350, 1.386750, -1.386750, -0.277350]
    assert advantages(group, by_turn=False) == pytest.approx(expected, abs=1e-6)


def test_a_group_whose_rewards_are_alike_teaches_nothing():
    assert advantages(rewards((0, 0, 1.3), (1, 0, 1.3), (2, 0, 1.3))) == [0.0, 0.0, 0.0]
    assert advantages([]) == []
