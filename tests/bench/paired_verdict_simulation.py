"""How right and how dear the paired verdict is, against simulated noise.

Run it as `python -m tests.bench.paired_verdict_simulation`. It prints three tables: how often intervals miss the truth,
what pairs of kernels are judged to be on several devices, and how a race of candidates thins out. CPU only;
`--pairs 300` takes a few minutes.
"""

import argparse
import math
import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from statistics import NormalDist
from typing import Any

import numpy as np

from kernel_lsp.judge import statistics
from kernel_lsp.judge.statistics import CONFIRMATION_BLOCKS, Outcome, PairedTest
from tests.bench.noise import (
    COARSE_TIMER_MS,
    FINE_TIMER_MS,
    REGIMES,
    NoisyGpu,
    Regime,
    block,
    launches_per_segment,
    segment,
)
from tests.bench.record import record

EFFECTS = (0.0, -0.005, -0.02, -0.05, 0.02, 0.30)
KERNELS_MS = (0.02, 0.1, 1.0)
PAUSE_MS = 300.0

HalfWidth = Callable[[float, int, float], float]


@dataclass(frozen=True)
class Verdict:
    """The verdict on one pair.

    Attributes:
        outcome: never CONTINUE nor PROVISIONAL_FASTER.
        confirmed: whether fresh blocks were measured.
        blocks: blocks before confirmation.
        gpu_ms: GPU time of all blocks, warm-up left out.
        reported: ln(B/A) interval of the confirmation, if there was one.
    """

    outcome: Outcome
    confirmed: bool
    blocks: int
    gpu_ms: float
    reported: statistics.Interval | None


def judge(gpu: NoisyGpu, a_ms: float, b_ms: float, shared: bool = False) -> Verdict:
    """The whole procedure: warm up, paired blocks until decided, and confirmation of a gain."""
    for _ in range(5):
        segment(gpu, a_ms)
        segment(gpu, b_ms)
    fastest = min(a_ms, b_ms)
    floor = statistics.deviation_floor(gpu.resolution_ms, fastest, launches_per_segment(fastest))
    clear = statistics.clearance(gpu.resolution_ms, fastest, shared=shared)
    test = PairedTest(floor=floor, clear=clear)
    start = gpu.busy
    while True:
        decision = test.add(block(gpu, a_ms, b_ms), gpu.busy - start)
        if decision.stop:
            break
    if decision.outcome is not Outcome.PROVISIONAL_FASTER:
        return Verdict(decision.outcome, False, decision.blocks, gpu.busy - start, None)
    gpu.idle(PAUSE_MS)
    segment(gpu, b_ms)
    segment(gpu, a_ms)
    fresh = [block(gpu, a_ms, b_ms) for _ in range(CONFIRMATION_BLOCKS)]
    confirmation = statistics.confirm(fresh, test.blocks, floor=floor, clear=clear)
    return Verdict(confirmation.outcome, True, decision.blocks, gpu.busy - start, confirmation.interval)


@dataclass(frozen=True)
class Setting:
    """One device to judge on: its noise, its timer, and whether it is tagged shared."""

    name: str
    regime: Regime
    resolution_ms: float = FINE_TIMER_MS
    shared: bool = False


SETTINGS = (
    Setting("quiet", "quiet"),
    Setting("boost", "boost"),
    Setting("shared", "shared"),
    Setting("shared, tagged", "shared", shared=True),
    Setting("coarse timer", "quiet", resolution_ms=COARSE_TIMER_MS),
)


def judge_many(setting: Setting, kernel_ms: float, effect: float, pairs: int) -> list[Verdict]:
    """Verdicts on `pairs` pairs with true ln(B/A) = `effect`, on devices cold or already hot.

    The baselines differ by up to 5 % either way, so that they meet all phases of the timer's step.
    """
    verdicts: list[Verdict] = []
    for pair in range(pairs):
        rng = np.random.default_rng([pair, round(kernel_ms * 1000), round(1000 * (effect + 1))])
        gpu = NoisyGpu(setting.regime, rng, setting.resolution_ms)
        if rng.random() < 0.5:
            gpu.idle(rng.uniform(0, 3000))
        a_ms = kernel_ms * rng.uniform(0.95, 1.05)
        verdicts.append(judge(gpu, a_ms, a_ms * math.exp(effect), setting.shared))
    return verdicts


