"""What compiling a kernel showed: the compiler's messages at their place in the source, and what each kernel costs."""

from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.build.binary import Binary, Diagnostic, KernelFacts, Severity
from kernel_lsp.report.units import size_text

_STYLES = {Severity.ERROR: "bold red", Severity.WARNING: "bold yellow", Severity.NOTE: "bold cyan"}


def diagnostics_view(diagnostics: Sequence[Diagnostic], texts: Mapping[str, str]) -> RenderableType:
    """Each message as `FILE:LINE:COLUMN: severity: message`, with the line and a mark under the place.

    Args:
        diagnostics: in the order to be shown.
        texts: the source of each file by its path; a file that is not there is shown without its line.
    """
    return Group(*(part for diagnostic in diagnostics for part in _diagnostic(diagnostic, texts)))


def facts_view(binaries: Sequence[Binary]) -> RenderableType:
    """One line per kernel and architecture."""
    table = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("Kernel", overflow="fold")
    table.add_column("Arch", no_wrap=True)
    for title in ("Registers", "Spills", "Stack", "Shared", "Barriers", "Threads"):
        table.add_column(title, justify="right", no_wrap=True)
    for binary in binaries:
        for kernel in binary.kernels:
            table.add_row(Text(kernel.name), binary.arch, *_facts(kernel))
    return table


def _facts(kernel: KernelFacts) -> tuple[str, ...]:
    stores, loads = kernel.spill_store_bytes, kernel.spill_load_bytes
    spills = "?" if stores is None or loads is None else size_text(stores + loads)
    if kernel.required_threads is not None:
        threads = "x".join(map(str, kernel.required_threads)) + " exactly"
    elif kernel.max_threads is not None:
        threads = "to " + "x".join(map(str, kernel.max_threads))
    else:
        threads = "any"
    shared, stack = size_text(kernel.shared_bytes), size_text(kernel.stack_bytes)
    return str(kernel.registers), spills, stack, shared, str(kernel.barriers), threads


def _diagnostic(diagnostic: Diagnostic, texts: Mapping[str, str]) -> list[Text]:
    place = f"{diagnostic.path}:{diagnostic.line}:{diagnostic.column}: "
    code = f" [{diagnostic.code}]" if diagnostic.code else ""
    style = _STYLES[diagnostic.severity]
    head = Text.assemble((place, "bold"), (diagnostic.severity.value, style), f": {diagnostic.message}", (code, "dim"))
    lines = texts.get(diagnostic.path, "").split("\n")
    if not 1 <= diagnostic.line <= len(lines):
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
