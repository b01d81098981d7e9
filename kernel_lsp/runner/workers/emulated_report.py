"""Collect findings and counters of emulated launches by line of the user's file. Worker processes only."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from kernel_lsp.emulate.counters import Counters, RunCounters
from kernel_lsp.emulate.findings import Finding
from kernel_lsp.emulate.machine import LaunchResult
from kernel_lsp.emulate.program import Location
from kernel_lsp.runner.emulated import (
    EmulatedFinding,
    EmulatedReport,
    FilledRing,
    KernelTotals,
    LineCounters,
    WarpRegisters,
)


@dataclass(frozen=True, slots=True)
class LaunchOutcome:
    """The result of one launch: the kernel's name, the machine's result, and processor seconds."""

    kernel: str
    result: LaunchResult
    seconds: float


def place(location: Location | None, file: Path | None) -> tuple[str, int]:
    """Return path and line of a location, in the user's `file` if possible; `("", 0)` if unknown."""
    if location is None:
        return "", 0
    here = (location.within(file) if file else None) or location
    return here.file, here.line


def calls(location: Location | None, file: Path | None) -> tuple[int, ...]:
    """Return the lines of the user's `file` that called the helper at this location, innermost first."""
    here = location.within(file) if location is not None and file is not None else None
    if location is None or here is None:
        return ()
    outer = location.chain[location.chain.index(here) + 1 :]
    return tuple(at.line for at in outer if at.file == here.file)


def report(outcomes: Sequence[LaunchOutcome], file: Path | None, seconds: float) -> EmulatedReport:
    """Return the report of launches from `file` that took `seconds` of processor time together."""
    return EmulatedReport(findings(outcomes, file), _counters(outcomes, file), _totals(outcomes, file), seconds)


def findings(outcomes: Sequence[LaunchOutcome], file: Path | None) -> tuple[EmulatedFinding, ...]:
    """Return the findings, merged by kind, line, chain of calls, kernel and buffer."""
    found: dict[tuple[object, ...], EmulatedFinding] = {}
    for outcome in outcomes:
        for finding in outcome.result.findings:
            made = _finding(finding, outcome.kernel, file)
            where = (made.path, made.line, calls(finding.location, file))
            key = (made.kind, where, made.kernel, made.space, made.access, finding.buffer)
            known = found.get(key)
            found[key] = made if known is None else replace(known, count=known.count + made.count)
    return tuple(found.values())


def _finding(finding: Finding, kernel: str, file: Path | None) -> EmulatedFinding:
    path, line = place(finding.location, file)
    at = finding.location.within(path) if finding.location else None
    led = "".join(f", called at line {number}" for number in calls(finding.location, file))
    return EmulatedFinding(
        kind=finding.kind.value,
        message=finding.message if not led else f"{finding.message} It is in a helper{led}.",
        path=path,
        line=line,
        kernel=kernel,
        column=(at.column or None) if at else None,
        space=finding.space,
        access=finding.access,
        values=_values(finding),
        other=place(finding.other, file) if finding.other else None,
        count=finding.count,
    )


def _values(finding: Finding) -> dict[str, int | str]:
    """Return the known values of a finding; a thread or block as `(0, 1, 0)`."""
    known = {
        "buffer": finding.buffer,
        "address": finding.address,
        "index": finding.index,
        "size": finding.size,
        "thread": None if finding.thread is None else str(finding.thread),
        "block": None if finding.block is None else str(finding.block),
    }
    return {name: value for name, value in known.items() if value is not None}


def _counters(outcomes: Sequence[LaunchOutcome], file: Path | None) -> tuple[LineCounters, ...]:
    lines: dict[tuple[str, str, int], Counters] = {}
    for outcome in outcomes:
        for location, counters in outcome.result.counters.lines.items():
            lines.setdefault((outcome.kernel, *place(location, file)), Counters()).add(counters)
    return tuple(LineCounters(*key, **asdict(counters)) for key, counters in sorted(lines.items(), key=lambda i: i[0]))


def _totals(outcomes: Sequence[LaunchOutcome], file: Path | None) -> tuple[KernelTotals, ...]:
    by_kernel: dict[str, list[LaunchResult]] = {}
    for outcome in outcomes:
        by_kernel.setdefault(outcome.kernel, []).append(outcome.result)
    return tuple(_total(kernel, results, file) for kernel, results in by_kernel.items())


def _total(kernel: str, results: Sequence[LaunchResult], file: Path | None) -> KernelTotals:
    counted: list[RunCounters] = [result.counters for result in results]
    opcodes = Counter[str]()
    for counters in counted:
        opcodes.update(counters.opcodes)
    return KernelTotals(
        kernel=kernel,
        launches=len(results),
        blocks=sum(result.blocks for result in results),
        opcodes=dict(opcodes),
        least_bytes_read=sum(counters.least_bytes_read for counters in counted),
        least_bytes_written=sum(counters.least_bytes_written for counters in counted),
        approximate=any(result.approximate for result in results),
        rings=_rings(results, file),
        registers=_registers(results, file),
    )


def _rings(results: Sequence[LaunchResult], file: Path | None) -> tuple[FilledRing, ...]:
    """Return the rings of all launches by line: the largest of each, with all fills."""
    found: dict[tuple[str, int], FilledRing] = {}
    for ring in (ring for result in results for ring in result.rings):
        key = place(ring.place, file)
        known = found.get(key, FilledRing(*key, 0, 0, 0))
        found[key] = FilledRing(
            *key,
            max(known.stages, ring.stages),
            max(known.stage_bytes, ring.stage_bytes),
            known.fills + ring.fills,
        )
    return tuple(found[key] for key in sorted(found))


def _registers(results: Sequence[LaunchResult], file: Path | None) -> tuple[WarpRegisters, ...]:
    """Return what each line gave to warps, in all launches."""
    found = Counter[tuple[str, int, int]]()
    for share in (share for result in results for share in result.shares):
        found[*place(share.place, file), share.registers] += share.warps
    return tuple(WarpRegisters(*key, warps) for key, warps in sorted(found.items()))
