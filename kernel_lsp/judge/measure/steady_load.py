"""Run both sides without pause where a gain might not survive the GPU's power limit or its heat.

The blocks of a judgement are short: the GPU has hardly grown warm when they are over. Where a kernel draws more power
than the GPU may for long, its clock falls under a steady load, and a candidate that needs more energy gains less there,
or loses. How far the clock falls bounds what is lost: a kernel slows down by no more than its clock, for the memory's
clock stays. So the candidate runs alone first; where its clock holds, or falls by less than it gains, nothing more is
run. Else both sides run in turn until a loss is sure or excluded.

The clock is counted by the kernel's own multiprocessors. NVML would tell late: on an H200 its flag of a power cap comes
0.15 s after the clock has fallen and stays 0.4 s after the load has ended, and the counter of energy moves every tenth
of a second. So energy is read between two of its steps within a stretch.
"""

import asyncio
import math
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise

from kernel_lsp import policy
from kernel_lsp.device.nvml import Gpu, GpuLoad, read_load
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure import intervals
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.student_t import t_quantile
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timing import SustainedRun
from kernel_lsp.judge.verdict import Check, CheckStatus
from kernel_lsp.runner.messages.subject import Sustain

ORDER = "ABBA"


@dataclass(frozen=True, slots=True)
class ShortRuns:
    """A case in the blocks of a judgement: the candidate's speedup, and the SM clock, None where it was not read."""

    speedup: float
    clock_mhz: float | None


@dataclass(frozen=True, slots=True)
class _Stretch:
    """One side run for a while: launches, GPU seconds, mean SM clock, mean and highest watts, what throttled.

    None stands for what is unknown.
    """

    launches: int
    seconds: float
    clock_mhz: float | None
    watts: float | None
    peak_w: float | None
    limit_w: float | None
    throttle: frozenset[str]

    @property
    def us(self) -> float:
        """Return the microseconds of a launch."""
        return self.seconds / self.launches * 1e6


async def measure(
    harness: Harness, baseline: Subject, candidate: Subject, case: TimedCase, short: ShortRuns
) -> tuple[Check, SustainedRun | None]:
    """Measure both sides under a steady load on one case, if it can take the gain; hold the GPU's lock meanwhile.

    Memory of both subjects must hold the case's inputs, and nothing else may keep the GPU busy.

    Returns:
        The check with what was done, and the measurement or None.
    """
    gpu = harness.gpu
    assert gpu is not None, "only a GPU is loaded"
    lead = await _run(gpu, candidate, case, policy.SUSTAINED_LEAD_SECONDS)
    alone = await _run(gpu, candidate, case, policy.SUSTAINED_PROBE_SECONDS)
    drawn = _drawn(lead, alone)
    held = _clock_held(alone, short)
    steady = held > 1 - policy.CLOCK_HELD_SHARE
    if steady or held * short.speedup > 1:
        did = "held" if steady else f"fell by {1 - held:.1%}, less than it gains"
        said = f"its clock {did}: {alone.clock_mhz:,.0f} MHz{drawn}, {short.clock_mhz:,.0f} MHz in short runs"
        return _passed(said, harness.cases[case.draw.case]), None
    stretches: dict[str, list[_Stretch]] = {"A": [], "B": []}
    for _ in range(policy.SUSTAINED_TURNS):
        for side in ORDER:
            version = baseline if side == "A" else candidate
            stretches[side].append(await _run(gpu, version, case, policy.SUSTAINED_STRETCH_SECONDS))
        if all(b.us < a.us for a, b in zip(stretches["A"], stretches["B"], strict=True)):
            break
    found = summarise(harness.cases[case.draw.case], stretches["A"], stretches["B"])
    said = f"{found.speedup:.3f}x ({found.interval[0]:.3f} to {found.interval[1]:.3f}){drawn}"
    return _passed(said, found.case), found


def _drawn(*stretches: _Stretch) -> str:
    """Return the highest power of these stretches beside its limit, for the end of a clause; may be empty."""
    peak = max((stretch.peak_w for stretch in stretches if stretch.peak_w is not None), default=None)
    limit = stretches[0].limit_w
    return "" if peak is None or limit is None else f" at {peak:.0f} W of {limit:.0f} W"


