"""The tuner against rivals at equal numbers of judged candidates: `python -m tests.bench.tuner_rivals`. Needs no GPU.

The settings of kernels and of their variants are searched as in `refine`, races of eight at a time, on response
surfaces that are learned from recorded races: a Gaussian process over the logs of the times (a slope away from what
the author wrote, an effect of each tunable, one of all together) agrees with what was recorded of that file, and is
drawn elsewhere. How much these matter differs by file and is drawn by how likely it makes the file's record, and the
others' (empirical Bayes on a grid). A value that failed by itself fails, and so do all beyond it. Races have noise. The
search that was recorded did not go on where it was slow, so the slope away from the author's settings may be too small,
which favours who tries what is far: `--steeper 0.1` makes each step cost 10 % more.

Rivals: `random`; Optuna's TPE as it is (`tpe`), told of the baseline, eight asked at a time with its constant liar, and
with four random candidates at its start in place of ten (`tpe_early`); TPE that is given the tuner's first race
(`tpe_after_tuner`). Optuna is no dependency: without it only `random` is the tuner's rival.

Counted: the true time of what looks best, over the base's, after 8, 16 and 32 judged candidates, beside the best that
any rival or 2,000 random candidates reached; the difference to the tuner with a 95 % interval by resampling kernels.

Options: --public FOLDER where `tests.wild.fetch` has put public kernels; --draws N surfaces for each file (12);
--only WORD... in a kernel's name; --steeper LOG (0); --out NAME of the result; --record.
"""

import argparse
import asyncio
import importlib
import importlib.util
import math
import random
import re
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from kernel_lsp.device.device import Device, device_named
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.proposer import Feedback, Proposer
from kernel_lsp.refine.proposers.tuner import Point, Tuner
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.refine.tunables.space import Space, Value
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels
from tests.bench.memory_order import KernelRaces, read_races
from tests.bench.record import record
from tests.bench.refine_examples import EXAMPLES
from tests.wild.catalogue import kernels_in

NAME = "tuner_rivals"
BUDGETS = (8, 16, 32)
_RACE = 8
_FEWEST = 5  # recorded settings of a file to learn from
_FAR = 3.0  # steps from which on going further costs no more
_ROUNDS = 50  # of weighing the scales
_NOISE = 0.004  # of the log of a time, in a race
_SAMPLES, _RESAMPLES, _FEATURES = 2000, 4000, 400
_ASKS = 40  # of a rival that repeats itself, for one candidate
Array = NDArray[np.float64]


@dataclass(frozen=True)
class Scales:
    """How much tunables matter alone and together, over how many values an effect changes, and the cost of a step."""

    alone: float
    together: float
    reach: float
    slope: float


@dataclass(frozen=True)
class Recorded:
    """The settings of one file that were raced: logs of times over the file's; None where they failed."""

    kernel: str
    variant: str
    space: Space
    points: Mapping[Point, float | None]

    @property
    def timed(self) -> dict[Point, float]:
        """Return those with a time; the file itself is one."""
        return {at: told for at, told in self.points.items() if told is not None}


def point_of(space: Space, label: str) -> Point | None:
    """Return the settings that a label names beyond its base; None if the space does not have them."""
    values: dict[str, Value] = dict(space.current)
    prefix = "" if space.base.label == "baseline" else f"{space.base.label}; "
    for part in label.removeprefix(prefix).split(", "):
        found = re.fullmatch(r"(.+) (\S+|as computed|as written|by the compiler) -> (.+)", part)
        tunable = next((one for one in space.tunables if found and found[1] == one.title), None)
        if found is None or tunable is None or tunable.shown(tunable.current) != found[2]:
            return None
        choice = next((one for one in tunable.choices if tunable.shown(one) == found[3]), None)
        if choice is None:
            return None
        values[tunable.name] = choice
    return tuple(one.choices.index(values[one.name]) for one in space.tunables)


