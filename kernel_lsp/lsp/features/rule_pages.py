"""The pages of rules: shown on hover over a finding, and as files that a finding links to."""

import os
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp import __version__
from kernel_lsp.lsp.documents import Document, uri_of

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server
    from kernel_lsp.rules.rule import Rule


def rules_at(ls: "Server", document: Document, position: types.Position) -> "list[Rule]":
    """The rules of what is found at a position."""
    here = [d for d in ls.diagnostics.of(document.uri) if d.range.start <= position <= d.range.end]
    found = [rule for finding in here if (rule := _rule(finding)) is not None]
    return list(dict.fromkeys(found))


def link(ls: "Server", document: Document, finding: types.Diagnostic) -> None:
    """Have a finding lead to its rule's page, where the client shows such links and the page can be written."""
    text = ls.client_capabilities.text_document
    rule = _rule(finding)
    if (
        rule is None
        or text is None
        or not (text.publish_diagnostics and text.publish_diagnostics.code_description_support)
    ):
        return
    page = ls.settings.at(document.path).paths.cache / "rules" / __version__ / f"{rule.id}.md"
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
