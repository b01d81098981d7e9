"""What a verdict and its evidence say, in tones and rows of text, the same for the terminal and the page."""

from collections.abc import Callable
from enum import StrEnum
from typing import TypeVar

from kernel_lsp.judge.verdict import Evidence, KernelResources, Mismatch, Outcome
from kernel_lsp.report.units import percent_text, size_text

_T = TypeVar("_T")

KERNEL_COLUMNS = ("Registers", "Spills", "Shared memory", "Threads", "Occupancy", "Limited by")


class Tone(StrEnum):
    """How an outcome is shown: as a gain, as neither good nor bad, as something to look at, or as a failure."""

    GOOD = "good"
    PLAIN = "plain"
    DOUBT = "doubt"
    BAD = "bad"


_TONES = {
    Outcome.FASTER: Tone.GOOD,
    Outcome.SAME: Tone.PLAIN,
    Outcome.NOT_WORTH_IT: Tone.PLAIN,
    Outcome.UNTIMED: Tone.PLAIN,
    Outcome.SLOWER: Tone.DOUBT,
    Outcome.AMBIGUOUS: Tone.DOUBT,
}


def tone_of(outcome: Outcome) -> Tone:
    """Return the tone of an outcome."""
    return Tone.BAD if outcome.is_failure else _TONES[outcome]


def kernel_rows(evidence: Evidence) -> list[tuple[str, list[str]]]:
    """Each kernel of the candidate: its name and its `KERNEL_COLUMNS`, `before → after` where they differ."""
    show: tuple[Callable[[KernelResources], str], ...] = (
        lambda kernel: str(kernel.registers),
        lambda kernel: known(kernel.spill_bytes, size_text),
        lambda kernel: size_text(kernel.shared_bytes),
        lambda kernel: known(kernel.threads, str),
        lambda kernel: share_text(kernel.occupancy),
        lambda kernel: kernel.limiter or "?",
    )
    return [
        (new.name, [change_text(cell(old) if old else None, cell(new)) for cell in show])
        for old, new in _pairs(evidence.baseline_resources, evidence.candidate_resources)
    ]


def opcode_rows(evidence: Evidence) -> list[tuple[str, int, int]]:
    """The kinds of instructions whose number has changed, and both numbers, the largest change first."""
    before, after = evidence.baseline_opcodes, evidence.candidate_opcodes
    rows = [(kind, before.get(kind, 0), after.get(kind, 0)) for kind in before | after]
    changed = [row for row in rows if row[1] != row[2]]
    return sorted(changed, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def mismatch_facts(wrong: Mismatch) -> dict[str, str]:
    """The first wrong element of an output."""
    return {
        "where": f"output {wrong.output} at [{', '.join(map(str, wrong.index))}]",
        "case": f"{wrong.case}, {wrong.family} inputs",
        "expected": wrong.expected,
        "actual": wrong.actual,
        "wrong": f"{wrong.count:,} of {wrong.total:,} elements",
    }


def change_text(before: str | None, after: str) -> str:
    """`before → after`; `after` alone where nothing changed or nothing was before."""
    return after if before is None or before == after else f"{before} → {after}"


def known(value: _T | None, shown: Callable[[_T], str]) -> str:
    """A value as it is `shown`, or `?` where it is None."""
    return "?" if value is None else shown(value)


def share_text(share: float | None) -> str:
    """`82 %`, or `?`."""
    return known(share, percent_text)


def _pairs(
    before: tuple[KernelResources, ...], after: tuple[KernelResources, ...]
) -> list[tuple[KernelResources | None, KernelResources]]:
    """Each kernel with what it was: by place, as template arguments change names, else by name."""
    if len(before) == len(after):
        return list(zip(before, after, strict=True))
    by_name = {kernel.name: kernel for kernel in before}
    return [(by_name.get(kernel.name), kernel) for kernel in after]
