"""Spans of a worker come with its answers, on the parent's clock, and never outside of the parent's own request."""

import time

import pytest

from kernel_lsp.runner.spans import PARENT, SpanLog, WorkerSpans, WorkSpan


def test_a_span_is_noted_also_if_the_work_raises() -> None:
    spans = WorkerSpans()
    before = time.monotonic_ns()
    with pytest.raises(ZeroDivisionError), spans.span("divide", gpu=True):
        raise ZeroDivisionError
    (span,) = spans.drain()
    assert (span.name, span.gpu) == ("divide", True)
    assert before <= span.began <= span.ended <= time.monotonic_ns()
    assert spans.drain() == ()


def test_inner_work_nests_in_outer_work() -> None:
    spans = WorkerSpans()
    with spans.span("outer"), spans.span("inner"):
        pass
    inner, outer = spans.drain()
    assert (inner.name, outer.name) == ("inner", "outer")
    assert outer.began <= inner.began <= inner.ended <= outer.ended


def test_a_worker_that_notes_without_end_keeps_the_latest() -> None:
    spans = WorkerSpans()
    for number in range(10_000):
        with spans.span(str(number)):
            pass
    kept = spans.drain()
    assert len(kept) < 1000
    assert kept[-1].name == "9999"


@pytest.mark.parametrize(("began", "ended"), [(0, 1), (1 << 70, 1 << 71), (-(1 << 60), 1 << 71), (1 << 71, 0)], ids=str)
def test_what_a_worker_claims_lies_within_the_parents_request(began: int, ended: int) -> None:
    log, asked = SpanLog(), time.monotonic_ns()
    log.report(7, "subject", [WorkSpan("x" * 10_000, began, ended)], asked)
    (logged,) = log.since(asked)
    assert asked <= logged.span.began <= logged.span.ended <= time.monotonic_ns()
    assert len(logged.span.name) < 100


def test_a_worker_cannot_flood_the_log() -> None:
    log = SpanLog()
    log.report(7, "subject", [WorkSpan("x", 0, 1)] * 100_000, 0)
    assert len(list(log.since(0))) < 1000


def test_only_what_ended_since_then_is_returned() -> None:
    log = SpanLog()
    with log.span("before"):
        pass
    then = time.monotonic_ns()
    with log.span("after"):
        pass
    assert [(one.role, one.span.name) for one in log.since(then)] == [(PARENT, "after")]
