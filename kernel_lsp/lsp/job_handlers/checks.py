"""Check a file, or record what it costs now; the result has the `report`."""

import json
from typing import Any

from kernel_lsp.check import FileReport, check, record_baseline
from kernel_lsp.check.quick_fixes import is_fixable
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.judge.verdict import CheckStatus, is_uncompared
from kernel_lsp.lsp.job_handlers.context import JobContext
from kernel_lsp.report.formats.json import check_json
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.spec import REFERENCE


async def check_text(job: JobContext) -> dict[str, Any]:
    """Check the text as it is in the editor; return the report."""
    [report] = await check(
        [job.source], job.settings, store=job.store, texts=job.texts, pool=job.pool, on_step=job.step
    )
    return as_result(report)


def as_result(report: FileReport) -> dict[str, Any]:
    """Return the result of a check: its report, and the reason, which is the first error, or how much has passed."""
    return _checked(report, _passed(report))


async def record(job: JobContext) -> dict[str, Any]:
    """Record the file's current costs, the base of later checks; nothing is recorded if it has errors."""
    [report] = await check([read_source(job.path)], job.settings, record=True, pool=job.pool, on_step=job.step)
    written = record_baseline([report]) if report.resources else []
    count = len(report.resources)
    kernels = f"{count} kernel{' is' if count == 1 else 's are'}"
    sound = f"{kernels} recorded in {written[0]}" if written else "there is no kernel that compiles alone"
    return _checked(report, sound)


def _passed(report: FileReport) -> str:
    """Return `14 checks passed`, or how far a file that was not run was checked."""
    passed = sum(one.status is CheckStatus.PASSED for one in report.checks)
    if passed and is_uncompared(report.checks):
        why = next(one.detail for one in report.checks if one.name == REFERENCE)
        return f"ran on {passed} set{'' if passed == 1 else 's'} of inputs; {why}"
    if passed:
        return f"{passed} check{'' if passed == 1 else 's'} passed"
    notes = [one.message for one in report.diagnostics if one.severity is Severity.NOTE]
    return notes[0] if notes else "nothing was run"


def _checked(report: FileReport, sound: str) -> dict[str, Any]:
    """Return a report, the reason, `sound` or the first error, and whether an error may have a mechanical fix."""
    said = json.loads(check_json([report]))["files"][0]
    failed = [one["message"] for one in said["diagnostics"] if one["severity"] == "error"]
    fixable = any(map(is_fixable, report.diagnostics))
    return {"reason": failed[0] if failed else sound, "verdict": None, "report": said, "fixable": fixable}
