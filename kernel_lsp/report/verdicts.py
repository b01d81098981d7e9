"""Several verdicts beside one baseline: one after another in short, then all of them in a table."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.judge.several import Judged
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.problem import problem_view
from kernel_lsp.report.terminal import head_view, verdict_style
from kernel_lsp.report.units import interval_text, speedup_text

_NOT_JUDGED = "not judged"


def judged_view(judged: Judged, name: str) -> RenderableType:
    """Return the result for one candidate; `name` is the id of its verdict for `kernel-lsp report`."""
    if judged.verdict is not None:
        return Group(head_view(judged.verdict, name, str(judged.path)), Text())
    assert judged.problem is not None, "there is either a verdict or a problem"
    return Group(Text(str(judged.path), "bold"), problem_view(judged.problem), Text())


def verdicts_table(every: Sequence[Judged], names: Mapping[str, str]) -> Table:
    """A line for each candidate, in the order given; `names` are short ids by those of the verdicts.

    Where there are several workloads, each line names its own.
    """
    several = len({judged.workload for judged in every}) > 1
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("Candidate", overflow="fold")
    if several:
        table.add_column("Workload", overflow="fold")
    table.add_column("Verdict", no_wrap=True)
    for title in ("Speedup", "95 % CI", "Evidence"):
        table.add_column(title, justify="right", no_wrap=True)
    for judged in every:
        verdict = judged.verdict
        named = [Text(str(judged.path)), *([Text(judged.workload.stem)] if several else [])]
        if verdict is None:
            table.add_row(*named, Text(_NOT_JUDGED, "bold red"))
            continue
        table.add_row(
            *named,
            Text(verdict.verdict, verdict_style(verdict.verdict)),
            "" if verdict.speedup is None else speedup_text(verdict.speedup),
            "" if verdict.interval is None else interval_text(verdict.interval),
            names[verdict.id],
        )
    return table


def verdicts_json(every: Sequence[Judged]) -> str:
    """One object: in `candidates` each with its `path`, `workload` and `verdict`, or the `problem` that prevented one.

    A verdict is that which `judge` prints for a single candidate.
    """
    return records_json(
        {
            "candidates": [
                {
                    "path": judged.path,
                    "workload": judged.workload,
                    "verdict": judged.verdict,
                    "problem": None if judged.problem is None else str(judged.problem),
                }
                for judged in every
            ]
        }
    )
