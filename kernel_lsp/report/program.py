"""The report on a program of the user's that ran on the emulator."""

from dataclasses import asdict
from pathlib import Path

from rich.console import Group, RenderableType
from rich.text import Text

from kernel_lsp.check.program import ProgramCheck, not_run
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.report.check import file_view
from kernel_lsp.report.formats.json import checked_files
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.units import count_text, seconds_text

_NOTHING = (
    "No kernel was launched. The emulator runs Triton's kernels (and Gluon's), and extensions that `load` and "
    "`load_inline` build, in Python processes that import torch; other libraries' kernels need a GPU."
)


def program_view(checked: ProgramCheck, *, strict: bool) -> RenderableType:
    """Return each kernel file with its findings, then what was not run and how the program ended."""
    width = max((len(str(report.path)) for report in checked.reports), default=0)
    parts: list[RenderableType] = [
        file_view(report, checked.texts[str(report.path)], width) for report in checked.reports
    ]
    return Group(*parts, *(Text(said, "yellow") for said in left_out(checked)), *_ending(checked, strict=strict))


def program_json(checked: ProgramCheck) -> str:
    """One object as `check --json` prints it, and in `program` what ran, what did not, and the exit code."""
    program = {
        "command": checked.command,
        "exit_code": checked.exit_code,
        "captures": checked.captures,
        **asdict(checked.emulated),
        "left_out": left_out(checked),
    }
    return records_json(checked_files(checked.reports) | {"program": program}) + "\n"


def left_out(checked: ProgramCheck) -> list[str]:
    """Return a sentence for everything that was not run as on a GPU."""
    said = [f"{_place(work.file, work.line)}{not_run(work)}." for work in checked.emulated.not_run]
    if calls := checked.emulated.uncompiled:
        said.append(f"torch.compile was called {_times(calls)}: functions ran as they stand, not compiled.")
    said += [f"{reason}." for reason in checked.unable]
    if not checked.emulated.kernels and not checked.emulated.not_run:
        said.append(_NOTHING)
    return said


def _ending(checked: ProgramCheck, *, strict: bool) -> list[Text]:
    emulated, reports = checked.emulated, checked.reports
    launches = sum(kernel.launches for kernel in emulated.kernels)
    lines: list[Text] = []
    if checked.captures:
        lines.append(Text(f"{count_text(len(checked.captures), 'workload')} in {checked.captures[0].parent}.", "dim"))
    bad = sum(not report.ok for report in reports)
    warnings = sum(d.severity is Severity.WARNING for report in reports for d in report.diagnostics)
    silenced = sum(len(report.silenced) for report in reports)
    ending = [(f"{bad} with errors", "bold red")] if bad else [("no findings", "bold")] if launches else []
    ending += [(f"{warnings} warnings", "bold red" if strict else "yellow")] if warnings else []
    ending += [(f"{silenced} silenced", "dim")] if silenced else []
    ending += [(_end(checked), "bold red" if checked.exit_code else "dim")]
    head = f"{count_text(launches, 'launch')} of {count_text(len(emulated.kernels), 'kernel')}"
    where = f" on the emulator ({emulated.arch}, {seconds_text(emulated.seconds)})" if launches else ""
    return [*lines, Text(f"{head}{where}: ").append(Text(", ").join(Text(*part) for part in ending))]


def _end(checked: ProgramCheck) -> str:
    code = checked.exit_code
    how = f"signal {-code}" if code < 0 else f"exit code {code}"
    return f"{checked.command} ended with {how}"


def _place(file: str, line: int) -> str:
    return f"{Path(file).name}:{line}: " if file and line else ""


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"
