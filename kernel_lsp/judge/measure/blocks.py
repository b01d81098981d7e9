"""The paired measurement: baseline and candidate in turn, block after block.

Each side runs in its own process, which is told to run one segment at a time; so nothing a candidate does to its own
clock or libraries reaches the baseline, and only one of them uses the GPU at any moment.
"""

import math
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Protocol

from kernel_lsp import policy
from kernel_lsp.device.nvml import SLOWED_BY_HARDWARE, free_bytes, read_throttle
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.measure import statistics
from kernel_lsp.judge.measure.cases import TimedCase, ready, run_segment, segment_us, spent_ms
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.subject_answers import Recorded, Segment
from kernel_lsp.runner.protocol import WorkerFailure

_DRIVER_ERROR = "CudaError"  # as a recording fails for which there is no memory


class TimedOutputsDiffer(Exception):  # noqa: N818 - a finding about a candidate, not an error of ours
    """A timed launch left other outputs than another launch on the same inputs."""


class Renewal(Protocol):
    """Writes new inputs before each half of a block (AB or BA), and checks the outputs on them."""

    async def renew(self, case: TimedCase) -> None:
        """Write new inputs into the buffers of a case on both sides."""
        ...

    async def look(self, case: TimedCase, segment: Segment) -> None:
        """Check a segment that the candidate has just run on them."""
        ...


