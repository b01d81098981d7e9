"""Renders the parts of a view as HTML elements."""

from collections.abc import Iterator, Sequence
from itertools import groupby

from kernel_lsp.report.page.elements import Markup, tag
from kernel_lsp.report.view.parts import (
    Cell,
    Code,
    CodeKind,
    Column,
    FactList,
    Head,
    More,
    Paragraph,
    Part,
    ReportSection,
    Table,
    View,
)
from kernel_lsp.report.view.plots import Plot


def head_element(head: Head, buttons: Sequence[tuple[str, str]] = ()) -> Markup:
    """Return the answer; `buttons` are titles, each with its request to the editor that shows the page."""
    answer = [tag("span", head.answer, class_=f"verdict {head.tone}")]
    answer += [tag("span", head.figure, class_="figure")] if head.figure else []
    answer += [tag("span", head.certainty, class_="quiet")] if head.certainty else []
    return tag(
        "header",
        tag("h1", head.title),
        tag("div", *answer, class_="answer"),
        tag("p", head.reason) if head.reason else None,
        tag("p", " · ".join(head.about), class_="quiet") if head.about else None,
        tag("p", *(_button(title, asks) for title, asks in buttons), class_="buttons") if buttons else None,
    )


def section_element(section: ReportSection, *, for_editor: bool = False) -> Markup:
    """Return a section with its heading; `for_editor` adds the buttons that an editor answers."""
    heading = tag("h2", section.title) if section.title else None
    return tag("section", heading, *_elements(section.parts, for_editor), id=section.name)


def plots_of(view: View) -> list[Plot]:
    """Return the plots of a view, in order."""
    return [part for section in view.sections for part in section.parts if isinstance(part, Plot)]


def _elements(parts: Sequence[Part], for_editor: bool) -> Iterator[Markup]:
    """Yield each part as an element; consecutive plots stand side by side if there is room."""
    for are_plots, run in groupby(parts, lambda part: isinstance(part, Plot)):
        elements = [_element(part, for_editor) for part in run]
        if are_plots and len(elements) > 1:
            yield tag("div", *elements, class_="pair")
        else:
            yield from elements


def _element(part: Part, for_editor: bool) -> Markup:
    match part:
        case Paragraph():
            return tag("p", part.text)
        case FactList():
            shown = [(name, items) for name, items in part.rows if items]
            return tag(
                "dl", *(each for name, items in shown for each in (tag("dt", name), tag("dd", " · ".join(items))))
            )
        case Table():
            return _table(part)
        case Code():
            return _code(part, for_editor)
        case More():
            inner = _elements(part.parts, for_editor)
            return tag("details", tag("summary", part.title), *inner, open="open" if part.shown else None)
        case Plot():
            place = tag("div", id=f"plot-{part.name}", class_="plot", role="img", aria_label=part.caption)
            return tag("figure", place, tag("figcaption", part.caption))


def _table(table: Table) -> Markup:
    """Return a table whose first column names its rows; it scrolls by itself if it is too wide."""

    def kind(column: Column) -> str | None:
        return "number" if column.figure else None

    body = [
        tag(
            "tr",
            tag("th", *_cell(row[0]), scope="row"),
            *(
                tag("td", *_cell(cell), class_=kind(column))
                for cell, column in zip(row[1:], table.columns[1:], strict=True)
            ),
        )
        for row in table.rows
    ]
    top = tag("tr", *(tag("th", column.title, scope="col", class_=kind(column)) for column in table.columns))
    said = tag("caption", table.caption) if table.caption else None
    label = table.caption or ", ".join(column.title for column in table.columns)
    inner = tag("table", said, tag("thead", top), tag("tbody", *body))
    return tag("div", inner, class_="scroll", role="region", tabindex="0", aria_label=label)


def _cell(cell: Cell) -> Iterator[str | Markup]:
    if isinstance(cell, str):
        yield cell
        return
    for number, span in enumerate(cell):
        yield " " if number else ""
        yield tag("span", span.text, class_=span.tone)


def _code(code: Code, for_editor: bool) -> Markup:
    if code.kind is CodeKind.DIFF:
        return tag("pre", *(_diff_line(line) for line in code.text.splitlines(keepends=True)), tabindex="0")
    text = tag("pre", code.text, tabindex="0")
    if code.kind is CodeKind.COMMANDS and for_editor:
        return tag("div", text, tag("p", _button("Copy", "copy"), class_="buttons"))
    return text


def _diff_line(line: str) -> Markup | str:
    kind = "quiet" if line.startswith(("+++", "---", "@@")) else {"+": "good", "-": "bad"}.get(line[:1])
    return tag("span", line, class_=kind) if kind else line


def _button(title: str, asks: str) -> Markup:
    return tag("button", title, type="button", data_asks=asks)
