"""A GPU that is never quite steady, and processes that never lie alike: simulated times with the noise of real ones.

The logarithm of a launch time is the kernel's own plus a drift (an Ornstein-Uhlenbeck walk, a warm-up and a
two-state clock that steps up and down at random), plus white noise and rare one-sided spikes; short times are
rounded to the timer's resolution. Three regimes: a *quiet* machine, one whose *boost* clock wanders, and one *shared*
with another process. Each pair of processes adds a difference of its own between baseline and candidate (`Pairing`).
All times in milliseconds, no wall clock; a run is reproducible from its generator's seed.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from kernel_lsp.policy import PLACES

FLUSH_MS = 0.06
"""Time of flushing the L2 cache before each launch."""
FINE_TIMER_MS = 0.000032
"""Step of the simulated event timer unless a test asks for another one."""
COARSE_TIMER_MS = 0.0005
"""Step of the event timer that CUDA's manual promises."""

CODE_MS = 0.00012
"""Standard deviation by which a pair of processes differs from another, in ms: 0.11 and 0.13 us for kernels under 50 us
whose cache is flushed, from the scatter of estimates in `aa_idle` and `aa_busy` less their own noise."""
CODE_SHARE = 0.0005
"""The same as a share of the time. With places this makes 0.14 % at 0.2 ms, as `power` measured of such a kernel whose
limit is memory, and 0.05 % without them at 0.7 ms, where it measured 0.04 to 0.08 %."""
PLACES_DEVIATION = 0.0033
"""Standard deviation of one side between places of memory (`placement`)."""
RETUNED_SHARE = 0.5
"""How often a process of a kernel that tunes itself takes the slower one of two settings. Chosen: the worst case."""

Regime = Literal["quiet", "boost", "shared"]


@dataclass(frozen=True)
class Noise:
    """Sizes are relative to the launch time, durations in ms.

    Attributes:
        white: standard deviation of one launch around the drift.
        walk: stationary standard deviation of the drift, whose memory lasts `memory`.
        warming: by how much a hot device is slower than a cold one, approached over `warm_up`.
        step: slow-down in the clock's second state, each state lasting `dwell` on average.
        spikes: share of launches hit by an exponential delay of mean `spike`.
    """

    white: float
    walk: float
    memory: float
    warming: float
    warm_up: float
    step: float
    dwell: float
    spikes: float
    spike: float


REGIMES: dict[Regime, Noise] = {
    "quiet": Noise(0.004, 0.003, 200, 0.00, 1, 0.00, math.inf, 0.002, 0.05),
    "boost": Noise(0.008, 0.010, 300, 0.04, 800, 0.03, 400, 0.004, 0.10),
    "shared": Noise(0.015, 0.020, 100, 0.03, 500, 0.08, 150, 0.02, 0.30),
}


class NoisyGpu:
    """One device with its own history.

    Attributes:
        now: time since the start in ms, idle time included.
        busy: GPU time spent so far in ms, flushes included.
    """

    def __init__(self, regime: Regime, rng: np.random.Generator, resolution_ms: float = FINE_TIMER_MS) -> None:
        self.noise = REGIMES[regime]
        self.resolution_ms = resolution_ms
        self.rng = rng
        self.now = 0.0
        self.busy = 0.0
        self._walk = self.noise.walk * rng.standard_normal()
        self._slow = rng.random() < 0.5

    def idle(self, ms: float) -> None:
        """Let `ms` pass without work."""
        noise, rng = self.noise, self.rng
        keep = math.exp(-ms / noise.memory)
        self._walk = keep * self._walk + noise.walk * math.sqrt(1 - keep * keep) * rng.standard_normal()
        if rng.random() < (1 - math.exp(-2 * ms / noise.dwell)) / 2:
            self._slow = not self._slow
        self.now += ms

    def launches(self, kernel_ms: float, count: int) -> np.ndarray:
        """Times in ms of `count` launches in a row of a kernel that takes `kernel_ms` on a steady device.

        The drift stands still within one call, so let a call last no longer than a few ms.
        """
        noise, rng = self.noise, self.rng
        drift = self._walk + noise.warming * -math.expm1(-self.now / noise.warm_up) + noise.step * self._slow
        spikes = rng.exponential(noise.spike, count) * (rng.random(count) < noise.spikes)
        times = kernel_ms * math.exp(drift) * (1 + noise.white * rng.standard_normal(count) + spikes)
        times = np.maximum(np.round(times / self.resolution_ms), 1) * self.resolution_ms
        spent = float(times.sum()) + FLUSH_MS * count
        self.busy += spent
        self.idle(spent)
        return times


def launches_per_segment(kernel_ms: float) -> int:
    """4 to 32 launches that last 0.1 ms together, or one or two of a kernel longer than 1 ms."""
    if kernel_ms >= 1:
        return max(1, int(2 / kernel_ms))
    return max(4, min(32, math.ceil(0.1 / kernel_ms)))


def segment(gpu: NoisyGpu, kernel_ms: float) -> float:
    """Logarithm of the median launch time of one segment."""
    return math.log(float(np.median(gpu.launches(kernel_ms, launches_per_segment(kernel_ms)))))


class Pairing:
    """One pair of processes: the difference that it alone makes, by block.

    Code lies elsewhere in every process, blocks use places of memory in turn, and a kernel that tunes itself takes one
    of two settings.

    Args:
        rng: where the differences come from.
        kernel_ms: time of the kernel.
        retuned: by how much the settings of a kernel that tunes itself differ, as ln of their times.
    """

    def __init__(self, rng: np.random.Generator, kernel_ms: float, retuned: float = 0.0) -> None:
        code = math.hypot(CODE_MS / kernel_ms, CODE_SHARE) * rng.standard_normal()
        baseline, candidate = rng.random(2) < RETUNED_SHARE
        self._offset = code + retuned * (int(candidate) - int(baseline))
        self._places = math.sqrt(2) * PLACES_DEVIATION * rng.standard_normal(PLACES)
        self._blocks = 0

    def next(self) -> float:
        """Return ln(B/A) of the next block between versions that are the same on a GPU without noise."""
        place = self._places[self._blocks % PLACES]
        self._blocks += 1
        return float(self._offset + place)


def block(gpu: NoisyGpu, a_ms: float, b_ms: float) -> float:
    """One ABBA or BAAB block: ln(B/A)."""
    if gpu.rng.random() < 0.5:
        a1, b1, b2, a2 = (segment(gpu, ms) for ms in (a_ms, b_ms, b_ms, a_ms))
    else:
        b1, a1, a2, b2 = (segment(gpu, ms) for ms in (b_ms, a_ms, a_ms, b_ms))
    return (b1 + b2 - a1 - a2) / 2