def made(base: Candidate, label: str, device: Device) -> Candidate | None:
    """Return the variant of a label, made anew from the user's file; None where that is no longer possible."""
    for part in label.split("; ") if label else ():
        kernels = find_kernels(base.kernel.text, base.kernel.path)
        settled: Candidate | None = None
        for kernel in kernels:
            if " -> " in part:
                space = find_tunables(base, kernel.name, device)
                whole = part if base.label == "baseline" else f"{base.label}; {part}"
                if (at := point_of(space, whole)) is not None:
                    settled = settled or space.form(named(space, at))
            else:
                found = (one for one in find_rewrites(base, kernel, device) if one.label == part)
                settled = settled or next(found, None)
        if settled is None:
            return None
        before = "" if base.label == "baseline" or " -> " in part else f"{base.label}; "
        base = Candidate(settled.language, settled.kernel, settled.launch, before + settled.label, settled.origin)
    return base


def named(space: Space, at: Point) -> dict[str, Value]:
    """Return settings by the names of their tunables."""
    return {one.name: one.choices[place] for one, place in zip(space.tunables, at, strict=True)}


def recorded(races: KernelRaces, base: Candidate, device: Device) -> Iterator[Recorded]:
    """Yield each file of a kernel's races whose settings were raced often enough."""
    bases = dict.fromkeys(one.label.rpartition("; ")[0] for one in races.trials if " -> " in one.label)
    ratios: dict[str, float | None] = {"": 1.0, **{one.label: one.ratio for one in races.trials}}
    for label in bases:
        variant, start = made(base, label, device), ratios.get(label)
        if variant is None or start is None:
            continue
        found: list[Recorded] = []
        for kernel in find_kernels(variant.kernel.text, variant.kernel.path):
            space = find_tunables(variant, kernel.name, device)
            points: dict[Point, float | None] = {point_of_base(space): 0.0}
            for one in races.trials:
                if one.label.rpartition("; ")[0] == label and (at := point_of(space, one.label)) is not None:
                    points[at] = None if one.ratio is None else math.log(one.ratio / start)
            found.append(Recorded(races.kernel, label, space, points))
        best = max(found, key=lambda one: len(one.points), default=None)
        if best is not None and len(best.points) > _FEWEST:
            yield best


def point_of_base(space: Space) -> Point:
    """Return the settings of the file itself."""
    return tuple(one.choices.index(one.current) for one in space.tunables)


def distances(space: Space, first: Array, second: Array) -> Array:
    """Return how far apart settings are in each tunable: values between them, or 2 where their order says nothing."""
    apart = np.abs(first[:, None, :] - second[None, :, :])
    loose = np.array([not one.ordered for one in space.tunables])
    apart[:, :, loose] = 2.0 * (apart[:, :, loose] > 0)
    return apart


def covariance(space: Space, scales: Scales, first: Array, second: Array) -> Array:
    """Return how settings vary together: the sum of exponentials of each tunable, and their product."""
    near = np.exp(-distances(space, first, second) / scales.reach)
    return scales.alone**2 * near.sum(axis=2) + scales.together**2 * near.prod(axis=2)


def slope(space: Space, scales: Scales, at: Array) -> Array:
    """Return the mean log of the time of settings: a cost for each step away from those of the file."""
    start = np.array([point_of_base(space)], dtype=float)
    return scales.slope * np.minimum(distances(space, at, start), _FAR).sum(axis=(1, 2))


def likelihood(one: Recorded, scales: Scales) -> float:
    """Return the log of the likelihood of one file's record, less a constant."""
    at, start = np.array(list(one.timed), dtype=float), np.array([point_of_base(one.space)], dtype=float)
    keep = (at != start).any(axis=1)
    told = (np.array(list(one.timed.values())) - slope(one.space, scales, at))[keep]
    at = at[keep]
    if not len(at):
        return 0.0
    from_start = covariance(one.space, scales, start, at)
    matrix = covariance(one.space, scales, at, at) - from_start.T - from_start
    matrix += covariance(one.space, scales, start, start) + _NOISE**2 * np.eye(len(at))
    _, size = np.linalg.slogdet(matrix)
    return float(-(told @ np.linalg.solve(matrix, told)) / 2 - size / 2)


