"""`kernel-lsp facts`: registers, memory and occupancy of a file's kernels, from the compiler alone."""

import asyncio
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.build.binary import Severity
from kernel_lsp.cli.console import Json, Workload, err, out, settings_for
from kernel_lsp.cli.main import FINDINGS
from kernel_lsp.judge.check import find_kernel_files
from kernel_lsp.judge.facts import compile_facts
from kernel_lsp.report.compile import diagnostics_view, facts_view
from kernel_lsp.report.machine import records_json

app = typer.Typer(add_completion=False)


@app.command()
def facts(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    arch: Annotated[str | None, typer.Option(help="Architectures, such as sm_80,sm_90.")] = None,
    workload: Workload = None,
    json: Json = False,
) -> None:
    """Show what the compiler makes of each kernel that the workload launches. Needs no GPU."""
    settings = settings_for(file, arch=arch)
    source = find_kernel_files([file])[0]
    with err.status("compiling"):
        found = asyncio.run(compile_facts(source, settings, workload))
    if json:
        typer.echo(records_json(found))
    else:
        said = dict.fromkeys(d for one in found for d in one.diagnostics if d.severity is not Severity.NOTE)
        if said:
            err.print(diagnostics_view(list(said), {str(source.path): source.text}))
        if any(one.kernels for one in found):
            out.print(facts_view((one.arch, kernel) for one in found for kernel in one.kernels))
    if not all(one.ok for one in found):
        raise typer.Exit(FINDINGS)
