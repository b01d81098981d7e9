"""Nothing to remember: timed launches of the confirmation work on inputs, and weights, that nobody has seen.

Before each half of a block the oracle draws inputs anew and writes them into the memory of both sides. So a version
that remembers answers, by element, by row or by samples, has nothing to look up, and its measured time is the one that
counts. As nobody knows the right bits for such inputs beforehand, launches are picked by chance once they have run:
their outputs are held against the truth, and all of a segment against those of the candidate's other process.

Drawing inputs may be slow. Where the time for it is used up the rest of the blocks see the last inputs again, and both
kinds of segments are held against each other.
"""

import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.check import cannot_be_given
from kernel_lsp.judge.inputs.replay import compare_launch
from kernel_lsp.judge.measure.cases import TimedCase, run_segment, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.oracle import Place, Renew
from kernel_lsp.runner.messages.subject import Refresh, Segment


@dataclass(slots=True)
class _Seen:
    """What was done for one case: renewals, and launches looked at in either way."""

    renewals: int = 0
    compared: int = 0
    repeated: int = 0


@dataclass
class FreshInputs:
    """Draws inputs for a confirmation and looks at what becomes of them; a `blocks.Renewal`.

    Attributes:
        harness: of the target.
        baseline: one side.
        candidate: the other.
        other: the candidate in its first process, where it still has its recordings.
        same_bits: launches on the same inputs leave the same bits.
        rng: chance.
        ruling: the first thing found wrong.
    """

    harness: Harness
    baseline: Subject
    candidate: Subject
    other: Subject | None
    same_bits: bool
    rng: random.Random
    ruling: Ruling | None = None
    _spent: float = 0.0
    _seeds: tuple[int, ...] = ()
    _seen: dict[int, _Seen] = field(default_factory=dict[int, _Seen])

    async def renew(self, case: TimedCase, *, always: bool = False) -> None:
        """Draw inputs for each slab of a case, and write them into the memory of all versions.

        Nothing is drawn once the time for it is used up, unless `always` asks for it.
        """
        self._seeds = ()
        if (self._spent > policy.RENEWAL_SECONDS and not always) or not self.applies(case):
            return
        began = time.perf_counter()
        self._seeds = tuple(self.rng.getrandbits(48) for _ in case.names)
        sides = [(self.baseline, case), (self.candidate, case)]
        sides += [(self.other, case.at(0))] if self.other is not None else []
        places = tuple(Place(subject.name, placed.names) for subject, placed in sides)
        family = self.harness.fresh_family(case.draw)
        await self.harness.oracle(Renew(case=case.draw.case, family=family, seeds=self._seeds, places=places))
        for subject, placed in sides if case.restores else ():
            await subject.ask(Refresh(slabs=placed.names))
        self._seen.setdefault(case.draw.case, _Seen()).renewals += 1
        self._spent += time.perf_counter() - began

    def applies(self, case: TimedCase) -> bool:
        """Say if inputs of a case are such that other values of them lie in the same memory."""
        fresh = self.harness.draws.get(f"{case.draw.case}/{case.draw.family}/1")
        return fresh is None or fresh.slab == case.draw.slab

    async def look(self, case: TimedCase, segment: Segment) -> None:
        """By chance, hold outputs of a segment against the truth, or against the candidate's other process."""
        if not self._seeds or self.ruling is not None:
            return
        seen = self._seen[case.draw.case]
        if seen.compared < policy.FRESH_LAUNCHES_COMPARED and self.rng.random() < policy.FRESH_COMPARED_SHARE:
            seen.compared += 1
            await self._compare(case, self.rng.randrange(case.launches))
        elif self.other is not None and self.same_bits and self.rng.random() < policy.FRESH_REPEATED_SHARE:
            seen.repeated += 1
            await self._repeat(self.other, case, segment)

    async def finish(self, cases: Sequence[TimedCase]) -> Ruling | None:
        """See that outputs of each case were held against the truth at least once; return what was found wrong."""
        for case in cases:
            seen = self._seen.setdefault(case.draw.case, _Seen())
            if self.ruling is None and seen.renewals and not seen.compared:
                await self.renew(case, always=True)
                await run_segment(self.candidate, case)
                seen.compared += 1
                await self._compare(case, self.rng.randrange(case.launches))
        return self.ruling

    def summary(self) -> str:
        """Say what was done, for the evidence."""
        seen = self._seen.values()
        drawn, compared, repeated = (sum(getattr(s, n) for s in seen) for n in ("renewals", "compared", "repeated"))
        return f"drawn anew {drawn} times; {compared} launches held against the truth, {repeated} segments run again"

    @property
    def drawn(self) -> bool:
        """True if inputs were drawn anew at all."""
        return any(seen.renewals for seen in self._seen.values())

    @property
    def renewed(self) -> bool:
        """True if all cases were timed on inputs that nobody had seen."""
        return bool(self._seen) and all(seen.renewals for seen in self._seen.values())

    async def _repeat(self, other: Subject, case: TimedCase, segment: Segment) -> None:
        """Hold launches of a segment against the same launches in another process.

        All of them may differ where a version tunes itself anew in each process, and adds up in another order: then two
        of them have to be right by the truth.
        """
        again = await run_segment(other, case.at(0))
        different = [a != b for a, b in zip(segment.checksums, again.checksums, strict=True)]
        if all(different):
            for launch in self.rng.sample(range(case.launches), min(2, case.launches)):
                if self.ruling is None:
                    await self._compare(case, launch)
        elif any(different):
            name = self.harness.cases[case.draw.case]
            self.ruling = rejected(
                f"on case {name} launch {different.index(True) + 1} of those timed answers otherwise than the same "
                "launch in another process does"
            )

    async def _compare(self, case: TimedCase, launch: int) -> None:
        seed = self._seeds[launch % len(self._seeds)]
        draw = await self.harness.fresh(case.draw, seed)
        if cannot_be_given(draw, self.candidate) is None:
            self.ruling = await compare_launch(self.harness, self.candidate, case, draw, launch)


async def remembers(fresh: FreshInputs, cases: Sequence[TimedCase]) -> Ruling | None:
    """Return the ruling on a candidate that is slower on inputs it has not seen, by more than the baseline is.

    Each look times the first segment on new inputs, and the same segment again. Another process on the GPU slows single
    segments too, so the median of several looks counts: memory makes a first segment slow every time.
    """
    for case in cases:
        ratios: dict[str, list[float]] = {"A": [], "B": []}
        first_us = again_us = 0.0
        for _ in range(policy.FRESH_INPUTS_LAUNCHES):
            await fresh.renew(case, always=True)
            for side, subject in (("A", fresh.baseline), ("B", fresh.candidate)):
                first_us = segment_us(await run_segment(subject, case))
                await run_segment(subject, case)
                again_us = segment_us(await run_segment(subject, case))
                ratios[side].append(first_us / again_us)
        usual, own = max(1.0, median(ratios["A"])), median(ratios["B"])
        if own > policy.FRESH_INPUTS_RATIO * usual and first_us > again_us + policy.FRESH_INPUTS_SLACK_US:
            name = fresh.harness.cases[case.draw.case]
            return rejected(
                f"on case {name} it takes {own:.2f} times as long on inputs that it has not seen as on the same ones "
                f"again (the baseline: {usual:.2f} times), so it remembers answers"
            )
    return None
