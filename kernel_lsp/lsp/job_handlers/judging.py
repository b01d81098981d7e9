"""Judge one candidate: the text against the last commit, or one rewrite; the result has the `outcome`."""

from dataclasses import replace
from math import isfinite
from typing import Any

from kernel_lsp.device.choice import find_device
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.report.units import interval_text
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.revision import committed_text


async def compare(job: JobContext) -> dict[str, Any]:
    """Judge the text in the editor against the file of the last commit."""
    targets = job.targets()  # first, so that a missing workload is what a user hears of
    before = SourceFile(job.path, committed_text(job.path))
    pairs: list[tuple[Target, Candidate]] = []
    for now in targets:
        target = replace(now, source=before, launch_text=_committed_launch(now))
        pairs.append((target, target.version(now.source.text, "since the last commit", "user")))
    return await _judge_all(job, pairs)


def _committed_launch(now: Target) -> str | None:
    """Return the last commit's text of the workload that holds the `launch`; None to share the current one."""
    workload = now.workload
    if workload.in_kernel_file or not workload.has_launch:
        return None
    try:
        return committed_text(workload.source.path)
    except SourceError:  # the file is new: both sides share its launch
        return None


async def rewrite(job: JobContext) -> dict[str, Any]:
    """Judge one rewrite of the kernel, found again by its label."""
    device = find_device(job.settings.gpu, job.settings.arch)
    pairs: list[tuple[Target, Candidate]] = []
    for target in job.targets():
        kernels = [target.kernel] if target.kernel else target.kernels
        found = (one for kernel in kernels for one in find_rewrites(target.baseline, kernel, device))
        pairs += [(target, one) for one in [next((one for one in found if one.label == job.label), None)] if one]
    if not pairs:
        raise SourceError(f"`{job.label}` does not apply to the kernel as it is now.", job.path)
    return await _judge_all(job, pairs)


async def _judge_all(job: JobContext, pairs: list[tuple[Target, Candidate]]) -> dict[str, Any]:
    """Judge a candidate with each workload, one after another, up to the first that it fails with.

    The result is of that one, else of the first, which is the file's own.
    """
    results: list[dict[str, Any]] = []
    for target, candidate in pairs:
        verdict = await _judge(job, target, candidate)
        name = f"with {target.workload.source.path.name}: " if len(pairs) > 1 else ""
        results.append({"reason": f"{name}{verdict.reason}", "verdict": verdict.id, "outcome": verdict.verdict})
        if verdict.verdict.is_failure:
            return results[-1]
    return results[0]


async def _judge(job: JobContext, target: Target, candidate: Candidate) -> Verdict:
    def show(decision: Decision) -> None:
        speedup = decision.interval.speedup
        found = f": {interval_text((speedup.lower, speedup.upper))}x" if isfinite(speedup.upper) else ""
        job.doing(f"timing, block {decision.blocks}{found}")

    job.doing("building and measuring the baseline")
    async with open_session(target, job.settings, job.pool, say=job.doing) as session:
        job.doing("building, running and checking the candidate")
        verdict = await session.judge(candidate, show, on_confirmed=job.confirmed)
    job.decided(verdict)
    return verdict
