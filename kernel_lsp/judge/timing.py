"""The paired measurement: baseline and candidate in turn, block after block, until the statistics decide.

Each side runs in its own process, which is told to run one segment at a time; so nothing a candidate does to its own
clock or libraries reaches the baseline, and only one of them uses the GPU at any moment.
"""

import math
import random
import statistics as stdlib
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_lsp.device.nvml import SLOWED_BY_HARDWARE, busy_percent, free_bytes, read_state, read_throttle
from kernel_lsp.judge import statistics
from kernel_lsp.judge.bench import Bench, Draw, Subject
from kernel_lsp.judge.correctness import Yardstick
from kernel_lsp.judge.roofline import Bandwidth
from kernel_lsp.judge.verdict import DeviceState, ModelServerState
from kernel_lsp.model.gate import Quiet, Quieted
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.sessions import members

SHORT_US = 10.0
"""A launch shorter than this is timed as the difference of two graphs of copies, not between two events."""
UNTIMED_US = 7.0
"""A case this short is checked, not timed, if others are longer; so is a short one beside one 20 times as long."""
_FLUSH_US = 45.0
_PLACEMENT_US = {"graph": 0.1, "cold": 0.5, "streaming": 0.5}
"""How much the same kernel differs from one process to the next, by where its code and buffers happen to lie.

Measured on an H200 (`tests/bench/results/`); no number of blocks averages it away, so FASTER must clear it.
"""
PLACES = 16
"""Of memory, that the blocks of a case take in turn; fewer where it is short."""
_MEMORY_SHARE = 8  # of what is free on the GPU, for the places of one version
_OUT_OF_MEMORY = ("OutOfMemoryError", "CudaError")
_UNCLEAR_BLOCKS = 16
_STEADY = 0.01
_CLOCK_JUMP = 0.05
_SEGMENT_SECONDS = 30.0
_SAMPLE_SECONDS = 0.2  # of the driver's: a younger one can still tell of the time before a server was quiet
_UNSEEN = 5  # segments on inputs never seen
_REMEMBERED, _REMEMBERED_US = 1.2, 2.0  # how much longer, as a factor and in microseconds, tells of a memory
_WATCHED_US = 20_000.0  # of the baseline's launches are enough for one look from outside
_LOOKS = 3  # at a candidate before it is said to remember its inputs
_LOOKS_FROM_OUTSIDE, _DOUBTING_SECONDS = 5, 2.0  # at least, before its times are doubted


@dataclass(frozen=True, slots=True)
class TimedCase:
    """How one case is timed.

    Attributes:
        draw: its inputs.
        mode: `cold`, `streaming` or `graph`.
        launches: in a segment.
        baseline_us: the baseline's own time, microseconds.
        output_bytes: of all outputs.
        restores: whether inputs are put back before each launch, for kernels that change them.
        captured: whether segments are CUDA graphs; both sides of a comparison are timed in the same way.
    """

    draw: Draw
    mode: str
    launches: int
    baseline_us: float
    output_bytes: int
    restores: bool = False
    captured: bool = True

    def at(self, place: int) -> "TimedCase":
        """The same case in another place of memory."""
        return replace(self, draw=replace(self.draw, place=place))

    @property
    def bytes_moved(self) -> int:
        """Compulsory traffic: each input read once, each output written once."""
        return self.draw.input_bytes + self.output_bytes

    def roofline_share(self, bandwidth: Bandwidth | None, us: float) -> float | None:
        """Of `us` microseconds, how much memory needs for the compulsory traffic; None where it is not the limit.

        What is faster than that and may pick from a table leaves out some of it: then the traffic is not known.
        """
        if bandwidth is None or self.mode == "graph":
            return None
        share = bandwidth.seconds(self.draw.input_bytes, self.output_bytes) / (us * 1e-6)
        return None if share > 1 and self.draw.may_pick else share

    @property
    def recording(self) -> tuple[object, ...]:
        """How it is recorded, in a place."""
        return (self.mode, self.launches, self.restores, self.captured)


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
    throttle: set[str] = field(default_factory=set[str])

    @classmethod
    def empty(cls, cases: Sequence[TimedCase]) -> "Series":
        """A series without blocks."""
        return cls(tuple(cases), [[] for _ in cases], [[] for _ in cases], [[] for _ in cases])

    @property
    def combined(self) -> list[float]:
        """One log ratio per block: the mean over cases."""
        return statistics.combine(self.blocks)

    def discard_last(self) -> None:
        """Take the last block back."""
        self.discarded += 1
        for column in (*self.blocks, *self.baseline_us, *self.candidate_us):
            column.pop()


