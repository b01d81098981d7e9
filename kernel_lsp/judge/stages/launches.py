"""Stage: check that the candidate's own kernels do the work, in order, without changing anything around them."""

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.integrity.launches import check_launches
from kernel_lsp.judge.ruling import Ruling


async def look_at_launches(context: Context) -> Ruling | None:
    """Trace the candidate's launches."""
    measured = context.measured
    with context.timeline.stage("legitimate"):
        context.seen, context.traces = await check_launches(
            context.harness, context.running, measured.cases, measured.seen, context.findings
        )
    return context.findings.ruling
