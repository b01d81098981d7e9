"""Tones of outcomes, and small texts that several parts of a report share."""

from collections.abc import Callable
from typing import TypeVar

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.report.units import percent_text
from kernel_lsp.report.view.parts import Tone

_T = TypeVar("_T")

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


def change_text(before: str | None, after: str) -> str:
    """Return `before → after`; `after` alone if nothing changed or there was nothing before."""
    return after if before is None or before == after else f"{before} → {after}"


def known(value: _T | None, shown: Callable[[_T], str]) -> str:
    """Return a value as formatted by `shown`; `?` for None."""
    return "?" if value is None else shown(value)


def share_text(share: float | None) -> str:
    """Return a share as `82 %`; `?` for None."""
    return known(share, percent_text)
