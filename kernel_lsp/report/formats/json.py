"""The reports themselves."""

from collections.abc import Sequence
from dataclasses import fields

from kernel_lsp.check import FileReport
from kernel_lsp.report.formats.results import CheckResults
from kernel_lsp.report.machine import records_json


def json(results: CheckResults) -> str:
    """One object: `ok`, and in `files` each report with its own `ok`."""
    return check_json(results.reports) + "\n"


def check_json(reports: Sequence[FileReport]) -> str:
    """One object: `ok`, and in `files` each report with its own `ok`."""
    return records_json(checked_files(reports))


def checked_files(reports: Sequence[FileReport]) -> dict[str, object]:
    """Return what `check_json` prints."""
    files = [
        {"ok": report.ok} | {each.name: getattr(report, each.name) for each in fields(report)} for report in reports
    ]
    return {"ok": all(report.ok for report in reports), "files": files}
