"""`kernel-lsp check --strength`: plants bugs, and says which of them workloads catch."""

import asyncio
from pathlib import Path

import typer

from kernel_lsp.cli.console import err, opened_store, out, say_notices
from kernel_lsp.cli.main import FINDINGS
from kernel_lsp.config.settings import Settings
from kernel_lsp.mutation_testing import FileStrength, measure_strength
from kernel_lsp.report.strength import strength_json, strength_summary, strength_view
from kernel_lsp.source.candidate import SourceFile


def show_strength(
    sources: tuple[SourceFile, ...], settings: Settings, workload: Path | None, *, verbose: bool, json: bool
) -> None:
    """Show the strength of the workloads of these files.

    Raises:
        typer.Exit: with FINDINGS where one could not be measured.
    """

    def show(report: FileStrength) -> None:
        if not json:
            out.print(strength_view(report, every=verbose))

    with opened_store(settings) as store, err.status(f"planting bugs in {len(sources)} files"):
        reports = asyncio.run(measure_strength(sources, settings, show, store=store, workload=workload))
        say_notices(store)
    if json:
        typer.echo(strength_json(reports))
    else:
        out.print(strength_summary(reports))
    if any(report.problem for report in reports):
        raise typer.Exit(FINDINGS)
