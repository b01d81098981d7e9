"""Shows the record of a captured program, and the replay of a launch."""

import re
from pathlib import Path

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.capture.program_record import LaunchedKernel, ProgramRecord
from kernel_lsp.capture.ranking import TRIED, Ranked, ranking
from kernel_lsp.capture.replay import Replayed
from kernel_lsp.capture.run import Captured
from kernel_lsp.capture.snapshot import Snapshot
from kernel_lsp.report.captured_calls import BASIS, GPU_BASIS, arguments_text, mean_text, share_text
from kernel_lsp.report.units import count_text, seconds_text, size_text, time_text
from kernel_lsp.workload.capture import Capture

_NOTHING = (
    "The likely reasons: the program launches no kernel; it has no GPU (run it with --emulate, or in Triton's "
    "interpreter with TRITON_INTERPRET=1); or its Python was started with -S, -I or -E, which leaves the recorder out."
)
_MOST_ROWS = 30
_MOST_NAME = 60
_EVENT_BASIS = (
    "Shares are of the GPU time of Triton's kernels alone, by one launch in 16 between two CUDA events; where the GPU "
    "waits for the host, that counts too."
)
_PIECES = (
    "The snapshot may lack memory: with expandable_segments:True torch's memory lies in pieces, and of a tensor in "
    "several of them one may be kept. Run it without that to be sure."
)
_UNSEEN = "launched, and not seen on the GPU"


def captured_view(captured: Captured, command: str) -> RenderableType:
    """Return the ranking of a program's kernels, each with its capture or the reason why there is none."""
    seen = captured.seen
    lines: list[RenderableType] = [Text(error, "yellow") for error in _said(captured, command)]
    if not seen.kernels and not seen.on_device.kernels:
        return Group(*lines, Text.assemble((f"{command}: nothing launched. ", "bold yellow"), _NOTHING))
    lines += [Text(_head(seen, command), "bold"), Text(_basis(seen), "dim"), _table(seen)]
    lines += [Text(f"{path.name}: {_dropped(capture)}", "dim") for path, capture in _with_dropped(captured)]
    if captured.written:
        made = f"{count_text(len(captured.written), 'workload')} in {captured.written[0].parent}"
        lines.append(Text(f"{made}: found by `kernel-lsp check FILE`."))
    lines += [Text(snapshot_text(snapshot)) for snapshot in captured.snapshots]
    lines += [Text(f"No workload of {_shortened(name)}: {why}.", "dim") for name, why in captured.unmade.items()]
    return Group(*lines)


def replay_view(done: Replayed) -> RenderableType:
    """Return what a replay found: equal or not, at which addresses, and its time."""
    snapshot = done.snapshot
    what = _shortened(snapshot.name) if done.own else f"{_shortened(snapshot.name)} of {done.cubin}"
    lines = [Text(f"{what}: {_grid(snapshot.grid)} blocks of {_grid(snapshot.block)} threads", "bold")]
    total = f"{done.nbytes:,} bytes, of which the kept launch changed {done.changed:,}"
    if done.unstable:
        atomics = ", ".join(f"{count} {opcode}" for opcode, count in done.atomics.items())
        why = f" Its atomics: {atomics}." if atomics else ""
        said = f"NONDETERMINISTIC: replays from the same memory differ in {done.unstable:,} bytes.{why}"
        lines.append(Text(said, "yellow"))
    if done.wrong:
        lines.append(Text(f"Different: {done.wrong:,} bytes of {total}; the first: {done.where}", "red"))
    else:
        lines.append(Text(f"Equal: {total}", "green"))
    place = "at the same addresses" if done.same_addresses else "at other addresses: the pointers found were rewritten"
    times = (
        f"{time_text(done.median_us)} (median of {len(done.us)}, {time_text(done.us[0])} to {time_text(done.us[-1])})"
    )
    lines.append(Text(f"{times} a launch with cold caches, between two events; {place}"))
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
    if captured.untimed:
        found.append(f"GPU time was not recorded: {captured.untimed}.")
    if not captured.snapshots:
        found += [f"There is no snapshot: {why}." for why in captured.seen.on_device.snapshot_why]
    if captured.in_pieces:
        found.append(_PIECES)
    if captured.code:
        ended = f"signal {-captured.code}" if captured.code < 0 else f"exit code {captured.code}"
        found.append(f"{command} ended with {ended}; what was seen until then is kept.")
    return found


def _head(seen: ProgramRecord, command: str) -> str:
    """Return the number of launches, the time, and where that was."""
    times = seen.on_device
    where = f" on {seen.device}" if seen.device else ", not on a GPU"
    processes = f", in {seen.processes} processes" if seen.processes > 1 else ""
    if not times.kernels:
        launches = sum(kernel.launches for kernel in seen.kernels)
        made = f"{count_text(launches, 'launch')} of {count_text(len(seen.kernels), 'kernel')}"
        return f"{command}: {made} in {seen.seconds:.1f} s{where}{processes}"
    launches = sum(kernel.launches for kernel in times.kernels)
    spent = f"{seconds_text(times.seconds)} of GPU time in {seconds_text(seen.seconds)}"
    made = f"{count_text(launches, 'launch')} of {count_text(len(times.kernels), 'kernel')}"
    return f"{command}: {made}, {spent}{where}{processes}"


