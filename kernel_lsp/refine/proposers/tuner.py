"""The tuner: a search over a kernel's settings that learns from every verdict and needs no model.

Effects are taken to be roughly multiplicative: the time of a setting is the product of the effects of its changes. Each
report refines that estimate. The next candidate is the one with the lowest estimate among the neighbours of the best
settings so far (one tunable a step up or down, a size and the warps together, since one often pays with the other
alone, or two tunables that were measured) and the combination of all changes that helped by themselves. When the
neighbours are used up, or expected to be much slower, settings far away are tried: the most promising of a few that are
drawn at random, as the estimate says little there. The search ends when many reports in a row brought no progress.

`tests/bench/tuner_rivals.py` holds this against random settings and Optuna's TPE.
"""

import math
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations, product

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.tunables.space import Kind, Space, Value
from kernel_lsp.source.candidate import Candidate

Point = tuple[int, ...]
"""A setting as the position of each tunable's value among its choices."""

# Expected effect of an untried step on the log of the time, by kind: the most promising come first.
_HOPE = {
    Kind.AUTOTUNE: -0.05,
    Kind.BLOCK: -0.06,
    Kind.WARPS: -0.05,
    Kind.SIZE: -0.04,
    Kind.STAGES: -0.03,
    Kind.GRID: -0.03,
    Kind.MIN_BLOCKS: 0.0,
    Kind.UNROLL: 0.0,
    Kind.REGISTERS: 0.0,
    Kind.LOOP: 0.0,
    Kind.CACHE: 0.0,
}
_STEP = 0.02  # expected gain lost with each further value in an order of promise
_FAR = 0.08  # expected gain lost with each step beyond the measured values
_HOPELESS = 0.06  # estimated loss against the best from which a neighbour is not tried
_FAILURE = 0.05  # estimated cost of a change that failed together with others
_NOISE = 0.01  # a gain smaller than this is no progress
_MARK_UP = 0.004
_DRAWS = 4  # at random, for one setting far away
_FRUITLESS = 40  # draws of so many in a row, after which all settings count as tried


@dataclass
class _Knowledge:
    """Results for one tunable: measured changes against the baseline, and the values to avoid."""

    effects: dict[int, float]
    dead: set[int]
    wrong: int = 0
    right: int = 0