GRID = tuple(
    Scales(*one)
    for one in product(
        (0.01, 0.03, 0.1, 0.3), (0.005, 0.02, 0.05, 0.1, 0.2), (1.0, 3.0, 9.0), (0.0, 0.02, 0.05, 0.1, 0.2)
    )
)


def plausible(files: Sequence[Recorded]) -> list[Array]:
    """Return how probable each scale of the grid is for each file, given its own record and all others'."""
    logs = np.array([[likelihood(one, scales) for scales in GRID] for one in files])
    likely = np.exp(logs - logs.max(axis=1, keepdims=True))
    shares = np.full(len(GRID), 1 / len(GRID))
    told = likely
    for _ in range(_ROUNDS):
        told = likely * shares
        told /= told.sum(axis=1, keepdims=True)
        shares = told.mean(axis=0)
    return list(told)


class Surface:
    """One drawn response surface that agrees with a record; the file itself is 0."""

    def __init__(self, one: Recorded, scales: Scales, seed: int) -> None:
        self._space, self._scales, drawn = one.space, scales, np.random.default_rng(seed)
        sizes = [len(tunable.choices) for tunable in one.space.tunables]
        self._alone = [self._effect(axis, size, drawn) for axis, size in enumerate(sizes)]
        # Frequencies whose features vary together as exponentials of the distance do (Rahimi, Recht: Random Features
        # for Large-Scale Kernel Machines, 2007).
        self._frequencies = drawn.standard_cauchy((len(sizes), _FEATURES)) / scales.reach
        self._phases = drawn.uniform(0, 2 * math.pi, _FEATURES)
        self._weights = drawn.standard_normal(_FEATURES) * scales.together * math.sqrt(2 / _FEATURES)
        self._at = np.array(list(one.timed), dtype=float)
        told = np.array(list(one.timed.values()))
        matrix = covariance(one.space, scales, self._at, self._at) + _NOISE**2 * np.eye(len(self._at))
        prior = np.array([self._drawn(at) for at in self._at])
        self._missed = np.linalg.solve(matrix, told - prior + drawn.normal(0, _NOISE, len(told)))
        self._dead = [_dead_values(one, axis) for axis in range(len(sizes))]
        self._level = 0.0
        self._level = self.log_time(point_of_base(one.space)) or 0.0

    def _effect(self, axis: int, size: int, drawn: np.random.Generator) -> Array:
        places = np.arange(size, dtype=float)[:, None]
        apart = np.abs(places - places.T)
        apart = apart if self._space.tunables[axis].ordered else 2.0 * (apart > 0)
        matrix = np.exp(-apart / self._scales.reach) + 1e-9 * np.eye(size)
        return self._scales.alone * (np.linalg.cholesky(matrix) @ drawn.standard_normal(size))

    def _drawn(self, at: Array) -> float:
        alone = sum(effect[int(place)] for effect, place in zip(self._alone, at, strict=True))
        alone += slope(self._space, self._scales, at[None, :])[0]
        return float(alone + np.cos(at @ self._frequencies + self._phases) @ self._weights)

    def log_time(self, at: Point) -> float | None:
        """Return the log of the time of settings over the file's; None where they fail."""
        if any(place in dead for place, dead in zip(at, self._dead, strict=True)):
            return None
        here = np.array([at], dtype=float)
        correction = float((covariance(self._space, self._scales, here, self._at) @ self._missed)[0])
        return self._drawn(here[0]) + correction - self._level


