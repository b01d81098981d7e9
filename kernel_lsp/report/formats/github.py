"""Workflow commands, which GitHub Actions shows at the lines of a pull request (ten of a kind for each step)."""

from kernel_lsp.report.formats.results import CheckResults
from kernel_lsp.rules.catalog import RULES

_MESSAGE = {"%": "%25", "\r": "%0D", "\n": "%0A"}
_PROPERTY = _MESSAGE | {":": "%3A", ",": "%2C"}


def github(results: CheckResults) -> str:
    """A command for each finding, errors first."""
    lines: list[str] = []
    for found in results.findings():
        place = {"file": results.name(found.path), "line": str(found.line), "endLine": str(found.end_line)}
        if found.line == found.end_line:
            place["col"] = str(results.characters(found.path, found.line, found.column))
            place["endColumn"] = str(results.characters(found.path, found.line, found.end_column))
        title = f"{found.code} {RULES[found.code].name}" if found.code in RULES else "kernel-lsp"
        properties = ",".join(
            f"{key}={_escaped(value, _PROPERTY)}" for key, value in (place | {"title": title}).items()
        )
        lines.append(f"::{found.severity} {properties}::{_escaped(found.message, _MESSAGE)}\n")
    return "".join(lines)


def _escaped(text: str, by: dict[str, str]) -> str:
    return "".join(by.get(character, character) for character in text)