@dataclass(slots=True)
class Series:
    """The blocks of one pair: for each case the log ratios candidate / baseline and the underlying times."""

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
        """Return a series without blocks."""
        return cls(tuple(cases), [[] for _ in cases], [[] for _ in cases], [[] for _ in cases])

    @property
    def combined(self) -> list[float]:
        """One log ratio per block: the mean over cases."""
        return statistics.combine(self.blocks)

    @property
    def last(self) -> tuple[float, ...]:
        """The last block, by case."""
        return tuple(case[-1] for case in self.blocks)

    def discard_last(self) -> None:
        """Remove the last block and count it as discarded."""
        self.discarded += 1
        for column in (*self.blocks, *self.baseline_us, *self.candidate_us):
            column.pop()

    def joined(self, later: "Series") -> "Series":
        """Return this series with the blocks of a later one appended."""

        def appended(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
            return [x + y for x, y in zip(a, b, strict=True)]

        return Series(
            self.cases,
            appended(self.blocks, later.blocks),
            appended(self.baseline_us, later.baseline_us),
            appended(self.candidate_us, later.candidate_us),
            self.clocks + later.clocks,
            self.gpu_ms + later.gpu_ms,
            self.discarded + later.discarded,
            self.throttle | later.throttle,
        )


class PairedMeasurement:
    """The blocks of one candidate against the baseline. Not to be used without the GPU's lock.

    A kernel's time depends on where in memory its inputs and outputs lie: by a few tenths of a percent where memory is
    the limit, which no number of blocks in one place averages away. So each launch of a segment works in memory of its
    own, and blocks take several places in turn.

    Places that are allocated for the two sides in turn lie in a pattern, and what they have in common then makes one
    process faster than the next (`tests/bench/results/placement.json`). So all are made ready for one side before the
    other.

    With a slow baseline a block is one launch of each side, A and B going first in turn (`once`).

    `same_bits` says that launches on the same inputs must leave the same bits, as those of deterministic kernels do;
    `spread` how many launches at least work in memory of their own; `places` is how many there are, and `placed` are
    the cases in the one that the last block used.
    """

    def __init__(
        self,
        harness: Harness,
        baseline: Subject,
        candidate: Subject,
        cases: Sequence[TimedCase],
        rng: random.Random,
        *,
        same_bits: bool = True,
        renewal: Renewal | None = None,
        spread: int = policy.PLACES,
        once: bool = False,
    ) -> None:
        self._harness = harness
        self._sides = {"A": baseline, "B": candidate}
        self._cases, self._rng, self._same_bits, self._renewal = cases, rng, same_bits, renewal
        self.places = 1 if once else _places(harness, cases, spread)
        self._turn = rng.randrange(2) if once else None
        self._blocks = 0
        self.placed = list(cases)
        self.recorded: dict[str, list[Recorded]] = {"A": [], "B": []}

    @property
    def versions(self) -> tuple[Subject, Subject]:
        """Return the processes of the baseline and of the candidate."""
        return self._sides["A"], self._sides["B"]

    @property
    def memories(self) -> int:
        """Return how many launches of a case work in memory of their own, over all places."""
        return self.places * min(case.buffers for case in self._cases)

    def anywhere(self) -> list[TimedCase]:
        """Return the cases in a place by chance: a version must not know beforehand which one is looked at."""
        return self._at(self._rng.randrange(self.places))

    async def make_ready(self) -> None:
        """Allocate and record all places, those of the baseline first."""
        for side, subject in self._sides.items():
            for place in range(self.places):
                try:
                    self.recorded[side] += await ready(self._harness, subject, self._at(place))
                except WorkerFailure as error:
                    if place == 0 or not (error.lacks_memory or error.kind == _DRIVER_ERROR):
                        raise
                    self.places = place  # launches with much memory of their own have fewer places
                    break
        for subject in self._sides.values():
            for first in [name for name in subject.bound if self._beyond(name)]:
                await self._harness.unbind(subject, first)

    async def block(self, series: Series) -> bool:
        """Measure one block of every case, ABBA or BAAB at random, and append it; return False if the clock jumped.

        Raises:
            TimedOutputsDiffer: a launch of the candidate left other outputs than another one on the same inputs.
            NothingTimed: one takes no time at all.
        """
        logs: list[float] = []
        sides: list[tuple[float, float]] = []
        clocks: dict[tuple[int, str], list[float]] = {}
        self.placed = self._at(self._blocks % self.places)
        self._blocks += 1
        for index, case in enumerate(self.placed):
            sums = {"A": 0.0, "B": 0.0}
            halves = self._halves()
            for half in halves:
                if self._renewal is not None:
                    await self._renewal.renew(case)
                for side in half:
                    segment = await run_segment(self._sides[side], case)
                    sums[side] += math.log(segment_us(segment))
                    series.gpu_ms += spent_ms(case, segment)
                    if segment.clock_mhz is not None:
                        clocks.setdefault((index, side), []).append(segment.clock_mhz)
                    if side == "B" and self._renewal is not None:
                        await self._renewal.look(case, segment)
                    elif side == "B" and self._same_bits and len(set(segment.checksums)) > 1:
                        raise TimedOutputsDiffer
            logs.append((sums["B"] - sums["A"]) / len(halves))
            sides.append((math.exp(sums["A"] / len(halves)), math.exp(sums["B"] / len(halves))))
        if any(max(seen) - min(seen) > policy.CLOCK_JUMP_SHARE * max(seen) for seen in clocks.values()):
            series.discarded += 1
            return False
        series.clocks += [clock for seen in clocks.values() for clock in seen]
        for index, (log, (a, b)) in enumerate(zip(logs, sides, strict=True)):
            series.blocks[index].append(log)
            series.baseline_us[index].append(a)
            series.candidate_us[index].append(b)
        return True

    async def watched_block(self, series: Series) -> bool:
        """Measure one block and record what throttled the GPU; return False if the block does not count.

        Raises:
            TimedOutputsDiffer, NothingTimed: see `block`.
        """
        assert self._harness.gpu is not None, "only a GPU is timed"
        counts = await self.block(series)
        throttle = set(read_throttle(self._harness.gpu))
        series.throttle |= throttle
        if counts and throttle & SLOWED_BY_HARDWARE:
            series.discard_last()
            return False
        return counts

    def _halves(self) -> tuple[str, ...]:
        """Return the order of both sides in a block of a case, one item for each half."""
        if self._turn is not None:
            return (("AB", "BA")[(self._turn + self._blocks) % 2],)
        return self._rng.choice((("AB", "BA"), ("BA", "AB")))

    def _at(self, place: int) -> list[TimedCase]:
        return [case.at(place) for case in self._cases]

    def _beyond(self, first: str) -> bool:
        """Return True if these buffers, named by the first, belong to a place that is not used."""
        _, _, place = first.partition("@")
        return place != "" and int(place.partition(".")[0]) >= self.places


async def warm_up(subjects: Sequence[Subject], case: TimedCase) -> None:
    """Run all in turn until the SM clock is stable or the policy's time is over; slow launches run once only."""
    if case.slow:
        return
    started = time.perf_counter()
    clocks: list[float] = []
    while (passed := time.perf_counter() - started) < policy.WARM_UP_MOST_SECONDS:
        seen = [(await run_segment(subject, case)).clock_mhz for subject in subjects]
        clocks += [clock for clock in seen if clock is not None]
        last = clocks[-policy.STEADY_CLOCK_READINGS :]
        enough = passed > policy.WARM_UP_LEAST_SECONDS and len(last) == policy.STEADY_CLOCK_READINGS
        if enough and max(last) - min(last) < policy.STEADY_CLOCK_SHARE * last[-1]:
            return


def _places(harness: Harness, cases: Sequence[TimedCase], spread: int) -> int:
    """Return the number of places: how often all cases fit into the memory of each version.

    Launches of a segment already lie in separate memory; places are added until `spread` launches do.
    """
    assert harness.gpu is not None, "only a GPU is timed"
    footprint = sum(case.buffers * (case.footprint + case.output_bytes) for case in cases)
    room = int(free_bytes(harness.gpu) * policy.PLACES_MEMORY_SHARE)
    fewest = min(case.buffers for case in cases)
    return max(1, min(-(-spread // fewest), room // max(1, footprint)))
