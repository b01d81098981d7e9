"""Hover: a kernel's head, facts and last verdict, or the machine code of a line; and the rules of findings there."""

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.compiled import facts_of
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.rule_pages import rules_of
from kernel_lsp.report.units import percent_text, size_text, speedup_text
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.language import source_part
from kernel_lsp.source.text import Span

_SHOWN = 24  # most instructions shown


class Hover:
    """Answers from known results; nothing is compiled or read."""

    def __init__(self, documents: Documents, analysis: Analysis, results: StoredVerdicts, board: Board) -> None:
        self._documents, self._analysis, self._results, self._board = documents, analysis, results, board

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Return the hover text for a position, None if there is none."""
        document = self._documents.read(params.text_document.uri)
        at = document.offset(params.position)
        kernel = next((k for k in document.kernels if k.name_span.start <= at <= k.name_span.end), None)
        parts, span = (
            self._of_kernel(document, kernel) if kernel else self._machine_code(document, params.position.line)
        )
        parts += [rule.page for rule in rules_of(self._board.at(document.uri, params.position))]
        if not parts:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(parts))
        return types.Hover(content, document.range(span) if span else None)

    def _of_kernel(self, document: Document, kernel: Kernel) -> tuple[list[str], Span | None]:
        language = source_part(kernel.language)
        parts = [f"```{language.highlighted_as}\n{language.head(kernel)}\n```"]
        rows = [
            f"| {arch} | {fact.registers} | {size_text(fact.shared_bytes)} | "
            f"{'?' if fact.spill_bytes is None else size_text(fact.spill_bytes)} | "
            f"{'?' if fact.occupancy is None else percent_text(fact.occupancy)} | {fact.limiter or ''} |"
            for arch, fact in facts_of(self._analysis.of(document), kernel)
        ]
        if rows:
            head = "| arch | registers | shared memory | spills | occupancy | limit |"
            parts.append("\n".join([head, "| --- | --: | --: | --: | --: | --- |", *rows]))
        if (standing := self._results.latest(document)) is not None:
            if standing.measured is not None:
                parts.append(f"As it stands: {standing.measured}.")
            if (last := standing.last) is not None:
                on = f" on {last.device}" if last.device else ""
                speedup = f", {speedup_text(last.speedup)}" if last.speedup is not None else ""
                parts.append(f"Last verdict: {last.verdict}{speedup}{on}, on {last.label}.")
        return parts, kernel.name_span

    def _machine_code(self, document: Document, line: int) -> tuple[list[str], Span | None]:
        """Return the instructions of a line: those of the kernel with most of them, as templates make several."""
        found = self._analysis.lines(document).get(line + 1)
        if not found:
            return [], None
        shown = max(found, key=lambda one: len(one.code))
        others = len(found) - 1
        parts = [
            f"{len(shown.code)} instructions on {shown.arch}",
            f"at most {shown.live} registers live",
            f"`{shown.kernel}`",
        ]
        head = ", ".join(parts) + (f" and {others} other kernel{'s' if others > 1 else ''}" if others else "")
        listed = shown.code[:_SHOWN]
        if len(listed) < len(shown.code):
            listed = (*listed, f"... and {len(shown.code) - len(listed)} more")
        text = "\n".join((head, "", "```", *listed, "```"))
        start, end = (document.lines.offset(line + 1, column) for column in (1, 1 << 30))
        return [text], Span(start, end)
