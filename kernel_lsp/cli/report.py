"""`kernel-lsp report`: a recorded verdict and its evidence."""

from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from kernel_lsp.cli.console import Json, opened_store, out, say_notices, settings_for
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.machine import records_json, verdict_json
from kernel_lsp.report.terminal import VerdictCard
from kernel_lsp.report.units import speedup_text
from kernel_lsp.store.store import Store

app = typer.Typer(add_completion=False)


@app.command()
def report(
    id: Annotated[str | None, typer.Argument(help="A verdict's id, or its beginning; none lists the latest.")] = None,  # noqa: A002
    json: Json = False,
) -> None:
    """Show a recorded verdict and the evidence it rests on."""
    with opened_store(settings_for()) as store:
        try:
            if id is None:
                _list(store, json)
            else:
                _show(store, store.resolve(id), json)
        finally:
            say_notices(store)


def _show(store: Store, found: str, json: bool) -> None:
    verdict = Verdict.model_validate(store.find_verdict(found))
    if json:
        typer.echo(verdict_json(verdict))
    else:
        out.print(VerdictCard(verdict, store.short_id(found)))


def _list(store: Store, json: bool) -> None:
    rows = store.list_verdicts()
    if json:
        typer.echo(records_json(rows))
        return
    table = Table.grid(padding=(0, 2, 0, 0))
    for row in rows:
        speedup = "" if row.speedup is None else speedup_text(row.speedup)
        table.add_row(
            Text(store.short_id(row.id), "bold"), row.verdict, speedup, Text(row.kernel), Text(row.label, "dim")
        )
    out.print(table if rows else "No verdict was recorded yet: run `kernel-lsp judge` or `kernel-lsp refine` first.")
