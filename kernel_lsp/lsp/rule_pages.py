"""The pages of rules: shown when hovering over a finding, and as files that a finding links to."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp import __version__
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document, uri_of
from kernel_lsp.lsp.settings import ClientSettings

if TYPE_CHECKING:
    from kernel_lsp.rules.rule import Rule


def rules_of(findings: Iterable[types.Diagnostic]) -> "list[Rule]":
    """Return the rules of findings, each once."""
    return list({rule.id: rule for finding in findings if (rule := _rule(finding)) is not None}.values())


class RulePages:
    """Writes the pages that findings link to."""

    def __init__(self, client: EditorConnection, settings: ClientSettings) -> None:
        self._client, self._settings = client, settings

    def link(self, document: Document, finding: types.Diagnostic) -> None:
        """Link a finding to its rule's page, if the client shows such links and the page can be written."""
        text = self._client.client_capabilities.text_document
        shown = text.publish_diagnostics if text else None
        rule = _rule(finding)
        if rule is None or shown is None or not shown.code_description_support:
            return
        page = self._settings.at(document.path).paths.cache / "rules" / __version__ / f"{rule.id}.md"
        if _is_written(page, rule):
            finding.code_description = types.CodeDescription(uri_of(page))


def _is_written(page: Path, rule: "Rule") -> bool:
    if page.is_file():
        return True
    draft = page.with_suffix(f".{os.getpid()}")
    try:
        page.parent.mkdir(parents=True, exist_ok=True)
        draft.write_text(rule.page, encoding="utf-8")
        draft.replace(page)
    except OSError:
        return False
    return True


def _rule(finding: types.Diagnostic) -> "Rule | None":
    from kernel_lsp.rules.catalog import RULES

    return RULES.get(str(finding.code))
