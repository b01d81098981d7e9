"""Choose which cases are timed and how, and record their launches."""

import math
import secrets
from collections.abc import Sequence
from dataclasses import dataclass, replace
from statistics import median

from kernel_lsp import policy
from kernel_lsp.device.nvml import free_bytes
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.measure.roofline import Bandwidth
from kernel_lsp.judge.program_gain import calls_of_cases
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.oracle import Fill
from kernel_lsp.runner.messages.subject import UNFLUSHED, Mode, RecordSegment, Refresh, RunSegments
from kernel_lsp.runner.messages.subject_answers import Recorded, Segment


class NothingTimed(Exception):  # noqa: N818 - a finding about a candidate, not an error of ours
    """The recorded launches take no time at all on the GPU."""

    def __init__(self) -> None:
        super().__init__("what is timed does nothing on the GPU")


@dataclass(frozen=True, slots=True)
class TimedCase:
    """One timed case in one place of memory, and how it is timed.

    Attributes:
        draw: its plain inputs.
        mode: `cold` or `short`; see `runner.workers.recording`.
        launches: in a segment.
        buffers: on so many sets of inputs; launches take them in turn.
        baseline_us: the baseline's own time, microseconds.
        output_bytes: of all outputs.
        restores: inputs are put back before each launch, for kernels that change them.
        unflushed: a second recording on the same buffers, `short` whatever the usual one is.
        captured: segments are CUDA graphs; both sides of a comparison are timed in the same way.
        place: number of the place.
    """

    draw: Draw
    mode: Mode
    launches: int
    baseline_us: float
    output_bytes: int
    buffers: int = 1
    restores: bool = False
    captured: bool = True
    place: int = 0
    unflushed: bool = False

    @property
    def slow(self) -> bool:
        """True where one launch is so long that it is not repeated within a segment."""
        return self.baseline_us >= policy.SLOW_LAUNCH_SECONDS * 1e6

    def at(self, place: int) -> "TimedCase":
        """Return the same case in another place."""
        return replace(self, place=place)

    @property
    def names(self) -> tuple[str, ...]:
        """Names of its buffers in this place."""
        return tuple(f"{self.draw.buffer}@{self.place}.{number}" for number in range(self.buffers))

    @property
    def recording(self) -> str:
        """Return the name of its recording in this place: its first buffer, with a suffix if unflushed."""
        return self.names[0] + (UNFLUSHED if self.unflushed else "")

    @property
    def sequence(self) -> tuple[str, ...]:
        """Return the buffer of each launch of a segment."""
        names = self.names
        return tuple(names[number % len(names)] for number in range(self.launches))

    @property
    def how(self) -> tuple[object, ...]:
        """Return the properties that a recording depends on; equal ones can share it."""
        return (self.mode, self.launches, self.buffers, self.restores, self.captured)

    @property
    def footprint(self) -> int:
        """Return the bytes of inputs and outputs of one launch."""
        return (1 + self.restores) * self.draw.nbytes + self.output_bytes

    @property
    def bytes_moved(self) -> int:
        """Return the compulsory traffic in bytes: each input read once, each output written once."""
        return self.draw.input_bytes + self.output_bytes

    def roofline_share(self, bandwidth: Bandwidth | None, us: float) -> float | None:
        """Return the share of `us` microseconds that memory needs for the compulsory traffic; None if unknown.

        It is unknown for a kernel that beats it and may read only part of its inputs, as from a table.
        """
        if bandwidth is None or self.mode == "short":
            return None
        share = bandwidth.seconds(self.draw.input_bytes, self.output_bytes) / (us * 1e-6)
        return None if share > 1 and self.draw.may_pick else share

    def copying_share(self, bandwidth: Bandwidth | None) -> float:
        """Return the share of the baseline's time in which memory reads and writes at once; 1 where it is unknown.

        It counts the compulsory traffic alone.
        """
        if bandwidth is None:
            return 1.0
        common = min(self.draw.input_bytes, self.output_bytes)
        return min(bandwidth.seconds(common, common) / (self.baseline_us * 1e-6), 1.0)


@dataclass(frozen=True, slots=True)
class CaseChoice:
    """The cases of a workload that are timed, and those that are too short, or called too seldom, beside them."""

    timed: tuple[TimedCase, ...]
    untimed: tuple[TimedCase, ...] = ()


async def choose_cases(harness: Harness, baseline: Subject, profile: BaselineProfile, *, captured: bool) -> CaseChoice:
    """Choose how each case is timed, from the baseline's time.

    Raises:
        WorkerFailure: of kind `NotCapturableError`, when `captured` is asked for and cannot be.
        NothingTimed: a launch of the baseline does nothing on the GPU.
    """
    chosen: list[TimedCase] = []
    for draw in (draw for draw in profile.draws if draw.is_plain and draw.case not in harness.workload.advisory):
        outputs, launch_time = profile.output_bytes[draw.case], harness.launch_time
        probe = TimedCase(draw, "cold", 3, 0.0, outputs, restores=profile.in_place, captured=captured, place=-1)
        if launch_time.is_slow(draw.case):  # its time is known from earlier runs
            us = launch_time.launch_s[draw.case] * 1e6
            chosen.append(replace(probe, launches=1, baseline_us=us, place=0))
            continue
        chosen.append(await timed_as(harness, baseline, probe))
    return choice_of(chosen, calls_of_cases(harness.target.workload))


