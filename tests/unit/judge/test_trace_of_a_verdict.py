"""The trace of a verdict: what it keeps, how small, and when the GPU was busy."""

import asyncio
import base64
import os
import random
import time
import zlib
from pathlib import Path

import msgspec
import pytest

from kernel_lsp.judge.spans import (
    MOST_SPANS,
    TracedProcess,
    TracePiece,
    VerdictTrace,
    pack,
    seconds_by_part,
    trace_since,
    union,
    unpack,
)
from kernel_lsp.runner.spans import PARENT, SpanLog, WorkSpan
from tests.unit.judge.simulated_gpu import SimulatedGpu, judged

MS = 1_000_000  # nanoseconds
MOST_BYTES = 20_000  # of the text of a trace that is as long as any


def log_of(*spans: tuple[int, str, WorkSpan]) -> SpanLog:
    log = SpanLog()
    for pid, role, span in spans:
        log.add(pid, role, span)
    return log


def test_the_parent_comes_first_and_pieces_in_the_order_of_their_start() -> None:
    began = time.monotonic_ns() - 100 * MS
    worker = (7, "subject", WorkSpan("Run", began + 10 * MS, began + 30 * MS, gpu=True))
    stage = (os.getpid(), PARENT, WorkSpan("correct", began + 5 * MS, began + 40 * MS))
    trace = trace_since(log_of(worker, stage), began)
    assert trace.processes == (TracedProcess(os.getpid(), PARENT), TracedProcess(7, "subject"))
    assert trace.pieces == (
        TracePiece(0, "correct", 5000, 35_000, gpu=False),
        TracePiece(1, "Run", 10_000, 20_000, gpu=True),
    )
    assert trace.us >= 100_000


def test_what_began_before_is_clipped_and_what_ended_before_is_left_out() -> None:
    began = time.monotonic_ns() - 100 * MS
    spans = [WorkSpan("over", began - 20 * MS, began - MS), WorkSpan("under way", began - 20 * MS, began + 30 * MS)]
    trace = trace_since(log_of(*((7, "build", span) for span in spans)), began)
    assert trace.pieces == (TracePiece(0, "under way", 0, 30_000, gpu=False),)


def test_a_trace_comes_back_as_it_was_packed() -> None:
    pieces = (
        TracePiece(0, "a stage", 0, 9, gpu=False),
        TracePiece(1, "Run", 1, 3, gpu=True),
        TracePiece(1, "Run", 5, 2, gpu=True),
    )
    trace = VerdictTrace(123, 9, (TracedProcess(5, PARENT), TracedProcess(7, "subject")), pieces, 4)
    assert unpack(pack(trace)) == trace
    assert unpack("") is None
    opened = msgspec.structs.replace(trace, opening={"oracle: compute the right answer": 1.5, "total": 2.0})
    assert unpack(pack(opened)) == opened


def test_a_trace_that_was_packed_without_the_parts_of_an_opening_can_be_read() -> None:
    row = (123, 9, ((5, PARENT),), ("a stage",), ((0, 0, 0, 9, False),), 4)
    text = base64.b85encode(zlib.compress(msgspec.msgpack.encode(row), 6)).decode()
    trace = unpack(text)
    assert trace is not None
    assert (trace.us, trace.left_out, trace.opening) == (9, 4, {})


def test_the_parts_of_an_opening_are_those_of_its_own_processes_without_what_they_have_inside() -> None:
    began = time.monotonic_ns() - 1000 * MS
    log = log_of(
        (7, "oracle", WorkSpan("over", began - 20 * MS, began - MS)),
        (7, "oracle", WorkSpan("compute the right answer", began + 30 * MS, began + 90 * MS, gpu=True)),
        (7, "oracle", WorkSpan("answer Compare", began + 20 * MS, began + 100 * MS)),
        (7, "oracle", WorkSpan("Compare", began + 10 * MS, began + 110 * MS)),
        (7, "oracle", WorkSpan("Compare", began + 110 * MS, began + 115 * MS)),
        (8, "subject", WorkSpan("Run", began + 5 * MS, began + 10 * MS)),
        (9, "subject", WorkSpan("Run", began + 5 * MS, began + 500 * MS)),
    )
    parts = seconds_by_part(log, began, {7, 8})
    assert parts.pop("total") - parts.pop("elsewhere") == pytest.approx(0.11, abs=1e-3)
    assert parts == {
        "oracle: compute the right answer": pytest.approx(0.06),
        "oracle: answer Compare": pytest.approx(0.02),
        "oracle: Compare": pytest.approx(0.025),
        "subject: Run": pytest.approx(0.005),
    }


def test_the_longest_are_kept_of_too_many_and_the_text_stays_small() -> None:
    began, rng = time.monotonic_ns() - 10_000 * MS, random.Random(1)
    starts = [began + rng.randrange(9000 * MS) for _ in range(4 * MOST_SPANS)]
    spans = [
        (number % 9, "subject", WorkSpan(f"request {number % 40}", s, s + rng.randrange(MS)))
        for number, s in enumerate(starts)
    ]
    long = (3, "subject", WorkSpan("long", began, began + 5000 * MS))
    trace = trace_since(log_of(*spans, long), began)
    assert len(trace.pieces) == MOST_SPANS
    assert trace.left_out == 3 * MOST_SPANS + 1
    assert trace.pieces[0].name == "long"
    assert len(pack(trace)) < MOST_BYTES


def test_waiting_in_two_processes_at_once_counts_once() -> None:
    waiting = [(0, 10), (5, 20), (30, 31), (20, 22)]
    assert union(waiting) == ((0, 22), (30, 31))
    pieces = tuple(TracePiece(0, "wait", start, end - start, gpu=True) for start, end in waiting)
    other = TracePiece(0, "compile", 22, 8, gpu=False)
    assert VerdictTrace(0, 40, (TracedProcess(7, "subject"),), (*pieces, other)).gpu_busy() == ((0, 22), (30, 31))


def test_the_first_verdict_of_a_session_shows_its_opening_and_the_next_does_not(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    async def two() -> list[set[str]]:
        gpu = SimulatedGpu(monkeypatch)
        async with gpu.opened([1e-3], tmp_path, []) as session:
            verdicts = [await judged(session, [1e-3]) for _ in range(2)]
        traces = [unpack(verdict.evidence.trace) for verdict in verdicts]
        assert ["total" in trace.opening for trace in traces if trace] == [True, False]
        return [{piece.name for piece in trace.pieces} if trace else set() for trace in traces]

    first, second = asyncio.run(two())
    assert {"measure the baseline", "correct", "time", "evidence"} <= first
    assert "measure the baseline" not in second
    assert {"correct", "time", "evidence"} <= second
