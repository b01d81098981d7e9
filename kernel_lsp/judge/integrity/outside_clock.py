"""Check the claimed times of both sides against the parent's own clock, on every case.

Times of segments come from the process that the candidate lives in. The parent watches segments of both sides by its
own clock. All that a segment takes beyond its launches (flushes, checksums, messages) is learned from the baseline.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure.cases import TimedCase, ready, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.subject import RunSegments


@dataclass(frozen=True, slots=True)
class Look:
    """Milliseconds of the same number of segments: by the parent's clock, and as the version's own process claims.

    The claim multiplies the typical launch by the number of launches: a version that lets one launch do the work of
    several claims too little.
    """

    wall_ms: float
    claimed_ms: float


async def seen_from_outside(
    harness: Harness, baseline: Subject, candidate: Subject, cases: Sequence[TimedCase]
) -> Ruling | None:
    """Return the ruling on a candidate whose claimed times disagree with the parent's clock, or None.

    Other processes of the machine can delay the parent, by up to a second, which only adds time. So after a
    disagreement more measurements are taken, and the minimum counts; too small a claim stays too small.
    """
    for case in (case for case in cases if case.captured):
        looks: list[tuple[Look, Look]] = []
        began = time.perf_counter()
        while True:
            looks.append((await _look(baseline, case), await _look(candidate, case)))
            theirs, ours = _least([a for a, _ in looks]), _least([b for _, b in looks])
            if missing_share(theirs, ours) <= policy.OUTSIDE_CLOCK_AGREEMENT_SHARE:
                break
            if len(looks) == 1 and await _agrees_unflushed(harness, baseline, candidate, case, (theirs, ours)):
                break
            doubted = time.perf_counter() - began >= policy.OUTSIDE_CLOCK_DOUBT_SECONDS
            if doubted and len(looks) >= policy.OUTSIDE_CLOCK_LOOKS:
                return rejected(
                    f"on case {harness.cases[case.draw.case]} it says that its launches took {ours.claimed_ms:.2f} ms, "
                    f"but seen from outside they took {_seen_ms(theirs, ours):.2f} ms (the baseline: "
                    f"{theirs.claimed_ms:.2f} ms)"
                )
    return None


async def _agrees_unflushed(
    harness: Harness, baseline: Subject, candidate: Subject, case: TimedCase, claimed: tuple[Look, Look]
) -> bool:
    """Return True if the clocks agree without cache flushes, and the candidate is as much faster there.

    The last lines that a launch wrote leave the cache during the next flush. A faster launch leaves more of this work
    to the flush, which is legitimate. Without flushes, launches on separate slabs wait for each other's lines.
    """
    if case.restores or case.mode == "short":
        return False
    bare = replace(case, mode="short", unflushed=True)
    for subject in (baseline, candidate):
        await ready(harness, subject, [bare])
    theirs, ours = await _look(baseline, bare), await _look(candidate, bare)
    seen, said = ours.claimed_ms / theirs.claimed_ms, claimed[1].claimed_ms / claimed[0].claimed_ms
    honest = missing_share(theirs, ours) <= policy.OUTSIDE_CLOCK_AGREEMENT_SHARE
    return honest and seen <= said * (1 + policy.OUTSIDE_CLOCK_AGREEMENT_SHARE)


def missing_share(baseline: Look, candidate: Look) -> float:
    """Return the candidate's unclaimed time, as a share of the time that it claims; infinite for a claim of zero."""
    if candidate.claimed_ms <= 0:
        return math.inf
    return (_seen_ms(baseline, candidate) - candidate.claimed_ms) / candidate.claimed_ms


def _seen_ms(baseline: Look, candidate: Look) -> float:
    """Return the milliseconds that the candidate's launches took by the parent's clock, all else as the baseline's."""
    return candidate.wall_ms - (baseline.wall_ms - baseline.claimed_ms)


async def _look(subject: Subject, case: TimedCase) -> Look:
    span_ms = case.baseline_us * case.launches / 1000
    whole_ms = span_ms + (policy.FLUSH_US * case.launches / 1000 if case.mode == "cold" else 0.0)
    wanted = math.ceil(policy.OUTSIDE_CLOCK_BASELINE_MS / span_ms)
    count = 1 if case.slow else max(2, min(wanted, math.ceil(policy.OUTSIDE_CLOCK_LOOK_MS / whole_ms)))
    request = RunSegments(recording=case.recording, count=count)
    started = time.perf_counter()
    segments = await subject.ask(request, deadline=policy.SEGMENT_DEADLINE_SECONDS + count * whole_ms / 100)
    wall_ms = (time.perf_counter() - started) * 1000
    return Look(wall_ms, sum(map(segment_us, segments)) * case.launches / 1000)


def _least(looks: Sequence[Look]) -> Look:
    """Return the least wall time and the least claim; on a steady GPU claims hardly differ."""
    return Look(min(look.wall_ms for look in looks), min(look.claimed_ms for look in looks))
