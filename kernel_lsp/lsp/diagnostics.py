"""Diagnostics of each text, by their source; pulled or pushed, depending on the client.

Compilers' diagnostics for an older text are never sent. While a text is being compiled the client keeps the ones it
has, which its editor moves along with the text. Findings of a check stay until the next one, marked as older, except
where their line was changed: a user still reads them while fixing what they say.

A client that can be told to pull again pulls the diagnostics of the parser and the compilers; all others, and all for
other clients, are pushed.
"""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.compiled import CompiledText
from kernel_lsp.lsp.documents import TOO_LARGE, Document, Documents
from kernel_lsp.lsp.moving import moved
from kernel_lsp.lsp.rule_pages import RulePages
from kernel_lsp.lsp.uris import uri_of
from kernel_lsp.source.findings import find_findings
from kernel_lsp.workload.spec import draft_line

if TYPE_CHECKING:
    from kernel_lsp.compiler.builds.build import Diagnostic

SOURCE = "kernel-lsp"
DRAFT_CODE = "draft"
_SEVERITIES = {
    Severity.ERROR: types.DiagnosticSeverity.Error,
    Severity.WARNING: types.DiagnosticSeverity.Warning,
    Severity.NOTE: types.DiagnosticSeverity.Information,
}
_PULLED = ("parse", "compile")
_EVERYWHERE = types.Range(types.Position(0, 0), types.Position(0, 0))


class Board:
    """The current diagnostics, by text and by layer: `parse`, `compile`, and one for each other source."""

    def __init__(self, client: EditorConnection, documents: Documents, pages: RulePages) -> None:
        self._client, self._documents, self._pages = client, documents, pages
        self._layers: dict[str, dict[str, list[types.Diagnostic]]] = {}
        self._sent: dict[str, list[types.Diagnostic]] = {}
        self._parsed: dict[str, Document] = {}
        self._checked: dict[str, tuple[str, list[types.Diagnostic]]] = {}

    def parse(self, document: Document) -> None:
        """Replace the diagnostics of a new text by those of the parser, until it is compiled."""
        layers = self._layers.setdefault(document.uri, {})
        layers.pop("compile", None)
        before, self._parsed[document.uri] = self._parsed.get(document.uri), document
        text, found = self._checked.get(document.uri, ("", []))
        if text == document.text:
            layers["check"] = found
        elif before is not None and before is not document and "check" in layers:
            layers["check"] = moved(layers["check"], before, document)
        layers["parse"] = parse_diagnostics(document)
        if layers["parse"]:
            self._send(document.uri)

    def compiled(self, document: Document, found: Sequence[CompiledText]) -> None:
        """Store the compilers' diagnostics for a text as it stands."""
        shown = compile_diagnostics(document, found)
        for one in shown:
            self._pages.link(document, one)
        self._layers.setdefault(document.uri, {})["compile"] = shown
        self._send(document.uri)

    def checked(self, document: Document, found: "Sequence[Diagnostic]") -> None:
        """Store the diagnostics of a finished check, without those that compilers report too.

        Where the text was edited meanwhile they are moved along with it.
        """
        now = self._documents.get(document.uri)
        if now is None:
            return
        shown = [_diagnostic(document, one, []) for one in found if one.severity is not Severity.NOTE]
        for one in shown:
            self._pages.link(document, one)
        known = {(one.range.start.line, one.message) for one in self.of(document.uri, pulled=True)}
        new = [d for d in shown if (d.range.start.line, d.message) not in known]
        self._checked[document.uri] = document.text, new
        self.put(document.uri, "check", new if now.text == document.text else moved(new, document, now))

    def put(self, uri: str, layer: str, found: Sequence[types.Diagnostic]) -> None:
        """Replace the diagnostics of one source for a text; empty removes them."""
        layers = self._layers.setdefault(uri, {})
        if list(found) != layers.get(layer, []):
            layers[layer] = list(found)
            self._send(uri)

    def of(self, uri: str, *, pulled: bool | None = None) -> list[types.Diagnostic]:
        """Return the diagnostics of a text: of the layers that are pulled, of the others, or of all."""
        layers = self._layers.get(uri, {})
        return [d for name, found in layers.items() if pulled in (None, name in _PULLED) for d in found]

    def at(self, uri: str, position: types.Position) -> list[types.Diagnostic]:
        """Return the diagnostics at a position."""
        return [one for one in self.of(uri) if one.range.start <= position <= one.range.end]

    def wrong(self, uri: str) -> bool:
        """Return True if a text has errors other than regressions of its costs."""
        from kernel_lsp.rules.regression import RULES

        worse = {rule.id for rule in RULES}
        return any(d.severity is types.DiagnosticSeverity.Error and d.code not in worse for d in self.of(uri))

    def forget(self, uri: str) -> None:
        """Remove the diagnostics of a closed text."""
        self._parsed.pop(uri, None)
        self._checked.pop(uri, None)
        layers = self._layers.pop(uri, {})
        self._layers[uri] = {name: found for name, found in layers.items() if name.startswith("settings:")}
        self._send(uri)

    def _send(self, uri: str) -> None:
        found = self.of(uri, pulled=False if self._client.pulls_diagnostics else None)
        if found == self._sent.get(uri, []):
            return
        self._sent[uri] = found
        document = self._documents.get(uri)
        version = document.version if document is not None else None
        params = types.PublishDiagnosticsParams(uri, found, version)
        self._client.text_document_publish_diagnostics(params)