def _dead_values(one: Recorded, axis: int) -> set[int]:
    """Return the values of a tunable that failed by themselves, and all beyond them."""
    start, size = point_of_base(one.space), len(one.space.tunables[axis].choices)
    dead: set[int] = set()
    for at, told in one.points.items():
        if told is None and all(
            place == here for i, (place, here) in enumerate(zip(at, start, strict=True)) if i != axis
        ):
            beyond = range(at[axis], size) if at[axis] > start[axis] else range(at[axis] + 1)
            dead |= set(beyond) if one.space.tunables[axis].ordered else {at[axis]}
    return dead


class Drawn:
    """A rival: any settings, each as likely."""

    def __init__(self, space: Space, seed: int) -> None:
        self._space, self._random, self._seen = space, random.Random(seed), {space.base.digest}

    async def next(self, budget: int) -> Sequence[Candidate]:
        """Return settings that were not drawn before."""
        found: list[Candidate] = []
        for _ in range(budget * _ASKS):
            values = {one.name: self._random.choice(one.choices) for one in self._space.tunables}
            candidate = self._space.form(values)
            if candidate is not None and candidate.digest not in self._seen and len(found) < budget:
                self._seen.add(candidate.digest)
                found.append(candidate)
        return found

    def tell(self, candidate: Candidate, feedback: Feedback) -> None:
        """Learn nothing."""


class Tpe:
    """A rival: Optuna's tree-structured Parzen estimator; settings are places in the order of values, or categories.

    Args:
        space: what can be turned.
        seed: of its sampler.
        startup: how many random candidates come first.
        first: what is raced in place of its own first race.
    """

    def __init__(self, space: Space, seed: int, startup: int = 10, first: Proposer | None = None) -> None:
        self._optuna: Any = importlib.import_module("optuna")
        self._optuna.logging.set_verbosity(self._optuna.logging.ERROR)
        made = self._optuna.samplers.TPESampler
        sampler = made(n_startup_trials=startup, multivariate=True, constant_liar=True, seed=seed)
        self._study: Any = self._optuna.create_study(sampler=sampler)
        self._space, self._first = space, first
        self._ranges: dict[str, Any] = {
            one.name: self._optuna.distributions.IntDistribution(0, len(one.choices) - 1)
            if one.ordered
            else self._optuna.distributions.CategoricalDistribution(range(len(one.choices)))
            for one in space.tunables
        }
        self._trials: dict[str, Any] = {}
        self._values: dict[str, float] = {space.base.digest: 0.0}
        self._add(point_of_base(space), 0.0)

    def _add(self, at: Point, value: float) -> None:
        given = dict(zip(self._ranges, at, strict=True))
        self._study.add_trial(self._optuna.trial.create_trial(params=given, distributions=self._ranges, value=value))

    async def next(self, budget: int) -> Sequence[Candidate]:
        """Return what it asks for; what it has asked for before is answered at once and costs nothing."""
        if self._first is not None:
            first, self._first = self._first, None
            return await first.next(budget)
        found: list[Candidate] = []
        for _ in range(budget * _ASKS):
            if len(found) == budget:
                break
            trial = self._study.ask(self._ranges)
            at = tuple(int(trial.params[name]) for name in self._ranges)
            candidate = self._space.form(named(self._space, at))
            if candidate is None or candidate.digest in self._trials:
                self._study.tell(trial, state=self._optuna.trial.TrialState.FAIL)
            elif candidate.digest in self._values:
                self._study.tell(trial, self._values[candidate.digest])
            else:
                self._trials[candidate.digest] = trial
                found.append(candidate)
        return found

    def tell(self, candidate: Candidate, feedback: Feedback) -> None:
        """Learn a time; a failure is a large one."""
        value = math.log(feedback.ratio) if feedback.ratio is not None else 1.0
        self._values[candidate.digest] = value
        trial = self._trials.pop(candidate.digest, None)
        if trial is not None:
            self._study.tell(trial, value)
        elif (at := point_of(self._space, candidate.label)) is not None:
            self._add(at, value)