@dataclass(frozen=True, slots=True)
class Segment:
    """One answer of a worker: median microseconds of a launch, GPU milliseconds spent, SM clock, output checksums."""

    us: float
    gpu_ms: float
    clock_mhz: float | None
    checksums: frozenset[tuple[int, ...]]


class TimedOutputsDiffer(Exception):  # noqa: N818 - a finding about a candidate, not an error of ours
    """A timed launch computed something else than the launch that was checked, or nothing at all."""


async def choose_cases(bench: Bench, baseline: Subject, yard: Yardstick, *, captured: bool) -> tuple[TimedCase, ...]:
    """Decide how each case is timed, from the baseline's time and the memory it touches.

    Raises:
        WorkerFailure: of kind `NotCapturableError`, when `captured` is asked for and cannot be.
    """
    chosen: list[TimedCase] = []
    for draw in [d for d in yard.draws if d.family == "normal"]:
        outputs = yard.output_bytes[draw.case]
        probe = TimedCase(draw, "cold", 3, 0.0, outputs, restores=yard.in_place, captured=captured)
        await prepare(bench, baseline, [probe])
        await segment(baseline, probe)
        us = (await segment(baseline, probe)).us
        mode = "cold" if probe.bytes_moved < 5 * bench.l2_bytes else "streaming"
        if us < SHORT_US and captured and not yard.in_place:
            mode = "graph"
        chosen.append(replace(probe, mode=mode, launches=_launches(us), baseline_us=us))
    longest = max(case.baseline_us for case in chosen)
    return tuple(case for case in chosen if not _launch_bound(case.baseline_us, longest))


def _launch_bound(us: float, longest: float) -> bool:
    """Whether a case says more about launching than about the kernel, beside the longest one of its workload."""
    return us < longest and (us < UNTIMED_US or (us < SHORT_US and us < longest / 20))


async def prepare(bench: Bench, subject: Subject, cases: Sequence[TimedCase]) -> None:
    """Fill the memory of all timed cases and record their segments."""
    for case in cases:
        await bench.fill(subject, case.draw)
        await _record(subject, case)


async def ready(bench: Bench, subject: Subject, cases: Sequence[TimedCase]) -> None:
    """Prepare those cases that are not recorded in this way already."""
    for case in cases:
        if subject.recorded.get(case.draw.slab) != case.recording:
            await prepare(bench, subject, [case])


async def _record(subject: Subject, case: TimedCase) -> None:
    await subject.call(
        "record",
        name=case.draw.slab,
        mode=case.mode,
        launches=case.launches,
        restores=case.restores,
        capture=case.captured,
    )
    subject.recorded[case.draw.slab] = case.recording


async def segment(subject: Subject, case: TimedCase) -> Segment:
    """Run one segment.

    Raises:
        TimedOutputsDiffer: what was recorded takes no time at all.
    """
    answer: dict[str, Any] = (await subject.call("segment", deadline=_SEGMENT_SECONDS, name=case.draw.slab))[0]
    times: list[float] = answer["times_us"]
    if (us := stdlib.median(times)) <= 0:
        raise TimedOutputsDiffer
    checksums = frozenset(tuple(row) for row in answer["checksums"])
    return Segment(us, _spent_ms(case, times), answer["clock_mhz"], checksums)