async def timed_as(harness: Harness, baseline: Subject, probe: TimedCase) -> TimedCase:
    """Return how a case is timed, from a few launches of the baseline.

    Raises:
        NothingTimed: a launch of the baseline does nothing on the GPU.
    """
    await prepare(harness, baseline, [probe])
    await run_segment(baseline, probe)
    us = segment_us(await run_segment(baseline, probe))
    await harness.unbind(baseline, probe.names[0])
    short = us < policy.SHORT_LAUNCH_US and probe.captured and not probe.restores
    made = replace(probe, mode="short" if short else "cold", baseline_us=us, place=0)
    count = _buffers(harness, made, launches_of(us))  # a second launch on the same inputs could remember the first
    return replace(made, launches=count, buffers=count)


def choice_of(cases: Sequence[TimedCase], calls: Sequence[int]) -> CaseChoice:
    """Return which cases are timed; `calls` has the number of calls of each case of a capture, and none for others."""
    longest = max((case.baseline_us for case in cases), default=0.0)
    spent = [(calls[case.draw.case] if calls else 1) * case.baseline_us for case in cases]
    least = policy.UNTIMED_CASE_WEIGHT * sum(spent) if calls else 0.0
    timed = [us >= least and not launch_bound(case.baseline_us, longest) for case, us in zip(cases, spent, strict=True)]
    if not any(timed):  # what most time goes to are short launches
        timed = [us == max(spent) for us in spent]
    every = list(zip(cases, timed, strict=True))
    return CaseChoice(
        tuple(case for case, is_timed in every if is_timed), tuple(case for case, is_timed in every if not is_timed)
    )


def launch_bound(us: float, longest: float) -> bool:
    """Return True if a case is so short beside the longest one that it measures launch overhead, not the kernel."""
    brief = us < policy.SHORT_LAUNCH_US and us < longest / policy.UNTIMED_CASE_RATIO
    return us < longest and (us < policy.UNTIMED_CASE_US or brief)


def launches_of(us: float) -> int:
    """Return the number of launches per segment for a launch of `us` microseconds."""
    if us >= policy.TWO_LAUNCHES_US:
        return 2 if us < policy.ONE_LAUNCH_US else 1
    return max(policy.LEAST_LAUNCHES, min(policy.MOST_LAUNCHES, math.ceil(policy.SEGMENT_US / us)))


def _buffers(harness: Harness, case: TimedCase, wanted: int) -> int:
    """Return the number of input sets in a segment of a case, and so of launches: as many as memory allows."""
    assert harness.gpu is not None, "only a GPU is timed"
    room = free_bytes(harness.gpu) * policy.PLACES_MEMORY_SHARE
    return max(1, min(wanted, int(room // max(1, case.footprint + case.output_bytes))))


async def prepare(harness: Harness, subject: Subject, cases: Sequence[TimedCase]) -> list[Recorded]:
    """Fill the memory of cases with their plain inputs, and record their segments in all places."""
    made: list[Recorded] = []
    for case in cases:
        await harness.bind(subject, case.names, case.draw)
        await fill(harness, subject, case, case.draw)
        request = RecordSegment(
            recording=case.recording,
            buffers=case.sequence,
            mode=case.mode,
            restores=case.restores,
            capture=case.captured,
            salt=harness.salt,
            poison=1 + secrets.randbelow(255),
        )
        made.append(await subject.ask(request))
        subject.recorded[case.recording] = case.how
    return made


async def ready(harness: Harness, subject: Subject, cases: Sequence[TimedCase]) -> list[Recorded]:
    """Record the cases that are not yet recorded in this way."""
    waiting = [case for case in cases if subject.recorded.get(case.recording) != case.how]
    return await prepare(harness, subject, waiting)


async def fill(
    harness: Harness, subject: Subject, case: TimedCase, draw: Draw, buffers: Sequence[str] | None = None
) -> None:
    """Write inputs into buffers of a recorded case; into all buffers by default."""
    chosen = tuple(case.names if buffers is None else buffers)
    await harness.oracle(Fill(subject=subject.name, buffers=chosen, key=draw.key))
    if case.restores:
        await subject.ask(Refresh(buffers=chosen))


async def run_segment(subject: Subject, case: TimedCase) -> Segment:
    """Run one segment of a recorded case.

    Raises:
        NothingTimed: what was recorded takes no time at all.
    """
    request = RunSegments(recording=case.recording)
    (segment,) = await subject.ask(request, deadline=policy.SEGMENT_DEADLINE_SECONDS)
    if segment_us(segment) <= 0:
        raise NothingTimed
    return segment


def segment_us(segment: Segment) -> float:
    """Return the median microseconds of a launch."""
    return median(segment.times_us)


def spent_ms(case: TimedCase, segment: Segment) -> float:
    """Return the GPU milliseconds that a segment took, flushes included."""
    if case.mode == "short":
        return segment.times_us[0] * case.launches / 1000
    return (sum(segment.times_us) + policy.FLUSH_US * len(segment.times_us)) / 1000
