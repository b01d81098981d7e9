"""Performance hints, from compile facts and from the emulator's counters for each line.

A hint names the line, the cause in figures and the usual fix. The rules' pages list the thresholds, which are set so
that a good kernel gets no hint.
"""

from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from pathlib import Path

from kernel_lsp.check.counts import counts_by_line
from kernel_lsp.check.pipelines import in_flight, pipeline_of
from kernel_lsp.check.places import kernel_place, line_place
from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.machine_code.occupancy import Lever, Limiter
from kernel_lsp.device.device import Device
from kernel_lsp.judge.emulation import EmulatedRun
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.rules import performance
from kernel_lsp.rules.rule import Rule
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import language_of
from kernel_lsp.source.kernel import Kernel, Language, base_name

SPILL_BYTES = 16
STACK_BYTES = 16
_SECTOR = 32
_WASTE = 2.0  # ratio to the ideal number of sectors or passes
_WASTED_SECTORS = 4.0  # per request, at least: a misaligned start costs one more and is no fault
_FREE_SECTORS = 17.0  # per request; Triton gives a thread up to 16 adjacent bytes, and loads odd sizes singly
_SHARE = 0.1  # of the kernel's total of the same kind
_LOW_OCCUPANCY = 0.5
_GAIN = 1.25
_SMALL_SAVING = {Lever.REGISTERS: 8.0, Lever.SHARED: 0.1}  # registers; share of the block's shared memory
_NARROW_SECTORS = 2.0  # per request of a full warp: 2 bytes per thread
_NARROW_SHARE = 0.25
_WARP = 32
_EXCESS = 8.0
_EXCESS_LEAST = 4096  # bytes; below this whole sectors alone make a multiple

_Line = Counter[str]
"""Sums over all runs at one line, by the names of `LineCounters`."""


def resource_hints(
    source: SourceFile,
    kernels: Sequence[Kernel],
    resources: Iterable[KernelResources],
    *,
    guessed: Container[str] = (),
    own_stack: Container[str] | None = None,
) -> list[Diagnostic]:
    """Return hints from compile facts, one of each kind per kernel: that of its worst template instance.

    Args:
        source: the file.
        kernels: all of its kernels.
        resources: the facts of those that were compiled.
        guessed: names of kernels that were compiled for assumed types: their figures are of no launch that anybody
            makes, so there is no hint.
        own_stack: symbols of those whose stack may be their own arrays'; None for all.
    """
    worst: dict[tuple[str, str], tuple[float, Rule, str]] = {}
    for kernel in resources:
        if base_name(kernel.name) in guessed:
            continue
        for weight, rule, message in _of_resources(kernel):
            if rule is performance.LOCAL_ARRAY and own_stack is not None and kernel.entry not in own_stack:
                continue
            key = (rule.id, base_name(kernel.name))
            if key not in worst or weight > worst[key][0]:
                worst[key] = (weight, rule, message)
    found: list[Diagnostic] = []
    for (_, name), (_, rule, message) in worst.items():
        line, column, end = kernel_place(source, kernels, name)
        fix = rule.fix_in(language_of(source.path, source.text) or Language.CUDA)
        found.append(rule.at(str(source.path), line, f"{message}. {fix}", column=column, end=end))
    return found


def counter_hints(source: SourceFile, runs: Sequence[EmulatedRun]) -> list[Diagnostic]:
    """Return hints from all emulated runs together, for lines of this file only."""
    found: list[Diagnostic] = []
    least: dict[str, int] = {}
    for total in (total for run in runs for total in run.totals):
        name = base_name(total.kernel)
        least[name] = least.get(name, 0) + total.least_bytes_read + total.least_bytes_written
    language = language_of(source.path, source.text) or Language.CUDA
    free = compiler_part(language).lays_out_threads
    for name, lines in _by_kernel(source.path, runs).items():
        for line, rule, message in _of_lines(lines, least.get(name, 0), free=free):
            column, end = line_place(source.text, line)
            found.append(rule.at(str(source.path), line, f"{message}. {rule.fix}", column=column, end=(line, end)))
    return list(dict.fromkeys(found))


def pipeline_hints(
    source: SourceFile, runs: Sequence[EmulatedRun], resources: Sequence[KernelResources], device: Device
) -> list[Diagnostic]:
    """Return a hint for each kernel whose stages keep too few bytes in flight, at the line that fills them."""
    found: list[Diagnostic] = []
    totals = [total for run in runs for total in run.totals]
    for name in dict.fromkeys(base_name(total.kernel) for total in totals):
        pipeline = pipeline_of(name, totals, resources, device)
        lines = [ring.line for ring in pipeline.rings if Path(ring.path).resolve() == source.path.resolve()]
        if lines and pipeline.is_shallow:
            column, end = line_place(source.text, lines[0])
            rule, place = performance.SHALLOW_PIPELINE, (lines[0], end)
            message = f"`{name}` has {in_flight(pipeline)}. {rule.fix}"
            found.append(rule.at(str(source.path), lines[0], message, column=column, end=place))
    return found


