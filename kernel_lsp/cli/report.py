"""`kernel-lsp report`: shows a recorded verdict and its evidence."""

from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from kernel_lsp.cli.console import opened_store, out, say_notices, settings_for
from kernel_lsp.cli.options import Json
from kernel_lsp.errors import ConfigurationError
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.chrome_trace import chrome_trace
from kernel_lsp.report.machine import records_json, verdict_json
from kernel_lsp.report.page import verdict_page
from kernel_lsp.report.sources import write_sources
from kernel_lsp.report.steps import search_steps
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.units import speedup_text
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def report(
    id: Annotated[str | None, typer.Argument(help="A verdict's id, or its beginning; none lists the latest.")] = None,  # noqa: A002
    sources: Annotated[
        Path | None, typer.Option(metavar="DIR", help="Write the kernel files that were judged to this folder.")
    ] = None,
    html: Annotated[bool, typer.Option("--html", help="Write the verdict as one page for a browser.")] = False,
    output: Annotated[
        Path | None, typer.Option("--output", "-o", help="The page's file; by default ID.html in this folder.")
    ] = None,
    trace: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Write where its time went, in Chrome's trace format: ui.perfetto.dev."),
    ] = None,
    json: Json = False,
) -> None:
    """Show a recorded verdict and the evidence it rests on, or write out the files that it was reached with."""
    if (html or output is not None) and id is None:
        raise typer.BadParameter("name the verdict that the page is to show", param_hint="--html")
    if sources is not None and id is None:
        raise typer.BadParameter("name the verdict whose files are to be written", param_hint="--sources")
    if trace is not None and id is None:
        raise typer.BadParameter("name the verdict whose trace is to be written", param_hint="--trace")
    with opened_store(settings_for()) as store:
        try:
            if id is None:
                _list(store, json)
            elif trace is not None:
                _write_text(trace, chrome_trace(_verdict(store, store.resolve(id))), "trace", "--trace")
            elif html or output is not None:
                _write_page(store, store.resolve(id), output)
            elif sources is None:
                _show(store, store.resolve(id), json)
            else:
                _write(store, store.resolve(id), sources, json)
        finally:
            say_notices(store)


def _show(store: Store, found: str, json: bool) -> None:
    verdict = _verdict(store, found)
    if json:
        typer.echo(verdict_json(verdict))
    else:
        out.print(VerdictCard(verdict, store.short_id(found)), crop=False)


def _write_page(store: Store, found: str, output: Path | None) -> None:
    name = store.short_id(found)
    page = verdict_page(_verdict(store, found), name, search_steps(store, found))
    _write_text(output or Path(f"{name}.html"), page, "page", "--output")


def _write_text(path: Path, text: str, what: str, option: str) -> None:
    try:
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        message = f"The {what} cannot be written: {error.strerror}."
        raise ConfigurationError(message, path, fix=f"Name another file with {option}.") from None
    typer.echo(path)


def _verdict(store: Store, found: str) -> Verdict:
    return Verdict.model_validate(store.find_verdict(found))


def _write(store: Store, found: str, folder: Path, json: bool) -> None:
    files = write_sources(_verdict(store, found).evidence, folder)
    typer.echo(records_json(files) if json else "\n".join(map(str, files)))


def _list(store: Store, json: bool) -> None:
    rows = store.list_verdicts()
    if json:
        typer.echo(records_json(rows))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for _ in ("id", "verdict", "speedup"):
        table.add_column(no_wrap=True)
    for _ in ("kernel", "label"):
        table.add_column(overflow="fold")
    for row in rows:
        speedup = "" if row.speedup is None else speedup_text(row.speedup)
        table.add_row(
            Text(store.short_id(row.id), "bold"), row.verdict, speedup, Text(row.kernel), Text(row.label, "dim")
        )
    out.print(table if rows else "No verdict was recorded yet: run `kernel-lsp judge` or `kernel-lsp refine` first.")
