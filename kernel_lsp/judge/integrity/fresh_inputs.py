"""Time the confirmation on fresh inputs and weights, so that remembered answers are of no use.

Before each half of a block the oracle draws inputs anew and writes them into the memory of both sides. So a version
that remembers answers, by element, by row or by samples, has nothing to look up, and its measured time is the one that
counts. As nobody knows the right bits for such inputs beforehand, launches are picked by chance once they have run:
their outputs are held against the truth, and all of a segment against those of the candidate's other process.

Drawing inputs may be slow, and inputs with other shapes or numbers do not fit what was recorded. Then blocks see the
last inputs again: their outputs are held against the truth as well, for a version may leave out what it has done
before, and it is looked at by itself what a first launch on unseen inputs takes (`remembers`).
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import median

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.check import cannot_be_given
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.replay import compare_launch
from kernel_lsp.judge.measure.cases import TimedCase, fill, prepare, run_segment, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle import BufferPlace, Renew
from kernel_lsp.runner.messages.subject import Publish, Refresh
from kernel_lsp.runner.messages.subject_answers import Segment

_UNSEEN = "shifted"
"""Family whose tensors all hold other values than plain ones of the same seed, in the same shapes."""


@dataclass(slots=True)
class _Seen:
    """Counts for one case: segments on renewed and on kept inputs, and the launches compared in each."""

    renewals: int = 0
    compared: int = 0
    repeated: int = 0
    kept: int = 0
    compared_again: int = 0


@dataclass
class FreshInputs:
    """Draws fresh inputs for a confirmation and checks the outputs on them; implements `blocks.Renewal`.

    Attributes:
        harness: of the target.
        baseline: one side.
        candidate: the other.
        other: the candidate in its first process, where it still has its recordings.
        same_bits: launches on the same inputs leave the same bits.
        rng: chance.
        ruling: the first thing found wrong.
        recorded_anew: inputs that both sides were recorded on for a look of their own.
    """

    harness: Harness
    baseline: Subject
    candidate: Subject
    other: Subject | None
    same_bits: bool
    rng: random.Random
    ruling: Ruling | None = None
    recorded_anew: int = 0
    _spent: float = 0.0
    _is_new: bool = False
    _seeds: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    _seen: dict[int, _Seen] = field(default_factory=dict[int, _Seen])

    async def renew(self, case: TimedCase, *, always: bool = False) -> None:
        """Draw fresh inputs for each buffer of a case, and write them into the memory of all versions.

        Once the time for drawing is used up nothing is drawn, unless `always` is set.
        """
        seen = self._seen.setdefault(case.draw.case, _Seen())
        self._is_new = self.applies(case) and (always or self._spent <= policy.RENEWAL_SECONDS)
        if not self._is_new:
            seen.kept += 1
            return
        began = time.perf_counter()
        seeds = self._seeds[case.recording] = tuple(self.rng.getrandbits(48) for _ in case.names)
        sides = [(self.baseline, case), (self.candidate, case)]
        sides += [(self.other, case.at(0))] if self.other is not None else []
        places = tuple(BufferPlace(subject.name, placed.names) for subject, placed in sides)
        family = drawing.fresh_family(self.harness, case.draw)
        await self.harness.oracle(Renew(case=case.draw.case, family=family, seeds=seeds, places=places))
        for subject, placed in sides if case.restores else ():
            await subject.ask(Refresh(buffers=placed.names))
        seen.renewals += 1
        self._spent += time.perf_counter() - began

    def applies(self, case: TimedCase) -> bool:
        """Return True if fresh inputs of a case fit into the same memory, with equal shapes and scalar arguments."""
        fresh = self.harness.draws.get(f"{case.draw.case}/{case.draw.family}/1")
        return fresh is None or fresh.buffer == case.draw.buffer

    async def look(self, case: TimedCase, segment: Segment) -> None:
        """Compare some segments, at random, with the right answer or with the candidate's other process."""
        if self.ruling is not None:
            return
        seen, chosen = self._seen[case.draw.case], self.rng.random() < policy.FRESH_COMPARED_SHARE
        if not self._is_new:
            if chosen and seen.compared_again < policy.FRESH_LAUNCHES_COMPARED:
                seen.compared_again += 1
                await self._compare(case)
        elif chosen and seen.compared < policy.FRESH_LAUNCHES_COMPARED:
            seen.compared += 1
            await self._compare(case)
        elif self.other is not None and self.same_bits and self.rng.random() < policy.FRESH_REPEATED_SHARE:
            seen.repeated += 1
            await self._repeat(self.other, case, segment)

    async def finish(self, cases: Sequence[TimedCase]) -> Ruling | None:
        """Compare each case at least once with the right answer; return the ruling on a difference, or None."""
        for case in cases:
            seen = self._seen.setdefault(case.draw.case, _Seen())
            if self.ruling is None and seen.renewals and not seen.compared:
                await self.renew(case, always=True)
                await run_segment(self.candidate, case)
                seen.compared += 1
                await self._compare(case)
            if self.ruling is None and seen.kept and not seen.compared_again:
                for _ in range(2):
                    await run_segment(self.candidate, case)
                seen.compared_again += 1
                await self._compare(case)
        return self.ruling

    def summary(self) -> str:
        """Return a summary of the checks for the evidence."""
        seen = self._seen.values()
        drawn, kept = sum(one.renewals for one in seen), sum(one.kept for one in seen)
        compared = sum(one.compared + one.compared_again for one in seen)
        parts = [f"drawn anew {drawn} times"] if drawn else []
        parts += [f"{kept} times the last ones again"] if kept else []
        parts += [f"recorded anew on {self.recorded_anew} others"] if self.recorded_anew else []
        parts += [f"{compared} launches held against the truth"]
        repeated = sum(one.repeated for one in seen)
        return ", ".join([*parts, *([f"{repeated} segments run again"] if repeated else [])])

    @property
    def drawn(self) -> bool:
        """True if both sides ran on fresh inputs, in timed blocks or outside them."""
        return self.recorded_anew > 0 or any(seen.renewals for seen in self._seen.values())

    @property
    def renewed(self) -> bool:
        """True if every block of every case was timed on fresh inputs."""
        return bool(self._seen) and all(seen.renewals and not seen.kept for seen in self._seen.values())

    async def _repeat(self, other: Subject, case: TimedCase, segment: Segment) -> None:
        """Compare launches of a segment with the same launches in the candidate's other process.

        They may differ where a version tunes itself anew in each process and sums in another order, and of outputs with
        a few numbers only some do. So two that differ are compared with the right answer.
        """
        again = await run_segment(other, case.at(0))
        pairs = enumerate(zip(segment.checksums, again.checksums, strict=True))
        different = [launch for launch, (a, b) in pairs if a != b]
        for launch in self.rng.sample(different, min(2, len(different))):
            if self.ruling is None:
                await self._compare(case, launch)

    async def _compare(self, case: TimedCase, launch: int | None = None) -> None:
        """Compare one launch of the candidate's last segment with the right answer; a random one by default."""
        launch = self.rng.randrange(case.launches) if launch is None else launch
        draw = case.draw
        if seeds := self._seeds.get(case.recording):
            draw = await drawing.fresh(self.harness, case.draw, seeds[launch % len(seeds)])
        if cannot_be_given(draw, self.candidate) is not None:
            return
        self.ruling = await compare_launch(self.harness, self.candidate, case, draw, launch)
        wrong = self.ruling is not None and self.ruling.outcome is Outcome.WRONG
        if wrong and seeds and await self._is_right(self.baseline, case, draw, launch):
            self.ruling = await compare_launch(self.harness, self.candidate, case, draw, launch)

    async def _is_right(self, baseline: Subject, case: TimedCase, draw: Draw, launch: int) -> bool:
        """Measure the baseline on the same inputs, whose errors are what is allowed there; return True if it is right.

        Of the inputs that it was measured on its largest error is one of chance: among as many others there may be one
        twice as large, in the very same sum.
        """
        await run_segment(baseline, case)
        published = await baseline.ask(Publish(recording=case.recording, launch=launch))
        buffer = case.sequence[launch]
        compared = await self.harness.compare(baseline, draw, published, buffer=buffer, baseline=True, untouched=False)
        return not compared.mismatch and all(found.index is None for found in compared.distances)

    async def first_and_again(self, case: TimedCase) -> dict[str, tuple[float, float]]:
        """Return, by side (`A`, `B`), the microseconds of a launch on fresh inputs and of the same launch repeated."""
        if self.applies(case):
            await self.renew(case, always=True)
            return await self._timed_twice(case)
        seed = self.rng.getrandbits(48)
        known = await drawing.fresh(self.harness, case.draw, seed)
        unseen = await drawing.fresh(self.harness, case.draw, seed, _UNSEEN)
        if known.buffer != unseen.buffer or cannot_be_given(known, self.candidate) is not None:
            return {}
        apart = replace(case, draw=known, mode="cold", buffers=1, launches=1, place=0)
        for subject in (self.baseline, self.candidate):
            await prepare(self.harness, subject, [apart])  # runs one launch
            await fill(self.harness, subject, apart, unseen)
        times = await self._timed_twice(apart)
        self.recorded_anew += 1
        for subject in (self.baseline, self.candidate):
            await self.harness.unbind(subject, apart.names[0])
        return times

    async def _timed_twice(self, case: TimedCase) -> dict[str, tuple[float, float]]:
        times: dict[str, tuple[float, float]] = {}
        for side, subject in (("A", self.baseline), ("B", self.candidate)):
            first_us = segment_us(await run_segment(subject, case))
            await run_segment(subject, case)
            times[side] = first_us, segment_us(await run_segment(subject, case))
        return times