def robbins_half_width(deviation: float, n: int, alpha: float) -> float:
    """The boundary that `half_width` replaced: the normal mixture with a t factor, tuned for 12 blocks."""
    r2 = (-2 * math.log(alpha) + math.log(-2 * math.log(alpha) + 1)) / 12
    q = n * r2 + 1
    c = statistics.t_quantile(1 - alpha / 2, n - 1) / NormalDist().inv_cdf(1 - alpha / 2)
    return c * deviation * math.sqrt(2 * q / (n * n * r2) * math.log(math.sqrt(q) / alpha))


def gaussian_blocks(rng: np.random.Generator, n: int) -> list[float]:
    """Blocks with the true value 0 and a deviation of 1 %."""
    return list(0.01 * rng.standard_normal(n))


def spiky_blocks(rng: np.random.Generator, n: int) -> list[float]:
    """The same, one in twenty having eight times the deviation."""
    return list(0.01 * rng.standard_normal(n) * np.where(rng.random(n) < 0.05, 8, 1))


def ever_missed(half_width: HalfWidth, d: list[float], alpha: float, first: int = statistics.MIN_BLOCKS) -> bool:
    """Whether the interval excluded the truth, 0, at any look from the `first` block to the last."""
    for n in range(first, len(d) + 1):
        s = statistics.summarise(d[:n])
        if abs(s.mean) > half_width(s.deviation, n, alpha):
            return True
    return False


def share(events: Iterable[bool]) -> float:
    """How large a part of the events happened."""
    happened = list(events)
    return sum(happened) / len(happened)


def interval_figures(series: int) -> dict[str, Any]:
    """How often the confidence sequence and the t interval miss, printed as a table."""
    figures: dict[str, Any] = {}
    print(f"{'blocks':10s} {'alpha':>8s} {'robbins missed':>15s} {'t mixture missed':>17s}   (any look from 4 to 60)")
    for name, blocks in (("gaussian", gaussian_blocks), ("spiky", spiky_blocks)):
        for entrants in (1, 16):
            alpha = statistics.race_alpha(statistics.ALPHA, entrants)
            rng = np.random.default_rng(entrants)
            data = [blocks(rng, 60) for _ in range(series * (1 if entrants == 1 else 4))]
            missed = {
                key: share(ever_missed(half_width, d, alpha) for d in data)
                for key, half_width in (("robbins", robbins_half_width), ("t_mixture", statistics.half_width))
            }
            print(f"{name:10s} {alpha:8.5f} {missed['robbins']:15.4f} {missed['t_mixture']:17.4f}")
            figures[f"{name}_race_of_{entrants}"] = {f"{key}_missed_share": value for key, value in missed.items()}
    for name, blocks in (("gaussian", gaussian_blocks), ("spiky", spiky_blocks)):
        rng = np.random.default_rng(7)
        covered = share(t_interval_covers(blocks(rng, CONFIRMATION_BLOCKS)) for _ in range(10 * series))
        print(f"{name:10s} t interval of {CONFIRMATION_BLOCKS} fresh blocks covers {covered:.4f}")
        figures[f"{name}_report_covered_share"] = covered
    return figures


def t_interval_covers(d: list[float]) -> bool:
    """Whether the interval that a confirmation reports holds the truth, 0."""
    s = statistics.summarise(d)
    return abs(s.mean) <= statistics.t_quantile(0.975, s.n - 1) * s.deviation / math.sqrt(s.n)


