"""A verdict's trace in Chrome's format: what Perfetto needs to open it, and to show it as it was."""

import json
from itertools import combinations
from typing import Any

import pytest

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.spans import TracedProcess, TracePiece, VerdictTrace, pack
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.chrome_trace import chrome_trace
from tests.unit.report.sample_verdicts import evidence, faster

PROCESSES = (TracedProcess(100, "kernel-lsp"), TracedProcess(200, "subject"))
PIECES = (
    TracePiece(0, "confirm", 0, 500, gpu=False),
    TracePiece(0, "steady load", 500, 300, gpu=False),
    TracePiece(0, "sanitize", 510, 400, gpu=False),
    TracePiece(1, "RunSegments", 100, 50, gpu=False),
    TracePiece(1, "answer RunSegments", 105, 40, gpu=False),
    TracePiece(1, "segment", 110, 30, gpu=True),
    TracePiece(1, "segment", 600, 100, gpu=True),
)


def events(pieces: tuple[TracePiece, ...] = PIECES) -> list[dict[str, Any]]:
    trace = VerdictTrace(1_000_000, 1000, PROCESSES, pieces, 3)
    document = json.loads(chrome_trace(verdict_with(pack(trace))))
    assert document["otherData"]["left_out"] == 3
    return document["traceEvents"]


def verdict_with(trace: str) -> Verdict:
    return faster().model_copy(update={"evidence": evidence(trace=trace)})


def test_each_event_has_the_fields_that_its_phase_needs() -> None:
    for event in events():
        assert {"name", "ph", "ts", "pid", "tid"} <= event.keys()
        if event["ph"] == "X":
            assert event["dur"] >= 0
        else:
            assert event["ph"] == "M"
            assert event["args"].keys() <= {"name", "sort_index"}


def test_work_lies_at_its_time_in_a_process_with_its_name() -> None:
    names = {e["pid"]: e["args"]["name"] for e in events() if e["name"] == "process_name"}
    assert names == {0: "GPU", 100: "kernel-lsp 100", 200: "subject 200"}
    (found,) = [e for e in events() if e["name"] == "RunSegments"]
    assert (found["pid"], found["ts"], found["dur"]) == (200, 100, 50)


def test_events_of_one_thread_nest_though_stages_ran_side_by_side() -> None:
    threads: dict[tuple[int, int], list[tuple[int, int]]] = {}
    for event in events():
        if event["ph"] == "X":
            span = (event["ts"], event["ts"] + event["dur"])
            threads.setdefault((event["pid"], event["tid"]), []).append(span)
    assert (100, 1) in threads, "two stages overlap"
    for spans in threads.values():
        for (start, end), (other, last) in combinations(spans, 2):
            assert end <= other or last <= start or (start <= other and last <= end) or (other <= start and end <= last)


def test_the_gpu_is_busy_or_idle_all_the_time() -> None:
    shown = sorted((e["ts"], e["ts"] + e["dur"], e["name"]) for e in events() if e["pid"] == 0 and e["ph"] == "X")
    assert shown == [
        (0, 110, "idle"),
        (110, 140, "busy"),
        (140, 600, "idle"),
        (600, 700, "busy"),
        (700, 1000, "idle"),
    ]


def test_without_a_gpu_none_is_shown() -> None:
    assert all(event["pid"] for event in events(tuple(p for p in PIECES if not p.gpu)))


def test_a_verdict_of_before_says_that_it_has_no_trace() -> None:
    with pytest.raises(ConfigurationError, match="without a trace"):
        chrome_trace(verdict_with(""))