async def remembers(fresh: FreshInputs, cases: Sequence[TimedCase]) -> Ruling | None:
    """Return the ruling on a candidate that slows down on fresh inputs by more than the baseline does, or None.

    Each probe times a first segment on fresh inputs and repeats it. Other processes on the GPU slow single segments
    too, so the median of several probes decides: caching slows every first segment. A host whose times scatter by a
    fifth makes such a median once in a while, so what it says is asked once more.
    """
    for case in cases:
        ruling = await _slow_at_first(fresh, case)
        if ruling is not None and fresh.ruling is None:
            ruling = await _slow_at_first(fresh, case)
        if fresh.ruling is not None or ruling is not None:
            return fresh.ruling or ruling
    return None


async def _slow_at_first(fresh: FreshInputs, case: TimedCase) -> Ruling | None:
    """Return the ruling on one case, from one set of probes."""
    looks = [await fresh.first_and_again(case) for _ in range(policy.FRESH_INPUTS_LAUNCHES)]
    if not (looks := [look for look in looks if look]):
        return None
    first_us, again_us = (median(look["B"][which] for look in looks) for which in (0, 1))
    usual, own = (median(first / again for first, again in (look[side] for look in looks)) for side in "AB")
    usual = max(1.0, usual)
    if own <= policy.FRESH_INPUTS_RATIO * usual or first_us <= again_us + policy.FRESH_INPUTS_SLACK_US:
        return None
    name = fresh.harness.cases[case.draw.case]
    return rejected(
        f"on case {name} it takes {own:.2f} times as long on inputs that it has not seen as on the same ones "
        f"again (the baseline: {usual:.2f} times), so it remembers answers"
    )