def parse_diagnostics(document: Document) -> list[types.Diagnostic]:
    """Return the diagnostics of the parser, and a hint on the line that marks a workload as a draft."""
    if document.is_too_large:
        return [types.Diagnostic(_EVERYWHERE, TOO_LARGE, types.DiagnosticSeverity.Information, source=SOURCE)]
    line = draft_line(document.text)
    drafts = [] if line is None else [_draft(document, line)]
    return drafts + [
        types.Diagnostic(
            document.range(finding.span),
            finding.message,
            types.DiagnosticSeverity.Error,
            code="syntax",
            source=SOURCE,
        )
        for finding in find_findings(document.text, document.path)
    ]


def _draft(document: Document, line: int) -> types.Diagnostic:
    extent = document.range_at(line, 1, line, 1 << 30)
    message = "A draft: nothing is checked with it yet. Read it, fix it, then use it: remove this line."
    return types.Diagnostic(extent, message, types.DiagnosticSeverity.Information, code=DRAFT_CODE, source=SOURCE)


def compile_diagnostics(document: Document, found: Iterable[CompiledText]) -> list[types.Diagnostic]:
    """Return compilers' messages about a text, each once for all its architectures. Notes are left out."""
    where: dict[Diagnostic, list[str]] = {}
    for compiled in found:
        for diagnostic in compiled.diagnostics:
            if diagnostic.severity is not Severity.NOTE:
                where.setdefault(diagnostic, []).append(compiled.arch)
    return [_diagnostic(document, diagnostic, architectures) for diagnostic, architectures in where.items()]


def _diagnostic(document: Document, found: "Diagnostic", architectures: list[str]) -> types.Diagnostic:
    """Return a finding; one of another file stands at the first kernel, leads there, and names its place first."""
    extent, message, related = _EVERYWHERE, found.message, None
    if found.path == str(document.path):
        extent = document.range_at(found.line, found.column, found.end_line, found.end_column)
    else:
        if document.kernels:
            extent = document.range(document.kernels[0].name_span)
        line = types.Range(types.Position(found.line - 1, 0), types.Position(found.line, 0))
        place = types.Location(uri_of(Path(found.path)), line)
        related = [types.DiagnosticRelatedInformation(place, found.message)]
        message = f"{Path(found.path).name}:{found.line}: {found.message}"
    return types.Diagnostic(
        extent,
        message,
        _SEVERITIES[found.severity],
        code=found.code or "compile",
        source=SOURCE,
        related_information=related,
        data={"architectures": [arch for arch in architectures if arch]},
    )
