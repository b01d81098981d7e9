"""The reward of a model's turns, from the outcomes that the judge gave them. Pure: records in, numbers out.

The score and the return are those of Kevin (Baronio et al., "Kevin: Multi-Turn RL for Generating CUDA Kernels", arXiv
2507.11948: the score in section 3, the return and its gamma in section 4), the advantage is that of GRPO (Shao et al.,
arXiv 2402.03300, section 4.1). Where we differ, the judge's doubts are never paid for:

- the speedup is the lower end of its interval, not the point, so that a lucky timing earns little;
- a gain is paid only after a full judgement, and to a limit, so that one outlier does not own its group;
- a cheat earns less than a wrong answer, and ends its trajectory: nothing later makes up for it;
- a turn that was not judged has no score at all, for that is nobody's merit or fault.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, REJECTED, TurnOutcome

RIGHT = 0.3
"""Score of being right, before any speed (section 3 of the paper; 1.0 and 0 were worse in its ablations)."""
GAMMA = 0.4
"""Discount of later turns in a return (section 4 of the paper)."""
CHEATING = -1.0
"""Score of an illegitimate answer; that of a wrong one is 0."""
MOST_SPEEDUP = 10.0
"""Largest speedup that is paid for: beyond it one answer would decide the advantage of its whole group."""

_SMALLEST_DEVIATION = 1e-9  # of a group's returns, below which they are alike


@dataclass(frozen=True, slots=True)
class RewardedTurn:
    """One turn to learn from.

    Attributes:
        trajectory: number of its trajectory in the group.
        turn: its number there, from 0.
        score: of the turn itself.
        reward: its return, the discounted sum of its own and later scores.
    """

    trajectory: int
    turn: int
    score: float
    reward: float


def score(outcome: TurnOutcome) -> float | None:
    """Return the score of one turn: 0.3 for being right plus the speedup that is certain; None if it was not judged.

    A candidate that was right in a race is paid as if it was no faster than the user's kernel.
    """
    if outcome.result == NOT_JUDGED:
        return None
    if outcome.result == REJECTED:
        return 0.0
    result = Outcome(outcome.result)
    if result is Outcome.ILLEGITIMATE:
        return CHEATING
    if result.is_failure or not outcome.right:
        return 0.0
    return RIGHT + _certain_speedup(outcome)


def returns(scores: Sequence[float], gamma: float = GAMMA) -> list[float]:
    """Return for each turn the sum of `gamma ** k` times the score of the k-th turn after it, k from 0."""
    found: list[float] = []
    later = 0.0
    for one in reversed(scores):
        later = one + gamma * later
        found.append(later)
    return found[::-1]


def samples_of(group: Sequence[Sequence[TurnOutcome]], gamma: float = GAMMA) -> list[RewardedTurn]:
    """Return the turns to learn from in a group of trajectories on one kernel.

    A trajectory ends with its first cheat, and before its first turn that was not judged.
    """
    found: list[RewardedTurn] = []
    for number, trajectory in enumerate(group):
        scores = _counted(trajectory)
        rewards = returns(scores, gamma)
        found += [RewardedTurn(number, turn, s, r) for turn, (s, r) in enumerate(zip(scores, rewards, strict=True))]
    return found


def advantages(samples: Sequence[RewardedTurn], *, by_turn: bool = True) -> list[float]:
    """Return the advantage of each sample: its reward less the mean of its group, over its standard deviation.

    All are 0 in a group whose rewards are alike, from which nothing is to be learned.

    Args:
        samples: of one kernel.
        by_turn: compare with the same turn of other trajectories; otherwise with all turns of all of them, as the
            paper does, where first turns come out better for no merit but their longer sum.
    """
    groups: dict[int, list[float]] = {}
    for sample in samples:
        groups.setdefault(sample.turn if by_turn else 0, []).append(sample.reward)
    return [_normalised(one.reward, groups[one.turn if by_turn else 0]) for one in samples]


def _certain_speedup(outcome: TurnOutcome) -> float:
    if outcome.speedup is None:
        return 0.0
    low = outcome.interval[0] if outcome.interval else outcome.speedup
    return max(0.0, min(low, MOST_SPEEDUP if outcome.judged else 1.0))


def _counted(trajectory: Sequence[TurnOutcome]) -> list[float]:
    found: list[float] = []
    for outcome in trajectory:
        scored = score(outcome)
        if scored is None:
            break
        found.append(scored)
        if outcome.result == Outcome.ILLEGITIMATE:
            break
    return found


def _normalised(reward: float, group: Sequence[float]) -> float:
    mean = math.fsum(group) / len(group)
    deviation = math.sqrt(math.fsum((one - mean) ** 2 for one in group) / len(group))
    return (reward - mean) / deviation if deviation > _SMALLEST_DEVIATION else 0.0
