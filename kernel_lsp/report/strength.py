"""How much a green check of a kernel means: the bugs planted in it, and which of them its workload saw."""

from collections.abc import Sequence
from dataclasses import fields

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.mutation_testing import Fate, FileStrength, Mutant
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.units import percent_text, seconds_text
from kernel_lsp.workload.spec import workload_path

_STYLES = {
    Fate.CAUGHT: "green",
    Fate.SURVIVED: "bold red",
    Fate.SAME_CODE: "dim",
    Fate.NOT_BUILT: "dim",
    Fate.UNKNOWN: "yellow",
}


def strength_view(report: FileStrength, *, every: bool = False) -> RenderableType:
    """Return the score of one file and the bugs that survived; with `every` the result of each bug."""
    head = Text.assemble((str(report.path), "bold"), "  ")
    if report.workload is not None and report.workload not in (report.path, workload_path(report.path)):
        head.append(f"with {report.workload}  ")
    if report.problem:
        return head.append(f"nothing was planted: {report.problem}", "yellow")
    caught, survived = len(report.of(Fate.CAUGHT)), len(report.of(Fate.SURVIVED))
    if report.score is not None:
        head.append(f"{percent_text(report.score)}", "bold green" if not survived else "bold yellow")
    head.append(f"  {caught} of {caught + survived} planted bugs caught")
    left_out = [f"{len(report.of(fate))} {words}" for fate, words in _LEFT_OUT.items() if report.of(fate)]
    head.append(f" ({', '.join(left_out)})" if left_out else "", "dim")
    head.append("  as before" if report.remembered else f"  {seconds_text(report.seconds)}", "dim")
    shown = [mutant for mutant in report.mutants if every or mutant.fate in (Fate.SURVIVED, Fate.UNKNOWN)]
    parts: list[RenderableType] = [head]
    if shown:
        parts.append(_table(shown))
    parts += [Text(f"  To catch more: {advice}.", "cyan") for advice in report.advice]
    return Group(*parts)


_LEFT_OUT = {
    Fate.SAME_CODE: "make no difference to the machine",
    Fate.NOT_BUILT: "do not compile",
    Fate.UNKNOWN: "could not be judged",
}


def strength_summary(reports: Sequence[FileStrength]) -> Text:
    """One line for all files."""
    caught = sum(len(report.of(Fate.CAUGHT)) for report in reports)
    counted = caught + sum(len(report.of(Fate.SURVIVED)) for report in reports)
    if not counted:
        return Text("No bug could be planted.")
    count = len({report.path for report in reports})
    files = f"{count} file{'s' if count != 1 else ''}"
    files += f" with {len(reports)} workloads" if len(reports) > count else ""
    devices = ", ".join(sorted({report.device for report in reports if report.mutants}))
    line = Text(f"{files}, on {devices}: {caught} of {counted} planted bugs caught, ")
    return line.append(f"{caught / counted:.1%}", "bold")


def _table(mutants: Sequence[Mutant]) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0), pad_edge=False)
    table.add_column(justify="right", style="dim", min_width=6)
    table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=3)
    table.add_column(overflow="fold", ratio=3, style="dim")
    for mutant in mutants:
        fate = Text(mutant.fate.value.upper() if mutant.fate is Fate.SURVIVED else mutant.fate, _STYLES[mutant.fate])
        change = Text.assemble(mutant.bug, ": ", mutant.what)
        why = f"{mutant.by}: {mutant.reason}" if mutant.by else mutant.reason
        table.add_row(str(mutant.line), fate, change, Text(why))
    return table


def strength_json(reports: Sequence[FileStrength]) -> str:
    """One object: in `files` each report with its `score`, and `caught` and `counted` over all of them."""
    files = [{"score": one.score} | {each.name: getattr(one, each.name) for each in fields(one)} for one in reports]
    caught = sum(len(report.of(Fate.CAUGHT)) for report in reports)
    counted = caught + sum(len(report.of(Fate.SURVIVED)) for report in reports)
    return records_json({"caught": caught, "counted": counted, "files": files})
