"""Choose the traces worth learning from. Pure: traces in, the chosen ones and the reasons of the others out."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.learn.reward import score
from kernel_lsp.learn.trace import TurnTrace
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, REJECTED

NEAR = 0.9
"""Share of common token sequences from which on two answers on one kernel are near-duplicates."""
_SHINGLE = 5  # tokens

_TOKEN = re.compile(r"\w+|[^\w\s]")


class Dropped(StrEnum):
    """The reason why a turn is not in a dataset, in the order in which they are looked for."""

    UNKNOWN = "recorded without an outcome"
    PRIVATE = "of a project that opted out"
    OVERTURNED = "a later judgement found it wrong"
    UNJUDGED = "never judged"
    CUT_OFF = "the answer was cut off"
    CHEAT = "a cheat, or what followed one"
    FAILED = "rejected, not built, crashed or wrong"
    RACED = "raced but not judged in full"
    NOT_FASTER = "right but not faster"
    OTHER_JUDGE = "judged by another version of the judge"
    SURPASSED = "another turn is better"
    NEAR_DUPLICATE = "nearly the same as another answer"


class Keep(StrEnum):
    """The least that an answer must be: FASTER, or right by a full judgement."""

    FASTER = "faster"
    RIGHT = "right"


class BestOf(StrEnum):
    """The group of turns of which only the best is kept; `all` keeps every turn."""

    TRAJECTORY = "trajectory"
    KERNEL = "kernel"
    ALL = "all"


@dataclass(frozen=True, slots=True)
class Rules:
    """The choice of a user; `judge` is the digest of the only judge whose verdicts count, and None counts any."""

    keep: Keep = Keep.FASTER
    best: BestOf = BestOf.TRAJECTORY
    judge: str | None = None


def prune(traces: Sequence[TurnTrace], rules: Rules) -> tuple[list[TurnTrace], dict[str, Dropped]]:
    """Return the traces to keep, in their order, and the reason of each other by its id."""
    cheats = {one.answer for one in traces if one.outcome.result == Outcome.ILLEGITIMATE}
    dropped = {one.id: why for one in traces if (why := _fault(one, rules, cheats)) is not None}
    left = [one for one in traces if one.id not in dropped]
    if rules.best is not BestOf.ALL:
        best = _best(left, (lambda one: one.kernel) if rules.best is BestOf.KERNEL else (lambda one: one.trajectory))
        dropped |= {one.id: Dropped.SURPASSED for one in left if one.id not in best}
        left = [one for one in left if one.id in best]
    repeated = _near_duplicates(left)
    dropped |= dict.fromkeys(repeated, Dropped.NEAR_DUPLICATE)
    return [one for one in left if one.id not in repeated], dropped


def _fault(trace: TurnTrace, rules: Rules, cheats: set[str]) -> Dropped | None:
    outcome = trace.outcome
    if outcome.result == NOT_JUDGED:
        return Dropped.UNJUDGED
    if not trace.complete:
        return Dropped.CUT_OFF
    if trace.answer in cheats or any(one.content in cheats for one in trace.messages if one.role == "assistant"):
        return Dropped.CHEAT
    if outcome.result == REJECTED or not outcome.right:
        return Dropped.FAILED
    if not outcome.judged:
        return Dropped.RACED
    if rules.keep is Keep.FASTER and outcome.result != Outcome.FASTER:
        return Dropped.NOT_FASTER
    if rules.judge not in (None, trace.judge):
        return Dropped.OTHER_JUDGE
    return None


def _best(traces: Sequence[TurnTrace], place: Callable[[TurnTrace], str]) -> set[str]:
    """Return the ids of the best of each place, by the speedup that is certain; of equals the first."""
    best: dict[str, TurnTrace] = {}
    for one in traces:
        known = best.get(place(one))
        if known is None or _worth(one) > _worth(known):
            best[place(one)] = one
    return {one.id for one in best.values()}


def _worth(trace: TurnTrace) -> float:
    return score(trace.outcome) or 0.0


def _near_duplicates(traces: Sequence[TurnTrace]) -> set[str]:
    """Return the ids of answers like a better one, or an earlier one as good, on the same kernel (Jaccard's index)."""
    kept: dict[str, list[frozenset[tuple[str, ...]]]] = {}
    found: set[str] = set()
    for one in sorted(traces, key=_worth, reverse=True):
        shingles = _shingles(one.answer)
        others = kept.setdefault(one.kernel, [])
        if any(len(shingles & other) >= NEAR * len(shingles | other) for other in others):
            found.add(one.id)
        else:
            others.append(shingles)
    return found


def _shingles(text: str) -> frozenset[tuple[str, ...]]:
    tokens = _TOKEN.findall(text)
    return frozenset(tuple(tokens[at : at + _SHINGLE]) for at in range(max(1, len(tokens) - _SHINGLE + 1)))
