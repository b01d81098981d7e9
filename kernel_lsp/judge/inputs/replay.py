"""Check the timed path: the recorded launches must compute the right answer on all inputs.

A candidate may tell a launch that is checked from one that is timed: by the state of a capture, by its stream, by
counters. So recordings are replayed on inputs of all families, and any launch of theirs may be the one that is looked
at. Before timing, after it, and again in the processes of the confirmation.
"""

import math
import random
import time
from collections.abc import Collection, Sequence
from dataclasses import replace

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import runs
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.check import cannot_be_given
from kernel_lsp.judge.inputs.compare import how_wrong, ruling_on, where
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.measure.cases import TimedCase, fill, prepare, run_segment
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle_answers import OutputDistance
from kernel_lsp.runner.messages.subject import Publish

AS_TIMED = ", as it is timed,"


class Replays:
    """Replays of one version's recordings."""

    def __init__(
        self,
        harness: Harness,
        subject: Subject,
        profile: BaselineProfile,
        rng: random.Random,
        checked: Collection[str] = (),
        places: int = 1,
    ) -> None:
        """Replay recordings of `subject`, where there are several `places` in one by chance each time.

        `checked` are keys of inputs that it was right on when it was checked.
        """
        self._harness, self._subject, self._profile, self._rng = harness, subject, profile, rng
        self._checked, self._places = checked, places

    async def on_new_inputs(self, cases: Sequence[TimedCase]) -> Ruling | None:
        """Replay each case on new plain inputs, and check that every launch leaves the right bits."""
        for case in cases:
            if (ruling := await self._all_launches(case)) is not None:
                return ruling
        return None

    async def on_all_inputs(self, cases: Sequence[TimedCase], *, apart: bool = True) -> Ruling | None:
        """Replay each case on the inputs of all families and with other arguments; beside a slow baseline on some.

        Without `apart` inputs that do not fit a recording are left out: they are recorded apart, which tells nothing of
        a recording that is there already.
        """
        for case in cases:
            draws = [d for d in self._profile.draws if d.case == case.draw.case and not d.is_plain]
            draws = [draw for draw in draws if cannot_be_given(draw, self._subject) is None]
            draws = [draw for draw in draws if apart or draw.buffer == case.draw.buffer]
            if (count := min(len(draws), self._harness.launch_time.spare_launches(self._subject.run_s))) < len(draws):
                draws = self._rng.sample(draws, int(count))
            always, further = self._profile.parted(draws, self._rng)
            ruling = await self._on(case, always)
            if ruling is None:
                ruling = await self._on(case, further, time.perf_counter() + policy.FURTHER_CHECKS_SECONDS)
            if ruling is not None:
                return ruling
        return None

    async def on_other_cases(self, cases: Sequence[TimedCase]) -> Ruling | None:
        """Record the cases that are not timed, in one place, and replay them on all inputs."""
        once = Replays(self._harness, self._subject, self._profile, self._rng, self._checked)
        for case in cases:
            single = replace(case, buffers=1, launches=1, mode="cold", place=0)
            await prepare(self._harness, self._subject, [single])
            ruling = await once.on_all_inputs([single])
            await self._harness.unbind(self._subject, single.names[0])
            if ruling is not None:
                return ruling
        return None

    async def _all_launches(self, case: TimedCase) -> Ruling | None:
        draw = self._profile.fresh[case.draw.case]
        if draw.buffer != case.draw.buffer:  # inputs of another shape, or with other scalar arguments
            return await self._recorded_apart(case, draw)
        harness, subject, case = self._harness, self._subject, self._anywhere(case)
        await fill(harness, subject, case, draw)
        segment = await run_segment(subject, case)
        if self._profile.same_bits(harness) and len(set(segment.checksums)) > 1:
            odd = _odd_one(segment.checksums)
            ruling = rejected(
                f"{where(harness, draw)} launch {odd + 1} of those timed answers otherwise than the others"
            )
        else:
            ruling = await self._compare(case, draw, self._rng.randrange(case.launches))
        await fill(harness, subject, case, case.draw)
        return ruling

    async def _on(self, case: TimedCase, draws: Sequence[Draw], end: float = math.inf) -> Ruling | None:
        """Replay a case on these inputs, several at a time, until the time `end`; each time plain ones are put back.

        The launch before each is one on plain inputs, and so is the last one in the same memory: what a version has
        kept of those must not pass for the answer to inputs that are almost the same.
        """
        alike = [draw for draw in draws if draw.buffer == case.draw.buffer]
        room = max(1, case.buffers // 2)
        for start in range(0, len(alike), room):
            if time.perf_counter() > end:
                return None
            if (ruling := await self._on_group(self._anywhere(case), alike[start : start + room])) is not None:
                return ruling
        for draw in (draw for draw in draws if draw.buffer != case.draw.buffer):
            if time.perf_counter() > end:
                return None
            if (ruling := await self._recorded_apart(case, draw)) is not None:
                return ruling
        return None

    async def _on_group(self, case: TimedCase, group: Sequence[Draw]) -> Ruling | None:
        """Replay a case once on so many of these inputs, at most half of its buffers."""
        await fill(self._harness, self._subject, case, case.draw)  # it may hold what blocks have drawn anew
        if not case.slow:
            await run_segment(self._subject, case)
        first = self._rng.randrange(2) if case.buffers > 1 else 0
        slots = self._rng.sample(range(first, first + 2 * (max(case.buffers, 2) // 2), 2), len(group))
        for slot, draw in zip(slots, group, strict=True):
            await fill(self._harness, self._subject, case, draw, [case.names[slot]])
        await run_segment(self._subject, case)
        for slot, draw in zip(slots, group, strict=True):
            launch = self._rng.choice(range(slot, case.launches, case.buffers))
            if (ruling := await self._compare(case, draw, launch)) is not None:
                return ruling
        await fill(self._harness, self._subject, case, case.draw, [case.names[slot] for slot in slots])
        return None

    def _anywhere(self, case: TimedCase) -> TimedCase:
        return case.at(self._rng.randrange(self._places)) if self._places > 1 else case

    async def _recorded_apart(self, case: TimedCase, draw: Draw) -> Ruling | None:
        """Record and replay inputs of another layout, or with other scalar arguments."""
        launches = min(case.launches, policy.LEAST_LAUNCHES)
        apart = replace(case, draw=draw, buffers=1, launches=launches, place=0)
        await prepare(self._harness, self._subject, [apart])
        await run_segment(self._subject, apart)
        ruling = await self._compare(apart, draw, self._rng.randrange(launches))
        await self._harness.unbind(self._subject, apart.names[0])
        return ruling

    async def _compare(self, case: TimedCase, draw: Draw, launch: int) -> Ruling | None:
        """Return a ruling on one launch, as `compare_launch` does; that of an eager run where the check left these out.

        Time allows only some inputs to be checked. Who is wrong on the others, whoever launches, is wrong and no cheat.
        """
        ruling = await compare_launch(self._harness, self._subject, case, draw, launch)
        if ruling is None or ruling.outcome is Outcome.WRONG or draw.is_plain or draw.key in self._checked:
            return ruling
        ran = await runs.run_again(self._harness, self._subject, draw, self._profile.deadline(self._harness, draw))
        return await runs.ruling_of_run(self._harness, self._subject, draw, ran) or ruling


async def compare_launch(harness: Harness, subject: Subject, case: TimedCase, draw: Draw, launch: int) -> Ruling | None:
    """Return a ruling if the outputs of one launch of the last segment are not the right answer for `draw`, else None.

    The ruling is WRONG where rounding explains the error, else ILLEGITIMATE: what was timed is not what was checked.
    """
    published = await subject.ask(Publish(recording=case.recording, launch=launch))
    compared = await harness.compare(subject, draw, published, buffer=case.sequence[launch], untouched=False)
    ruling = ruling_on(harness, draw, compared, what=AS_TIMED)
    if ruling is None:
        return None
    found = next((distance for distance in compared.distances if distance.index is not None), None)
    if found is None or _inexact(found):
        return ruling
    return rejected(f"{where(harness, draw)} what is timed is not what was checked: an output {how_wrong(found)}")


def _inexact(found: OutputDistance) -> bool:
    return found.diffuse or found.max <= policy.ROUNDING_FACTOR * found.allowed


def _odd_one(checksums: Sequence[tuple[int, ...]]) -> int:
    """Return the index of the first launch whose checksums differ from those of the last launch."""
    return next(number for number, sums in enumerate(checksums) if sums != checksums[-1])
