"""Shows the record of a captured program."""

from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.capture.program_record import ProgramRecord
from kernel_lsp.capture.ranking import TRIED, Ranked, ranking
from kernel_lsp.capture.run import Captured
from kernel_lsp.report.captured_calls import BASIS, arguments_text, mean_text, share_text
from kernel_lsp.report.units import time_text
from kernel_lsp.workload.capture import Capture

_NOTHING = (
    "The likely reasons: the program launches no kernel of Triton or of a torch extension; it has no GPU (run it with "
    "--emulate, or in Triton's interpreter with TRITON_INTERPRET=1); or its Python was started with -S, -I or -E, "
    "which leaves the recorder out."
)


def captured_view(captured: Captured, command: str) -> RenderableType:
    """Return the ranking of a program's kernels, each with its capture or the reason why there is none."""
    seen = captured.seen
    lines: list[RenderableType] = [Text(error, "yellow") for error in _said(captured, command)]
    if not seen.kernels:
        return Group(*lines, Text.assemble((f"{command}: nothing launched. ", "bold yellow"), _NOTHING))
    launches = sum(kernel.launches for kernel in seen.kernels)
    head = f"{command}: {launches:,} launches of {len(seen.kernels)} kernels in {seen.seconds:.1f} s"
    where = f" on {seen.device}" if seen.device else ", not on a GPU"
    lines += [Text(head + where, "bold"), Text(BASIS, "dim"), _table(seen)]
    lines += [Text(f"{path.name}: {_dropped(capture)}", "dim") for path, capture in _with_dropped(captured)]
    if captured.written:
        done = f"{len(captured.written)} workloads in {captured.written[0].parent}: `kernel-lsp check FILE` finds them."
        lines.append(Text(done))
    return Group(*lines)


def capture_view(capture: Capture, path: Path) -> RenderableType:
    """Return one capture: its function, and its cases with their shares of the program's time, as in a ranking."""
    table = Table(box=None, pad_edge=False)
    for name in ("calls", "share", "mean", "arguments"):
        table.add_column(name, justify="left" if name == "arguments" else "right")
    for case in capture.cases:
        table.add_row(f"{case.count:,}", share_text(capture, case), mean_text(case), arguments_text(case))
    changed = f", changes {', '.join(capture.mutated)}" if capture.mutated else ""
    head = f"{capture.function} in {capture.kernel}, {capture.calls:,} calls in {capture.program}{changed}"
    dropped = [Text(f"left out: {_dropped(capture)}", "yellow")] if capture.dropped else []
    return Group(Text(str(path), "dim"), *dropped, Text(head, "bold"), table)


def _said(captured: Captured, command: str) -> list[str]:
    found = [f"The recorder stumbled: {error}" for error in captured.seen.errors]
    if captured.code:
        ended = f"signal {-captured.code}" if captured.code < 0 else f"exit code {captured.code}"
        found.append(f"{command} ended with {ended}; what was seen until then is kept.")
    return found


def _table(seen: ProgramRecord) -> Table:
    table = Table(box=None, pad_edge=False)
    for name in ("share", f"if {TRIED:g}x", "launches", "calls", "mean call", "shapes", "kernel", "workload"):
        table.add_column(name, justify="left" if name in ("kernel", "workload") else "right")
    for ranked in ranking(seen):
        table.add_row(*_row(ranked))
    return table


def _row(ranked: Ranked) -> list[str]:
    kernel = ranked.kernel
    share = "" if ranked.share is None else f"{100 * ranked.share:.1f} %"
    gain = "" if ranked.gain is None else f"{ranked.gain:.2f}x"
    mean = time_text(1e6 * kernel.seconds / kernel.calls) if kernel.calls else ""
    place = f" ({Path(kernel.file).name}:{kernel.line})" if kernel.file else ""
    counts = [f"{kernel.launches:,}", f"{kernel.calls:,}" if kernel.calls else "", mean, str(kernel.shapes or "")]
    became = f"of {kernel.function}" if kernel.function else f"none: {kernel.why or 'not recorded'}"
    return [share, gain, *counts, kernel.name + place, became]


def _with_dropped(captured: Captured) -> list[tuple[Path, Capture]]:
    pairs = zip(captured.written, captured.seen.captures, strict=True)
    return [(path, capture) for path, capture in pairs if capture.dropped]


def _dropped(capture: Capture) -> str:
    return ", ".join(f"{count:,} calls {why}" for why, count in capture.dropped.items())