def _spent_ms(case: TimedCase, times: Sequence[float]) -> float:
    """GPU milliseconds of a segment with these times of a launch in microseconds."""
    if case.mode == "graph":
        return sum(times) * 4 * case.launches / 1000
    return (sum(times) + (_FLUSH_US * len(times) if case.mode == "cold" else 0.0)) / 1000


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
    """The blocks of one candidate against the baseline. Not to be used without the GPU's lock.

    A kernel's time depends on where in memory its inputs and outputs lie: by a few tenths of a percent where memory is
    the limit, which no number of blocks in one place averages away. So each block uses another place.

    Places that are allocated for the two sides in turn lie in a pattern, and what they have in common then makes one
    process faster than the next (`tests/bench/results/placement.json`). So some are made ready `ahead`, all of one side
    before those of the other.

    `same_bits` says that every launch on the same inputs must leave the same bits, as for deterministic kernels.
    `placed` are the cases in the place that the last block used.
    """

    def __init__(
        self,
        bench: Bench,
        baseline: Subject,
        candidate: Subject,
        cases: Sequence[TimedCase],
        rng: random.Random,
        *,
        same_bits: bool = True,
        ahead: int = statistics.MIN_BLOCKS,
    ) -> None:
        self._bench = bench
        self._sides = {"A": baseline, "B": candidate}
        self._cases, self._rng, self._same_bits, self._ahead = cases, rng, same_bits, ahead
        self._places = _places(bench, cases)
        self._ready = 0
        self._blocks = 0
        self.placed = list(cases)
        self._seen: dict[int, frozenset[tuple[int, ...]]] = {}

    async def block(self, series: Series) -> None:
        """Measure one block of every case, ABBA or BAAB by chance, and append it unless the clock jumped.

        Raises:
            TimedOutputsDiffer: a timed launch of the candidate left other outputs than another one.
        """
        logs: list[float] = []
        sides: list[tuple[float, float]] = []
        clocks: dict[tuple[int, str], list[float]] = {}
        for index, case in enumerate(await self._placed()):
            sums = {"A": 0.0, "B": 0.0}
            for side in self._rng.choice(("ABBA", "BAAB")):
                measured = await segment(self._sides[side], case)
                sums[side] += math.log(measured.us)
                series.gpu_ms += measured.gpu_ms
                if measured.clock_mhz is not None:
                    clocks.setdefault((index, side), []).append(measured.clock_mhz)
                if side == "B" and self._same_bits:
                    self._compare_bits(index, measured)
            logs.append((sums["B"] - sums["A"]) / 2)
            sides.append((math.exp(sums["A"] / 2), math.exp(sums["B"] / 2)))
        if any(max(seen) - min(seen) > _CLOCK_JUMP * max(seen) for seen in clocks.values()):
            series.discarded += 1
            return
        series.clocks += [clock for seen in clocks.values() for clock in seen]
        for index, (log, (a, b)) in enumerate(zip(logs, sides, strict=True)):
            series.blocks[index].append(log)
            series.baseline_us[index].append(a)
            series.candidate_us[index].append(b)

    async def make_ready(self) -> None:
        """Make the next places of memory ready on both sides; `block` does so too when it has come to the last one."""
        wanted = until = min(self._ready + self._ahead, self._places)
        for subject in self._sides.values():
            for place in range(self._ready, until):
                try:
                    await ready(self._bench, subject, self._cases_at(place))
                except WorkerFailure as error:
                    if place == 0 or error.kind not in _OUT_OF_MEMORY:
                        raise
                    self._places = until = place  # a launch that takes much memory besides its outputs has fewer places
                    break
        self._ready = until
        for subject in self._sides.values():
            for case in (case for place in range(until, wanted) for case in self._cases_at(place)):
                await self._bench.unbind(subject, case.draw.slab)

    def _cases_at(self, place: int) -> list[TimedCase]:
        return [case.at(place) for case in self._cases]

    async def _placed(self) -> list[TimedCase]:
        """The cases in the next place of memory."""
        if self._blocks == self._ready < self._places:
            await self.make_ready()
        place = self._blocks % self._places
        self._blocks += 1
        self.placed = self._cases_at(place)
        return self.placed

    def _compare_bits(self, index: int, measured: Segment) -> None:
        seen = self._seen.setdefault(index, measured.checksums)
        if len(measured.checksums) > 1 or measured.checksums != seen:
            raise TimedOutputsDiffer