def verdict_figures(pairs: int) -> dict[str, Any]:
    """What pairs are judged to be, printed as a table."""
    figures: dict[str, Any] = {}
    print(
        f"\n{'kernel':>7s} {'device':14s} {'ln(B/A)':>8s} {'faster':>7s} {'slower':>7s} {'same':>6s} {'not w.':>6s}"
        f" {'ambig.':>6s} {'blocks':>6s} {'ms':>5s} {'ms p90':>6s} {'covers':>6s}"
    )
    for kernel_ms in KERNELS_MS:
        for setting in SETTINGS:
            for effect in EFFECTS:
                verdicts = judge_many(setting, kernel_ms, effect, pairs)
                outcomes = Counter(verdict.outcome for verdict in verdicts)
                ms = [verdict.gpu_ms for verdict in verdicts]
                reported = [v.reported.lower <= effect <= v.reported.upper for v in verdicts if v.reported is not None]
                figure = {f"{outcome.value}_share": outcomes[outcome] / pairs for outcome in Outcome}
                del figure["continue_share"], figure["provisional_faster_share"]
                figure |= {
                    "median_blocks": float(np.median([verdict.blocks for verdict in verdicts])),
                    "median_ms": round(float(np.median(ms)), 1),
                    "p90_ms": round(float(np.percentile(ms, 90)), 1),
                }
                if reported:
                    figure["report_covered_share"] = share(reported)
                figures[f"{kernel_ms * 1000:g}us_{setting.name}_{effect:+g}"] = figure
                covers = f"{share(reported):6.3f}" if len(reported) >= pairs / 2 else f"{'':6s}"
                print(
                    f"{kernel_ms * 1000:5g}us {setting.name:14s} {effect:+8.3f} {figure['faster_share']:7.3f}"
                    f" {figure['slower_share']:7.3f} {figure['same_share']:6.3f} {figure['not_worth_it_share']:6.3f}"
                    f" {figure['ambiguous_share']:6.3f} {figure['median_blocks']:6.0f} {figure['median_ms']:5.0f}"
                    f" {figure['p90_ms']:6.0f} {covers}",
                    flush=True,
                )
    return figures


def race(gpu: NoisyGpu, kernel_ms: float, effects: list[float], rounds: int, seed: int) -> list[int]:
    """How many candidates run on after each round of a race between candidates with these true ln(B/A)."""
    order = random.Random(seed)
    floor = statistics.deviation_floor(gpu.resolution_ms, kernel_ms, launches_per_segment(kernel_ms))
    blocks: dict[int, list[float]] = {candidate: [] for candidate in range(len(effects))}
    left: list[int] = []
    for _ in range(rounds):
        schedule = statistics.race_schedule(list(blocks), order)
        times = [segment(gpu, kernel_ms * math.exp(0 if c is None else effects[c])) for c in schedule]
        for candidate, d in statistics.race_differences(schedule, times).items():
            blocks[candidate].append(d)
        alive = statistics.survivors(blocks, len(effects), floor=floor)
        blocks = {candidate: blocks[candidate] for candidate in alive}
        left.append(len(alive))
        if not alive:
            break
    return left + [0] * (rounds - len(left))


def race_figures(races: int) -> dict[str, Any]:
    """How fast a field of 12 thins out, printed as a table: two gains of 5 %, four equal, six slower by 30 %."""
    figures: dict[str, Any] = {}
    effects = [-0.05, -0.05] + 4 * [0.0] + 6 * [math.log(1.3)]
    print("\nrace of 12 at 100 us (2 faster by 5 %, 4 equal, 6 slower by 30 %): mean number left after each round")
    for regime in REGIMES:
        runs = [race(NoisyGpu(regime, np.random.default_rng(i)), 0.1, effects, 16, i) for i in range(races)]
        left = [float(value) for value in np.mean(runs, axis=0)]
        print(f"{regime:8s} " + " ".join(f"{value:5.1f}" for value in left), flush=True)
        figures[regime] = {"mean_left_by_round": left}
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--pairs", type=int, default=300, help="simulated pairs for each row of the verdict table")
    parser.add_argument("--series", type=int, default=2000, help="simulated series for each row of the interval table")
    parser.add_argument("--record", action="store_true", help="write a result file, see README.md")
    options = parser.parse_args()
    figures = {
        "pairs_per_row": options.pairs,
        "intervals": interval_figures(options.series),
        "verdicts": verdict_figures(options.pairs),
        "race_of_12": race_figures(max(1, options.pairs // 10)),
    }
    if options.record:
        print(f"\n{record('paired_verdict_simulation', figures)}")


if __name__ == "__main__":
    main()
