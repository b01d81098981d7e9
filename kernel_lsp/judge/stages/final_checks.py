"""Stage: run a confirmed gain under a steady load, and check its memory accesses and sizes that CASES does not name."""

import asyncio
from dataclasses import replace
from statistics import median

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.facts import opcodes
from kernel_lsp.judge.measure import steady_load
from kernel_lsp.judge.measure.steady_load import ShortRuns
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import both


async def check_finally(context: Context, confirmed: Ruling) -> Ruling:
    """Return the confirmed ruling, or one that refuses the gain.

    Meanwhile machine code is disassembled for the evidence, which finds it in the cache: nvdisasm takes seconds at
    first, from a disk that has not been read.
    """
    ruling, _ = await both(_check(context, confirmed), asyncio.to_thread(_disassemble, context))
    return ruling


def _disassemble(context: Context) -> None:
    for built in (context.session.baseline_built, context.built):
        if built is not None:
            opcodes(built, context.session.settings)


async def _check(context: Context, confirmed: Ruling) -> Ruling:
    """Return the ruling of the checks.

    Accesses are looked at on the CPU while the steady load runs, and on the GPU after it. If either needs most of the
    GPU's memory they follow each other, and the timed processes end in between.
    """
    loaded = asyncio.Event()
    if context.harness.large:
        await _load_steadily(context)
        for version in context.reloaded:
            await context.harness.leave(version)
        context.reloaded.clear()
        loaded.set()
        broken = await _look(context, loaded)
    else:
        broken, _ = await both(_look(context, loaded), _load_and_tell(context, loaded))
    if broken is not None:
        return replace(broken, speedup=confirmed.speedup)
    sustained = context.sustained
    if sustained is not None and sustained.interval[1] < 1 and confirmed.speedup is not None:
        reason = f"{confirmed.speedup.ratio:.3f}x in short runs, but {sustained.speedup:.3f}x under a steady load"
        return Ruling(Outcome.NOT_WORTH_IT, Stage.TIMED, reason, speedup=confirmed.speedup)
    return confirmed


async def _load_steadily(context: Context) -> None:
    """Run both sides under a steady load where it may take the gain; skipped if GPU memory does not suffice."""
    if context.session.settings.judge.steady_load != "auto":
        return
    async with context.session.timer():
        with context.timeline.stage("steady load"):
            number, longest = max(enumerate(context.cases), key=lambda each: each[1].baseline_us)
            if longest.slow:
                context.findings.skipped("steady load", "the baseline is slow, and time for its launches is bounded")
                return
            baseline, candidate = context.reloaded
            try:
                loaded, context.sustained = await steady_load.measure(
                    context.harness, baseline, candidate, longest, _short_runs(context, number)
                )
            except WorkerFailure as error:
                if not context.harness.large or not error.lacks_memory:
                    raise
                context.findings.skipped("steady load", "too little of the GPU's memory is free for it")
            else:
                context.findings.checks.append(loaded)


def _short_runs(context: Context, number: int) -> ShortRuns:
    """Return what the blocks of this judgement said of a case, by its index."""
    series = context.series
    assert series is not None, "a gain has blocks"
    speedup = median(series.baseline_us[number]) / median(series.candidate_us[number])
    return ShortRuns(speedup, median(series.clocks) if series.clocks else None)


async def _load_and_tell(context: Context, loaded: asyncio.Event) -> None:
    await _load_steadily(context)
    loaded.set()


async def _look(context: Context, loaded: asyncio.Event) -> Ruling | None:
    assert context.measured.looks is not None, "a session that times has them"
    return await context.measured.looks.examine(context.running, context.findings, context.timeline, loaded)
