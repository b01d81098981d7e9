"""What a bench adds up to, against figures worked out by hand."""

import pytest

from kernel_lsp.bench.plan import Comparisons, outstanding
from kernel_lsp.bench.totals import add_up, fast_p
from kernel_lsp.judge.verdict import WEAK, Outcome, Stage
from tests.unit.bench.bench_results import comparison, published, result, wrong

RIGHT, WRONG = True, False


@pytest.mark.parametrize(
    ("p", "share"),
    [(0.0, 4 / 6), (0.5, 4 / 6), (0.8, 3 / 6), (1.0, 2 / 6), (1.5, 1 / 6), (2.0, 0.0)],
)
def test_fast_p_counts_what_is_right_and_strictly_faster_of_all(p, share):
    ratios = [(RIGHT, 0.6), (RIGHT, 1.0), (RIGHT, 1.2), (RIGHT, 2.0), (WRONG, 9.0), (WRONG, None)]
    assert fast_p(ratios, p) == pytest.approx(share)


def test_without_times_only_correctness_is_known():
    assert fast_p([(RIGHT, None), (WRONG, None)], 0) == 0.5
    assert fast_p([(RIGHT, None), (RIGHT, 2.0)], 1) is None
    assert fast_p([(WRONG, None), (RIGHT, 2.0)], 1) == 0.5
    assert fast_p([], 0) is None


def test_totals_of_a_small_bench():
    same = comparison(Outcome.SAME, None, Stage.BUILD)
    illegal = comparison(Outcome.ILLEGITIMATE, None, Stage.LEGITIMATE)
    results = [
        result("a", compiled=comparison(Outcome.SLOWER, 0.9), published=published()),
        result("b", eager=same, compiled=comparison(Outcome.SAME, 1.0), build_way="full"),
        wrong("c", published=published(), build_way="triton"),
        result("d", eager=illegal, cheat="host code", published=published(), build_way="none"),
        wrong("e", published=published(correct=False)),
    ]
    totals = add_up(results, judged=4, seconds=120.0)
    assert (totals.candidates, totals.correct) == (5, 2)
    assert totals.outcomes == {"WRONG": 2, "FASTER": 1, "SAME": 1, "ILLEGITIMATE": 1}
    assert totals.fast == {"0": 0.4, "0.5": 0.4, "0.8": 0.4, "1": 0.2, "1.5": 0.0, "2": 0.0}
    assert totals.fast_compiled == {"0": 0.4, "0.5": 0.4, "0.8": 0.4, "1": 0.0, "1.5": 0.0, "2": 0.0}
    assert totals.fast_published["1.5"] == 0.75  # three of the four that it judged: twice as fast by its means
    assert totals.fast_published["2"] == 0.0
    assert totals.cheats == {"host code": 1}
    assert totals.fast_builds == pytest.approx(2 / 3)  # a and e were built the fast way, b in full
    assert totals.agreement is not None
    assert totals.agreement.model_dump() == {"both": 1, "neither": 1, "only_ours": 0, "only_published": 2}
    assert totals.per_minute == 2.0
    assert totals.seconds == {"build": 0.5, "total": 1.0}


def test_what_was_only_built_is_not_called_right():
    assert comparison(Outcome.UNTIMED, None, Stage.CORRECT).right
    assert not comparison(Outcome.UNTIMED, None, Stage.BUILD).right
    assert not comparison(Outcome.UNTIMED, None, Stage.RUN).right  # the judge lacked memory
    assert not comparison(Outcome.RUN_FAILED, None, Stage.RUN).right
    weak = comparison(Outcome.UNTIMED, None, Stage.CORRECT).model_copy(update={"reason": f"{WEAK}: zeros would pass"})
    assert not weak.right


def test_what_is_asked_for_later_is_all_that_is_left():
    both = Comparisons(compiled=True, published=True)
    assert outstanding(result(), both) == both
    assert outstanding(result(compiled=comparison(), published=published()), both) == Comparisons(False, False)
    assert outstanding(result(compiled_trouble="it does not compile", published_trouble="no"), both) == Comparisons(
        False, False
    )
    assert outstanding(wrong("w"), both) == Comparisons(compiled=False, published=True)
    untimed = result(eager=comparison(Outcome.UNTIMED, None, Stage.CORRECT))
    assert outstanding(untimed, both) == Comparisons(compiled=False, published=True)
