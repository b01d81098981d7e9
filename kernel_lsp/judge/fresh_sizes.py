"""Run and time a candidate beside the baseline on sizes that CASES does not name.

Both run in processes of their own, which end afterwards. The results rank and refuse; nothing is called faster here.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kernel_lsp import policy
from kernel_lsp.judge.errors import unattributed
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.compare import ruling_on
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, ruling_of
from kernel_lsp.judge.measure.blocks import warm_up
from kernel_lsp.judge.measure.cases import NothingTimed, TimedCase, prepare, timed_as
from kernel_lsp.judge.race import ratio_of, run_round
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.oracle import OtherSizes
from kernel_lsp.runner.messages.subject import Run
from kernel_lsp.runner.messages.subject_answers import Ran
from kernel_lsp.source.candidate import Candidate


@dataclass(frozen=True, slots=True)
class FreshSize:
    """A size to try: the number of a listed case, and the entries that change."""

    case: int
    changes: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class FreshResult:
    """The result on one size.

    Attributes:
        case: its parameters, as text; empty where there are no such inputs.
        ratio: time of the candidate over the baseline's; None where it was not timed.
        interval: of `ratio`.
        ruling: why the candidate failed on it; None if it did not.
        skipped: why it was not run or not timed; empty if it was.
    """

    case: str
    ratio: float | None = None
    interval: tuple[float, float] | None = None
    ruling: Ruling | None = None
    skipped: str = ""


async def try_sizes(session: Session, candidate: Candidate, sizes: Sequence[FreshSize]) -> list[FreshResult]:
    """Return the results of a candidate that builds, in the order of the sizes.

    Raises:
        UnjudgedError: something broke that says nothing of the candidate.
    """
    assert session.measured is not None, "only what runs is timed"
    harness = session.measured.harness
    if harness.large or harness.launch_time.slow:
        why = "the kernel as it stands takes too much memory or time"
        return [FreshResult("", skipped=why) for _ in sizes]
    first = len(harness.cases)
    with unattributed():
        names = await harness.oracle(OtherSizes(changes=tuple((size.case, dict(size.changes)) for size in sizes)))
        harness.workload = replace(harness.workload, cases=(*harness.cases, *filter(None, names)))
        added = iter(range(first, len(harness.cases)))
        numbers = [next(added) if name else None for name in names]
        built = await session.builders.build(session.target.workload, candidate)
        sides: list[Subject] = []
        try:
            for version, made in ((session.target.baseline, session.measured.baseline.built), (candidate, built)):
                sides.append(await harness.enter(version, made))
            return await _try(session, sides[0], sides[1], numbers)
        finally:
            for side in sides:
                await harness.leave(side)


async def _try(
    session: Session, baseline: Subject, candidate: Subject, numbers: Sequence[int | None]
) -> list[FreshResult]:
    """Run both sides on each size, then time those on which both are right."""
    assert session.measured is not None, "the caller checks this"
    harness, settings = session.measured.harness, session.settings.judge
    results: list[FreshResult] = []
    timed: dict[int, TimedCase] = {}
    for at, number in enumerate(numbers):
        if number is None:
            results.append(FreshResult("", skipped="there are no such inputs"))
            continue
        draw = await drawing.draw(harness, number, PLAIN)
        result, output_bytes = await _run_both(session, baseline, candidate, draw)
        results.append(result)
        if result.ruling is not None or result.skipped:
            if not (baseline.worker.alive and candidate.worker.alive):
                return results + [FreshResult("", skipped="a process ended before it")] * (len(numbers) - at - 1)
            continue
        like = session.measured.cases[0]
        probe = TimedCase(draw, "cold", 3, 0.0, output_bytes, restores=like.restores, captured=like.captured, place=-1)
        timed[at] = probe
    if not timed:
        return results
    await harness.settle()
    async with session.timer():
        try:
            cases = [await timed_as(harness, baseline, probe) for probe in timed.values()]
        except NothingTimed as error:
            return [replace(one, skipped=str(error)) if at in timed else one for at, one in enumerate(results)]
        for side in (baseline, candidate):
            await prepare(harness, side, cases)
        await warm_up((baseline, candidate), cases[-1])
        blocks, rulings = list[tuple[float, ...]](), dict[int, Ruling]()
        rng = random.SystemRandom()
        while len(blocks) < policy.RACE_MOST_ROUNDS and not rulings:
            blocks += (await run_round(baseline, [candidate], [0], cases, rulings, rng)).values()
    for column, at in enumerate(timed):
        if rulings:
            results[at] = replace(results[at], ruling=rulings[0])
        else:
            ratio, interval = ratio_of([block[column] for block in blocks], settings.delta, settings.alpha)
            results[at] = replace(results[at], ratio=ratio, interval=interval)
    return results


async def _run_both(session: Session, baseline: Subject, candidate: Subject, draw: Draw) -> tuple[FreshResult, int]:
    """Run both sides once; return what is wrong, if anything is, and the bytes of the baseline's outputs."""
    assert session.measured is not None, "the caller checks this"
    name = session.measured.harness.cases[draw.case]
    try:
        ruling, ran = await _run(session, baseline, draw, baseline=True)
    except RUN_ERRORS as error:
        return FreshResult(name, skipped=f"the kernel as it stands does not manage it: {error}"), 0
    if ruling is not None:
        return FreshResult(name, skipped=f"the kernel as it stands does not manage it: {ruling.reason}"), 0
    try:
        ruling, _ = await _run(session, candidate, draw, baseline=False)
    except RUN_ERRORS as error:
        ruling = ruling_of(error, "running", name)
    return FreshResult(name, ruling=ruling), sum(spec.span for spec in ran.published.outputs)


async def _run(session: Session, side: Subject, draw: Draw, *, baseline: bool) -> tuple[Ruling | None, Ran]:
    assert session.measured is not None, "the caller checks this"
    harness = session.measured.harness
    await harness.fill(side, draw)
    ran = await side.ask(Run(buffer=draw.buffer), deadline=policy.FIRST_RUN_SECONDS)
    compared = await harness.compare(side, draw, ran.published, baseline=baseline)
    await harness.unbind(side, draw.buffer)
    return ruling_on(harness, draw, compared, ran.trampled), ran