def _basis(seen: ProgramRecord) -> str:
    """Return the kind of time that shares are of, and which launches they leave out."""
    times = seen.on_device
    if not times.kernels:
        return BASIS
    if times.sampled:
        return _EVENT_BASIS
    said = [GPU_BASIS]
    if times.unfinished:
        said.append(f"{times.unfinished:,} launches had not ended when the program did.")
    graphs = sum(kernel.in_graphs for kernel in times.kernels)
    if graphs:
        said.append(f"{graphs:,} launches were made by CUDA graphs.")
    missed = sum(map(_untimed, ranking(seen)))
    if missed:
        said.append(f"{missed:,} launches have no time: a profiler of the program's own, or its end, took them.")
    return " ".join(said)


def _untimed(ranked: Ranked) -> int:
    """Return the number of launches in Python that were not seen to end; an autotuner's make the GPU see more."""
    timed = ranked.on_device
    return 0 if timed is None else max(0, ranked.kernel.launches - timed.launches)


def _table(seen: ProgramRecord) -> RenderableType:
    table = Table(box=None, pad_edge=False)
    timed = bool(seen.on_device.kernels)
    times = ("launches", "mean launch") if timed else ("launches", "calls", "mean call")
    for name in ("share", f"if {TRIED:g}x", *times, "shapes", "kernel", "workload"):
        table.add_column(name, justify="left" if name in ("kernel", "workload") else "right")
    ranked = ranking(seen)
    for one in ranked[:_MOST_ROWS]:
        table.add_row(*(_timed_row(one) if timed else _row(one)))
    left = ranked[_MOST_ROWS:]
    if not left:
        return table
    share = 100 * sum(one.share or 0 for one in left)
    return Group(table, Text(f"... and {len(left)} more kernels, {share:.1f} % together", "dim"))


def _row(ranked: Ranked) -> list[str]:
    kernel = ranked.kernel
    mean = time_text(1e6 * kernel.seconds / kernel.calls) if kernel.calls else ""
    counts = [f"{kernel.launches:,}", f"{kernel.calls:,}" if kernel.calls else "", mean, str(kernel.shapes or "")]
    return [*_shares(ranked), *counts, _named(kernel), _became(kernel, "not recorded")]


def _timed_row(ranked: Ranked) -> list[str]:
    kernel, timed = ranked.kernel, ranked.on_device
    if timed is None:
        return ["", "", f"{kernel.launches:,}", "", "", _named(kernel), _became(kernel, _UNSEEN)]
    counts = [f"{timed.launches:,}", time_text(1e6 * timed.seconds / timed.launches)]
    counts.append(str(timed.shapes or kernel.shapes or ""))
    return [*_shares(ranked), *counts, _named(kernel), _became(kernel, "not launched by Triton or a torch extension")]


def _shares(ranked: Ranked) -> list[str]:
    share = "" if ranked.share is None else f"{100 * ranked.share:.1f} %"
    return [share, "" if ranked.gain is None else f"{ranked.gain:.2f}x"]


def _named(kernel: LaunchedKernel) -> str:
    line = f":{kernel.line}" if kernel.line else ""
    place = f" ({Path(kernel.file).name}{line})" if kernel.file else ""
    return _shortened(kernel.name) + place


def _became(kernel: LaunchedKernel, otherwise: str) -> str:
    if kernel.function and kernel.function == kernel.name:
        return "of its launches"
    return f"of {kernel.function}" if kernel.function else f"none: {kernel.why or otherwise}"


def _shortened(name: str) -> str:
    if len(name) > _MOST_NAME:
        name = re.sub(r"<.*>", "<...>", name)
    return name if len(name) <= _MOST_NAME else f"{name[: _MOST_NAME - 3]}..."


def _grid(sizes: tuple[int, ...]) -> str:
    return " x ".join(map(str, sizes))


def snapshot_text(snapshot: Snapshot) -> str:
    """Return one line about a snapshot: kernel, size and folder."""
    size = size_text(snapshot.nbytes)
    return f"{_shortened(snapshot.name)}: one launch with {size} of memory in {snapshot.folder}, for `capture replay`"


def _with_dropped(captured: Captured) -> list[tuple[Path, Capture]]:
    pairs = zip(captured.written, captured.seen.captures, strict=True)
    return [(path, capture) for path, capture in pairs if capture.dropped]


def _dropped(capture: Capture) -> str:
    return ", ".join(f"{count:,} calls {why}" for why, count in capture.dropped.items())