def rivals() -> dict[str, Callable[[Space, int], Proposer]]:
    """Return the makers of all that can play, ours first."""
    found: dict[str, Callable[[Space, int], Proposer]] = {"tuner": Tuner, "random": Drawn}
    if importlib.util.find_spec("optuna") is not None:
        found["tpe"] = Tpe
        found["tpe_early"] = lambda space, seed: Tpe(space, seed, startup=4)
        found["tpe_after_tuner"] = lambda space, seed: Tpe(space, seed, startup=4, first=Tuner(space, seed))
    return found


async def play(proposer: Proposer, one: Recorded, surface: Surface, seed: int) -> list[float]:
    """Return the true log of the time of what looks best after each judged candidate; fewer if it ends by itself."""
    noise, seen, best, reached = random.Random(seed), 0.0, 0.0, list[float]()
    while len(reached) < BUDGETS[-1] and (proposed := await proposer.next(min(_RACE, BUDGETS[-1] - len(reached)))):
        for candidate in proposed:
            at = point_of(one.space, candidate.label)
            true = surface.log_time(at) if at is not None else None
            if true is None:
                proposer.tell(candidate, Feedback(Stage.RUN, Outcome.RUN_FAILED))
            else:
                measured = true + noise.gauss(0, _NOISE)
                seen, best = min((seen, best), (measured, true))
                verdict = Outcome.SLOWER if measured > 0 else Outcome.AMBIGUOUS
                proposer.tell(candidate, Feedback(Stage.TIMED, verdict, math.exp(measured)))
            reached.append(best)
    return reached


def after(reached: Sequence[float], budget: int) -> float:
    """Return what was reached after so many candidates, or at the end if that came before."""
    return reached[min(budget, len(reached)) - 1] if reached else 0.0


def floor(one: Recorded, surface: Surface, seed: int) -> float:
    """Return the best of many random settings that keep the space's limits."""
    drawn, best = random.Random(seed), 0.0
    for _ in range(_SAMPLES):
        at = tuple(drawn.randrange(len(tunable.choices)) for tunable in one.space.tunables)
        time_there = surface.log_time(at)
        if time_there is not None and time_there < best and one.space.form(named(one.space, at)) is not None:
            best = time_there
    return best


async def figures_of(one: Recorded, shares: Array, draws: int, steeper: float = 0.0) -> dict[str, Any]:
    """Return the mean true logs of one file by rival and budget, of the best known, and seconds of proposing."""
    players, sums, best = rivals(), dict[str, list[list[float]]](), list[float]()
    seconds = dict.fromkeys(players, 0.0)
    for seed in range(draws):
        scales = random.Random(seed).choices(GRID, weights=list(shares))[0]
        surface = Surface(one, replace(scales, slope=scales.slope + steeper), seed)
        for name, make in players.items():
            start = time.perf_counter()
            sums.setdefault(name, []).append(await play(make(one.space, seed), one, surface, seed))
            seconds[name] += time.perf_counter() - start
        best.append(min(floor(one, surface, seed), *(after(runs[-1], BUDGETS[-1]) for runs in sums.values())))
    size = math.prod(len(tunable.choices) for tunable in one.space.tunables)
    row: dict[str, Any] = {"kernel": one.kernel, "variant": one.variant, "settings": size}
    row |= {"recorded": len(one.points), "recorded_best": min(one.timed.values()), "best": statistics.mean(best)}
    row["seconds"] = {name: taken / draws for name, taken in seconds.items()}
    row["reached"] = {
        name: {str(budget): statistics.mean(after(run, budget) for run in runs) for budget in BUDGETS}
        for name, runs in sums.items()
    }
    row["judged"] = {name: statistics.mean(map(len, runs)) for name, runs in sums.items()}
    return row


