"""Renders a view in a terminal: the answer, then the short form of its evidence, then how to repeat it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, Group, RenderableType, RenderResult
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.report.compile import kernel_table
from kernel_lsp.report.view.parts import (
    Cell,
    Code,
    CodeKind,
    FactList,
    Head,
    More,
    Paragraph,
    Part,
    ReportSection,
    Table,
    Tone,
)
from kernel_lsp.report.view.plots import Plot
from kernel_lsp.report.view.verdict import verdict_head, verdict_view
from kernel_lsp.report.view.words import tone_of

WIDE = 110
"""Width of a terminal, in columns, from which tables also show their wide columns."""

LOG_LINES = 20
"""Lines of a log that are shown; the JSON has all."""

_STYLES = {
    Tone.GOOD: "bold green",
    Tone.PLAIN: "bold cyan",
    Tone.DOUBT: "bold yellow",
    Tone.BAD: "bold red",
    Tone.QUIET: "dim",
}
_SPANS = {Tone.GOOD: "green", Tone.PLAIN: "", Tone.DOUBT: "yellow", Tone.BAD: "bold red", Tone.QUIET: "dim"}


def verdict_style(outcome: Outcome) -> str:
    """The style in which an outcome is written."""
    return _STYLES[tone_of(outcome)]


@dataclass(frozen=True)
class VerdictCard:
    """A rich renderable; fits itself to the width it is given, but for commands: print it with `crop=False`.

    Attributes:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
    """

    verdict: Verdict
    name: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        """Yield the head and the sections of the short form, one empty line after each."""
        view = verdict_view(self.verdict, self.name)
        yield _head(view.head)
        yield Text()
        for section in view.sections:
            shown = list(_section(section, options.max_width))
            if shown:
                yield from shown
                yield Text()


def head_view(verdict: Verdict, name: str, title: str) -> RenderableType:
    """Return the answer and its reason under `title`; `name` is the id for `kernel-lsp report`."""
    return _head(verdict_head(verdict, name, title))


def _head(head: Head) -> RenderableType:
    line = Text(f" {head.answer} ", _STYLES[head.tone] + " reverse")
    if head.figure:
        line.append(" ").append(head.figure, "bold not reverse")
    if head.certainty:
        line.append(f" ({head.certainty})", "not reverse")
    return Group(Text(head.title, "bold"), line, Text(head.reason), Text(" · ".join(head.about), "dim"))


def _section(section: ReportSection, width: int) -> Iterator[RenderableType]:
    """Yield the heading and the parts; nothing if the short form has none of them."""
    shown = [view for part in section.parts for view in _part(part, width)] if section.brief else []
    if shown and section.title:
        yield Text(section.title, "bold")
    yield from shown


def _part(part: Part, width: int) -> Iterator[RenderableType]:
    match part:
        case Paragraph():
            yield Padding(Text(part.text), (0, 0, 0, 2))
        case FactList():
            yield Padding(_facts(part, width - 2), (0, 0, 0, 2))
        case Table():
            yield Padding(_table(part, width), (0, 0, 0, 0 if part.long_names else 2))
        case Code():
            yield _code(part)
        case More():
            if part.shown:
                yield Text(part.title, "bold")
                yield from (view for inner in part.parts for view in _part(inner, width))
        case Plot():  # the tables say the same
            return


def _table(table: Table, width: int) -> RenderableType:
    shown = [number for number, column in enumerate(table.columns) if width >= WIDE or not column.wide]
    columns = [table.columns[number] for number in shown]
    if table.long_names:
        rows = [[_text(row[number]).plain for number in shown] for row in table.rows]
        return kernel_table([column.title for column in columns[1:]], [(row[0], [row[1:]]) for row in rows])
    grid = RichTable(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="dim", show_edge=False)
    for number, column in enumerate(columns):
        # What stands last, and names, may take several lines; a figure is never broken.
        grid.add_column(
            column.title,
            justify="right" if column.figure else "left",
            no_wrap=column.figure or 0 < number < len(columns) - 1,
            overflow="fold",
        )
    for row in table.rows:
        grid.add_row(*(_text(row[number]) for number in shown))
    return grid


def _text(cell: Cell) -> Text:
    if isinstance(cell, str):
        return Text(cell)
    return Text("  ").join(Text(span.text, _SPANS[span.tone]) for span in cell if span.text)


def _facts(facts: FactList, width: int) -> RichTable:
    """Return names beside their items, in lines that break between two items."""
    grid = RichTable.grid(padding=(0, 2, 0, 0), pad_edge=False)
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    room = width - max((len(name) for name, _ in facts.rows), default=0) - 2
    for name, items in facts.rows:
        if items:
            grid.add_row(name, Text(_filled(items, room)))
    return grid


def _filled(items: Sequence[str], width: int) -> str:
    lines: list[str] = []
    for item in items:
        if lines and len(lines[-1]) + len(" · ") + len(item) <= width:
            lines[-1] += f" · {item}"
        else:
            lines.append(item)
    return "\n".join(lines)


def _code(code: Code) -> RenderableType:
    lines = code.text.splitlines()
    if code.kind is CodeKind.COMMANDS:  # never broken into lines, so that they can be copied
        return Group(*(Text(f"  {line}", no_wrap=True, overflow="ignore") for line in lines))
    more = [f"... and {len(lines) - LOG_LINES} more lines (--json has them all)"] if len(lines) > LOG_LINES else []
    return Padding(Text("\n".join(lines[:LOG_LINES] + more), "dim"), (0, 0, 0, 2))
