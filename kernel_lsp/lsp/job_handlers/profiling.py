"""Profile kernels on the emulator, and on the GPU where there is one; the result has the `profile`.

That is a `profiles.CountedKernel` for each kernel.
"""

from dataclasses import asdict
from typing import Any

from kernel_lsp.check import check
from kernel_lsp.check.gpu_lines import GpuLines, measure_lines
from kernel_lsp.check.profile import LEAST_SHARE, FileProfile, KernelProfile, LineProfile, profile_of
from kernel_lsp.device.choice import choose_gpu, find_device
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.lsp.profiles import CountedKernel, CountedLine
from kernel_lsp.report.profile import columns_of, elsewhere, price_text, sources_of, titles_of
from kernel_lsp.report.units import percent_text


async def profile(job: JobContext) -> dict[str, Any]:
    """Check the text, which the store may remember, and return the costly lines with counts, and samples or prices."""
    job.doing("counting on the emulator")
    source = job.source
    [report] = await check([source], job.settings, store=job.store, texts=job.texts)
    device = find_device(job.settings.gpu, job.settings.arch)
    found = profile_of(report, source.text, device, await _measured(job))
    kernels = [one for one in found.kernels if job.kernel in (None, one.kernel)]
    reason = " ".join(sources_of(found))
    if not kernels:
        reason = f"nothing was counted: {found.problem or 'the workload does not launch this kernel'}"
    return {"reason": reason, "verdict": None, "profile": [asdict(_counted(found, one)) for one in kernels]}


async def _measured(job: JobContext) -> GpuLines | None:
    """Return what the GPU tells of the lines; None without one."""
    gpu = choose_gpu(job.settings.gpu)
    if gpu is None:
        return None
    job.doing("measuring lines on the GPU")
    return await measure_lines(job.pool, job.targets()[0], job.settings, gpu)


def _counted(found: FileProfile, kernel: KernelProfile) -> CountedKernel:
    lines = tuple(_line(kernel, one) for one in kernel.lines if one.is_costly)
    return CountedKernel(kernel.kernel, " ".join(sources_of(found)), titles_of(kernel), lines)


def _line(kernel: KernelProfile, one: LineProfile) -> CountedLine:
    own = bool(one.text)
    return CountedLine(
        one.line if own else 0, "" if own else elsewhere(one), one.text, _hint(one), columns_of(kernel, one)
    )


def _hint(one: LineProfile) -> str:
    """Return the shares of a line in a few words, each with who found it."""
    said: list[str] = []
    if one.samples:
        waits = f", {percent_text(one.wait_share)} of them waiting for {one.waits_for}" if one.waits_for else ""
        said.append(f"sampled: {percent_text(one.sample_share)}{waits}")
    if one.price is not None and one.price >= LEAST_SHARE:
        said.append(f"price of its {one.priced}: {price_text(one)}")
    if one.counts:
        traffic = f", {percent_text(one.traffic_share)} of traffic" if one.traffic_share else ""
        said.append(f"counted: {percent_text(one.instruction_share)} of instructions{traffic}")
    return "; ".join(said)