def summarise(rows: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return by rival and budget the mean time over the base's, what lacks to the best, and to the tuner."""
    found: dict[str, Any] = {"files": len(rows), "kernels": len({row["kernel"] for row in rows})}
    found |= {f"{key}_ratio": math.exp(statistics.mean(row[key] for row in rows)) for key in ("best", "recorded_best")}
    for name in rows[0]["reached"]:
        found[name] = {key: statistics.mean(row[key][name] for row in rows) for key in ("seconds", "judged")}
        for budget in map(str, BUDGETS):
            ours = [row["reached"]["tuner"][budget] for row in rows]
            theirs = [row["reached"][name][budget] for row in rows]
            apart = [b - a for a, b in zip(ours, theirs, strict=True)]
            found[name][budget] = {
                "ratio": math.exp(statistics.mean(theirs)),
                "above_best": statistics.mean(b - row["best"] for b, row in zip(theirs, rows, strict=True)),
                "above_tuner": statistics.mean(apart),
                "above_tuner_interval": interval([row["kernel"] for row in rows], apart),
            }
    return found


def interval(kernels: Sequence[str], values: Sequence[float]) -> tuple[float, float]:
    """Return a 95 % interval of the mean by resampling kernels, each with all of its files."""
    drawn, by_kernel = random.Random(0), dict[str, list[float]]()
    for kernel, value in zip(kernels, values, strict=True):
        by_kernel.setdefault(kernel, []).append(value)
    groups = list(by_kernel.values())
    samples = ([value for group in drawn.choices(groups, k=len(groups)) for value in group] for _ in range(_RESAMPLES))
    means = sorted(map(statistics.mean, samples))
    return means[_RESAMPLES // 40], means[-_RESAMPLES // 40]


def baselines(public: Path | None) -> dict[str, Candidate]:
    """Return the kernels of the records as they stand, by name; public ones where they are."""
    places = {str(path.relative_to(EXAMPLES)): (path, None) for path in EXAMPLES.glob("*/*") if path.is_file()}
    wild = {kernel.name: (paths[0], kernel.workload) for kernel, paths in kernels_in(public)} if public else {}
    found: dict[str, Candidate] = {}
    for name in {one.kernel for one in read_races()} & {*places, *wild}:
        path, workload = (places | wild)[name]
        try:
            found[name] = make_target(path, workload=workload).baseline
        except KernelLspError:
            continue
    return found


def lines(summary: Mapping[str, Any]) -> Iterator[str]:
    """Yield the printed table."""
    yield f"{summary['files']} files of {summary['kernels']} kernels; best known {summary['best_ratio']:.3f}"
    for name, budget in product(rivals(), map(str, BUDGETS)):
        told = summary[name][budget]
        low, high = told["above_tuner_interval"]
        yield (
            f"{name:16s} {budget:>2s} candidates: {told['ratio']:.3f}; log of the time over the tuner's "
            f"{told['above_tuner']:+.3f} ({low:+.3f} to {high:+.3f}); {summary[name]['judged']:.1f} judged of "
            f"{BUDGETS[-1]}, {summary[name]['seconds']:.2f} s to propose"
        )


async def main() -> None:
    """Play, print, and record if asked to."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--public", type=Path)
    parser.add_argument("--draws", type=int, default=12)
    parser.add_argument("--only", nargs="*", default=[])
    parser.add_argument("--steeper", type=float, default=0.0)
    parser.add_argument("--out", default=NAME)
    parser.add_argument("--record", action="store_true")
    options = parser.parse_args()
    files, device = baselines(options.public), device_named("H200")
    every = [
        one for races in read_races() if races.kernel in files for one in recorded(races, files[races.kernel], device)
    ]
    rows: list[dict[str, Any]] = []
    for one, shares in zip(every, plausible(every), strict=True):
        if not options.only or any(word in one.kernel for word in options.only):
            rows.append(await figures_of(one, shares, options.draws, options.steeper))
    summary = summarise(rows)
    for line in lines(summary):
        print(line)
    if options.record:
        record(options.out, {"draws": options.draws, "steeper": options.steeper, **summary, "rows": rows})


if __name__ == "__main__":
    asyncio.run(main())
