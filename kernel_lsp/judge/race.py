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
from kernel_lsp.judge.measure.cases import NothingTimed, TimedCase, prepare, ready, run_segment, segment_us
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.subject import Subject


@dataclass(frozen=True, slots=True)
class CaseRatio:
    """The result of one candidate on one case: time over the baseline's time, with its interval."""

    case: int
    ratio: float
    interval: tuple[float, float]


@dataclass(frozen=True, slots=True)
class RaceResult:
    """The result of one candidate: time over the baseline's time with its interval, or why it could not be timed.

    Attributes:
        cases: the same for each case.
    """

    subject: Subject
    ratio: float | None
    interval: tuple[float, float] | None
    ruling: Ruling | None = None
    cases: tuple[CaseRatio, ...] = ()


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
    blocks: dict[int, list[tuple[float, ...]]] = {}
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
            for index, block in (
                await run_round(measured.baseline, subjects, alive, measured.cases, rulings, rng)
            ).items():
                blocks[index].append(block)
            alive = [index for index in alive if index not in rulings]
            if number + 1 >= policy.RACE_LEAST_ROUNDS:
                field = {index: _means(blocks[index]) for index in alive}
                alive = rounds.survivors(field, len(subjects), settings.delta, settings.alpha)
    alpha = rounds.alpha_of_each(settings.alpha, len(subjects))
    standings: list[RaceResult] = []
    for index, subject in enumerate(subjects):
        if index in rulings or not blocks.get(index):
            standings.append(RaceResult(subject, None, None, rulings.get(index)))
            continue
        ratio, interval = ratio_of(_means(blocks[index]), settings.delta, alpha)
        by_case = [ratio_of(column, settings.delta, alpha) for column in zip(*blocks[index], strict=True)]
        found = (CaseRatio(case.draw.case, *one) for case, one in zip(measured.cases, by_case, strict=True))
        standings.append(RaceResult(subject, ratio, interval, cases=tuple(found)))
    return standings


def ratio_of(blocks: Sequence[float], delta: float, alpha: float) -> tuple[float, tuple[float, float]]:
    """Return candidate over baseline time by ln(B/A) of some blocks, with its interval."""
    found = statistics.decide(blocks, delta, alpha)
    return math.exp(found.mean), (found.interval.ratio.lower, found.interval.ratio.upper)


def _means(blocks: Sequence[tuple[float, ...]]) -> list[float]:
    return [math.fsum(block) / len(block) for block in blocks]


async def run_round(
    baseline: Subject,
    subjects: Sequence[Subject],
    alive: Sequence[int],
    cases: Sequence[TimedCase],
    rulings: dict[int, Ruling],
    rng: random.Random,
) -> dict[int, tuple[float, ...]]:
    """Run one round on every case; return ln(B/A) of each case for each candidate that did not fail.

    A candidate that fails drops out, with an entry in `rulings`.
    """
    found: dict[int, list[float]] = {index: [] for index in alive}
    for case in cases:
        running = [index for index in alive if index not in rulings]
        schedule = rounds.schedule(running, rng)
        segments: list[float] = []
        for entry in schedule:
            if entry is not None and entry in rulings:
                segments.append(math.nan)
                continue
            subject = baseline if entry is None else subjects[entry]
            try:
                segments.append(math.log(segment_us(await run_segment(subject, case))))
            except (*RUN_ERRORS, NothingTimed) as error:
                if entry is None:
                    raise
                rulings[entry] = _ruling(error)
                segments.append(math.nan)
        for index, difference in rounds.differences(schedule, segments).items():
            found[index].append(difference)
    return {index: tuple(block) for index, block in found.items() if index not in rulings}


def _ruling(error: Exception) -> Ruling:
    if isinstance(error, NothingTimed):
        return rejected(str(error))
    return ruling_of(error, "being timed", "of the workload")
