"""The reports themselves."""

from kernel_lsp.report.formats.results import CheckResults
from kernel_lsp.report.machine import check_json


def json(results: CheckResults) -> str:
    """One object: `ok`, and in `files` each report with its own `ok`."""
    return check_json(results.reports) + "\n"
