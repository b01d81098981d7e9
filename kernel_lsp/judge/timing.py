"""The paired measurement: baseline and candidate in turn, block after block, until the statistics decide.

Each side runs in its own process, which is told to run one segment at a time; so nothing a candidate does to its own
clock or libraries reaches the baseline, and only one of them uses the GPU at any moment.
"""

import math
import random
import statistics as stdlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernel_lsp.device.nvml import read_state
from kernel_lsp.judge import statistics
from kernel_lsp.judge.bench import Bench, Draw, Subject
from kernel_lsp.judge.correctness import Yardstick
from kernel_lsp.judge.verdict import DeviceState

SHORT_US = 10.0
"""A launch shorter than this is timed as the difference of two graphs of copies, not between two events."""
UNTIMED_US = 7.0
"""A case this short says more about launching than about the kernel: it is checked, not timed, if others are longer."""
_FLUSH_US = 45.0
_PLACEMENT_US = {"graph": 0.08, "cold": 0.25, "streaming": 0.25}
"""How much the same kernel differs from one process to the next, by where its code and buffers happen to lie.

Measured on an H200 (`tests/bench/results/`); no number of blocks averages it away, so FASTER must clear it.
"""
_STEADY = 0.01
_CLOCK_JUMP = 0.05
_SEGMENT_SECONDS = 30.0


@dataclass(frozen=True, slots=True)
class TimedCase:
    """How one case is timed: its inputs, mode, launches per segment; the baseline's own time in microseconds."""

    draw: Draw
    mode: str
    launches: int
    baseline_us: float
    bytes_moved: int


@dataclass(slots=True)
class Series:
    """Blocks of one pair: for each case the log ratios candidate / baseline and the times behind them."""

    cases: tuple[TimedCase, ...]
    blocks: list[list[float]]
    baseline_us: list[list[float]]
    candidate_us: list[list[float]]
    clocks: list[float] = field(default_factory=list[float])
    gpu_ms: float = 0.0
    discarded: int = 0

    @classmethod
    def empty(cls, cases: Sequence[TimedCase]) -> "Series":
        """A series without blocks."""
        return cls(tuple(cases), [[] for _ in cases], [[] for _ in cases], [[] for _ in cases])

    @property
    def combined(self) -> list[float]:
        """One log ratio per block: the mean over cases."""
        return statistics.combine(self.blocks)


@dataclass(frozen=True, slots=True)
class Segment:
    """One answer of a worker: median microseconds of a launch, GPU milliseconds spent, SM clock, output checksums."""

    us: float
    gpu_ms: float
    clock_mhz: float | None
    checksums: frozenset[tuple[int, ...]]


class TimedOutputsDiffer(Exception):  # noqa: N818 - a finding about a candidate, not an error of ours
    """A timed launch computed something else than the launch that was checked."""


async def choose_cases(bench: Bench, baseline: Subject, yard: Yardstick) -> tuple[TimedCase, ...]:
    """Decide how each case is timed, from the baseline's time and the memory it touches."""
    chosen: list[TimedCase] = []
    for draw in [d for d in yard.draws if d.family == "normal"]:
        await bench.fill(baseline, draw)
        await baseline.call("record", name=draw.slab, mode="cold", launches=3)
        answer = (await baseline.call("segment", name=draw.slab, count=2))[-1]
        us = stdlib.median(answer["times_us"])
        moved = draw.input_bytes + yard.output_bytes[draw.case]
        flushed = moved < 5 * bench.l2_bytes
        mode = "graph" if us < SHORT_US else "cold" if flushed else "streaming"
        chosen.append(TimedCase(draw, mode, _launches(us), us, moved))
    long_enough = [case for case in chosen if case.baseline_us >= UNTIMED_US]
    return tuple(long_enough or chosen)


async def prepare(bench: Bench, subject: Subject, cases: Sequence[TimedCase]) -> None:
    """Fill the memory of all timed cases and record their segments."""
    for case in cases:
        await bench.fill(subject, case.draw)
        await subject.call("record", name=case.draw.slab, mode=case.mode, launches=case.launches)


async def segment(subject: Subject, case: TimedCase) -> Segment:
    """Run one segment."""
    answer: dict[str, Any] = (await subject.call("segment", deadline=_SEGMENT_SECONDS, name=case.draw.slab))[0]
    times: list[float] = answer["times_us"]
    per_launch = _FLUSH_US if case.mode == "cold" else 0.0
    spent = (sum(times) + per_launch * len(times)) / 1000
    if case.mode == "graph":
        spent *= 4 * case.launches
    return Segment(
        stdlib.median(times), spent, answer["clock_mhz"], frozenset(tuple(row) for row in answer["checksums"])
    )


async def warm_up(subjects: Sequence[Subject], case: TimedCase) -> None:
    """Run all in turn until the SM clock keeps still over three windows; 10 ms at least, 300 ms at most."""
    started, clocks = time.perf_counter(), list[float]()
    while (passed := time.perf_counter() - started) < 0.3:
        for subject in subjects:
            if (clock := (await segment(subject, case)).clock_mhz) is not None:
                clocks.append(clock)
        if passed > 0.01 and len(clocks) >= 3 and max(clocks[-3:]) - min(clocks[-3:]) < _STEADY * clocks[-1]:
            return


