"""The last check of each open text: of this session, or of an earlier one, from the store."""

import asyncio
import contextlib
import logging
from dataclasses import dataclass
from typing import Any

from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.check_records import CheckedFamily, CheckedFinding, CheckedKernel, CheckedText
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.process import ServiceFailure
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.uris import uri_of
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.source.code_lines import code_lines
from kernel_lsp.source.python import is_python
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.workload.spec import REFERENCE

log = logging.getLogger("kernel-lsp")

_FACTS_FIRST_SECONDS = 2.0  # to import what reads the store takes the process that compiles as long as a compilation


@dataclass(frozen=True, slots=True)
class _LastCheck:
    """The last check of a text: that text, the result in a few words, and what was found."""

    text: str
    said: tuple[Diagnostic, ...]
    found: str
    reason: str
    families: tuple[CheckedFamily, ...]
    findings: tuple[CheckedFinding, ...]


@dataclass(frozen=True, slots=True)
class JudgedFix:
    """A fix of a finding that was checked: its rule and line, from 0, and its edits as spans of the checked text."""

    rule: str
    line: int
    title: str
    edits: tuple[Edit, ...]


class KnownChecks:
    """Takes the results of checks: shows their findings, and answers what was checked."""

    def __init__(
        self,
        client: EditorConnection,
        documents: Documents,
        settings: ClientSettings,
        permission: Permission,
        board: Board,
        analysis: Analysis,
    ) -> None:
        self._client, self._documents, self._settings = client, documents, settings
        self._permission, self._board, self._analysis = permission, board, analysis
        self._last: dict[str, _LastCheck] = {}
        self._fixes: dict[str, tuple[str, list[JudgedFix]]] = {}

    def take(self, document: Document, result: dict[str, Any]) -> None:
        """Take the result of a check of a text, see `job_handlers.checks`."""
        report = result["report"]
        said = [Diagnostic(**one | {"severity": Severity(one["severity"])}) for one in report["diagnostics"]]
        self._board.checked(document, said)
        errors = sum(one.severity is Severity.ERROR for one in said)
        found = f"{errors} error{'' if errors == 1 else 's'}" if errors else result["reason"]
        families = tuple(CheckedFamily(c["name"], c["case"], c["status"], c["detail"]) for c in report["checks"])
        findings = tuple(_finding(document, one) for one in said if one.severity is not Severity.NOTE)
        self._last[document.uri] = _LastCheck(document.text, tuple(said), found, result["reason"], families, findings)
        if (emulation := report["emulation"]) is not None:
            self._analysis.counted(document, [one for run in emulation["runs"] for one in run["counters"]])

    async def opened(self, document: Document) -> None:
        """Show what is known of an opened text, if it was checked as it stands."""
        last = self._last.get(document.uri)
        if last is None:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_FACTS_FIRST_SECONDS):
                    await self._analysis.has_facts(document)
            await self.recall(document)
        elif last.text == document.text:
            self._board.checked(document, last.said)

    async def changed(self, document: Document) -> None:
        """Show what is known of an edited text once its author pauses, if only comments were edited since its check."""
        if document.uri not in self._last:
            return
        await self._analysis.settled(document)
        if self._documents.get(document.uri) is document:
            await self.recall(document)

    async def recall(self, document: Document) -> None:
        """Take what the store knows of a text, if it was checked as it stands and nothing newer is known."""
        last = self._last.get(document.uri)
        if last is not None and (
            last.text == document.text or not await asyncio.to_thread(_same_code, last.text, document)
        ):
            return
        if not document.kernels or not document.on_disk or not self._permission.covers(document):
            return
        try:
            texts = {str(d.path): d.text for d in self._documents if d.on_disk} | {str(document.path): document.text}
            result = await self._analysis.recall(document, texts)
        except (KernelLspError, ServiceFailure) as failure:  # nothing is known, then
            log.info("no check of %s was looked up: %s", document.path, failure)
            return
        now = self._documents.get(document.uri)
        same = now is None or now.text == document.text
        if result is not None and same and self._last.get(document.uri) is last:
            self.take(document, result)
            self._client.refresh()

    def take_fixes(self, document: Document, found: list[dict[str, Any]]) -> None:
        """Take the fixes of a text that were checked, as their job's result has them."""
        fixes = [
            JudgedFix(one["rule"], one["line"] - 1, one["title"], tuple(map(_edit, one["edits"]))) for one in found
        ]
        self._fixes[document.uri] = document.text, fixes

    def fixes(self, document: Document) -> list[JudgedFix]:
        """Return the checked fixes of a text as it stands."""
        text, found = self._fixes.get(document.uri, ("", []))
        return found if found and text == document.text else []

    def found(self, document: Document) -> str | None:
        """Return the result of the last check of a text as it stands, such as `14 checks passed`; None without one."""
        last = self._last.get(document.uri)
        return last.found if last is not None and last.text == document.text else None

    def passed(self, document: Document) -> bool | None:
        """Return whether the last check of a text as it stands found nothing wrong; None if it compared nothing."""
        last = self._last.get(document.uri)
        if last is None or last.text != document.text:
            return None
        if any(one.severity is Severity.ERROR for one in last.said):
            return False
        compared = all(one.name != REFERENCE or one.status == "passed" for one in last.families)
        return True if compared and any(one.status == "passed" for one in last.families) else None

    def of(self, document: Document) -> CheckedText:
        """Return the last check of a text."""
        kernels = tuple(CheckedKernel(k.name, document.range(k.name_span).start.line) for k in document.kernels)
        last = self._last.get(document.uri)
        if last is None:
            return CheckedText(None, False, kernels, (), ())
        return CheckedText(last.reason, last.text != document.text, kernels, last.families, last.findings)


def _edit(given: dict[str, Any]) -> Edit:
    return Edit(Span(given["span"]["start"], given["span"]["end"]), given["text"])


def _same_code(text: str, document: Document) -> bool:
    """Return True if a document's text differs from another in comments and empty lines only; reads every line."""
    one, other = (code_lines(each, python=is_python(document.path)) for each in (text, document.text))
    return one.text == other.text


def _finding(document: Document, found: Diagnostic) -> CheckedFinding:
    own = found.path == str(document.path)
    at = document.lines.offset(found.line, 1)
    kernel = next((k.name for k in document.kernels if own and k.span.start <= at <= k.span.end), None)
    path = document.path if own else document.path.parent / found.path
    return CheckedFinding(kernel, found.code or "", found.severity, found.message, uri_of(path), found.line - 1)