def _of_resources(kernel: KernelResources) -> Iterator[tuple[float, Rule, str]]:
    """Yield weight, rule and message of each hint about one kernel's resources."""
    spills = kernel.spill_bytes or 0
    if spills >= SPILL_BYTES:
        yield spills, performance.SPILL, f"`{kernel.name}` spills {spills} bytes a thread"
    elif spills == 0 and kernel.stack_bytes >= STACK_BYTES:
        message = f"`{kernel.name}` keeps {kernel.stack_bytes} bytes a thread in local memory, though it spills nothing"
        yield kernel.stack_bytes, performance.LOCAL_ARRAY, message
    if kernel.occupancy is None or kernel.threads is None or not 0 < kernel.occupancy <= _LOW_OCCUPANCY:
        return
    tiny = kernel.limiter == Limiter.BLOCKS and kernel.occupancy < _LOW_OCCUPANCY
    now = f"`{kernel.name}` has an occupancy of {kernel.occupancy:.0%}, limited by {kernel.limiter}"
    for cliff in kernel.cliffs:
        if cliff.share < _GAIN * kernel.occupancy:
            continue
        saved = -cliff.change if cliff.lever is Lever.REGISTERS else -cliff.change / max(kernel.shared_bytes, 1)
        if cliff.lever in _SMALL_SAVING and saved <= _SMALL_SAVING[cliff.lever]:
            unit = "registers a thread" if cliff.lever is Lever.REGISTERS else "bytes of shared memory"
            message = f"{now}; {-cliff.change} {unit} fewer would give {cliff.share:.0%}"
        elif cliff.lever is Lever.THREADS and cliff.change > 0 and tiny:
            message = f"{now}; blocks of {kernel.threads + cliff.change} threads would give {cliff.share:.0%}"
        else:
            continue
        yield 1 - kernel.occupancy, performance.OCCUPANCY, message
        return


def _by_kernel(path: Path, runs: Sequence[EmulatedRun]) -> dict[str, dict[int, _Line]]:
    """Return the counts of a file's own lines, by kernel and number."""
    own = path.resolve()
    found: dict[str, dict[int, _Line]] = {}
    for kernel, lines in counts_by_line(runs).items():
        for (at, number), counts in lines.items():
            if number and Path(at).resolve() == own:
                found.setdefault(kernel, {}).setdefault(number, Counter()).update(counts)
    return found


def _of_lines(lines: Mapping[int, _Line], least_bytes: int, *, free: bool) -> Iterator[tuple[int, Rule, str]]:
    """Yield line, rule and message of each hint about one kernel; `free`: the compiler lays out threads."""

    def total(*names: str) -> int:
        return sum(line[name] for line in lines.values() for name in names)

    sectors, requests = total("load_sectors", "store_sectors"), total("load_requests", "store_requests")
    passes = total("shared_load_wavefronts", "shared_store_wavefronts")
    instructions = total("instructions")
    spread = False
    for number, line in sorted(lines.items()):
        for what in ("load", "store"):
            if message := _uncoalesced(line, what, sectors, _FREE_SECTORS if free else 0.0):
                spread = True
                yield number, performance.UNCOALESCED, message
            elif not free and (message := _narrow(line, what, requests)):
                yield number, performance.NARROW, message
            if message := _conflicts(line, what, passes):
                yield number, performance.BANK_CONFLICT, message
        if message := _divergence(line, instructions):
            yield number, performance.DIVERGENCE, message
    if not spread and least_bytes >= _EXCESS_LEAST and sectors * _SECTOR >= _EXCESS * least_bytes:
        number = max(lines, key=lambda n: lines[n]["load_sectors"] + lines[n]["store_sectors"])
        moved = f"{sectors * _SECTOR / least_bytes:.0f} times the {least_bytes:,} bytes that have to be moved"
        yield number, performance.EXCESS_TRAFFIC, f"the kernel moves {moved}, most of it here"


def _uncoalesced(line: _Line, what: str, sectors: int, excused: float) -> str | None:
    requests, moved, ideal = line[f"{what}_requests"], line[f"{what}_sectors"], line[f"{what}_ideal_sectors"]
    wasted = moved - ideal
    if not requests or moved < _WASTE * ideal or wasted < _WASTED_SECTORS * requests or wasted < _SHARE * sectors:
        return None
    if moved <= excused * requests:
        return None
    each = f"{_figure(moved / requests)} sectors where {_figure(ideal / requests)} would do"
    return f"this {what} needs {each}: threads of a warp are far apart in memory"


def _narrow(line: _Line, what: str, requests: int) -> str | None:
    own, moved, ideal = line[f"{what}_requests"], line[f"{what}_sectors"], line[f"{what}_ideal_sectors"]
    full = line["lane_instructions"] >= 0.95 * _WARP * line["instructions"]
    if not own or not full or own < _NARROW_SHARE * requests or ideal > _NARROW_SECTORS * own:
        return None
    asked = line["bytes_read" if what == "load" else "bytes_written"]
    if asked > 1.25 * ideal * _SECTOR:  # threads read the same bytes: a broadcast
        return None
    if not 0.9 * ideal <= moved <= 1.6 * ideal:  # below: threads share data; above: they are apart
        return None
    width = round(ideal * _SECTOR / own / _WARP)
    return f"this {what} moves {width} byte{'s' if width > 1 else ''} a thread where up to 16 would do"


def _conflicts(line: _Line, what: str, passes: int) -> str | None:
    taken, lost = line[f"shared_{what}_wavefronts"], line[f"shared_{what}_conflicts"]
    least = taken - lost
    if not least or taken < _WASTE * least or lost < _SHARE * passes:
        return None
    return f"this {what} of shared memory takes {_figure(taken / least)} passes where one would do: a bank conflict"


def _divergence(line: _Line, instructions: int) -> str | None:
    active, working = line["lane_instructions"], line["working_lanes"]
    if active >= working / 2 or line["instructions"] < _SHARE * instructions:
        return None
    average = _figure(active / line["instructions"])
    return f"on average {average} of a warp's 32 threads are active here, while the others wait"


def _figure(value: float) -> str:
    return f"{value:.1f}".removesuffix(".0")
