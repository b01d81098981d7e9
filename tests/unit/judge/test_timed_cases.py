"""How a case is timed: launches of a segment, memory of its own for each, and what is too short to be timed."""

import asyncio
import math
from dataclasses import replace
from typing import Any

import pytest
from judge_support import draw, fake_harness, fake_subject, timed

from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.measure import cases as timing
from kernel_lsp.judge.measure.cases import (
    NothingTimed,
    choice_of,
    choose_cases,
    launch_bound,
    launches_of,
    run_segment,
    spent_ms,
)
from kernel_lsp.runner.messages.subject import RecordSegment, RunSegments
from kernel_lsp.runner.messages.subject_answers import Recorded, Segment


@pytest.mark.parametrize(
    ("us", "launches"),
    [
        (1.0, 32),
        (3.2, 32),
        (5.0, 20),
        (9.9, 11),
        (25.0, 4),
        (999.0, 4),
        (1000.0, 2),
        (1999.0, 2),
        (2000.0, 1),
        (1e6, 1),
    ],
)
def test_a_segment_is_long_enough_for_an_event_timer_and_no_longer(us: float, launches: int) -> None:
    assert launches_of(us) == launches
    assert launches == 32 or launches * us >= 100.0


@pytest.mark.parametrize(
    ("us", "longest", "short"),
    [
        (6.9, 8.0, True),
        (7.1, 8.0, False),
        (7.1, 141.0, False),
        (7.1, 143.0, True),  # a twentieth of the longest one
        (9.9, 1000.0, True),
        (10.1, 1000.0, False),
        (2.0, 2.0, False),  # the longest is always timed
    ],
)
def test_a_case_that_tells_of_launching_only_is_not_timed_beside_longer_ones(
    us: float, longest: float, short: bool
) -> None:
    assert launch_bound(us, longest) is short


@pytest.mark.parametrize(
    ("calls", "kept"),
    [
        ((), [0, 1, 2]),  # a written workload: no case counts more than another
        ((1000, 1000, 1000), [0, 1, 2]),
        ((1000, 1000, 1), [0, 1]),
        ((1, 1000, 1), [1]),
    ],
)
def test_a_captured_case_that_takes_next_to_none_of_the_calls_time_is_not_timed(
    calls: tuple[int, ...], kept: list[int]
) -> None:
    choice = choice_of([timed(case=number, us=100.0) for number in range(3)], calls)
    assert [case.draw.case for case in choice.timed] == kept
    assert len(choice.timed) + len(choice.untimed) == 3


def test_where_most_time_goes_to_short_launches_those_are_timed() -> None:
    choice = choice_of([timed(case=0, us=1000.0), timed(case=1, us=5.0)], (1, 1_000_000))
    assert [case.draw.case for case in choice.timed] == [1]


def test_launches_take_the_buffers_of_a_place_in_turn() -> None:
    case = replace(timed(launches=5), buffers=2)
    buffer = case.draw.buffer
    assert case.names == (f"{buffer}@0.0", f"{buffer}@0.1")
    assert case.sequence == tuple(f"{buffer}@0.{n}" for n in (0, 1, 0, 1, 0))
    assert case.at(3).sequence == tuple(f"{buffer}@3.{n}" for n in (0, 1, 0, 1, 0))
    assert case.recording == case.names[0]
    assert case.at(3).how == case.how, "a place says nothing about how it is recorded"
    assert not set(case.names) & set(case.at(1).names)


def test_names_of_two_cases_or_layouts_never_meet() -> None:
    assert timed(case=0).names != timed(case=1).names
    assert timed().names != replace(timed(), draw=draw(arguments=(4,))).names


def test_what_was_recorded_on_memory_that_is_gone_is_recorded_anew() -> None:
    case = timed()
    bare = replace(case, mode="short", unflushed=True)
    subject = fake_subject()
    subject.recorded |= {one.recording: one.how for one in (case, bare, case.at(1))}
    subject.forget_recordings(case.names[0])
    assert list(subject.recorded) == [case.at(1).recording]


def test_what_is_recorded_in_another_way_is_recorded_anew() -> None:
    case = timed()
    changes: list[dict[str, Any]] = [{"mode": "short"}, {"launches": 5}, {"buffers": 2}, {"restores": True}]
    for change in [*changes, {"captured": False}]:
        assert replace(case, **change).how != case.how


