"""The blocks of a race between many candidates: the order of a round, the differences, and the survivors."""

import math
import random
from collections.abc import Mapping, Sequence

from kernel_lsp.judge.measure.statistics import LookOutcome, decide
from kernel_lsp.policy import ALPHA, DELTA, LEAST_DEVIATION


def alpha_of_each(alpha: float, candidates: int) -> float:
    """Return the error probability for each of several candidates that are judged together (Bonferroni)."""
    return alpha / candidates


def schedule(candidates: Sequence[int], rng: random.Random) -> list[int | None]:
    """Return the order of a round: A, the candidates shuffled, A, the same reversed, A; None is the baseline."""
    order = rng.sample(candidates, len(candidates))
    return [None, *order, None, *reversed(order), None]


def differences(order: Sequence[int | None], segments: Sequence[float]) -> dict[int, float]:
    """Return one ln(B/A) for each candidate of a round: its two segments against (a1 + 2 a2 + a3) / 4.

    Both have the same centre in time, so linear drift cancels. Interpolating between the runs of A that bracket each
    segment was tried: it leaves as much noise in simulated drift and clock steps.

    Args:
        order: from `schedule`.
        segments: ln(median time) of each segment, in that order.
    """
    times: dict[int | None, list[float]] = {}
    for candidate, segment in zip(order, segments, strict=True):
        times.setdefault(candidate, []).append(segment)
    first, middle, last = times[None]
    baseline = (first + 2 * middle + last) / 4
    return {candidate: (b[0] + b[1]) / 2 - baseline for candidate, b in times.items() if candidate is not None}


def survivors(
    blocks: Mapping[int, Sequence[float]],
    entrants: int,
    delta: float = DELTA,
    alpha: float = ALPHA,
    floor: float = LEAST_DEVIATION,
    keep: int | None = None,
) -> list[int]:
    """Return the candidates of a race whose interval still allows a gain of `delta`, fastest first.

    Args:
        blocks: for each candidate still running, ln(B/A) of each round.
        entrants: how many candidates started; each is judged at `alpha_of_each(alpha, entrants)`.
        delta: smallest gain worth having.
        alpha: error probability of the whole race.
        floor: least deviation of a block to believe in.
        keep: cut the field to so many, for the end of a race; by default all go on.
    """
    each = alpha_of_each(alpha, entrants)
    decisions = {candidate: decide(d, delta, each, budget_ms=math.inf, floor=floor) for candidate, d in blocks.items()}
    out = (LookOutcome.SLOWER, LookOutcome.SAME, LookOutcome.NOT_WORTH_IT)
    alive = [candidate for candidate, decision in decisions.items() if decision.outcome not in out]
    return sorted(alive, key=lambda candidate: decisions[candidate].mean)[:keep]
