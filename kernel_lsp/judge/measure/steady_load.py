"""Run both sides for seconds without pause, to find gains that the GPU's power limit takes away.

The blocks of a judgement are short: the GPU has hardly grown warm when they are over. Where a kernel draws more power
than the GPU may for long, its clock falls under a steady load, and a candidate that needs more energy gains less there,
or loses. So both sides run for seconds, in turn, and the energy of a launch is read from the GPU's own counter, which
counts what else runs on the GPU as well. A short run of the candidate, which warms the GPU up, tells whether power can
take anything from it, and stretches are short where it was not throttled. Where no pair of stretches shows a loss, and
no short one throttling, two pairs tell enough; else there are more: only what is sure to lose is refused.
"""

import asyncio
import math
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_lsp import policy
from kernel_lsp.device.nvml import Gpu, read_load
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure import intervals
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.student_t import t_quantile
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timing import SustainedRun
from kernel_lsp.judge.verdict import Check, CheckStatus
from kernel_lsp.runner.messages.subject import Sustain

ORDER = "ABBA"


@dataclass(slots=True)
class _Stretch:
    """One side run for a while: launches, GPU seconds, joules (None if unknown), clock, power."""

    launches: int = 0
    seconds: float = 0.0
    joules: float | None = None
    clock_mhz: float | None = None
    watts: list[float] = field(default_factory=list[float])
    throttle: set[str] = field(default_factory=set[str])

    @property
    def us(self) -> float:
        """Return the microseconds of a launch."""
        return self.seconds / self.launches * 1e6


async def measure(
    harness: Harness, baseline: Subject, candidate: Subject, case: TimedCase
) -> tuple[Check, SustainedRun | None]:
    """Measure both sides under a steady load on one case, if power is a limit; call it only with the GPU's lock held.

    Memory of both subjects must hold the case's inputs.

    Returns:
        The check with what was done or why it was skipped, and the measurement or None.
    """
    gpu = harness.gpu
    assert gpu is not None, "only a GPU is loaded"
    probe = await _run(gpu, candidate, case, policy.SUSTAINED_PROBE_SECONDS)
    limit, peak = read_load(gpu).limit_w, max(probe.watts, default=None)
    if peak is None or limit is None:
        return _skipped("the GPU does not tell its power"), None
    drawn = f"{peak:.0f} W of {limit:.0f} W"
    if peak <= policy.SUSTAINED_POWER_SHARE * limit and not probe.throttle:
        return _skipped(f"power is no limit: {drawn}"), None
    stretches: dict[str, list[_Stretch]] = {"A": [], "B": []}
    seconds = policy.SUSTAINED_STRETCH_SECONDS if probe.throttle else policy.SUSTAINED_SHORT_SECONDS
    for _ in range(policy.SUSTAINED_TURNS):
        for side in ORDER:
            stretches[side].append(await _run(gpu, baseline if side == "A" else candidate, case, seconds))
        lossless = all(b.us < a.us for a, b in zip(stretches["A"], stretches["B"], strict=True))
        throttled = any(stretch.throttle for side in stretches.values() for stretch in side)
        if lossless and (seconds == policy.SUSTAINED_STRETCH_SECONDS or not throttled):
            break
        seconds = policy.SUSTAINED_STRETCH_SECONDS
    found = summarise(harness.cases[case.draw.case], stretches["A"], stretches["B"], limit)
    said = f"{found.speedup:.3f}x ({found.interval[0]:.3f} to {found.interval[1]:.3f}) at {drawn}"
    return Check(name="steady load", status=CheckStatus.PASSED, detail=said, case=found.case), found


def summarise(case: str, baseline: Sequence[_Stretch], candidate: Sequence[_Stretch], limit_w: float) -> SustainedRun:
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
        baseline_w=_watts(baseline),
        candidate_w=_watts(candidate),
        limit_w=limit_w,
        baseline_clock_mhz=_clock(baseline),
        candidate_clock_mhz=_clock(candidate),
        throttle=tuple(sorted(set[str]().union(*(s.throttle for s in (*baseline, *candidate))))),
    )


def _us(stretches: Sequence[_Stretch]) -> float:
    return math.fsum(s.seconds for s in stretches) / sum(s.launches for s in stretches) * 1e6


def _millijoules(stretches: Sequence[_Stretch]) -> float | None:
    joules = [s.joules for s in stretches if s.joules is not None]
    return math.fsum(joules) / sum(s.launches for s in stretches) * 1e3 if len(joules) == len(stretches) else None


def _watts(stretches: Sequence[_Stretch]) -> float | None:
    """Return the mean power in watts: from the energy counter, else from the readings; None without either."""
    millijoules = _millijoules(stretches)
    if millijoules is not None:
        return millijoules / _us(stretches) * 1e3
    watts = [each for s in stretches for each in s.watts]
    return math.fsum(watts) / len(watts) if watts else None


def _clock(stretches: Sequence[_Stretch]) -> float | None:
    clocks = [s.clock_mhz for s in stretches if s.clock_mhz is not None]
    return math.fsum(clocks) / len(clocks) if clocks else None


async def _run(gpu: Gpu, subject: Subject, case: TimedCase, seconds: float) -> _Stretch:
    """Run one side for a while, and sample the GPU's state meanwhile."""
    stretch = _Stretch()
    before = read_load(gpu).energy_j
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
            load = read_load(gpu)
            stretch.watts += [] if load.watts is None else [load.watts]
            stretch.throttle |= set(load.throttle)
        answer = running.result()
    except BaseException:
        running.cancel()
        raise
    after = read_load(gpu).energy_j
    stretch.launches, stretch.seconds, stretch.clock_mhz = answer.launches, answer.seconds, answer.clock_mhz
    stretch.joules = after - before if before is not None and after is not None else None
    return stretch


def _skipped(why: str) -> Check:
    return Check(name="steady load", status=CheckStatus.SKIPPED, detail=why)
