"""Many candidates at once: rounds of baseline, candidates, baseline, candidates reversed, baseline.

A race costs a fraction of as many judgements. It ranks and drops; it never calls anything faster: that takes a
judgement of its own.
"""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.judge import correctness, statistics, timing
from kernel_lsp.judge.bench import Subject
from kernel_lsp.judge.correctness import Failure
from kernel_lsp.judge.pipeline import Session
from kernel_lsp.judge.verdict import Outcome, Stage

LEAST_ROUNDS = 5
MOST_ROUNDS = 10


@dataclass(frozen=True, slots=True)
class Standing:
    """How one candidate did: time over the baseline's time with its interval, or why it could not be timed."""

    subject: Subject
    ratio: float | None
    interval: tuple[float, float] | None
    failure: Failure | None = None


async def race(session: Session, subjects: Sequence[Subject], rng: random.Random) -> list[Standing]:
    """Time candidates that are right against the baseline, all on the same rounds; in the order given."""
    measured, settings = session.measured, session.settings.judge
    assert measured is not None, "only what runs is raced"
    failures: dict[int, Failure] = {}
    blocks: dict[int, list[float]] = {}
    await measured.bench.settle()
    async with session.timer():
        for index, subject in enumerate(subjects):
            try:
                await timing.prepare(measured.bench, subject, measured.cases)
                wrong = await timing.verify_timed_outputs(measured.bench, subject, measured.cases, measured.yard)
            except (*correctness.RUN_ERRORS, timing.TimedOutputsDiffer) as error:
                failures[index] = _failure(error)
                continue
            if wrong is not None:
                failures[index] = Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, wrong)
            else:
                blocks[index] = []
        alive = list(blocks)
        if alive:
            await timing.warm_up((measured.baseline, subjects[alive[0]]), measured.cases[-1])
        for number in range(MOST_ROUNDS):
            if not alive:
                break
            await _round(session, subjects, alive, blocks, failures, rng)
            alive = [index for index in alive if index not in failures]
            if number + 1 >= LEAST_ROUNDS:
                field = {index: blocks[index] for index in alive}
                alive = statistics.survivors(field, len(subjects), settings.delta, settings.alpha)
    standings: list[Standing] = []
    for index, subject in enumerate(subjects):
        if index in failures or not blocks.get(index):
            standings.append(Standing(subject, None, None, failures.get(index)))
            continue
        alpha = statistics.race_alpha(settings.alpha, len(subjects))
        found = statistics.decide(blocks[index], settings.delta, alpha)
        interval = found.interval.ratio
        standings.append(Standing(subject, math.exp(found.mean), (interval.lower, interval.upper)))
    return standings


async def _round(
    session: Session,
    subjects: Sequence[Subject],
    alive: Sequence[int],
    blocks: dict[int, list[float]],
    failures: dict[int, Failure],
    rng: random.Random,
) -> None:
    """One round on every case; a candidate that fails meanwhile is out, and the round does not count for it."""
    measured = session.measured
    assert measured is not None, "only what runs is raced"
    sums: dict[int, list[float]] = {index: [] for index in alive}
    for case in measured.cases:
        running = [index for index in alive if index not in failures]
        schedule = statistics.race_schedule(running, rng)
        segments: list[float] = []
        for entry in schedule:
            if entry is not None and entry in failures:
                segments.append(math.nan)
                continue
            subject = measured.baseline if entry is None else subjects[entry]
            try:
                segments.append(math.log((await timing.segment(subject, case)).us))
            except (*correctness.RUN_ERRORS, timing.TimedOutputsDiffer) as error:
                if entry is None:
                    raise
                failures[entry] = _failure(error)
                segments.append(math.nan)
        for index, difference in statistics.race_differences(schedule, segments).items():
            sums[index].append(difference)
    for index, differences in sums.items():
        if index not in failures:
            blocks[index].append(math.fsum(differences) / len(differences))


def _failure(error: Exception) -> Failure:
    if isinstance(error, timing.TimedOutputsDiffer):
        return Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, "what is timed does nothing on the GPU")
    return correctness.failure_of(error, "being timed", "of the workload")
