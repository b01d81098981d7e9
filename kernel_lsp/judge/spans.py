"""The trace of a verdict: where its time went, in the parent and in the workers, packed small for the evidence."""

import base64
import os
import time
import zlib
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from heapq import nlargest
from typing import NamedTuple

import msgspec

from kernel_lsp.runner.spans import LoggedSpan, SpanLog

MOST_SPANS = 1000
"""As many are kept, the longest: packed they take about 8 kB."""
_US = 1000  # nanoseconds
_LEAST_SECONDS = 1e-3  # of a part that is told


class TracePiece(NamedTuple):
    """One span of a trace; times in microseconds since the trace began.

    Attributes:
        process: index into the trace's processes.
        name: of the work: a stage, a request, or what a worker did for it.
        start, us: when it began, and how long it took.
        gpu: True where the process waited for the GPU meanwhile.
    """

    process: int
    name: str
    start: int
    us: int
    gpu: bool

    @property
    def end(self) -> int:
        """When it ended."""
        return self.start + self.us


class TracedProcess(NamedTuple):
    """A process in a trace: its number, and its role; `kernel-lsp` is the parent."""

    pid: int
    role: str


class VerdictTrace(msgspec.Struct, frozen=True):
    """Where the time of a verdict went.

    Attributes:
        began_ns: when, on the machine's monotonic clock, which all processes share; without meaning after a restart.
        us: how long it took, microseconds.
        processes: the parent first.
        pieces: in the order in which they began; of one process they nest.
        left_out: how many shorter ones were not kept.
        opening: seconds of the session's opening by part, in a session's first verdict; see `seconds_by_part`.
    """

    began_ns: int
    us: int
    processes: tuple[TracedProcess, ...]
    pieces: tuple[TracePiece, ...]
    left_out: int = 0
    opening: dict[str, float] = msgspec.field(default_factory=dict[str, float])

    def gpu_busy(self) -> tuple[tuple[int, int], ...]:
        """Return the times in which a process waited for the GPU: (start, end) in microseconds, in order, disjoint.

        Work of other programs is not among them, nor work that no process waited for.
        """
        return union((piece.start, piece.end) for piece in self.pieces if piece.gpu)


class _Packed(msgspec.Struct, frozen=True, array_like=True):
    """A trace as it is kept: `rows` are process, index into `names`, start, duration and whether the GPU was used."""

    began_ns: int
    us: int
    processes: tuple[TracedProcess, ...]
    names: tuple[str, ...]
    rows: tuple[tuple[int, int, int, int, bool], ...]
    left_out: int
    opening: dict[str, float] = msgspec.field(default_factory=dict[str, float])


def trace_since(log: SpanLog, began: int, opening: Mapping[str, float] | None = None) -> VerdictTrace:
    """Return the trace of all that ended since a time by `time.monotonic_ns`, which may have begun before."""
    ended = time.monotonic_ns()
    logged = list(log.since(began))
    kept = sorted(nlargest(MOST_SPANS, logged, key=_length), key=_nested)
    processes = _processes(kept)
    index = {process.pid: number for number, process in enumerate(processes)}
    pieces = tuple(_piece(one, index[one.pid], began, ended) for one in kept)
    return VerdictTrace(began, (ended - began) // _US, processes, pieces, len(logged) - len(kept), dict(opening or {}))


def seconds_by_part(log: SpanLog, began: int, pids: Collection[int]) -> dict[str, float]:
    """Return what some processes did since a time by `time.monotonic_ns`: seconds by role and span, without inner ones.

    A request's own seconds are those on the way. `elsewhere` is the time in which none of the processes was asked for
    anything, as during imports, forks and builds. `total` is all that has passed since.
    """
    found = defaultdict[str, float](float)
    times: list[tuple[int, int]] = []
    for pid in pids:
        inside: list[LoggedSpan] = []
        for one in sorted((one for one in log.since(began) if one.pid == pid), key=_nested):
            while inside and inside[-1].span.ended <= one.span.began:
                inside.pop()
            times.append((max(one.span.began, began), one.span.ended))
            seconds = (times[-1][1] - times[-1][0]) / 1e9
            found[f"{one.role}: {one.span.name}"] += seconds
            if inside:
                found[f"{inside[-1].role}: {inside[-1].span.name}"] -= seconds
            inside.append(one)
    total = (time.monotonic_ns() - began) / 1e9
    found |= {"elsewhere": total - sum(end - start for start, end in union(times)) / 1e9, "total": total}
    return {name: round(seconds, 4) for name, seconds in found.items() if seconds >= _LEAST_SECONDS}


def pack(trace: VerdictTrace) -> str:
    """Return a trace as a short text."""
    names = {name: number for number, name in enumerate(dict.fromkeys(piece.name for piece in trace.pieces))}
    rows = tuple((p.process, names[p.name], p.start, p.us, p.gpu) for p in trace.pieces)
    packed = _Packed(trace.began_ns, trace.us, trace.processes, tuple(names), rows, trace.left_out, trace.opening)
    return base64.b85encode(zlib.compress(msgspec.msgpack.encode(packed), 6)).decode()


def unpack(text: str) -> VerdictTrace | None:
    """Return the trace that was packed in a text; None for the empty one of a verdict that was made without."""
    if not text:
        return None
    packed = msgspec.msgpack.decode(zlib.decompress(base64.b85decode(text)), type=_Packed)
    pieces = tuple(
        TracePiece(process, packed.names[name], start, us, gpu) for process, name, start, us, gpu in packed.rows
    )
    return VerdictTrace(packed.began_ns, packed.us, packed.processes, pieces, packed.left_out, packed.opening)


def union(spans: Iterable[tuple[int, int]]) -> tuple[tuple[int, int], ...]:
    """Return the times that spans cover, in order; overlapping ones are joined."""
    joined: list[tuple[int, int]] = []
    for start, end in sorted(spans):
        if joined and start <= joined[-1][1]:
            joined[-1] = joined[-1][0], max(joined[-1][1], end)
        else:
            joined.append((start, end))
    return tuple(joined)


def _nested(logged: LoggedSpan) -> tuple[int, int]:
    return logged.span.began, -logged.span.ended


def _length(logged: LoggedSpan) -> int:
    return logged.span.ended - logged.span.began


def _processes(logged: Sequence[LoggedSpan]) -> tuple[TracedProcess, ...]:
    """Return the processes in the order in which they appear, the parent before all."""
    roles = {one.pid: one.role for one in reversed(logged)}
    parent = os.getpid()
    ordered = sorted(dict.fromkeys(one.pid for one in logged), key=lambda pid: pid != parent)
    return tuple(TracedProcess(pid, roles[pid]) for pid in ordered)


def _piece(logged: LoggedSpan, process: int, began: int, ended: int) -> TracePiece:
    """Return a span as a piece of the trace between two times."""
    span = logged.span
    first, last = max(span.began, began), min(span.ended, ended)
    return TracePiece(process, span.name, (first - began) // _US, max(last - first, 0) // _US, span.gpu)
