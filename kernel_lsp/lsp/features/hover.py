"""Hover: a kernel's facts, last verdict, captured calls and profile, or what a line became.

The rules of findings there come first.
"""

from collections import Counter

from lsprotocol import types

from kernel_lsp.compiler.machine_code.opcodes import role_of
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.compiled import MachineLine, facts_of
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.profiles import Profiles
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.rule_pages import rules_of
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.report.captured_calls import calls_page, of_kernel
from kernel_lsp.report.units import percent_text, size_text, speedup_text
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Span

_SHOWN = 24  # most instructions shown


class Hover:
    """Answers from known results; nothing is compiled or read."""

    def __init__(
        self,
        client: EditorConnection,
        documents: Documents,
        settings: ClientSettings,
        analysis: Analysis,
        results: StoredVerdicts,
        board: Board,
        profiles: Profiles,
    ) -> None:
        self._client, self._documents, self._settings = client, documents, settings
        self._analysis, self._results, self._board = analysis, results, board
        self._profiles = profiles

    def hover(self, params: types.HoverParams) -> types.Hover | None:
        """Return the hover text for a position, None if there is none."""
        document = self._documents.read(params.text_document.uri)
        at = document.offset(params.position)
        kernel = next((k for k in document.kernels if k.name_span.start <= at <= k.name_span.end), None)
        parts = [rule.page for rule in rules_of(self._board.at(document.uri, params.position))]
        found, span = self._of_kernel(document, kernel) if kernel else self._machine_code(document, params.position)
        parts += found
        if not parts:
            return None
        content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(parts))
        return types.Hover(content, document.range(span) if span else None)

    def _of_kernel(self, document: Document, kernel: Kernel) -> tuple[list[str], Span | None]:
        parts: list[str] = []
        rows = [
            f"| {arch} | {fact.registers} | {size_text(fact.shared_bytes)} | "
            f"{'?' if fact.spill_bytes is None else size_text(fact.spill_bytes)} | "
            f"{'needs a launch' if fact.occupancy is None else percent_text(fact.occupancy)} | {fact.limiter or ''} |"
            for arch, fact in facts_of(self._analysis.of(document), kernel)
        ]
        if rows:
            head = "| arch | registers | shared memory | spills | occupancy | limit |"
            parts.append("\n".join([head, "| --- | --: | --: | --: | --: | --- |", *rows]))
        if (status := self._results.latest(document)) is not None:
            if status.measured is not None:
                parts.append(f"As it stands: {status.measured}.")
            if (last := status.last) is not None:
                on = f" on {last.device}" if last.device else ""
                speedup = f", {speedup_text(last.speedup)}" if last.speedup is not None else ""
                parts.append(f"Last verdict: {last.verdict}{speedup}{on}, on {last.label}.")
            programs = of_kernel(status.captures, kernel.name).items()
            parts += [calls_page(program, captures, document.text) for program, captures in programs]
        counted = [one for one in self._profiles.of(document) if one.name == kernel.name]
        return [*parts, *(one.table for one in counted)], kernel.name_span

    def _machine_code(self, document: Document, at: types.Position) -> tuple[list[str], Span | None]:
        """Return what became of a line in the kernel with most instructions of it, as templates make several."""
        shows = self._settings.at(document.path).editor.machine_code_hover
        found = self._analysis.lines(document).get(at.line + 1)
        if not found or shows == "off":
            return [], None
        shown = max(found, key=lambda one: len(one.code))
        start, end = (document.lines.offset(at.line + 1, column) for column in (1, 1 << 30))
        text = _summary(shown) if shows == "summary" else _listing(shown, len(found) - 1)
        if shows == "summary" and self._client.wants_job_progress:  # that is our extension, which has this command
            text += " - [Show machine code](command:kernelLsp.machineCode)"
        return [text], Span(start, end)


def _summary(line: MachineLine) -> str:
    """Return `13 instructions on sm_90, 3 of global memory, 17 registers live`."""
    roles = Counter(role for one in line.code if (role := role_of(_opcode(one))) is not None)
    uses = [f"{count} of {role}" for role, count in roles.most_common()]
    count = len(line.code)
    parts = [f"{count} instruction{'' if count == 1 else 's'} on {line.arch}", *uses, f"{line.live} registers live"]
    return ", ".join(parts)


def _opcode(printed: str) -> str:
    return next(word for word in printed.split() if not word.startswith("@"))


def _listing(line: MachineLine, others: int) -> str:
    parts = [
        f"{len(line.code)} instructions on {line.arch}",
        f"at most {line.live} registers live",
        f"`{line.kernel}`",
    ]
    head = ", ".join(parts) + (f" and {others} other kernel{'s' if others > 1 else ''}" if others else "")
    listed = line.code[:_SHOWN]
    if len(listed) < len(line.code):
        listed = (*listed, f"... and {len(line.code) - len(listed)} more")
    return "\n".join((head, "", "```", *listed, "```"))
