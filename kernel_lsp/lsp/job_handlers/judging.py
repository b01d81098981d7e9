"""Judge one candidate: the text against the last commit, or one rewrite; the result has the `outcome`."""

from dataclasses import replace
from math import isfinite
from typing import Any

from kernel_lsp.device.choice import find_device
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.report.units import interval_text
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.revision import committed_text


async def compare(job: JobContext) -> dict[str, Any]:
    """Judge the text in the editor against the file of the last commit."""
    now = job.target()
    before = SourceFile(job.path, committed_text(job.path))
    workload, launch = now.workload, None
    if not workload.in_kernel_file and workload.has_launch:
        try:
            launch = committed_text(workload.source.path)
        except SourceError:  # the file is new: both sides share its launch
            launch = None
    target = replace(now, source=before, launch_text=launch)
    return await _judge(job, target, target.version(now.source.text, "since the last commit", "user"))


async def rewrite(job: JobContext) -> dict[str, Any]:
    """Judge one rewrite of the kernel, found again by its label."""
    target, device = job.target(), find_device(job.settings.gpu, job.settings.arch)
    for kernel in [target.kernel] if target.kernel else target.kernels:
        for candidate in find_rewrites(target.baseline, kernel, device):
            if candidate.label == job.label:
                return await _judge(job, target, candidate)
    raise SourceError(f"`{job.label}` does not apply to the kernel as it is now.", job.path)


async def _judge(job: JobContext, target: Target, candidate: Candidate) -> dict[str, Any]:
    def show(decision: Decision) -> None:
        speedup = decision.interval.speedup
        found = f": {interval_text((speedup.lower, speedup.upper))}x" if isfinite(speedup.upper) else ""
        job.doing(f"timing, block {decision.blocks}{found}")

    job.doing("building and measuring the baseline")
    async with open_session(target, job.settings, job.pool, say=job.doing) as session:
        job.doing("building, running and checking the candidate")
        verdict = await session.judge(candidate, show)
    job.decided(verdict)
    return {"reason": verdict.reason, "verdict": verdict.id, "outcome": verdict.verdict}
