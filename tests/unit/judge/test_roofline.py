"""What memory gives: the least time of a launch's traffic, and times that nothing can have taken."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_lsp.judge.bench import Draw
from kernel_lsp.judge.timing import Series, TimedCase

from kernel_lsp.judge.measure.roofline import Bandwidth
from kernel_lsp.judge.session import impossible

H200 = Bandwidth(copy=3.774e12, read=4.4e12, write=4.0e12, peak=4.917e12)
GIB = 1 << 30
L2 = 50 << 20


def timed(read: int, written: int, mode: str = "streaming", baseline_us: float = 5000.0) -> TimedCase:
    return TimedCase(Draw("0/normal/0", 0, "normal", [], read, read), mode, 1, baseline_us, written)


def accused(case: TimedCase, candidate_us: float, bandwidth: Bandwidth | None = H200) -> str | None:
    bench = SimpleNamespace(bandwidth=bandwidth, l2_bytes=L2, cases=["n=1"])
    series = Series((case,), [[0.0]], [[case.baseline_us]], [[candidate_us]])
    return impossible(cast(Any, SimpleNamespace(bench=bench)), series)


def test_what_is_read_and_written_alike_is_a_copy_and_the_rest_has_its_own_rate():
    assert H200.seconds(GIB, GIB) == pytest.approx(2 * GIB / 3.774e12)
    assert H200.seconds(GIB, 0) == pytest.approx(GIB / 4.4e12)
    assert H200.seconds(0, GIB) == pytest.approx(GIB / 4.0e12)
    assert H200.seconds(3 * GIB, GIB) == pytest.approx(2 * GIB / 3.774e12 + 2 * GIB / 4.4e12)


def test_share_of_the_roofline():
    least = H200.seconds(GIB, GIB) * 1e6
    assert timed(GIB, GIB).roofline_share(H200, 2 * least) == pytest.approx(0.5)
    assert timed(GIB, GIB, "graph").roofline_share(H200, 2 * least) is None  # its inputs stay in the cache
    assert timed(GIB, GIB).roofline_share(None, 2 * least) is None


def test_of_a_part_of_a_table_no_share_is_known():
    table = [{"dtype": "float32"}, {"dtype": "int32"}]
    whole = timed(GIB, GIB)
    gather = replace(whole, draw=replace(whole.draw, arguments=table))
    least = H200.seconds(GIB, GIB) * 1e6
    assert gather.roofline_share(H200, least / 50) is None
    assert gather.roofline_share(H200, 2 * least) == pytest.approx(0.5)
    assert whole.roofline_share(H200, least / 1.1) == pytest.approx(1.1)


def test_a_sum_at_95_percent_of_the_peak_is_possible():
    """As it was measured: two inputs of 4 GiB each in 1838.9 us, a quarter faster than a copy."""
    assert accused(timed(8 * GIB, 4), 1838.9) is None


def test_more_than_memory_gives_is_not():
    said = accused(timed(8 * GIB, 4), 1650.0)
    assert said is not None
    assert "on case n=1 reading its inputs once in 1650.0 us would take 5,17" in said
    assert "(4,917 GB/s)" in said


def test_the_cache_may_hold_some_of_it():
    within = 5 * L2 / H200.limit * 1e6 * 0.9
    assert accused(timed(5 * L2, 4), within) is None
    assert accused(timed(5 * L2, 4, "cold"), within) is not None


def test_of_a_table_not_all_has_to_be_read():
    """A gather: the baseline is slow enough to have read all of it, and a good candidate is not."""
    table, indices = ({"dtype": name} for name in ("float32", "int64"))
    gather = timed(8 * GIB, 4)
    for arguments, said in (([table, indices, 7], False), ([table, table], True), ([indices], True)):
        draw = replace(gather.draw, arguments=arguments)
        assert (accused(replace(gather, draw=draw), 500.0) is not None) == said


def test_what_the_baseline_does_too_is_no_reason():
    """An input of which the kernel reads a part only."""
    assert accused(timed(8 * GIB, 4, baseline_us=1000.0), 900.0) is None


@pytest.mark.parametrize("peak", [0.0, 1e12])
def test_a_peak_that_is_not_known_or_cannot_be(peak: float):
    bandwidth = replace(H200, peak=peak)
    assert bandwidth.limit == pytest.approx(1.2 * 4.4e12)
    assert accused(timed(8 * GIB, 4), 1838.9, bandwidth) is None
    assert accused(timed(8 * GIB, 4), 1500.0, bandwidth) is not None


def test_nothing_is_said_where_nothing_was_measured():
    assert accused(timed(8 * GIB, 4), 1.0, None) is None
    assert accused(timed(8 * GIB, 4, "graph"), 1.0) is None