def _clock_held(alone: _Stretch, short: ShortRuns) -> float:
    """Return the share of its clock in short runs that a candidate keeps; 0 where one of them is unknown."""
    if alone.clock_mhz is None or short.clock_mhz is None:
        return 0.0
    return min(1.0, alone.clock_mhz / short.clock_mhz)


def summarise(case: str, baseline: Sequence[_Stretch], candidate: Sequence[_Stretch]) -> SustainedRun:
    """Return the result of both sides' stretches, given in the order in which they ran."""
    logs = [math.log(b.us / a.us) for a, b in zip(baseline, candidate, strict=True)]
    mean = math.fsum(logs) / len(logs)
    deviation = math.sqrt(math.fsum((log - mean) ** 2 for log in logs) / (len(logs) - 1))
    half = t_quantile(0.975, len(logs) - 1) * deviation / math.sqrt(len(logs))
    interval = intervals.Interval(mean - half, mean + half).speedup
    return SustainedRun(
        case=case,
        seconds=math.fsum(s.seconds for s in baseline),
        baseline_us=_us(baseline),
        candidate_us=_us(candidate),
        speedup=intervals.speedup_of(mean),
        interval=(interval.lower, interval.upper),
        baseline_mj=_millijoules(baseline),
        candidate_mj=_millijoules(candidate),
        baseline_w=_mean(s.watts for s in baseline),
        candidate_w=_mean(s.watts for s in candidate),
        limit_w=_mean(s.limit_w for s in (*baseline, *candidate)),
        baseline_clock_mhz=_mean(s.clock_mhz for s in baseline),
        candidate_clock_mhz=_mean(s.clock_mhz for s in candidate),
        throttle=tuple(sorted(set[str]().union(*(s.throttle for s in (*baseline, *candidate))))),
    )


def _us(stretches: Sequence[_Stretch]) -> float:
    return math.fsum(s.seconds for s in stretches) / sum(s.launches for s in stretches) * 1e6


def _millijoules(stretches: Sequence[_Stretch]) -> float | None:
    watts = _mean(stretch.watts for stretch in stretches)
    return None if watts is None else watts * _us(stretches) / 1e3


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if known else None


async def _run(gpu: Gpu, subject: Subject, case: TimedCase, seconds: float) -> _Stretch:
    """Run one side for a while, and read the GPU's state meanwhile."""
    readings: list[tuple[float, GpuLoad]] = []
    running = asyncio.ensure_future(
        subject.ask(
            Sustain(
                buffer=case.names[0],
                seconds=seconds,
                launch_us=case.baseline_us,
                restores=case.restores,
                capture=case.captured,
            ),
            deadline=policy.SUSTAINED_SLACK_SECONDS + seconds,
        )
    )
    try:
        while not (await asyncio.wait({running}, timeout=policy.SUSTAINED_READING_SECONDS))[0]:
            load = await asyncio.to_thread(read_load, gpu)
            readings.append((time.perf_counter(), load))
        answer = running.result()
    except BaseException:
        running.cancel()
        raise
    return _Stretch(
        answer.launches,
        answer.seconds,
        answer.clock_mhz,
        mean_watts(readings),
        max((load.watts for _, load in readings if load.watts is not None), default=None),
        next((load.limit_w for _, load in readings if load.limit_w is not None), None),
        frozenset[str]().union(*(load.throttle for _, load in readings)),
    )


def mean_watts(readings: Sequence[tuple[float, GpuLoad]]) -> float | None:
    """Return the mean power of a stretch in watts, from readings at times in seconds; None if the GPU tells neither.

    The counter of energy moves in steps: it says what was used between two of them, and nothing of other times. Where
    it did not move twice, or does not exist, the last reading of the power stands for the stretch.
    """
    steps = [
        (at, load.energy_j)
        for (_, before), (at, load) in pairwise(readings)
        if load.energy_j is not None and before.energy_j is not None and load.energy_j > before.energy_j
    ]
    if len(steps) > 1:
        (began, from_j), (ended, to_j) = steps[0], steps[-1]
        return (to_j - from_j) / (ended - began)
    return next((load.watts for _, load in reversed(readings) if load.watts is not None), None)


def _passed(said: str, case: str) -> Check:
    return Check(name="steady load", status=CheckStatus.PASSED, detail=said, case=case)
