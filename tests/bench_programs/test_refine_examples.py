from argparse import Namespace
from dataclasses import replace
from typing import Any

import pytest

from kernel_lsp.judge.target import make_target
from tests.bench.refine_examples import EXAMPLES, kernel_files, lines_replaced, summarise

pytestmark = pytest.mark.programs


def row(
    speedup: float | None, *, again: str = "FASTER", share: float | None = 0.4, lines: tuple[int, int] = (4, 6)
) -> Any:
    found = {"example": "a.cu", "timed": [{"roofline_share": share}], "again": again, "again_speedup": speedup}
    return found | ({"lines": lines} if speedup else {})


def test_lines_that_are_replaced_are_counted_on_both_sides() -> None:
    target = make_target(EXAMPLES / "cuda" / "rmsnorm.cu")
    base = target.baseline
    assert lines_replaced(target, base) == (0, 0)
    first, rest = base.kernel.text.split("\n", 1)
    longer = replace(base, kernel=replace(base.kernel, text=f"// one\n// two\n{rest}"))
    assert first not in longer.kernel.text
    assert lines_replaced(target, longer) == (1, 2)


def test_files_at_the_roofline_and_those_that_broke_do_not_count() -> None:
    rows = [row(1.5), row(1.2, lines=(10, 30)), row(1.04), row(1.9, again="SLOWER"), row(None, share=0.95)]
    rows += [{"example": "b.cu", "error": "it broke"}, {"task": "c.cu", "number": "refined", "failed": "it died"}]
    figures = summarise(rows)
    assert (figures["refined"], figures["below_the_roofline"], figures["gained_5_percent"]) == (5, 4, 2)
    assert figures["median_lines_put_for_each_taken"] == pytest.approx(2.25)
    assert summarise([])["median_lines_put_for_each_taken"] is None


def test_naive_kernels_are_taken_if_they_are_asked_for() -> None:
    assert "sobel.cu" not in kernel_files(Namespace(naive=False, only=[]))
    assert set(kernel_files(Namespace(naive=True, only=["sobel", "rmsnorm.cu"]))) == {"sobel.cu", "cuda/rmsnorm.cu"}
