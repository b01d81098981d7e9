"""Stage: run a confirmed gain under a steady load, and check its memory accesses and sizes that CASES does not name."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import replace

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.facts import opcodes
from kernel_lsp.judge.measure import steady_load
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

    Access checks work mostly on the CPU, and so the others run beside them. If any needs most of the GPU's memory they
    run one after the other, and the timed processes end in between. Sizes come after the steady load: they keep the GPU
    busy, which it would show.
    """
    loaded = asyncio.Event()
    if context.harness.large:
        await _load_steadily(context)
        for version in context.reloaded:
            await context.harness.leave(version)
        context.reloaded.clear()
        loaded.set()
        broken = await _look_at_accesses(context) or await _look_at_sizes(context, loaded)
    else:
        beside = both(_load_and_refill(context, loaded), _look_at_sizes(context, loaded))
        of_accesses, (_, of_sizes) = await both(_look_at_accesses(context), beside)
        broken = of_accesses or of_sizes
    if broken is not None:
        return replace(broken, speedup=confirmed.speedup)
    sustained = context.sustained
    if sustained is not None and sustained.interval[1] < 1 and confirmed.speedup is not None:
        reason = f"{confirmed.speedup.ratio:.3f}x in short runs, but {sustained.speedup:.3f}x under a steady load"
        return Ruling(Outcome.NOT_WORTH_IT, Stage.TIMED, reason, speedup=confirmed.speedup)
    return confirmed


async def _load_steadily(context: Context) -> None:
    """Run both sides under a steady load where power is a limit; skipped if GPU memory does not suffice."""
    if context.session.settings.judge.steady_load != "auto":
        return
    async with context.session.timer():
        with context.timeline.stage("steady load"):
            longest = max(context.cases, key=lambda case: case.baseline_us)
            if longest.slow:
                context.findings.skipped("steady load", "the baseline is slow, and time for its launches is bounded")
                return
            baseline, candidate = context.reloaded
            try:
                loaded, context.sustained = await steady_load.measure(context.harness, baseline, candidate, longest)
            except WorkerFailure as error:
                if not context.harness.large or not error.lacks_memory:
                    raise
                context.findings.skipped("steady load", "too little of the GPU's memory is free for it")
            else:
                context.findings.checks.append(loaded)


async def _load_and_refill(context: Context, loaded: asyncio.Event) -> None:
    """Run the steady load; workers for later judgements are set up after it, which would show in it."""
    await _load_steadily(context)
    loaded.set()
    context.harness.refill()


async def _look_at_accesses(context: Context) -> Ruling | None:
    assert context.measured.looks is not None, "a session that times has them"
    with context.timeline.stage("sanitize"):
        return await context.measured.looks.examine(context.running, context.findings)


async def _look_at_sizes(context: Context, loaded: asyncio.Event) -> Ruling | None:
    assert context.measured.looks is not None, "a session that times has them"
    turn = _after(context, loaded)
    return await context.measured.looks.examine_near_sizes(context.running, context.findings, turn)


@asynccontextmanager
async def _after(context: Context, loaded: asyncio.Event) -> AsyncGenerator[None]:
    """Wait until the steady load is over, and count from then on."""
    await loaded.wait()
    with context.timeline.stage("other sizes"):
        yield