class Pair:
    """The blocks of one candidate against the baseline. Not to be used without the GPU's lock."""

    def __init__(self, baseline: Subject, candidate: Subject, cases: Sequence[TimedCase], rng: random.Random) -> None:
        self._sides = {"A": baseline, "B": candidate}
        self._cases, self._rng = cases, rng
        self._seen: dict[tuple[str, int], frozenset[tuple[int, ...]]] = {}

    async def block(self, series: Series) -> None:
        """Measure one block of every case, ABBA or BAAB by chance, and append it unless the clock jumped.

        Raises:
            TimedOutputsDiffer: a timed launch of the candidate left other outputs than its launches before.
        """
        logs: list[float] = []
        sides: list[tuple[float, float]] = []
        clocks: list[float] = []
        for index, case in enumerate(self._cases):
            sums = {"A": 0.0, "B": 0.0}
            for side in self._rng.choice(("ABBA", "BAAB")):
                measured = await segment(self._sides[side], case)
                sums[side] += math.log(measured.us)
                series.gpu_ms += measured.gpu_ms
                if measured.clock_mhz is not None:
                    clocks.append(measured.clock_mhz)
                self._same_outputs(side, index, measured)
            logs.append((sums["B"] - sums["A"]) / 2)
            sides.append((math.exp(sums["A"] / 2), math.exp(sums["B"] / 2)))
        if clocks and max(clocks) - min(clocks) > _CLOCK_JUMP * max(clocks):
            series.discarded += 1
            return
        series.clocks += clocks
        for index, (log, (a, b)) in enumerate(zip(logs, sides, strict=True)):
            series.blocks[index].append(log)
            series.baseline_us[index].append(a)
            series.candidate_us[index].append(b)

    def _same_outputs(self, side: str, index: int, measured: Segment) -> None:
        """All launches of one side on one case leave the same bits, unless its first segment already did not."""
        if side == "A" or not measured.checksums:
            return
        seen = self._seen.setdefault((side, index), measured.checksums)
        if len(seen) == 1 and measured.checksums != seen:
            raise TimedOutputsDiffer


async def decide(
    bench: Bench,
    pair: Pair,
    series: Series,
    *,
    alpha: float,
    shared: bool,
    on_block: Callable[[statistics.Decision], None] | None = None,
) -> statistics.Decision:
    """Blocks until the statistics have decided (`judge.statistics.decide`)."""
    settings = bench.settings.judge
    floor, clear = resolution(series.cases, settings.delta, shared)
    while True:
        await pair.block(series)
        stuck = series.discarded > 20
        spent = settings.budget_ms if stuck else series.gpu_ms
        decision = statistics.decide(
            series.combined, settings.delta, alpha, spent, settings.budget_ms, floor=floor, clear=clear
        )
        if on_block is not None:
            on_block(decision)
        if decision.stop:
            return decision
        if stuck:
            raise TimeoutError("the GPU's clock never kept still long enough to time anything")


def resolution(cases: Sequence[TimedCase], delta: float, shared: bool) -> tuple[float, float]:
    """Least deviation of a block, and how far a gain must clear zero, for these cases together."""
    blur = math.fsum(_PLACEMENT_US[c.mode] / c.baseline_us for c in cases) / len(cases) / math.sqrt(len(cases))
    floor = statistics.LEAST_DEVIATION
    return floor, max(blur, 2 * delta if shared else 0.0)


async def verify_timed_outputs(
    bench: Bench, subject: Subject, cases: Sequence[TimedCase], yard: Yardstick
) -> str | None:
    """Put new values at the timed addresses, replay what was timed, and compare; a reason if it is wrong."""
    for case in cases:
        fresh = yard.fresh[case.draw.case]
        await bench.fill(subject, fresh)
        await segment(subject, case)
        published = await subject.call("publish", name=case.draw.slab)
        compared = await bench.compare(subject, fresh, published, baseline=False)
        await bench.fill(subject, case.draw)
        if compared["shape_error"]:
            return f"on case {bench.cases[case.draw.case]} the timed launch {compared['shape_error']}"
        for number, found in enumerate(compared["distances"]):
            if found["first_wrong"] is not None:
                return (
                    f"on case {bench.cases[case.draw.case]} the timed launch did not compute new inputs: output "
                    f"{number} at {found['index']} is {found['actual']} where {found['expected']} is right"
                )
    return None


def device_state(bench: Bench, series: Series, pids: frozenset[int]) -> DeviceState:
    """The GPU as it was while `series` was measured."""
    assert bench.gpu is not None, "only what was timed has a device state"
    state = read_state(bench.gpu, pids)
    return DeviceState(
        name=bench.gpu.name,
        uuid=bench.gpu.uuid,
        arch=bench.gpu.arch,
        driver=bench.gpu.driver,
        sm_clock_mhz=(min(series.clocks), max(series.clocks)) if series.clocks else None,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttle=state.throttle,
        others_busy_percent=state.others_percent,
        shared=state.others_percent > 5,
        copy_bandwidth_gbs=bench.copy_bandwidth / 1e9 if bench.copy_bandwidth else None,
    )


def _launches(us: float) -> int:
    """Launches per segment: 4 to 32 and at least 100 microseconds together; fewer of very long ones."""
    if us >= 1000:
        return 2 if us < 5000 else 1
    return max(4, min(32, math.ceil(100 / us)))
