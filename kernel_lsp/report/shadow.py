"""Shows what a shadow run found."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.capture.shadow import Shadowed
from kernel_lsp.capture.shadow_record import ShadowDifference, ShadowProcess
from kernel_lsp.capture.step_time import step_times
from kernel_lsp.report.units import interval_text, speedup_text, time_text

_NOT_THERE = (
    "no process of the program imported it. The likely reasons: another copy of the file is imported (name it with "
    "--of), or its Python was started with -S, -I or -E, which leaves ours out."
)


def shadow_view(run: Shadowed, command: str) -> RenderableType:
    """Return what was compared and what differs, by call and element, then step times."""
    lines: list[RenderableType] = []
    if run.code:
        ended = f"signal {-run.code}" if run.code < 0 else f"exit code {run.code}"
        lines.append(Text(f"{command} ended with {ended}; what was seen until then is kept.", "yellow"))
    lines += [Text(f"On the emulator: {why}", "yellow") for why in run.unable]
    kernel = run.variant.kernel.name
    if not run.processes:
        return Group(*lines, Text.assemble((f"{kernel} was not replaced: ", "bold yellow"), _NOT_THERE))
    told = [one for one in run.processes if _has_something(one)] or run.processes[:1]
    for process in told:
        lines += _process(process, run, len(told) > 1)
    return Group(*lines, _verdict(run, kernel))


def difference_text(one: ShadowDifference) -> str:
    """Return where and by how much an output differs: `call 9 of add, output 0, element [3, 7]: 1.5, expected 1.25`."""
    place = f"call {one.call} of {one.function}, {one.output}"
    if one.why:
        return f"{place}: {one.why}"
    if not one.elements:
        return f"{place}: no elements"
    element = f", element [{', '.join(map(str, one.index))}]: {one.actual}, expected {one.expected}"
    if not one.allowed:
        size = ", must be equal" if one.wrong else ", equal"
    else:
        units = "no number of" if one.units is None else f"{one.units:.3g}"
        size = f" ({units} units of rounding, {one.allowed:.3g} are allowed)"
    many = f"; {one.wrong:,} of {one.elements:,} elements are wrong" if one.wrong else ""
    return f"{place}{element}{size}{many}"


def _has_something(process: ShadowProcess) -> bool:
    """Return True unless a process only imported the file, as those that load data may."""
    return bool(process.why or process.errors or any(one.calls for one in process.functions))


def _process(process: ShadowProcess, run: Shadowed, several: bool) -> list[RenderableType]:
    lines: list[RenderableType] = []
    if several:
        lines.append(Text(f"{process.program}, {process.seconds:.1f} s", "bold"))
    if process.why:
        where = f"{run.variant.name}: {process.why}. The program ran with the original."
        return [*lines, Text(where, "bold red"), *_stumbled(process)]
    lines += _stumbled(process)
    lines.append(
        _table(process) if process.functions else Text("No function of the file launches its kernels.", "yellow")
    )
    lines += [
        Text(f"the variant has no function `{name}`: the original's was used", "yellow") for name in process.missing
    ]
    for kernel, count in process.outside.items():
        lines.append(Text(f"{count:,} launches of {kernel} by no function of the module: not compared", "yellow"))
    for function in process.functions:
        if function.failed:
            lines.append(
                Text(f"The variant fails: {function.name}, {function.failed}. The original went on.", "bold red")
            )
        for why, count in function.skipped.items():
            lines.append(Text(f"{function.name}: {count:,} calls not compared: {why}", "yellow"))
    lines += [Text(f"Wrong: {difference_text(one)}", "bold red") for one in process.wrong]
    if process.worst is not None and process.worst not in process.wrong:
        largest = difference_text(process.worst) if process.worst.units else "none, all elements are equal"
        lines.append(Text(f"Largest difference: {largest}"))
    return lines + _steps(process, emulated=run.emulated)


def _stumbled(process: ShadowProcess) -> list[RenderableType]:
    return [Text(f"The shadow run stumbled: {error}", "yellow") for error in process.errors]


def _table(process: ShadowProcess) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("calls", "by the variant", "by both", "wrong", "function"):
        table.add_column(name, justify="left" if name == "function" else "right")
    for one in process.functions:
        table.add_row(f"{one.calls:,}", f"{one.by_variant:,}", f"{one.compared:,}", f"{one.wrong:,}", one.name)
    return table


def _steps(process: ShadowProcess, *, emulated: bool) -> list[RenderableType]:
    found = step_times(process.segments)
    if not process.device:
        if found is None:
            few = f"{process.steps:,} steps are too few, and " if process.steps else ""
            return [Text(f"No step times: {few}there is no GPU.", "dim")]
        where = "the emulator" if emulated else "a CPU"
        return [Text(f"Step times are those of {where} and mean nothing for a GPU: {found.blocks} blocks.", "dim")]
    if found is None:
        few = f"{process.steps:,} steps are too few" if process.steps else "no step was recognised: --step names one"
        return [Text(f"No step times: {few}.", "dim")]
    times = (
        f"{time_text(1e3 * found.original_ms)} with the original, {time_text(1e3 * found.variant_ms)} with the variant"
    )
    basis = f"{found.blocks} blocks of 4 segments, {found.steps:,} steps each, on {process.device}"
    if found.interval is None:
        return [Text(f"Step time: {times}; too few blocks for an interval ({basis}).")]
    interval = f"{speedup_text(found.speedup)} as fast (95 % CI {interval_text(found.interval)})"
    return [Text(f"Step time: {interval}, {times} ({basis}).")]


def _verdict(run: Shadowed, kernel: str) -> Text:
    if run.wrong:
        return Text(f"{run.variant.name} is not right in place of {kernel}.", "bold red")
    if not run.compared:
        return Text(f"Nothing was compared: {run.variant.name} is not shown to be right.", "bold yellow")
    agreed = f"{run.variant.name} agrees with {kernel} in all {run.compared:,} calls that both did."
    return Text(agreed, "bold green")
