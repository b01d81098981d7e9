"""A captured workload's verdict: weights of its cases, and what the change gives the program."""

import math
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp import policy
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.evidence import program_gain
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.intervals import Interval
from kernel_lsp.judge.program_gain import amdahl, weighted_blocks
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.capture import Capture, CapturedCase, capture_text
from kernel_lsp.workload.spec import WorkloadFile
from tests.unit.judge.judge_support import SAXPY, fake_context, fake_harness, scattered, timed

TWICE, SAME = math.log(1 / 2), 0.0


def judged(program_seconds: float = 10.0, scatter: float = 0.0, *, captured: bool = True, **more: float) -> Context:
    """A judgement of two captured cases, timed in reverse order: the one that is called most is not faster."""
    seen = (CapturedCase({}, (), 1, 90, 3.0), CapturedCase({}, (), 1, 10, 1.0), CapturedCase({}, (), 1, 5, 1.0))
    capture = Capture("train.py", "/k.py", "rms_norm", ("k",), "", seen, 105, program_seconds=program_seconds, **more)
    cases = (timed(case=1), timed(case=0))
    context = fake_context(fake_harness(), cases)
    workload = WorkloadFile(
        SourceFile(Path("k.capture.json"), capture_text(capture)), SAXPY, False, True, captured=captured
    )
    context.session = replace(context.session, target=replace(context.session.target, workload=workload))
    blocks = [scattered(TWICE, scatter, 10), scattered(SAME, 0.0, 10)]
    context.series = Series(cases, blocks, [[90.0] * 10, [10.0] * 10], [[45.0] * 10, [10.0] * 10])
    context.confirmation_blocks = 10
    return context


def test_a_case_weighs_as_much_as_its_calls_took():
    gain = program_gain(judged())
    assert gain is not None
    assert gain.weights == pytest.approx((0.5, 0.5))
    assert gain.speedup == pytest.approx(1 / 0.75)
    assert (gain.program, gain.function) == ("train.py", "rms_norm")


def test_the_program_gains_by_the_share_of_the_cases_that_were_timed():
    gain = program_gain(judged())
    assert gain is not None
    assert gain.share == pytest.approx(0.4)
    assert gain.whole == pytest.approx(1 / (1 - 0.4 * 0.25))


def test_a_weighted_ratio_is_as_sure_as_its_blocks():
    gain = program_gain(judged(scatter=0.02))
    assert gain is not None
    assert gain.whole_interval is not None
    assert gain.whole is not None
    assert gain.interval[0] < gain.speedup < gain.interval[1]
    assert gain.whole_interval[0] < gain.whole < gain.whole_interval[1]
    assert 0.001 < gain.interval[1] - gain.interval[0] < 0.1


def test_blocks_that_agree_leave_what_processes_and_places_scatter_by():
    context = judged()
    context.memories = policy.PLACES
    gain = program_gain(context)
    assert gain is not None
    rule = context.rule(context.cases, shared=False)
    widened = rule.widened(Interval(-math.log(gain.speedup), -math.log(gain.speedup)), 0.0).speedup
    assert gain.interval == pytest.approx((widened.lower, widened.upper), rel=1e-3)
    assert gain.interval[1] - gain.interval[0] > 0.002


def test_the_program_gains_by_gpu_time_where_that_was_recorded():
    """The function takes a fifth of the GPU's time, and the timed cases 4 of its 5 seconds."""
    gpu = {"seconds": 5.0, "gpu_seconds": 2.0, "program_gpu_seconds": 10.0}
    gain = program_gain(judged(**gpu))
    assert gain is not None
    assert (gain.on_gpu, gain.share) == (True, pytest.approx(0.16))
    plain = program_gain(judged())
    assert plain is not None
    assert not plain.on_gpu


def test_an_older_capture_says_the_ratio_and_no_share():
    gain = program_gain(judged(program_seconds=0.0))
    assert gain is not None
    assert (gain.share, gain.whole, gain.whole_interval) == (None, None, None)


def test_a_written_workload_has_no_program():
    assert program_gain(judged(captured=False)) is None
    untimed = judged()
    untimed.series = None
    assert program_gain(untimed) is None


def test_amdahls_law_and_weighted_blocks():
    assert amdahl(0.5, 1.5) == pytest.approx(1.2)
    assert amdahl(0.0, 9.0) == 1.0
    assert weighted_blocks([[TWICE, SAME], [SAME, SAME]], (0.25, 0.75)) == pytest.approx([math.log(0.875), 0.0])
