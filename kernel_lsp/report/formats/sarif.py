"""SARIF 2.1.0, which code hosts keep findings in from one commit to the next."""

import json
from typing import Any
from urllib.parse import quote

from kernel_lsp import __version__
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.report.formats.results import CheckResults
from kernel_lsp.rules.catalog import RULES
from kernel_lsp.rules.ignores import Silenced
from kernel_lsp.rules.rule import Rule

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
_LEVELS = {Severity.ERROR: "error", Severity.WARNING: "warning", Severity.NOTE: "note"}
_INDEX = {rule: index for index, rule in enumerate(RULES)}


def sarif(results: CheckResults) -> str:
    """One run: every rule with its page, the findings, and those that are silenced with the reason."""
    findings = list(results.findings())
    silenced = [one for report in results.reports for one in report.silenced]
    prints = results.fingerprints([*findings, *(one.finding for one in silenced)])
    run = {
        "tool": {
            "driver": {
                "name": "kernel-lsp",
                "version": __version__,
                "rules": [_rule(rule) for rule in RULES.values()],
            }
        },
        "columnKind": "unicodeCodePoints",
        "originalUriBaseIds": {"ROOT": {"description": {"text": "the repository that was checked"}}},
        "results": [
            *(_result(found, mark, results) for found, mark in zip(findings, prints[: len(findings)], strict=True)),
            *(_suppressed(one, mark, results) for one, mark in zip(silenced, prints[len(findings) :], strict=True)),
        ],
    }
    return json.dumps({"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}, indent=2) + "\n"


def _rule(rule: Rule) -> dict[str, Any]:
    return {
        "id": rule.id,
        "name": "".join(word.capitalize() for word in rule.name.split("-")),
        "shortDescription": {"text": rule.summary},
        "fullDescription": {"text": rule.what},
        "help": {"text": rule.fix, "markdown": rule.page},
        "defaultConfiguration": {"level": _LEVELS[rule.severity]},
        "properties": {"tags": [rule.group.value]},
    }


def _result(found: Diagnostic, mark: str, results: CheckResults) -> dict[str, Any]:
    name = results.name(found.path)
    uri = quote(name)
    artifact = {"uri": f"file://{uri}"} if uri.startswith("/") else {"uri": uri, "uriBaseId": "ROOT"}
    region = {
        "startLine": found.line,
        "startColumn": results.characters(found.path, found.line, found.column),
        "endLine": found.end_line,
        "endColumn": results.characters(found.path, found.end_line, found.end_column),
    }
    return {
        "ruleId": found.code,
        **({"ruleIndex": _INDEX[found.code]} if found.code in _INDEX else {}),
        "level": _LEVELS[found.severity],
        "message": {"text": found.message},
        "locations": [{"physicalLocation": {"artifactLocation": artifact, "region": region}}],
        "partialFingerprints": {"ruleAndLine/v1": mark},
    }


def _suppressed(one: Silenced, mark: str, results: CheckResults) -> dict[str, Any]:
    reason = {"justification": one.reason} if one.reason else {}
    return _result(one.finding, mark, results) | {"suppressions": [{"kind": "inSource", **reason}]}
