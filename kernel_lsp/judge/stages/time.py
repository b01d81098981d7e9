"""Stage: the first measurement of times. Most candidates end here."""

import random

from kernel_lsp import policy
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.integrity.launches import check_recordings
from kernel_lsp.judge.measure.blocks import PairedMeasurement, Renewal, Series, warm_up
from kernel_lsp.judge.measure.device_state import device_state
from kernel_lsp.judge.measure.intervals import speedup_of
from kernel_lsp.judge.measure.procedure import FirstLook
from kernel_lsp.judge.measure.statistics import Decision, LookOutcome
from kernel_lsp.judge.ruling import Ruling, Speedup
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import DeviceState, Outcome, Stage

AS_TIMED = "inputs of all families, as it is timed"


async def time(context: Context) -> Ruling | None:
    """Record the candidate, check that its recordings compute the right answer, and time it against the baseline."""
    measured, subject = context.measured, context.running
    launch_time = context.harness.launch_time
    if launch_time.slow:
        context.pairs = launch_time.plan_pairs(subject.run_s * len(launch_time.launch_s))
        if not context.pairs:
            return Ruling(
                Outcome.AMBIGUOUS, Stage.TIMED, f"right, but not timed: {launch_time.refusal(context.harness.cases)}"
            )
    series = context.series = Series.empty(context.cases)
    rng = random.Random(random.SystemRandom().getrandbits(64))
    with context.timeline.stage("settle"):
        await context.harness.settle()
        await context.harness.rest(subject)
    async with context.session.timer() as context.quieted:
        with context.timeline.stage("record"):
            pair = make_pair(context, measured.baseline, subject, rng, spread=policy.FIRST_LOOK_PLACES)
            await pair.make_ready()
            context.memories = pair.memories
            recorded = pair.recorded["B"]
            if (ruling := check_recordings(context.harness, context.cases, recorded, measured.recorded)) is not None:
                return context.findings.fail(AS_TIMED, ruling)
        with context.timeline.stage("correct as timed"):
            replays = Replays(context.harness, subject, measured.profile, rng, context.findings.prints, pair.places)
            ruling = await replays.on_new_inputs(context.cases)
            if ruling is None and not context.known:
                ruling = await replays.on_all_inputs(context.cases)
            if ruling is None and not context.known:
                ruling = await replays.on_other_cases(context.untimed)
            if ruling is not None:
                return context.findings.fail(AS_TIMED, ruling)
            context.findings.passed(AS_TIMED)
        with context.timeline.stage("time"):
            await warm_up((measured.baseline, subject), context.cases[-1])
            shared = device_now(context, series).shared
            context.first = FirstLook(context.rule(context.cases, shared=shared))
            decision = await _first_look(context, pair, series, context.first)
            context.device = device_now(context, series)
    return (
        None
        if decision.outcome in (LookOutcome.PROVISIONAL_FASTER, LookOutcome.PROVISIONAL_SLOWER)
        else decided(context, decision)
    )


def device_now(context: Context, series: Series) -> DeviceState:
    """Return the GPU's state at the end of `series`, including whether other processes used it lately."""
    return device_state(context.harness, series, context.session.pids(), context.quieted)


def make_pair(
    context: Context,
    baseline: Subject,
    candidate: Subject,
    rng: random.Random,
    *,
    spread: int = policy.PLACES,
    renewal: Renewal | None = None,
) -> PairedMeasurement:
    """Return the pair of a baseline and the candidate, on this judgement's cases."""
    return PairedMeasurement(
        context.harness,
        baseline,
        candidate,
        context.cases,
        rng,
        same_bits=context.same_bits,
        spread=spread,
        renewal=renewal,
        once=context.pairs is not None,
    )


async def _first_look(context: Context, pair: PairedMeasurement, series: Series, look: FirstLook) -> Decision:
    """Measure blocks until the statistics have decided."""
    while True:
        before = series.gpu_ms
        counts = await pair.watched_block(series)
        spent = series.gpu_ms - before
        decision = look.add(series.last, spent) if counts else look.discard(spent)
        if context.on_decision is not None:
            context.on_decision(decision)
        if decision.stop:
            return decision


def decided(context: Context, decision: Decision) -> Ruling:
    """Return the ruling on a candidate that is no gain by its first blocks."""
    low, high = decision.interval.speedup.lower, decision.interval.speedup.upper
    ratio = speedup_of(decision.mean)
    delta = context.session.settings.judge.delta
    words = {
        LookOutcome.SLOWER: f"slower: {ratio:.3f}x ({low:.3f} to {high:.3f})",
        LookOutcome.SAME: f"no measurable difference ({low:.3f}x to {high:.3f}x)",
        LookOutcome.NOT_WORTH_IT: f"a gain of {delta:.0%} or more is excluded ({low:.3f}x to {high:.3f}x)",
        LookOutcome.AMBIGUOUS: (
            f"undecided after {decision.blocks} blocks ({low:.3f}x to {high:.3f}x); "
            f"a difference of {decision.detectable or 0:.1%} would have shown"
        ),
    }
    outcome = Outcome[decision.outcome.name]
    return Ruling(outcome, Stage.TIMED, words[decision.outcome], speedup=Speedup(ratio, (low, high)))
