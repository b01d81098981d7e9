"""Stage: measure a claimed gain or loss again, in fresh processes and on fresh inputs."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from functools import partial
from statistics import median

from kernel_lsp import policy
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.integrity import host_time
from kernel_lsp.judge.integrity.fresh_inputs import FreshInputs, remembers
from kernel_lsp.judge.integrity.launches import check_recordings, check_surroundings, check_timed
from kernel_lsp.judge.integrity.outside_clock import seen_from_outside
from kernel_lsp.judge.integrity.untimed_cases import slow_where_untimed
from kernel_lsp.judge.measure.blocks import PairedMeasurement, Series, warm_up
from kernel_lsp.judge.measure.cases import TimedCase, fill, ready
from kernel_lsp.judge.measure.intervals import summarise
from kernel_lsp.judge.measure.procedure import Conclusion, FirstLook, SecondLook, over_processes
from kernel_lsp.judge.measure.statistics import LookOutcome, combine
from kernel_lsp.judge.ruling import Ruling, Speedup, rejected, unless_shared
from kernel_lsp.judge.stages.time import device_now, make_pair
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage

_FRESH, _CLOCK, _AGAIN = "inputs that it has not seen", "a clock out of reach", "families again, after timing"
_HOST = "host time of a call"


async def confirm(context: Context) -> Ruling | None:
    """Measure baseline and candidate again; the ruling is FASTER if the gain holds."""
    assert context.first is not None, "there was a first look"
    for version in (context.measured.baseline, context.running):
        await context.harness.rest(version)
    ended = time.perf_counter()
    with context.timeline.stage("reload"):
        for version in (context.measured.baseline, context.running):
            context.reloaded.append(await _reload(context, version))
    with context.timeline.stage("settle"):
        await context.harness.settle()
    rng = random.Random(random.SystemRandom().getrandbits(64))
    baseline, candidate = context.reloaded
    other = None if context.harness.large else context.running
    gains = context.first.decision.outcome is LookOutcome.PROVISIONAL_FASTER
    fresh = FreshInputs(context.harness, baseline, candidate, other, context.same_bits, rng)
    async with context.session.timer() as context.quieted:
        with context.timeline.stage("record again"):
            pair = make_pair(context, baseline, candidate, rng, renewal=fresh if gains else None)
            await pair.make_ready()
        with context.timeline.stage("wait"):
            await asyncio.sleep(max(0.0, policy.CONFIRM_AFTER_SECONDS - (time.perf_counter() - ended)))
        with context.timeline.stage("confirm"):
            look, series = await _second_look(context, context.first, pair)
            context.device = device_now(context, series)
        concluded = look.conclude(rng.getrandbits(32))
        if concluded.claims and context.first.rule.hosted and not context.harness.large:
            with context.timeline.stage("further processes"):
                concluded = await _in_further_processes(context, context.first, concluded, rng)
        if gains and (
            ruling := await _doubt_gain(context, pair, fresh, series, concluded, hosted=context.first.rule.hosted)
        ):
            return ruling
        return _said(context, concluded)


async def _reload(context: Context, version: Subject) -> Subject:
    """Return a version loaded again, into a fresh process, with its weights and run time as they were found."""
    entered = await context.harness.enter(version.candidate, version.built)
    entered.own_weights = version.own_weights  # some are recognised by their values only after a run
    entered.run_s = version.run_s
    return entered


@asynccontextmanager
async def _further_processes(context: Context) -> AsyncGenerator[tuple[Subject, Subject]]:
    """Hold the baseline and the candidate in two more fresh processes."""
    loaded: list[Subject] = []
    async with AsyncExitStack() as held:
        for version in (context.measured.baseline, context.running):
            loaded.append(await _reload(context, version))
            held.push_async_callback(context.harness.leave, loaded[-1])
        yield loaded[0], loaded[1]


async def _second_look(context: Context, first: FirstLook, pair: PairedMeasurement) -> tuple[SecondLook, Series]:
    """Measure the blocks of a second look, and append them to the earlier ones in the context."""
    assert context.series is not None, "there was a first look"
    context.memories = pair.memories
    look, series = SecondLook(first, pair.memories), Series.empty(context.cases)
    await warm_up(pair.versions, context.cases[-1])
    while not look.complete:
        if await pair.watched_block(series):
            look.add(series.last)
        else:
            look.discard()
    context.series = context.series.joined(series)
    context.confirmation_blocks += len(series.combined)
    return look, series


async def _in_further_processes(
    context: Context, first: FirstLook, concluded: Conclusion, rng: random.Random
) -> Conclusion:
    """Return the conclusion from the second look and from as many more, each in a pair of processes of its own."""
    means = [concluded.measured.mean]
    while len(means) < policy.HOSTED_PROCESS_PAIRS:
        async with _further_processes(context) as (baseline, candidate):
            pair = make_pair(context, baseline, candidate, rng)
            await pair.make_ready()
            look, _ = await _second_look(context, first, pair)
        means.append(summarise(combine(look.blocks)).mean)
    return over_processes(first.rule, concluded, means)


async def _doubt_gain(
    context: Context,
    pair: PairedMeasurement,
    fresh: FreshInputs,
    series: Series,
    concluded: Conclusion,
    *,
    hosted: bool,
) -> Ruling | None:
    """Return the ruling on a provisional gain that proves false, or None if it holds.

    A candidate that no longer claims a gain is not accused: on a disturbed GPU honest times may look like cheating.
    """
    if (ruling := await fresh.finish(pair.placed)) is not None:
        return context.findings.fail(_FRESH, ruling)
    gains = concluded.measured.interval.speedup.lower > 1
    # Beside a slow baseline only a gain is worth the time, and the jitter of the host looks like memory.
    worth_it = gains or not (context.pairs or hosted)
    if worth_it and not (gains and fresh.renewed):
        with context.timeline.stage("remembers"):
            if (ruling := await remembers(fresh, pair.placed)) is not None:
                return context.findings.fail(_FRESH, ruling)
    if fresh.drawn:
        context.findings.passed(_FRESH, fresh.summary())
    else:
        context.findings.skipped(_FRESH, "inputs drawn anew have other shapes or numbers; memory is not excluded")
    if not gains:
        return None
    with context.timeline.stage("legitimate again"):
        return await _doubt(context, pair, series, fresh.rng)


async def _doubt(context: Context, pair: PairedMeasurement, series: Series, rng: random.Random) -> Ruling | None:
    """Return the ruling on a gain that is not real or that costs elsewhere; None if it holds."""
    baseline, candidate = context.reloaded
    harness, findings, measured = context.harness, context.findings, context.measured
    if (ruling := check_recordings(harness, context.cases, pair.recorded["B"], pair.recorded["A"])) is not None:
        return findings.fail(_AGAIN, ruling)
    replays = Replays(harness, candidate, measured.profile, rng, findings.prints, pair.places)
    placed = pair.anywhere()
    for subject in context.reloaded:  # their inputs were replaced during the confirmation
        for case in placed:
            await fill(harness, subject, case, case.draw)
    ruling = await replays.on_new_inputs(placed)
    if ruling is None and not context.known:
        ruling = await replays.on_all_inputs(placed, apart=False)
    if ruling is not None:
        return findings.fail(_AGAIN, ruling)
    findings.passed(_AGAIN, "as many as there is time for beside a slow baseline" if context.pairs is not None else "")
    ratios = [median(b) / median(a) for a, b in zip(series.baseline_us, series.candidate_us, strict=True)]
    clock = partial(seen_from_outside, harness, cases=placed)
    ruling = await clock(baseline, candidate)
    if ruling is not None:
        ruling = await _elsewhere(context, placed, partial(clock, ratios=ratios), ruling)
    if ruling is not None:
        return findings.fail(_CLOCK, unless_shared(ruling, device_now(context, series).shared))
    findings.passed(_CLOCK)
    times = [(median(a), median(b)) for a, b in zip(series.baseline_us, series.candidate_us, strict=True)]
    claimed = [(case, us) for case, (_, us) in zip(placed, times, strict=True)]
    seen = (measured.seen, context.seen)
    shared = device_now(context, series).shared
    context.traces += await check_timed(harness, baseline, candidate, claimed, seen, shared, findings)
    if findings.ruling is not None:
        return findings.ruling
    if (ruling := await check_surroundings(baseline, candidate, measured.seen, findings)) is not None:
        return ruling
    if (why := impossible(context, series)) is not None:
        return rejected(why)
    if (ruling := await _host_takes_back(context, placed, [a - b for a, b in times])) is not None:
        return findings.fail(_HOST, ruling)
    findings.passed(_HOST, host_time.describe(context.calls))
    ruling = await slow_where_untimed(harness, baseline, candidate, context.untimed)
    return findings.fail("cases that are not timed", ruling) if ruling is not None else None


async def _host_takes_back(context: Context, cases: Sequence[TimedCase], gains_us: Sequence[float]) -> Ruling | None:
    """Return the ruling on a candidate whose calls cost the host what the GPU gains, in all processes asked, or None.

    Those of the first look are asked second: they are there anyway.
    """
    harness = context.harness

    async def longer(baseline: Subject, candidate: Subject, cases: Sequence[TimedCase] = cases) -> Ruling | None:
        calls = await host_time.time_calls(harness, baseline, candidate, cases)
        context.calls = host_time.least(context.calls, calls)
        return host_time.longer_calls(harness, context.calls, gains_us)

    baseline, candidate = context.reloaded
    ruling = await longer(baseline, candidate)
    if ruling is not None and not harness.large:
        ruling = await longer(context.measured.baseline, context.running, context.cases)
    return ruling if ruling is None else await _elsewhere(context, cases, longer, ruling)


async def _elsewhere(
    context: Context,
    cases: Sequence[TimedCase],
    ask: Callable[[Subject, Subject], Awaitable[Ruling | None]],
    ruling: Ruling,
) -> Ruling | None:
    """Return the ruling that holds in further processes, too, or None.

    The host's part of a launch differs from process to process by tens of microseconds on some machines, for as long
    as a process lives: the same program would be refused in one pair of processes and not in another.
    """
    harness, held = context.harness, ruling
    if harness.large:  # no room for two more; the host's part is small there
        return held
    for _ in range(policy.FURTHER_PROCESS_PAIRS):
        async with _further_processes(context) as (baseline, candidate):
            for version in (baseline, candidate):
                await ready(harness, version, cases)
            found = await ask(baseline, candidate)
        if found is None:
            return None
        held = found
    return held


def _said(context: Context, concluded: Conclusion) -> Ruling:
    """Return the ruling from both looks, with its reason in words."""
    measured, interval = concluded.measured, concluded.interval.speedup
    speedup = Speedup(measured.speedup, (interval.lower, interval.upper))
    outcome = Outcome[concluded.outcome.name]
    shown = f"{measured.speedup:.3f}x"
    if outcome is Outcome.FASTER:
        reason = f"{shown} faster ({interval.lower:.3f} to {interval.upper:.3f}), confirmed in fresh processes"
    elif outcome is Outcome.SLOWER:
        reason = f"slower: {shown} ({interval.lower:.3f} to {interval.upper:.3f}), confirmed in fresh processes"
    elif concluded.slower_cases:
        names = "; ".join(context.harness.cases[context.cases[i].draw.case] for i in concluded.slower_cases)
        reason = f"{shown} over all cases, but slower on {names}"
    else:
        assert context.first is not None, "there was a first look"
        gained = context.first.decision.outcome is LookOutcome.PROVISIONAL_FASTER
        reason = f"it looked {'faster' if gained else 'slower'} at first; measured again it was {shown}"
    return Ruling(outcome, Stage.TIMED, reason, speedup=speedup)


def impossible(context: Context, series: Series) -> str | None:
    """Return why the times are impossible: they need more memory traffic than the GPU's bandwidth allows; else None.

    Not decided where an integer input may select what is read.
    """
    bandwidth = context.harness.bandwidth
    if bandwidth is None:
        return None
    for timed, times in zip(series.cases, series.candidate_us, strict=True):
        read, us = timed.draw.input_bytes, median(times)
        if timed.mode == "short" or timed.draw.may_pick or read / (timed.baseline_us * 1e-6) > bandwidth.limit:
            continue
        if read / (us * 1e-6) > bandwidth.limit:
            return (
                f"on case {context.harness.cases[timed.draw.case]} reading its inputs once in {us:.1f} us would take "
                f"{read / us / 1e3:,.0f} GB/s, more than this GPU's memory gives ({bandwidth.limit / 1e9:,.0f} GB/s)"
            )
    return None
