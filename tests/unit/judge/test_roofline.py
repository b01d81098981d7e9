"""What memory gives: the least time of a launch's traffic, and times that nothing can have taken."""

from dataclasses import replace

import pytest
from judge_support import fake_context, fake_harness
from judge_support import timed as case_of

from kernel_lsp.device.tensors import Argument, TensorSpec
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.roofline import Bandwidth
from kernel_lsp.judge.stages.confirm import impossible
from kernel_lsp.runner.messages.subject import Mode

H200 = Bandwidth(copy=3.774e12, read=4.4e12, write=4.0e12, peak=4.917e12)
GIB = 1 << 30


def timed(read: int, written: int, mode: Mode = "cold", baseline_us: float = 5000.0) -> TimedCase:
    return case_of(mode, launches=1, us=baseline_us, nbytes=read, output_bytes=written)


def tensor(dtype: str) -> TensorSpec:
    return TensorSpec(dtype, (4,), (1,), 0, 16)


def accused(case: TimedCase, candidate_us: float, bandwidth: Bandwidth | None = H200) -> str | None:
    series = Series((case,), [[0.0]], [[case.baseline_us]], [[candidate_us]])
    return impossible(fake_context(fake_harness(bandwidth=bandwidth)), series)


def test_what_is_read_and_written_alike_is_a_copy_and_the_rest_has_its_own_rate():
    assert H200.seconds(GIB, GIB) == pytest.approx(2 * GIB / 3.774e12)
    assert H200.seconds(GIB, 0) == pytest.approx(GIB / 4.4e12)
    assert H200.seconds(0, GIB) == pytest.approx(GIB / 4.0e12)
    assert H200.seconds(3 * GIB, GIB) == pytest.approx(2 * GIB / 3.774e12 + 2 * GIB / 4.4e12)


def test_share_of_the_roofline():
    least = H200.seconds(GIB, GIB) * 1e6
    assert timed(GIB, GIB).roofline_share(H200, 2 * least) == pytest.approx(0.5)
    assert timed(GIB, GIB, "short").roofline_share(H200, 2 * least) is None  # its inputs stay in the cache
    assert timed(GIB, GIB).roofline_share(None, 2 * least) is None


def test_what_reads_much_and_writes_little_seldom_does_both_at_once() -> None:
    least_us = H200.seconds(GIB, GIB) * 1e6
    assert timed(GIB, GIB, baseline_us=4 * least_us).copying_share(H200) == pytest.approx(0.25)
    assert timed(GIB, GIB, baseline_us=least_us / 2).copying_share(H200) == 1.0
    assert timed(GIB, GIB // 64, baseline_us=least_us).copying_share(H200) == pytest.approx(1 / 64)
    assert timed(GIB, GIB).copying_share(None) == 1.0, "unknown"


def test_of_a_part_of_a_table_no_share_is_known():
    table = (tensor("float32"), tensor("int32"))
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
    assert "on case n=1 reading its inputs once in 1650.0 us would take 5,206 GB/s" in said
    assert "(4,917 GB/s)" in said


def test_of_a_table_not_all_has_to_be_read():
    """A gather: the baseline is slow enough to have read all of it, and a good candidate is not."""
    table, indices = tensor("float32"), tensor("int64")
    gather = timed(8 * GIB, 4)
    alone: list[tuple[tuple[Argument, ...], bool]] = [((table, table), True), ((indices,), True)]
    for arguments, said in [((table, indices, 7), False), *alone]:
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
    assert accused(timed(8 * GIB, 4, "short"), 1.0) is None
