"""Rank many candidates in rounds: baseline, candidates, baseline, candidates reversed, baseline.

A race costs a fraction of as many judgements. It ranks and drops; it never calls anything faster: that takes a
judgement of its own. Beside a slow baseline it has one round, which ranks and drops nobody.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp import policy
from kernel_lsp.judge.errors import unattributed
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, ruling_of
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.integrity.launches import check_recordings
from kernel_lsp.judge.measure import rounds, statistics
from kernel_lsp.judge.measure.blocks import warm_up
from kernel_lsp.judge.measure.cases import NothingTimed, prepare, ready, run_segment, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.subject import Subject


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The result of one candidate: time over the baseline's time with its interval, or why it could not be timed."""

    subject: Subject
    ratio: float | None
    interval: tuple[float, float] | None
    ruling: Ruling | None = None


async def race(session: Session, subjects: Sequence[Subject], rng: random.Random) -> list[RaceResult]:
    """Time correct candidates against the baseline in the same rounds; return their results in the order given.

    Raises:
        UnjudgedError: something broke that says nothing of any of them.
    """
    with unattributed():
        return await _race(session, subjects, rng)


async def _race(session: Session, subjects: Sequence[Subject], rng: random.Random) -> list[RaceResult]:
    measured, settings = session.measured, session.settings.judge
    assert measured is not None, "only what runs is raced"
    rulings: dict[int, Ruling] = {}
    blocks: dict[int, list[float]] = {}
    await measured.harness.settle()
    async with session.timer():
        theirs = await ready(measured.harness, measured.baseline, measured.cases) or measured.recorded
        for index, subject in enumerate(subjects):
            try:
                made = await prepare(measured.harness, subject, measured.cases)
                ruling = check_recordings(measured.harness, measured.cases, made, theirs)
                replays = Replays(measured.harness, subject, measured.profile, rng)
                ruling = ruling or await replays.on_new_inputs(measured.cases)
            except (*RUN_ERRORS, NothingTimed) as error:
                ruling = _ruling(error)
            if ruling is not None:
                rulings[index] = ruling
            else:
                blocks[index] = []
        alive = list(blocks)
        if alive:
            await warm_up((measured.baseline, subjects[alive[0]]), measured.cases[-1])
        for number in range(1 if measured.harness.launch_time.slow else policy.RACE_MOST_ROUNDS):
            if not alive:
                break
            await _round(session, subjects, alive, blocks, rulings, rng)
            alive = [index for index in alive if index not in rulings]
            if number + 1 >= policy.RACE_LEAST_ROUNDS:
                field = {index: blocks[index] for index in alive}
                alive = rounds.survivors(field, len(subjects), settings.delta, settings.alpha)
    standings: list[RaceResult] = []
    for index, subject in enumerate(subjects):
        if index in rulings or not blocks.get(index):
            standings.append(RaceResult(subject, None, None, rulings.get(index)))
            continue
        alpha = rounds.alpha_of_each(settings.alpha, len(subjects))
        found = statistics.decide(blocks[index], settings.delta, alpha)
        interval = found.interval.ratio
        standings.append(RaceResult(subject, math.exp(found.mean), (interval.lower, interval.upper)))
    return standings


async def _round(
    session: Session,
    subjects: Sequence[Subject],
    alive: Sequence[int],
    blocks: dict[int, list[float]],
    rulings: dict[int, Ruling],
    rng: random.Random,
) -> None:
    """Run one round on every case; a candidate that fails drops out, and the round does not count for it."""
    measured = session.measured
    assert measured is not None, "only what runs is raced"
    sums: dict[int, list[float]] = {index: [] for index in alive}
    for case in measured.cases:
        running = [index for index in alive if index not in rulings]
        schedule = rounds.schedule(running, rng)
        segments: list[float] = []
        for entry in schedule:
            if entry is not None and entry in rulings:
                segments.append(math.nan)
                continue
            subject = measured.baseline if entry is None else subjects[entry]
            try:
                segments.append(math.log(segment_us(await run_segment(subject, case))))
            except (*RUN_ERRORS, NothingTimed) as error:
                if entry is None:
                    raise
                rulings[entry] = _ruling(error)
                segments.append(math.nan)
        for index, difference in rounds.differences(schedule, segments).items():
            sums[index].append(difference)
    for index, differences in sums.items():
        if index not in rulings:
            blocks[index].append(math.fsum(differences) / len(differences))


def _ruling(error: Exception) -> Ruling:
    if isinstance(error, NothingTimed):
        return rejected(str(error))
    return ruling_of(error, "being timed", "of the workload")
