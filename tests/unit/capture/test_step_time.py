"""The speedup of a program's steps follows from its segments, whatever machine they were timed on."""

import math

import pytest

from kernel_lsp.capture.step_time import step_times

Segment = tuple[str, int, float]


def block(first: str, second: str, *, disturbed: float = 1.0) -> list[Segment]:
    """A block ABBA of ten steps each: 30 ms with the original and 10 ms with the variant, the last one disturbed."""
    seconds = {"original": 0.3, "variant": 0.1}
    return [
        *((side, 10, seconds[side]) for side in (first, second, second)),
        (first, 10, seconds[first] * disturbed),
    ]


def blocks(count: int) -> list[Segment]:
    return [
        segment
        for number in range(count)
        for segment in block(*(("original", "variant") if number % 2 else ("variant", "original")))
    ]


def test_steady_segments_give_the_ratio_of_their_steps() -> None:
    times = step_times(blocks(8))
    assert times is not None
    assert times.interval is not None
    assert (times.blocks, times.steps) == (8, 160)
    assert (times.original_ms, times.variant_ms) == (pytest.approx(30), pytest.approx(10))
    assert times.speedup == pytest.approx(3)
    assert 1.3 < times.interval[0] <= times.speedup + 1e-9
    assert times.speedup - 1e-9 <= times.interval[1]


def test_one_disturbed_block_of_many_hides_no_gain() -> None:
    times = step_times([*blocks(20), *block("original", "variant", disturbed=4.0)])
    assert times is not None
    assert times.interval is not None
    assert 1.3 < times.interval[0] <= times.speedup <= times.interval[1]
    assert math.isclose(times.speedup, 3, rel_tol=0.1)


def test_without_a_whole_block_there_is_no_speedup_and_with_few_no_interval() -> None:
    assert step_times(blocks(1)[:3]) is None
    times = step_times(blocks(1))
    assert times is not None
    assert times.interval is None
