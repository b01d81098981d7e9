"""Profile kernels on the emulator; the result has the `profile`, a `profiles.CountedKernel` for each kernel."""

from dataclasses import asdict
from typing import Any

from kernel_lsp.check import check
from kernel_lsp.check.profile import FileProfile, KernelProfile, LineProfile, profile_of
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.lsp.profiles import CountedKernel, CountedLine
from kernel_lsp.report.profile import COUNTS, counts_of, elsewhere
from kernel_lsp.report.units import percent_text


async def profile(job: JobContext) -> dict[str, Any]:
    """Check the text, which the store may remember, and return the emulator's counts of its costly lines."""
    job.doing("counting on the emulator")
    source = job.source
    [report] = await check([source], job.settings, store=job.store, texts=job.texts)
    found = profile_of(report, source.text)
    kernels = [one for one in found.kernels if job.kernel in (None, one.kernel)]
    reason = f"counted by the emulator on {'; '.join(found.cases)}, not timed"
    if not kernels:
        reason = f"nothing was counted: {found.problem or 'the workload does not launch this kernel'}"
    return {"reason": reason, "verdict": None, "profile": [asdict(_counted(found, one)) for one in kernels]}


def _counted(found: FileProfile, kernel: KernelProfile) -> CountedKernel:
    about = (
        f"Counted by the emulator on {'; '.join(found.cases)} ({found.arch}), not timed: instructions of warps, "
        "traffic in sectors of global memory."
    )
    return CountedKernel(kernel.kernel, about, COUNTS, tuple(_line(one) for one in kernel.lines if one.is_costly))


def _line(one: LineProfile) -> CountedLine:
    traffic = f", {percent_text(one.traffic_share)} of traffic" if one.traffic_share else ""
    hint = f"counted: {percent_text(one.instruction_share)} of instructions{traffic}"
    own = bool(one.text)
    return CountedLine(one.line if own else 0, "" if own else elsewhere(one), one.text, hint, counts_of(one))
