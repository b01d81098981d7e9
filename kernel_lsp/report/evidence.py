"""A verdict for an editor, as a page of Markdown with all that it rests on."""

import io

from rich.console import Console

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.titles import speedup_title
from kernel_lsp.report.view.verdict import change_of

_COLUMNS = 100


def evidence_markdown(verdict: Verdict, name: str) -> str:
    """The verdict's card as `kernel-lsp report` shows it, and what the candidate changes, as a page.

    Args:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
    """
    shown = io.StringIO()
    Console(file=shown, width=_COLUMNS, color_system=None, highlight=False).print(
        VerdictCard(verdict, name), crop=False
    )
    card = "\n".join(line.rstrip() for line in shown.getvalue().splitlines())
    change = change_of(verdict.evidence)
    return (
        f"# {evidence_title(verdict)}\n\n{verdict.reason}\n\n```text\n{card.strip()}\n```\n\n"
        f"## The change\n\n```diff\n{change}```\n"
    )


def evidence_title(verdict: Verdict) -> str:
    """Return the label of the change, and the verdict, in one line."""
    return f"{verdict.evidence.candidate_label}: {speedup_title(verdict)}"
