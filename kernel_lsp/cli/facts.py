"""`kernel-lsp facts`: shows registers, memory, occupancy and machine code of a file's kernels, without a GPU."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer

from kernel_lsp.check import find_kernel_files
from kernel_lsp.cli.console import err, out, settings_for
from kernel_lsp.cli.main import FINDINGS
from kernel_lsp.cli.options import Json, Workload
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.headers.project import guessed_folders
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.facts import (
    ArchFacts,
    KernelMachineCode,
    facts_of_all,
    left_by_errors,
    machine_code,
    open_builder,
    workload_paths,
)
from kernel_lsp.report.compile import (
    diagnostics_view,
    facts_view,
    guessed_folders_view,
    left_by_errors_view,
    tensor_memory_view,
    without_workload_view,
)
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.sass import sass_record, sass_view
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import cuda_part
from kernel_lsp.source.python import is_python

app = typer.Typer(add_completion=False)


@app.command()
def facts(
    file: Annotated[Path, typer.Argument(help="A kernel file.")],
    arch: Annotated[str | None, typer.Option(help="Architectures, such as sm_80,sm_90.")] = None,
    sass: Annotated[bool, typer.Option("--sass", help="Also show source and machine code interleaved.")] = False,
    workload: Workload = None,
    json: Json = False,
) -> None:
    """Show what the compiler makes of each kernel that the workload launches. Needs no GPU."""
    if file.is_dir():
        raise SourceError("This is a folder; facts are shown of one file.", file, fix="Name a kernel file in it.")
    settings = settings_for(file, arch=arch)
    source = find_kernel_files([file])[0]
    with err.status("compiling"):
        found, codes = asyncio.run(_compile(source, settings, workload, sass))
    if not any(one.ok or one.diagnostics or one.assumed for one in found) and is_python(source.path):
        message = "Its CUDA text is computed, so no kernel of it can be read without running the file."
        fix = "Make the text of plain string constants; `kernel-lsp check` runs the file and takes any."
        raise SourceError(message, source.path, fix=fix)
    if json:
        machine = {"facts": found, "machine_code": [sass_record(code, source.path) for code in codes]}
        typer.echo(records_json(machine if sass else found))
    else:
        said = dict.fromkeys(d for d in _said_of(found) if d.severity is not Severity.NOTE)
        if said:
            err.print(diagnostics_view(list(said), {str(source.path): source.text}))
        if kernels := [(one.arch, kernel) for one in found for kernel in one.kernels]:
            out.print(facts_view(kernels), crop=False)
            if any(kernel.tensor_columns != 0 for _, kernel in kernels):
                out.print(tensor_memory_view(kernels), soft_wrap=True)
        if any(one.assumed for one in found):
            out.print(without_workload_view(found[0].assumed, str(source.path)), crop=False)
        if left := left_by_errors(source, found):
            out.print(left_by_errors_view(left), soft_wrap=True)
        alone = workload_paths(source, workload, settings) == [None]
        if folders := guessed_folders(cuda_part(source), settings.build.include_dirs, anywhere=alone):
            out.print(guessed_folders_view(folders), soft_wrap=True)
        for code in codes:
            out.print()
            out.print(sass_view(code, source.path, source.text), soft_wrap=True)
    if any(d.severity is Severity.ERROR for d in _said_of(found)) or not all(one.ok or one.assumed for one in found):
        raise typer.Exit(FINDINGS)


def _said_of(found: Sequence[ArchFacts]) -> list[Diagnostic]:
    """Return the diagnostics of all builds."""
    return [diagnostic for one in found for diagnostic in one.diagnostics]


async def _compile(
    source: SourceFile, settings: Settings, workload: Path | None, sass: bool
) -> tuple[list[ArchFacts], list[KernelMachineCode]]:
    """Return the facts for each architecture, of all workloads together, and the machine code if `sass` is set."""
    async with open_builder() as builder:
        builds = [await builder(source, settings, path) for path in workload_paths(source, workload, settings)]
    found = facts_of_all(builds)
    every = [one for built in builds for one in built.values()]
    read = (asyncio.to_thread(machine_code, one, settings) for one in every) if sass else ()
    codes = [code for codes in await asyncio.gather(*read) for code in codes]
    return found, list({(code.arch, code.name): code for code in codes}.values())
