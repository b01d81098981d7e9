"""An adapter is called better than its base only where the judge's figures leave no doubt."""

import math

import pytest

from kernel_lsp.learn.comparison import (
    LEAST_KERNELS,
    KernelResults,
    TrajectoryResult,
    compare,
    read_comparison,
    write_comparison,
)


def results(*kernels, samples=4):
    """Speedups of both sides on each kernel; None is wrong."""

    def side(speedup):
        one = TrajectoryResult(right=speedup is not None, speedup=speedup or 1.0, tokens=10)
        return (one,) * samples

    return [KernelResults(kernel=f"k{n}.cu", base=side(a), adapter=side(b)) for n, (a, b) in enumerate(kernels)]


def compared(*kernels, gpu="H200"):
    return compare(results(*kernels), adapter="mine", content="c", gpu=gpu, tokens=100)


def measure(found, name):
    return next(one for one in found.measures if one.name == name)


def test_the_figures_are_means_over_kernels_and_their_paired_difference():
    found = compared((1.0, 2.0), (None, 1.2), (1.6, 1.6))
    assert (measure(found, "right").base, measure(found, "right").adapter) == (pytest.approx(2 / 3), 1.0)
    assert measure(found, "faster").difference == pytest.approx(2 / 3)
    assert measure(found, "fast_1.5").difference == pytest.approx(1 / 3)
    assert measure(found, "speedup").difference == pytest.approx((2.0 * 1.2) ** (1 / 3))


def test_the_interval_is_students_over_kernels():
    gains = [0.1, 0.2, 0.3, 0.4]
    low, high = measure(compared(*((1.0, math.exp(gain)) for gain in gains)), "speedup").interval
    half = 3.182446 * math.sqrt(1 / 60) / 2  # t of 3 degrees of freedom; the deviation is sqrt(0.05 / 3)
    assert (math.log(low), math.log(high)) == (
        pytest.approx(0.25 - half, abs=1e-6),
        pytest.approx(0.25 + half, abs=1e-6),
    )


def test_better_needs_an_interval_above_no_gain():
    clear = [(1.0, 1.2 + 0.02 * n) for n in range(LEAST_KERNELS)]
    assert compared(*clear).better
    doubtful = [*clear[:-2], (1.6, 1.0), (1.4, 1.0)]
    assert compared(*doubtful).deciding.difference > 1.0
    assert not compared(*doubtful).better
    assert not compared(*((after, before) for before, after in clear)).better


def test_few_kernels_say_nothing_however_large_the_difference():
    found = compared(*[(1.0, 3.0)] * (LEAST_KERNELS - 1))
    assert found.deciding.interval[0] == pytest.approx(3.0)
    assert not found.enough
    assert not found.better
    assert compared((1.0, 3.0)).deciding.interval is None


def test_many_answers_on_one_kernel_are_no_evidence_for_others():
    one = compare(results((1.0, 3.0), samples=100), adapter="mine", content="c", gpu="H200", tokens=100)
    assert not one.better


def test_where_nothing_is_timed_the_share_right_decides():
    found = compared(*[(None, 1.0)] * LEAST_KERNELS, gpu=None)
    assert [one.name for one in found.measures] == ["right"]
    assert found.better
    assert not compared(*[(1.0, 1.0)] * LEAST_KERNELS, gpu=None).better


def test_a_comparison_of_other_weights_is_not_shown(tmp_path):
    found = compared((1.0, 2.0), (1.0, 1.1))
    write_comparison(tmp_path, found)
    assert read_comparison(tmp_path, "c") == found
    assert read_comparison(tmp_path, "other") is None