def test_inputs_that_are_put_back_take_their_memory_twice() -> None:
    case = timed(nbytes=100, output_bytes=30)
    assert (case.footprint, replace(case, restores=True).footprint, case.bytes_moved) == (130, 230, 130)


class Worker:
    """A process whose launches take so many microseconds on each case."""

    def __init__(self, us: dict[str, float]) -> None:
        self.us, self.made = us, list[RecordSegment]()

    async def ask(self, request: Any, *, deadline: float) -> Any:
        if isinstance(request, RecordSegment):
            self.made.append(request)
            return Recorded()
        return (
            None
            if not isinstance(request, RunSegments)
            else (Segment((self.us[request.recording.partition("/")[0]],) * 3, (), None),)
        )


async def nothing(*_: object) -> None:
    pass


def chosen(times: tuple[float, ...], *, captured: bool = True, free: int = 80 << 30, **profile: Any):
    """The choice of cases whose launches take these times, and what the baseline's process was asked for."""
    draws = [draw(number, 1 << 20) for number in range(len(times))]
    known = BaselineProfile(draws=draws, output_bytes=dict.fromkeys(range(len(times)), 1 << 20), **profile)
    worker = Worker({str(number): us for number, us in enumerate(times)})
    harness = fake_harness(gpu=free, bind=nothing, unbind=nothing, oracle=nothing, salt=1)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(timing, "free_bytes", lambda gpu: gpu)
        return asyncio.run(choose_cases(harness, fake_subject(worker), known, captured=captured)), worker


def test_short_launches_are_timed_between_graphs_and_each_works_on_inputs_of_its_own() -> None:
    choice, worker = chosen((8.0, 50.0))
    assert [(case.mode, case.launches, case.buffers) for case in choice.timed] == [("short", 13, 13), ("cold", 4, 4)]
    assert [request.mode for request in worker.made] == ["cold", "cold"], "a probe of each"
    assert choice.untimed == ()


def test_a_case_beside_a_much_longer_one_is_left_out() -> None:
    choice, _ = chosen((5.0, 8.0, 500.0))
    assert [case.baseline_us for case in choice.timed] == [500.0]
    assert [case.baseline_us for case in choice.untimed] == [5.0, 8.0]
    assert [case.baseline_us for case in chosen((2.0,))[0].timed] == [2.0]


@pytest.mark.parametrize("options", [{"captured": False}, {"in_place": True}])
def test_what_cannot_be_replayed_without_pause_is_timed_cold(options: dict[str, Any]) -> None:
    choice, worker = chosen((8.0,), **options)
    (case,) = choice.timed
    assert (case.mode, case.captured) == ("cold", options.get("captured", True))
    assert case.restores is options.get("in_place", False)
    assert worker.made[0].restores is case.restores


def test_buffers_share_an_eighth_of_the_memory() -> None:
    """Of inputs and two outputs of 1 MiB each."""
    assert [case.buffers for case in chosen((30.0,), free=48 << 20)[0].timed] == [2]
    assert [case.buffers for case in chosen((30.0,), free=1 << 20)[0].timed] == [1]


@pytest.mark.parametrize(("free", "launches"), [(80 << 30, 4), (72 << 20, 3), (48 << 20, 2), (1 << 20, 1)])
def test_no_two_launches_of_a_segment_work_on_the_same_inputs_however_little_memory_there_is(
    free: int, launches: int
) -> None:
    """The second would find what the first remembers, and the median of four launches could be one of these."""
    (case,) = chosen((30.0,), free=free)[0].timed
    assert len(case.sequence) == launches
    assert len(set(case.sequence)) == launches


@pytest.mark.parametrize("us", [0.0, -1.0])
def test_what_takes_no_time_was_not_run(us: float) -> None:
    with pytest.raises(NothingTimed):
        asyncio.run(run_segment(fake_subject(Worker({"0": us})), timed()))


def test_what_a_segment_costs_the_gpu() -> None:
    assert spent_ms(timed("short", launches=32), Segment((5.0,), (), None)) == pytest.approx(0.16)
    cold = spent_ms(timed(), Segment((100.0, 100.0), (), None))
    assert cold > 0.2, "flushes take time too"
    assert math.isclose(cold, 0.29)