class Tuner:
    """A proposer of settings.

    Args:
        space: what can be turned, from `tunables.find_tunables`.
        seed: the same seed and the same reports give the same proposals.
        patience: reports in a row without progress after which nothing more is proposed.
    """

    def __init__(self, space: Space, seed: int = 0, patience: int = 12) -> None:
        self.space = space
        self._tunables = space.tunables
        self._random = random.Random(seed)
        self._patience = patience
        self._start: Point = tuple(tunable.choices.index(tunable.current) for tunable in self._tunables)
        self._times: dict[Point, float] = {self._start: 0.0}  # log of the ratio to the baseline
        self._tried: set[Point] = {self._start}
        self._points: dict[str, Point] = {space.base.digest: self._start}  # by digest
        self._known = [_Knowledge({at: 0.0}, set()) for at in self._start]
        self._spills: int | None = None
        self._idle = 0

    async def next(self, budget: int) -> Sequence[Candidate]:
        """Return the most promising untried settings; none when the space or the patience is used up."""
        found: list[Candidate] = []
        while len(found) < budget and self._idle < self._patience:
            candidate = self._pick()
            if candidate is None:
                break
            found.append(candidate)
        return found

    def tell(self, candidate: Candidate, feedback: Feedback) -> None:
        """Learn from a report; candidates of other proposers are ignored."""
        point = self._points.get(candidate.digest)
        if point is None:
            return
        spills = feedback.facts.spill_bytes if feedback.facts is not None else None
        if point == self._start:
            self._spills = spills
            return
        changed = [axis for axis, at in enumerate(point) if at != self._start[axis]]
        best = min(self._times.values())
        if feedback.verdict.is_failure:
            self._learn_failure(point, changed, feedback.verdict)
        elif feedback.ratio is not None:
            self._learn_time(point, changed, math.log(feedback.ratio))
        if spills is not None and self._spills is not None and spills > self._spills and len(changed) == 1:
            self._close(changed[0], point[changed[0]], beyond_only=feedback.ratio is not None)
        for axis in changed:
            self._known[axis].right += not feedback.verdict.is_failure
        self._idle = 0 if min(self._times.values()) < best - _NOISE else self._idle + 1

    def _learn_time(self, point: Point, changed: list[int], time: float) -> None:
        self._times[point] = time
        if len(changed) == 1:
            self._known[changed[0]].effects[point[changed[0]]] = time
            return
        # Distribute the estimate's error among the changes, without overruling those measured alone.
        fresh = [axis for axis in changed if point[axis] not in self._known[axis].effects]
        missed = time - sum(self._effect(axis, point[axis]) for axis in changed)
        for axis in fresh:
            self._known[axis].effects[point[axis]] = self._effect(axis, point[axis]) + missed / len(fresh)

    def _learn_failure(self, point: Point, changed: list[int], verdict: Outcome) -> None:
        suspects = [axis for axis in changed if point[axis] not in self._known[axis].effects]
        if len(suspects) != 1 and len(changed) != 1:
            for axis in suspects:
                self._known[axis].effects[point[axis]] = _FAILURE
            return
        axis = changed[0] if len(changed) == 1 else suspects[0]
        known = self._known[axis]
        if verdict is Outcome.WRONG:
            # Another value may still be right, but after two wrong ones the number probably has a meaning.
            known.dead.add(point[axis])
            known.wrong += 1
            if known.wrong >= 2 and not known.right:
                known.dead.update(range(len(self._tunables[axis].choices)))
                known.dead.discard(self._start[axis])
        else:
            self._close(axis, point[axis], beyond_only=False)

    def _close(self, axis: int, at: int, beyond_only: bool) -> None:
        """Rule out values further from the baseline than `at`, in its direction."""
        start = self._start[axis]
        if not self._tunables[axis].ordered:
            beyond = range(0)
        elif at > start:
            beyond = range(at + 1, len(self._tunables[axis].choices))
        else:
            beyond = range(at)
        self._known[axis].dead.update(beyond if beyond_only else {at, *beyond})
        self._known[axis].dead.discard(start)

    def _effect(self, axis: int, at: int) -> float:
        """Return the estimated log of the time at one value of one tunable, all others as in the baseline."""
        effects, tunable = self._known[axis].effects, self._tunables[axis]
        if at in effects:
            return effects[at]
        hope = _HOPE[tunable.kind]
        if not tunable.ordered:
            return hope + _STEP * at
        nearest = min(effects, key=lambda other: (abs(other - at), other))
        behind = range(nearest + 1, len(tunable.choices)) if nearest > at else range(nearest - 1, -1, -1)
        inner = next((other for other in behind if other in effects), None)
        # Half of a trend continues: returns diminish. An untried direction keeps some expected gain of its own.
        trend = (effects[nearest] - effects[inner]) / 2 if inner is not None else hope
        if inner is not None and nearest == self._start[axis]:
            trend += hope / 2
        return effects[nearest] + trend + _FAR * (abs(at - nearest) - 1)

    def _estimate(self, point: Point, best: Point) -> float:
        """Return the estimated log of the ratio to the baseline: the best settings', plus the changes' effects."""
        moved = [axis for axis, at in enumerate(point) if at != best[axis]]
        change = sum(self._effect(axis, point[axis]) - self._effect(axis, best[axis]) for axis in moved)
        return self._standing(best) + change + _FAR * (len(moved) - 1)

    def _standing(self, point: Point) -> float:
        """Return the measured log of the time plus a small cost for each change, so that ties favour the baseline."""
        return self._times[point] + _MARK_UP * sum(at != start for at, start in zip(point, self._start, strict=True))

    def _pick(self) -> Candidate | None:
        """Return the candidate of the most promising untried settings, None without any."""
        best = min(self._times, key=lambda point: (self._standing(point), point))
        limit = self._standing(best) + _HOPELESS
        near = {point: estimate for point in self._near(best) if (estimate := self._estimate(point, best)) <= limit}
        for point in sorted(near, key=lambda point: (near[point], point)):
            if (candidate := self._form(point)) is not None:
                return candidate
        for _ in range(_FRUITLESS):
            drawn = [point for _ in range(_DRAWS) if (point := self._draw()) not in self._tried]
            far = min(drawn, key=lambda point: (self._estimate(point, best), point), default=None)
            if far is not None and (candidate := self._form(far)) is not None:
                return candidate
        return None

    def _near(self, best: Point) -> Iterator[Point]:
        """Yield the untried neighbours of the best settings, and the combination of all changes that helped."""
        winners = tuple(self._winner(axis) for axis in range(len(best)))
        steps = [(axis, at) for axis in range(len(best)) for at in self._steps(axis, best[axis])]
        measured = [(axis, at) for axis, at in steps if at in self._known[axis].effects]
        pairs = [pair for pair in combinations(measured, 2) if pair[0][0] != pair[1][0]]
        pairs += list(self._together(best))
        for point in (winners, *(_moved(best, [step]) for step in steps), *(_moved(best, pair) for pair in pairs)):
            if point not in self._tried and self._alive(point):
                yield point

    def _together(self, best: Point) -> Iterator[tuple[tuple[int, int], tuple[int, int]]]:
        """Yield pairs of a size and its warps, both a step up or both a step down."""
        kinds = [tunable.kind for tunable in self._tunables]
        for block, warps in product(range(len(best)), repeat=2):
            if kinds[block] is not Kind.BLOCK or kinds[warps] is not Kind.WARPS:
                continue
            for step in (1, -1):
                moves = (block, best[block] + step), (warps, best[warps] + step)
                if all(0 <= at < len(self._tunables[axis].choices) for axis, at in moves):
                    yield moves

    def _winner(self, axis: int) -> int:
        """Return the best value of one tunable by itself; the current one unless another is clearly better."""
        known, start = self._known[axis], self._start[axis]
        live = (at for at in known.effects if at not in known.dead)
        return min(live, key=lambda at: known.effects[at] + _NOISE * (at != start))

    def _steps(self, axis: int, at: int) -> Iterator[int]:
        """Yield the values next to `at`; all values if their order has no meaning."""
        count = len(self._tunables[axis].choices)
        reach = (at - 2, at - 1, at + 1, at + 2) if self._tunables[axis].ordered else range(count)
        yield from (other for other in reach if 0 <= other < count and other != at)

    def _alive(self, point: Point) -> bool:
        return all(at not in known.dead for at, known in zip(point, self._known, strict=True))

    def _draw(self) -> Point:
        """Return random settings among the values that are not ruled out."""
        return tuple(
            self._random.choice([at for at in range(len(tunable.choices)) if at not in known.dead])
            for tunable, known in zip(self._tunables, self._known, strict=True)
        )

    def _form(self, point: Point) -> Candidate | None:
        """Return the candidate at `point`, None if it breaks a limit or equals an earlier one."""
        self._tried.add(point)
        values: dict[str, Value] = {t.name: t.choices[at] for t, at in zip(self._tunables, point, strict=True)}
        candidate = self.space.form(values)
        if candidate is None or candidate.digest in self._points:
            return None
        self._points[candidate.digest] = point
        return candidate


def _moved(point: Point, move: Sequence[tuple[int, int]]) -> Point:
    moved = list(point)
    for axis, at in move:
        moved[axis] = at
    return tuple(moved)
