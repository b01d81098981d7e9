"""A verdict for an editor, as a page of Markdown with all that it rests on."""

import io
from pathlib import Path

from rich.console import Console

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.diff import unified_diff
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.titles import speedup_title

_COLUMNS = 100


def evidence_markdown(verdict: Verdict, name: str) -> str:
    """The verdict's card as `kernel-lsp report` shows it, and what the candidate changes, as a page.

    Args:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
    """
    evidence = verdict.evidence
    shown = io.StringIO()
    Console(file=shown, width=_COLUMNS, color_system=None, highlight=False).print(
        VerdictCard(verdict, name), crop=False
    )
    card = "\n".join(line.rstrip() for line in shown.getvalue().splitlines())
    pairs = [(evidence.kernel_path, evidence.sources["baseline"], evidence.sources["candidate"])]
    if "candidate_launch" in evidence.sources:
        pairs.append((evidence.workload_path, evidence.sources["workload"], evidence.sources["candidate_launch"]))
    diff = "".join(unified_diff(Path(Path(path).name), before, after) for path, before, after in pairs)
    title = f"# {evidence.candidate_label}: {speedup_title(verdict)}"
    return f"{title}\n\n{verdict.reason}\n\n```text\n{card.strip()}\n```\n\n## The change\n\n```diff\n{diff}```\n"
