import pytest

from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from tests.bench.predicted_order import Point, figures_of, measured_ratio, rank_correlation, summarise
from tests.bench.refine_examples import EXAMPLES

pytestmark = pytest.mark.programs


def candidate(label: str, text: str = "") -> Candidate:
    return Candidate(Language.CUDA, SourceFile(EXAMPLES / "a.cu", text), None, label, "tuner")


def race(label: str, ratio: float | None, **more: object) -> dict[str, object]:
    return {"label": label, "ratio": ratio, "judged": False, **more}


def test_ranks_share_ties_and_an_order_reversed_is_minus_one() -> None:
    assert rank_correlation([1.0, 2.0, 3.0], [0.1, 0.2, 9.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0, 3.0], [9.0, 0.2, 0.1]) == pytest.approx(-1.0)
    assert rank_correlation([1.0, 1.0, 2.0, 3.0], [1.0, 1.0, 2.0, 3.0]) == pytest.approx(1.0)
    assert rank_correlation([1.0, 2.0], [1.0, 1.0]) is None


def test_a_label_of_two_texts_is_of_no_use_and_a_digest_decides() -> None:
    tried = [race("a", 0.5), race("b", 0.6), race("b", 0.7), race("c", None), race("d", 0.8, judged=True)]
    assert [measured_ratio(candidate(label), tried) for label in "abcd"] == [0.5, None, None, None]
    kept = [race("a", 0.5, digest="other"), race("b", 0.6, digest=candidate("a", "x").digest)]
    assert measured_ratio(candidate("a", "x"), kept) == 0.6


def test_the_best_of_the_three_that_were_predicted_fastest_is_held_against_the_best() -> None:
    found = [Point(str(n), 0.5 + n / 10, 0.5 + n / 10, 1.0) for n in range(6)]
    row = figures_of(found)
    assert row["rank_correlation"] == pytest.approx(1.0)
    assert row["best_ratio"] == row["best_ratio_of_predicted_three"] == 0.5
    missed = figures_of([Point(one.label, one.measured, 2.0 - one.predicted, 1.0) for one in found])
    assert missed["best_ratio_of_predicted_three"] == pytest.approx(0.8)
    assert summarise([row, missed, figures_of(found[:2])])["best_among_predicted_three"] == 1
    assert summarise([figures_of(found[:2])]) == {"examples_with_correlation": 0}
