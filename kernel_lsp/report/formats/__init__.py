"""The forms in which a check's results are written for other programs, by name."""

from enum import StrEnum

from kernel_lsp.report.formats.github import github
from kernel_lsp.report.formats.json import json
from kernel_lsp.report.formats.junit import junit
from kernel_lsp.report.formats.results import CheckResults, ReportFormat
from kernel_lsp.report.formats.sarif import sarif
from kernel_lsp.report.formats.text import text

__all__ = ["FORMATS", "CheckResults", "FormatName", "ReportFormat"]


class FormatName(StrEnum):
    """The values of `--format`."""

    TEXT = "text"
    JSON = "json"
    SARIF = "sarif"
    GITHUB = "github"
    JUNIT = "junit"


FORMATS: dict[FormatName, ReportFormat] = {
    FormatName.TEXT: text,
    FormatName.JSON: json,
    FormatName.SARIF: sarif,
    FormatName.GITHUB: github,
    FormatName.JUNIT: junit,
}
