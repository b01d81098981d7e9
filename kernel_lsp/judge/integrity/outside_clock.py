"""Check the claimed times of both sides against the parent's own clock, on every case.

Times of segments come from the process that the candidate lives in. The parent watches segments of both sides by its
own clock. All that a segment takes beyond its launches (flushes, checksums, messages) is learned from the baseline.
Segments follow each other without a pause, and times are read of a few: so the GPU is busy all the time that the parent
sees, and how quick the host is hardly matters, which differs by process. That holds for short ones too, because each
finds the cache emptied, as it does when it is timed: the GPU needs longer for that than the host to enqueue the next.
"""

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure.cases import TimedCase, ready, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.subject import RunSegments


@dataclass(frozen=True, slots=True)
class Look:
    """Milliseconds of the same number of segments: by the parent's clock, and as the version's own process claims.

    The claim multiplies the typical launch by the number of launches: a version that lets one launch do the work of
    several claims too little, and so does one whose times are read only after launches that were quick.
    """

    wall_ms: float
    claimed_ms: float


@dataclass(slots=True)
class _Looks:
    """Looks at both sides of a case by turns, as it was recorded in one way."""

    case: TimedCase
    baseline: list[Look] = field(default_factory=list[Look])
    candidate: list[Look] = field(default_factory=list[Look])

    async def look(self, baseline: Subject, candidate: Subject) -> None:
        """Look once more at each side."""
        self.baseline.append(await _look(baseline, self.case))
        self.candidate.append(await _look(candidate, self.case))

    @property
    def least(self) -> tuple[Look, Look]:
        """Return what counts of the baseline and of the candidate."""
        return _least(self.baseline), _least(self.candidate)

    @property
    def agree(self) -> bool:
        """True where the candidate's claims are about what the parent's clock saw."""
        return missing_share(*self.least) <= policy.OUTSIDE_CLOCK_AGREEMENT_SHARE

    @property
    def ratio(self) -> float:
        """Return the ratio of the candidate's claim to the baseline's."""
        theirs, ours = self.least
        return ours.claimed_ms / theirs.claimed_ms

    @property
    def lowest_ratio(self) -> float:
        """Return the lowest ratio of two claims that were made right after each other."""
        pairs = zip(self.baseline, self.candidate, strict=True)
        return min(ours.claimed_ms / theirs.claimed_ms for theirs, ours in pairs)

    @property
    def scatter_ms(self) -> float:
        """Return by how much more than at best the baseline's segments typically take beyond its launches."""
        beyond = [look.wall_ms - look.claimed_ms for look in self.baseline]
        return median(beyond) - min(beyond)


async def seen_from_outside(
    harness: Harness,
    baseline: Subject,
    candidate: Subject,
    cases: Sequence[TimedCase],
    ratios: Sequence[float] | None = None,
) -> Ruling | None:
    """Return the ruling on a candidate whose claimed times disagree with the parent's clock, or None.

    Given the `ratios` of the candidate's times to the baseline's by case, as they were measured in other processes, it
    must claim no more here: a version could be honest in one process in three.

    Other processes of the machine can delay the parent, by up to a second, which only adds time, and lengthen the
    kernels of either side. So after a disagreement more measurements are taken, and the minimum counts; too small a
    claim stays too small. Where the baseline's own measurements scatter by as much as the candidate leaves out, nobody
    is accused.
    """
    for number, case in ((number, case) for number, case in enumerate(cases) if case.captured):
        looks, unflushed = _Looks(case), _Looks(replace(case, mode="short", unflushed=True))
        began = time.perf_counter()
        while True:
            await looks.look(baseline, candidate)
            agree = looks.agree or await _agrees_unflushed(harness, baseline, candidate, looks, unflushed)
            most = math.inf if ratios is None else ratios[number] * (1 + policy.OUTSIDE_CLOCK_AGREEMENT_SHARE)
            if agree and looks.lowest_ratio <= most:
                break
            doubted = time.perf_counter() - began >= policy.OUTSIDE_CLOCK_DOUBT_SECONDS
            if doubted and len(looks.candidate) >= policy.OUTSIDE_CLOCK_LOOKS:
                name = harness.cases[case.draw.case]
                if agree and ratios is not None:
                    return _inconstancy(name, looks, ratios[number])
                return _disagreement(name, looks)
    return None


def _disagreement(case: str, looks: _Looks) -> Ruling:
    theirs, ours = looks.least
    seen_ms = _seen_ms(theirs, ours)
    said = (
        f"on case {case} it says that its launches took {ours.claimed_ms:.2f} ms, but seen from outside they took "
        f"{seen_ms:.2f} ms (the baseline: {theirs.claimed_ms:.2f} ms)"
    )
    if looks.scatter_ms >= seen_ms - ours.claimed_ms:
        why = f"other work on this machine delays the baseline as much, typically by {looks.scatter_ms:.2f} ms"
    elif looks.ratio > 1 - policy.DELTA:  # some processes are slow to answer for as long as they live
        why = "watched from outside it claims no gain, and is put off"
    else:
        return rejected(said)
    return Ruling(Outcome.AMBIGUOUS, Stage.TIMED, f"{why}: {said}")


def _inconstancy(case: str, looks: _Looks, claimed: float) -> Ruling:
    return rejected(
        f"on case {case} it says that its launches take {looks.lowest_ratio:.3f} of the baseline's time in one "
        f"process, and {claimed:.3f} in another, where clocks disagree"
    )


async def _agrees_unflushed(
    harness: Harness, baseline: Subject, candidate: Subject, flushed: _Looks, unflushed: _Looks
) -> bool:
    """Return True if the clocks agree without cache flushes, and the candidate is as much faster there.

    The last lines that a launch wrote leave the cache during the next flush. A faster launch leaves more of this work
    to the flush, which is legitimate. Without flushes, launches on separate buffers wait for each other's lines.
    """
    if flushed.case.restores or flushed.case.mode == "short":
        return False
    for subject in (baseline, candidate):
        await ready(harness, subject, [unflushed.case])
    await unflushed.look(baseline, candidate)
    return unflushed.agree and unflushed.ratio <= flushed.ratio * (1 + policy.OUTSIDE_CLOCK_AGREEMENT_SHARE)


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
    wanted = math.ceil(policy.OUTSIDE_CLOCK_BASELINE_MS[case.mode] / span_ms)
    runs = 1 if case.slow else max(2, min(wanted, math.ceil(policy.OUTSIDE_CLOCK_LOOK_MS / whole_ms)))
    repeats = math.ceil(runs / policy.OUTSIDE_CLOCK_READINGS)
    request = RunSegments(recording=case.recording, count=math.ceil(runs / repeats), repeats=repeats)
    started = time.perf_counter()
    segments = await subject.ask(request, deadline=policy.SEGMENT_DEADLINE_SECONDS + runs * whole_ms / 100)
    wall_ms = (time.perf_counter() - started) * 1000
    return Look(wall_ms, sum(map(segment_us, segments)) * case.launches * repeats / 1000)


def _least(looks: Sequence[Look]) -> Look:
    """Return the least wall time and the least claim; on a steady GPU claims hardly differ."""
    return Look(min(look.wall_ms for look in looks), min(look.claimed_ms for look in looks))
