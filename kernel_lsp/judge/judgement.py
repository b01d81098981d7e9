"""Run one judgement: stage after stage, until one returns a ruling."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, ruling_of
from kernel_lsp.judge.measure.blocks import TimedOutputsDiffer
from kernel_lsp.judge.measure.cases import NothingTimed, prepare
from kernel_lsp.judge.measure.cost import FIX, OutOfTimeError
from kernel_lsp.judge.measure.intervals import speedup_of
from kernel_lsp.judge.ruling import Ruling, Speedup, rejected
from kernel_lsp.judge.stages.build import build
from kernel_lsp.judge.stages.confirm import confirm
from kernel_lsp.judge.stages.correct import correct
from kernel_lsp.judge.stages.final_checks import check_finally
from kernel_lsp.judge.stages.launches import look_at_launches
from kernel_lsp.judge.stages.load import load
from kernel_lsp.judge.stages.static_check import static_check
from kernel_lsp.judge.stages.time import time
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure

StageFunction = Callable[[Context], Awaitable[Ruling | None]]

STAGES: tuple[StageFunction, ...] = (static_check, build, load, correct, look_at_launches)
"""Before anything is timed; the first ruling ends a judgement."""
TIMING: tuple[StageFunction, ...] = (time, confirm)
"""On the GPU, where what was timed must also be what was checked."""
_NOT_CAPTURABLE = "NotCapturableError"
_NEITHER = "it failed being timed: its launches can neither be captured nor made one by one"


async def judge(context: Context) -> Ruling:
    """Return the ruling on a candidate, and end all its processes."""
    try:
        for stage in STAGES:
            if (ruling := await stage(context)) is not None:
                return ruling
        context.cases = context.measured.cases
        ruling = await _timed(context)
        if context.known or ruling.outcome is not Outcome.FASTER:
            return ruling
        context.confirmed(ruling)
        return await check_finally(context, ruling)
    except OutOfTimeError as error:
        return _out_of_time(context, error)
    finally:
        await _leave(context)


def _out_of_time(context: Context, error: OutOfTimeError) -> Ruling:
    """Return the ruling on a candidate for which the launch time beside a slow baseline ran out."""
    harness, first = context.harness, context.first
    reason, speedup = f"{error} before it was judged", None
    if first is not None and first.decision.stop:
        decision = first.decision
        found = decision.interval.speedup
        speedup = Speedup(speedup_of(decision.mean), (found.lower, found.upper))
        reason = (
            f"{error} before a first look was confirmed: {speedup.ratio:.3f}x ({found.lower:.3f} to {found.upper:.3f}) "
            f"by {decision.blocks} pairs of launches"
        )
    reason = f"{reason}; {harness.launch_time.slowest(harness.cases)}. {FIX}"
    return Ruling(Outcome.AMBIGUOUS, Stage.TIMED, reason, speedup=speedup)


async def _timed(context: Context) -> Ruling:
    """Time a candidate as CUDA graphs; if it cannot be captured, time both sides launch by launch."""
    return await _through(context) or await _launch_by_launch(context)


async def _through(context: Context) -> Ruling | None:
    """Return the ruling of the timing stages; None where launches cannot be captured."""
    try:
        for stage in TIMING:
            if (ruling := await stage(context)) is not None:
                return ruling
    except WorkerFailure as error:
        return None if error.kind == _NOT_CAPTURABLE else ruling_of(error, "being timed", "of the workload")
    except RUN_ERRORS as error:
        return _broken(context, error)
    except TimedOutputsDiffer:
        return rejected("launches that were timed left other outputs than the launches that were checked")
    except NothingTimed as error:
        return rejected(str(error))
    except TimeoutError as error:
        return Ruling(Outcome.AMBIGUOUS, Stage.TIMED, str(error))
    raise AssertionError("the last stage rules")


def _broken(context: Context, error: Exception) -> Ruling:
    """Return the ruling on a candidate whose process failed during timing.

    Raises:
        KernelLspError: it is the baseline that broke.
    """
    if not context.measured.baseline.worker.alive:
        raise error
    return ruling_of(error, "being timed", "of the workload")


async def _launch_by_launch(context: Context) -> Ruling:
    measured = context.measured
    cases = tuple(replace(c, captured=False, mode="cold") for c in measured.cases)
    assert context.built is not None, "it was built before"
    for version in (context.running, *context.reloaded):
        await context.harness.leave(version)
    context.reloaded.clear()
    known = context.running
    context.subject = await context.harness.enter(context.candidate, context.built)
    context.subject.own_weights, context.subject.run_s = known.own_weights, known.run_s
    context.cases = cases
    try:
        await prepare(context.harness, measured.baseline, cases)
        return await _through(context) or Ruling(Outcome.RUN_FAILED, Stage.RUN, _NEITHER)
    finally:
        if measured.baseline.worker.alive:
            await prepare(context.harness, measured.baseline, measured.cases)


async def _leave(context: Context) -> None:
    """End the candidate's processes, and check the GPU if one of them crashed.

    Letting go of shared memory takes tenths of a second, which the verdict need not wait for.
    """
    if context.subject is None:
        return
    harness, worker = context.harness, context.subject.worker
    ruling = context.findings.ruling
    broken = not worker.alive or (ruling is not None and ruling.stage is Stage.RUN)
    ending = _end(context, (context.subject, *context.reloaded), worker.pid if broken else None)
    context.reloaded.clear()
    if broken or harness.large:
        await ending
    else:
        harness.leave_behind(ending)


async def _end(context: Context, versions: Sequence[Subject], broken: int | None) -> None:
    """End these versions; `broken` is the id of a process that crashed."""
    for version in versions:
        await context.harness.leave(version)
    await context.harness.rest(context.measured.baseline)
    if broken is not None:
        await context.harness.recover(broken)
    context.harness.refill()
