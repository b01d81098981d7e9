"""The trace of a verdict in Chrome's trace event format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

An object with `traceEvents`: complete events (`ph` X) with start and duration in microseconds, and metadata (M) that
name processes and threads. Events of one thread must nest, so work that runs side by side in one process is spread over
several of its threads. The GPU is shown as a process of its own.
"""

import json
from collections.abc import Iterable, Iterator, Sequence

from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.spans import TracePiece, VerdictTrace, unpack
from kernel_lsp.judge.verdict import Verdict

_GPU = 0  # no process has this number

Event = dict[str, object]


def chrome_trace(verdict: Verdict) -> str:
    """Return the trace of a verdict as JSON.

    Raises:
        ConfigurationError: the verdict was recorded without one.
    """
    trace = unpack(verdict.evidence.trace)
    if trace is None:
        fix = "Judge it again."
        raise ConfigurationError("This verdict was recorded without a trace of its time.", fix=fix)
    outcome = {"verdict": verdict.verdict, "id": verdict.id, "left_out": trace.left_out}
    document = {"traceEvents": list(_events(trace)), "displayTimeUnit": "ms", "otherData": outcome}
    return json.dumps(document, separators=(",", ":"))


def _events(trace: VerdictTrace) -> Iterator[Event]:
    for number, (pid, role) in enumerate(trace.processes):
        yield from _named("process", pid, 0, f"{role} {pid}", number + 1)
        for row, pieces in enumerate(_rows(p for p in trace.pieces if p.process == number)):
            yield from _named("thread", pid, row, role, row)
            yield from (_complete(pid, row, p.name, p.start, p.us, "gpu" if p.gpu else role) for p in pieces)
    if busy := trace.gpu_busy():
        yield from _named("process", _GPU, 0, "GPU", 0)
        yield from _named("thread", _GPU, 0, "busy with our work", 0)
        yield from (_complete(_GPU, 0, "busy", start, end - start, "gpu") for start, end in busy)
        idle = zip((0, *(end for _, end in busy)), (*(start for start, _ in busy), trace.us), strict=True)
        yield from (_complete(_GPU, 0, "idle", end, start - end, "gpu") for end, start in idle if start > end)


def _rows(pieces: Iterable[TracePiece]) -> list[list[TracePiece]]:
    """Spread pieces, in the order in which they begin, over as few rows as let them nest in each."""
    rows: list[list[TracePiece]] = []
    opened: list[list[int]] = []  # by row, the ends of the pieces that are still open, the innermost last
    for piece in pieces:
        for row, ends in zip(rows, opened, strict=True):
            while ends and ends[-1] <= piece.start:
                ends.pop()
            if not ends or piece.end <= ends[-1]:
                row.append(piece)
                ends.append(piece.end)
                break
        else:
            rows.append([piece])
            opened.append([piece.end])
    return rows


def _named(what: str, pid: int, thread: int, name: str, place: int) -> Sequence[Event]:
    """Return the events that name a process or a thread, and say where it is shown among the others."""
    common: Event = {"ph": "M", "ts": 0, "pid": pid, "tid": thread}
    return (
        common | {"name": f"{what}_name", "args": {"name": name}},
        common | {"name": f"{what}_sort_index", "args": {"sort_index": place}},
    )


def _complete(pid: int, thread: int, name: str, start: int, us: int, category: str) -> Event:
    return {"ph": "X", "name": name, "cat": category, "ts": start, "dur": us, "pid": pid, "tid": thread}
