"""Shows the result of compiling a kernel: the compiler's messages in the source, and the resources of each kernel."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.machine_code.occupancy import Cliff, Lever
from kernel_lsp.compiler.ptx.tensor_memory import COLUMNS
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.report.units import percent_text, size_text

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def diagnostics_view(diagnostics: Sequence[Diagnostic], texts: Mapping[str, str]) -> RenderableType:
    """Each message as `FILE:LINE:COLUMN: severity: message`, with the line and a mark under the place.

    Args:
        diagnostics: in the order to be shown.
        texts: the source of each file by its path; a file that is not there is shown without its line.
    """
    return Group(*(part for diagnostic in diagnostics for part in _diagnostic(diagnostic, texts)))


def facts_view(facts: Iterable[tuple[str, KernelResources]]) -> RenderableType:
    """Return each kernel's name over one line per architecture; `facts` are pairs of architecture and resources.

    The best way to raise the occupancy, if there is one, is at the end of its line, which may be wider than the
    terminal: print it uncropped.
    """
    by_name: dict[str, list[tuple[str, ...]]] = {}
    for arch, kernel in facts:
        by_name.setdefault(kernel.name, []).append((arch, *_figures(kernel)))
    titles = ("Arch", "Registers", "Spills", "Stack", "Shared", "Threads", "Occupancy", "Limit", "Higher with")
    if not any(row[-1] for rows in by_name.values() for row in rows):
        titles = titles[:-1]
    kernels = [(name, [row[: len(titles)] for row in rows]) for name, rows in by_name.items()]
    return kernel_table(titles, kernels, left=("Arch", "Limit", "Higher with"))


def tensor_memory_view(facts: Iterable[tuple[str, KernelResources]]) -> RenderableType:
    """Return a line for each kernel that allocates tensor memory: how many columns, and how many blocks have room."""
    lines: list[Text] = []
    for arch, kernel in facts:
        if kernel.tensor_columns is None:
            lines.append(Text(f"  {kernel.name}, {arch}: allocates tensor memory, how many columns is not known"))
        elif kernel.tensor_blocks is not None:
            columns = f"{kernel.tensor_columns} of {COLUMNS} columns of tensor memory"
            blocks = "1 block" if kernel.tensor_blocks == 1 else f"{kernel.tensor_blocks} blocks"
            lines.append(Text(f"  {kernel.name}, {arch}: {columns}, room for {blocks} of a multiprocessor at a time"))
    return Group(*lines)


def assumed_view(assumed: Sequence[Assumed], path: str) -> RenderableType:
    """For each kernel of a file that no workload launches what was assumed of it, or why it was not compiled."""
    lines: list[Text] = []
    for one in assumed:
        types = "; ".join(one.types)
        if one.compiled:
            lines += [Text(f"  {one.kernel}, assumed: {types}", "dim")] if types else []
        else:
            lines.append(Text(f"  {path}:{one.line}: {one.kernel} was not compiled: {one.problem}", "yellow"))
            lines += [Text(f"    assumed: {types}", "dim")] if types else []
    return Group(*lines)


def without_workload_view(assumed: Sequence[Assumed], path: str) -> RenderableType:
    """Return the assumptions on each kernel of a file, under a line that says why."""
    compiled = sum(one.compiled for one in assumed)
    count = f"{compiled} of {len(assumed)} kernels were compiled" if compiled else "Nothing was compiled"
    head = f"No workload says what is launched. {count}, with what the file says and assumptions on the rest:"
    return Group(Text(head), assumed_view(assumed, path))


def left_by_errors_view(kernels: Sequence[str]) -> Text:
    """Return the line that names the kernels without facts in a file with errors."""
    return Text(f"  not compiled for the errors above: {', '.join(kernels)}", "yellow")


def guessed_folders_view(folders: Sequence[Path]) -> Text:
    """Return the line that says in which folders headers were found though nobody has named these."""
    return Text(f"  include folders guessed (`build.include_dirs` names them): {', '.join(map(str, folders))}", "dim")


def kernel_table(
    titles: Sequence[str], kernels: Sequence[tuple[str, Sequence[Sequence[str]]]], left: Sequence[str] = ()
) -> RenderableType:
    """Kernels with rows of figures. A name has lines of its own, as those of templates and of Triton can be long.

    Args:
        titles: what the figures are.
        kernels: each name with its rows.
        left: the titles whose figures are aligned to the left.
    """
    rows = [titles, *(row for _, rows in kernels for row in rows)]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]

    def line(row: Sequence[str], style: str = "") -> Text:
        cells = zip(titles, row, widths, strict=True)
        placed = [cell.ljust(width) if title in left else cell.rjust(width) for title, cell, width in cells]
        return Text("  ".join(["", *placed]).rstrip(), style, no_wrap=True, overflow="ignore")

    parts: list[RenderableType] = [line(titles, "dim")]
    for name, figures in kernels:
        parts += [_kernel_name(name), *map(line, figures)]
    return Group(*parts)


def _kernel_name(name: str) -> RenderableType:
    """A name; the constants of a Triton kernel stand beside it and, where they do not fit, under one another."""
    kernel, bracket, constants = name.partition("[")
    grid = Table.grid()
    grid.add_column(style="bold", overflow="fold")
    grid.add_column(style="dim", overflow="fold")
    grid.add_row(Text(kernel), Text(bracket + constants))
    return grid


def _figures(kernel: KernelResources) -> tuple[str, ...]:
    return (
        str(kernel.registers),
        "?" if kernel.spill_bytes is None else size_text(kernel.spill_bytes),
        size_text(kernel.stack_bytes),
        size_text(kernel.shared_bytes),
        "?" if kernel.threads is None else str(kernel.threads),
        "?" if kernel.occupancy is None else percent_text(kernel.occupancy),
        kernel.limiter or "",
        _cliff(kernel.cliffs[0], kernel.threads or 0) if kernel.cliffs else "",
    )


def _cliff(cliff: Cliff, threads: int) -> str:
    """`2 registers fewer: 100 %`."""
    if cliff.lever is Lever.THREADS:
        change = f"{threads + cliff.change} threads"
    elif cliff.lever is Lever.SHARED:
        change = f"{size_text(-cliff.change)} less shared"
    else:
        change = f"{-cliff.change} {cliff.lever if cliff.change < -1 else cliff.lever.removesuffix('s')} fewer"
    return f"{change}: {percent_text(cliff.share)}"


def _diagnostic(diagnostic: Diagnostic, texts: Mapping[str, str]) -> list[Text]:
    place = f"{diagnostic.path}:{diagnostic.line}:{diagnostic.column}: "
    code = f" [{diagnostic.code}]" if diagnostic.code else ""
    style = _STYLES[diagnostic.severity]
    head = Text.assemble((place, "bold"), (diagnostic.severity.value, style), f": {diagnostic.message}", (code, "dim"))
    lines = texts.get(diagnostic.path, "").split("\n")
    whole_file = (diagnostic.line, diagnostic.column, diagnostic.end_line, diagnostic.end_column) == (1, 1, 1, 1)
    if whole_file or not 1 <= diagnostic.line <= len(lines):
        return [head]
    line = lines[diagnostic.line - 1].rstrip("\r").encode()
    end = diagnostic.end_column - 1 if diagnostic.end_line == diagnostic.line else len(line)
    before, marked = line[: diagnostic.column - 1].decode(errors="ignore"), line[diagnostic.column - 1 : end]
    # Tabs stay tabs, so that the mark stands under its place however wide the terminal makes them.
    indent = "".join("\t" if character == "\t" else " " for character in before)
    number = f"{diagnostic.line:>5} | "
    mark = "^" * max(1, len(marked.decode(errors="ignore")))
    return [
        head,
        Text.assemble((number, "dim"), line.decode(), no_wrap=True, overflow="ellipsis"),
        Text.assemble(("      | ", "dim"), indent, (mark, style), no_wrap=True, overflow="ellipsis"),
    ]
