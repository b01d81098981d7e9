"""The place of a row's largest element, found by a warp or a block in place of a thread."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.parallel_rows import rewrite

NAIVE = Path(__file__).parents[2] / "fixtures/naive"
TEXT, LAUNCH = (NAIVE / "argmax.cu").read_text(), (NAIVE / "argmax_workload.py").read_text()
ROWS, COLUMNS = 6, 77


def scores() -> np.ndarray:
    """Rows of few values, so that the largest one comes often; of equals; and with one that is no number."""
    drawn = np.random.default_rng(1).integers(-3, 4, (ROWS, COLUMNS)).astype(np.float32)
    drawn[1] = 2.0
    drawn[2, 0] = np.nan
    drawn[3, 1:] = -np.inf
    drawn[4, 5] = np.nan
    return drawn


@pytest.mark.parametrize("least", [False, True])
@pytest.mark.parametrize("at", ["j", "2 * j + rows"])
def test_the_first_of_equals_is_found(tmp_path: Path, least: bool, at: str) -> None:
    text = TEXT.replace("score > best", "score < best") if least else TEXT
    text = text.replace("best_column = j;", f"best_column = {at};")
    wanted = np.zeros(ROWS, np.int32)
    host_runner(tmp_path, text)(1, 128, scores(), wanted, ROWS, COLUMNS)
    found = [one for one in rewritten(rewrite, text, LAUNCH) if "," not in one.label]
    assert [one.label for one in found] == ["one warp a row", "one block a row"]
    for one, grid in zip(found, (2, ROWS), strict=True):
        ptx(one.kernel.text)
        got = np.zeros(ROWS, np.int32)
        host_runner(tmp_path, one.kernel.text)(grid, 128, scores(), got, ROWS, COLUMNS)
        np.testing.assert_array_equal(got, wanted)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("score > best", "score >= best"),  # the last of equals
        ("best = score;", "best = score + 1;"),
        ("best_column = j;", "best_column = columns - j;"),  # places that grow smaller
        ("best_column = j;", "best_column = best_column + j;"),
        ("best_column = j;", "best_column = j; place[0] = 1;"),
        ("int best_column", "float best_column"),
        ("float score =", "int seen = best_column; float score = seen +"),
    ],
)
def test_other_places_are_left_to_one_thread(old: str, new: str) -> None:
    text = TEXT.replace(old, new)
    assert text != TEXT
    ptx(text)
    assert rewritten(rewrite, text, LAUNCH) == []