async def watched_block(bench: Bench, pair: Pair, series: Series) -> None:
    """One more block, with a note of what slowed the GPU down; it does not count where the hardware protected itself.

    Raises:
        TimedOutputsDiffer: see `Pair.block`.
    """
    assert bench.gpu is not None, "only a GPU is timed"
    before = len(series.blocks[0])
    await pair.block(series)
    throttle = set(read_throttle(bench.gpu))
    series.throttle |= throttle
    if throttle & SLOWED_BY_HARDWARE and len(series.blocks[0]) > before:
        series.discard_last()


def _places(bench: Bench, cases: Sequence[TimedCase]) -> int:
    """Into how many places of its memory each version can put the inputs and outputs of all cases."""
    assert bench.gpu is not None, "only a GPU is timed"
    footprint = sum((1 + case.restores) * case.draw.nbytes + 2 * case.output_bytes for case in cases)
    return max(1, min(PLACES, free_bytes(bench.gpu) // _MEMORY_SHARE // max(1, footprint)))


async def decide(
    bench: Bench,
    pair: Pair,
    series: Series,
    *,
    alpha: float,
    shared: bool,
    on_block: Callable[[statistics.Decision], None] | None = None,
) -> statistics.Decision:
    """Blocks until the statistics have decided (`judge.statistics.decide`).

    What is no gain, and may be no loss either, is followed a little longer than a decision needs, so that its verdict
    can be SAME or SLOWER; and a loss within what placement alone can make is not called one.
    """
    settings = bench.settings.judge
    floor, clear = resolution(series.cases, settings.delta, shared)
    while True:
        await watched_block(bench, pair, series)
        stuck = series.discarded > 20
        spent = settings.budget_ms if stuck else series.gpu_ms
        decision = statistics.decide(
            series.combined, settings.delta, alpha, spent, settings.budget_ms, floor=floor, clear=clear
        )
        if on_block is not None:
            on_block(decision)
        unclear = decision.interval.lower <= clear
        if decision.stop and (not unclear or spent >= settings.budget_ms or decision.blocks >= _UNCLEAR_BLOCKS):
            return _placed(decision, settings.delta, clear)
        if decision.stop and decision.outcome in (statistics.Outcome.SAME, statistics.Outcome.PROVISIONAL_FASTER):
            return decision
        if stuck:
            raise TimeoutError("the GPU's clock never kept still long enough to time anything")


def _placed(decision: statistics.Decision, delta: float, clear: float) -> statistics.Decision:
    """A difference under delta, or one that placement could have made, as what it is: none worth the name."""
    if decision.outcome not in (statistics.Outcome.SLOWER, statistics.Outcome.NOT_WORTH_IT):
        return decision
    if max(abs(decision.interval.lower), abs(decision.interval.upper)) < delta + clear:
        return replace(decision, outcome=statistics.Outcome.SAME)
    if decision.interval.lower <= clear:
        return replace(decision, outcome=statistics.Outcome.NOT_WORTH_IT)
    return decision


def resolution(cases: Sequence[TimedCase], delta: float, shared: bool) -> tuple[float, float]:
    """Least deviation of a block, and how far a gain must clear zero, for these cases together."""
    blur = math.sqrt(math.fsum((_PLACEMENT_US[c.mode] / c.baseline_us) ** 2 for c in cases)) / len(cases)
    floor = statistics.LEAST_DEVIATION
    return floor, max(blur, 2 * delta if shared else 0.0)


async def verify_timed_outputs(
    bench: Bench, subject: Subject, cases: Sequence[TimedCase], yard: Yardstick
) -> str | None:
    """Replay what was timed on new values at the timed addresses, and compare; a reason if it is wrong.

    First all values are new, then a few: an answer kept by samples of the inputs is taken for the right one again.
    """
    for case in cases:
        fresh = replace(case, draw=yard.fresh[case.draw.case]).at(case.draw.place)
        await bench.fill(subject, fresh.draw)
        if fresh.draw.slab != case.draw.slab:  # inputs of another shape, or with other numbers
            await _record(subject, fresh)
        wrong = await _replay(bench, subject, fresh, "new inputs")
        if wrong is None:
            touched = replace(fresh, draw=await bench.touch(fresh.draw))
            await bench.fill(subject, touched.draw)
            wrong = await _replay(bench, subject, touched, "inputs with a few new values")
        await bench.fill(subject, case.draw)
        await subject.call("refresh", name=case.draw.slab)
        if wrong is not None:
            return f"on case {bench.cases[case.draw.case]} the timed launch {wrong}"
    return None


async def _replay(bench: Bench, subject: Subject, case: TimedCase, inputs: str) -> str | None:
    """Run what was timed on the inputs that were just filled in; the end of a sentence if the answer is wrong."""
    await subject.call("refresh", name=case.draw.slab)
    await segment(subject, case)
    published = await subject.call("publish", name=case.draw.slab)
    compared = await bench.compare(subject, case.draw, published, baseline=False)
    if compared["shape_error"]:
        return str(compared["shape_error"])
    for number, found in enumerate(compared["distances"]):
        if found["first_wrong"] is not None:
            return (
                f"did not compute {inputs}: output {number} at {found['index']} is {found['actual']} where "
                f"{found['expected']} is right"
            )
    return None


async def remembers_inputs(
    bench: Bench, baseline: Subject, candidate: Subject, timed: Sequence[tuple[TimedCase, tuple[float, float]]]
) -> str | None:
    """Does the first launch on inputs never seen take longer than is claimed? A sentence if so.

    All launches of a segment work on the same inputs, so a version that remembers its last answer by all of them is
    slow once and then quick. `timed` holds the times claimed of both, in microseconds. Another process on the GPU slows
    single launches too, so it looks again before it says so: what remembers is slow every time. Not seen where only the
    difference of two graphs is timed: there an answer takes less time than finding out whether it is known.
    """
    for case, claimed in timed:
        if case.mode == "graph":
            continue
        found: str | None = None
        for _ in range(_LOOKS):
            if (found := await _slow_at_first(bench, baseline, candidate, case, claimed)) is None:
                break
        if found is not None:
            return found
    return None


async def _slow_at_first(
    bench: Bench, baseline: Subject, candidate: Subject, case: TimedCase, claimed: tuple[float, float]
) -> str | None:
    """One look: is the candidate slower on inputs never seen than is claimed, by more than the baseline is?"""
    first = await _first_times(bench, (baseline, candidate), case)
    usual = max(1.0, first[0] / claimed[0]) * claimed[1]
    if first[1] <= max(_REMEMBERED * usual, usual + _REMEMBERED_US):
        return None
    return (
        f"on case {bench.cases[case.draw.case]} it takes {first[1]:.1f} us on inputs that it has not seen, "
        f"where {claimed[1]:.1f} us was timed on the same inputs again and again (the baseline: "
        f"{first[0]:.1f} us and {claimed[0]:.1f} us)"
    )


async def _first_times(bench: Bench, sides: Sequence[Subject], case: TimedCase) -> list[float]:
    """Microseconds of the first launch on inputs never seen, of each side: the median of some, taken in turn."""
    times: list[list[float]] = [[] for _ in sides]
    for _ in range(_UNSEEN):
        unseen = await bench.touch(case.draw)
        for subject, kept in zip(sides, times, strict=True):
            await bench.fill(subject, unseen)
            await subject.call("refresh", name=case.draw.slab)
            answer = await subject.call("segment", deadline=_SEGMENT_SECONDS, name=case.draw.slab)
            kept.append(answer[0]["times_us"][0])
    for subject in sides:
        await bench.fill(subject, case.draw)
        await subject.call("refresh", name=case.draw.slab)
    return [stdlib.median(kept) for kept in times]


async def seen_from_outside(baseline: Subject, candidate: Subject, case: TimedCase) -> str | None:
    """Do the candidate's own times agree with this process's clock? A sentence if they do not.

    Others of the machine put this process off, on a busy one for a second on end, which only ever adds. So where a look
    does not agree more are taken, and the least that was seen counts; a candidate that claims too little stays wrong.
    """
    looks: list[list[float]] = []
    began = time.perf_counter()
    while True:
        looks.append(await _look_from_outside(baseline, candidate, case))
        found = _disagreement([min(seen) for seen in zip(*looks, strict=True)])
        doubted = len(looks) >= _LOOKS_FROM_OUTSIDE and time.perf_counter() - began >= _DOUBTING_SECONDS
        if found is None or doubted:
            return found


async def _look_from_outside(baseline: Subject, candidate: Subject, case: TimedCase) -> list[float]:
    """Of each side, with few segments and then with more: milliseconds by this process's clock, and those it claims."""
    span_us = case.baseline_us * case.launches
    few = 2
    many = few + max(2, min(8, math.ceil(_WATCHED_US / span_us)))
    per_segment = 4 * case.launches if case.mode == "graph" else 1
    seen: list[float] = []
    for subject in (baseline, candidate):
        for count in (few, many):
            started = time.perf_counter()
            answers = await subject.call("segment", deadline=_SEGMENT_SECONDS, name=case.draw.slab, count=count)
            seen.append((time.perf_counter() - started) * 1000)
            seen.append(sum(sum(answer["times_us"]) for answer in answers) * per_segment / 1000)
    return seen


def _disagreement(seen: Sequence[float]) -> str | None:
    """What a segment takes beyond its launches (flushes, messages) is learned from the baseline."""
    usual, usual_claim = seen[2] - seen[0], seen[3] - seen[1]
    wall, claimed = seen[6] - seen[4], seen[7] - seen[5]
    implied = wall - (usual - usual_claim)
    if implied - claimed > max(0.3 * implied, 0.25 * usual, 1.0):
        return (
            f"it says that its launches took {claimed:.2f} ms, but seen from outside they took {implied:.2f} ms "
            f"(the baseline: {usual_claim:.2f} ms)"
        )
    return None


def device_state(bench: Bench, series: Series, pids: frozenset[int], servers: Sequence[Quieted] = ()) -> DeviceState:
    """The GPU as it was while `series` was measured; `servers` are the model servers that were kept off it."""
    assert bench.gpu is not None, "only what was timed has a device state"
    states: list[ModelServerState] = []
    for quieted in servers:
        theirs = frozenset(members(quieted.server.pid) if quieted.server.pid else ())
        busy = busy_percent(bench.gpu, theirs, quieted.since + _SAMPLE_SECONDS)
        states.append(
            ModelServerState(name=quieted.server.name, pid=quieted.server.pid, how=quieted.how, busy_percent=busy)
        )
        if quieted.how is not Quiet.BUSY:
            pids |= theirs  # the driver's samples reach back to when it still generated
    state = read_state(bench.gpu, pids)
    return DeviceState(
        name=bench.gpu.name,
        uuid=bench.gpu.uuid,
        arch=bench.gpu.arch,
        driver=bench.gpu.driver,
        sm_clock_mhz=(min(series.clocks), max(series.clocks)) if series.clocks else None,
        power_w=state.power_w,
        temperature_c=state.temperature_c,
        throttle=tuple(sorted(series.throttle | set(state.throttle))),
        others_busy_percent=state.others_percent,
        shared=(state.others_percent or 0) > 5 or any(s.how is Quiet.BUSY for s in servers),
        copy_bandwidth_gbs=bench.bandwidth.copy / 1e9 if bench.bandwidth else None,
        read_bandwidth_gbs=bench.bandwidth.read / 1e9 if bench.bandwidth else None,
        model_servers=tuple(states),
    )


def _launches(us: float) -> int:
    """Launches per segment: 4 to 32 and at least 100 microseconds together; fewer of very long ones."""
    if us >= 1000:
        return 2 if us < 2000 else 1
    return max(4, min(32, math.ceil(100 / us)))
