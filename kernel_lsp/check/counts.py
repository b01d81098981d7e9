"""Sums of the emulator's counters over all runs of a file, by kernel and line."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import fields

from kernel_lsp.judge.emulation import EmulatedRun, LineCounters
from kernel_lsp.source.kernel import base_name

_COUNTS = tuple(each.name for each in fields(LineCounters) if each.name not in ("kernel", "path", "line"))


def counts_by_line(runs: Iterable[EmulatedRun]) -> dict[str, dict[tuple[str, int], Counter[str]]]:
    """Return for each kernel, by path and line, sums over all runs by the names of `LineCounters`."""
    found: dict[str, dict[tuple[str, int], Counter[str]]] = {}
    for counters in (counters for run in runs for counters in run.counters):
        lines = found.setdefault(base_name(counters.kernel), {})
        line = lines.setdefault((counters.path, counters.line), Counter())
        line.update({name: getattr(counters, name) for name in _COUNTS})
    return found
