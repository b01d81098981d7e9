"""The pages of rules: shown when hovering over a finding, and as files that a finding links to."""

import os
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp import __version__
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.uris import uri_of

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
        page = self._path(document.path, rule)
        if _is_written(page, rule):
            finding.code_description = types.CodeDescription(uri_of(page))

    def write(self, place: Path, name: str) -> Path:
        """Return the file with the page of a rule, given by id or name; the settings at `place` say where it lies.

        Raises:
            ConfigurationError: there is no such rule, or the page cannot be written.
        """
        from kernel_lsp.rules.catalog import find_rule

        rule = find_rule(name)
        page = self._path(place, rule)
        if not _is_written(page, rule):
            raise ConfigurationError(
                "The page cannot be written.", page, fix=f"`kernel-lsp explain {rule.id}` prints it."
            )
        return page

    def _path(self, place: Path, rule: "Rule") -> Path:
        return self._settings.at(place).paths.cache / "rules" / __version__ / f"{rule.id}.md"


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
