"""A GPU that is never quite steady: simulated launch times with the noise met on real ones.

The logarithm of a launch time is the kernel's own plus a drift (an Ornstein-Uhlenbeck walk, a warm-up and a
two-state clock that steps up and down at random), plus white noise and rare one-sided spikes; short times are
rounded to the timer's resolution. Three regimes: a *quiet* machine, one whose *boost* clock wanders, and one *shared*
with another process. All times in milliseconds, no wall clock; a run is reproducible from its generator's seed.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

FLUSH_MS = 0.06
"""What flushing the L2 cache costs before each launch."""
FINE_TIMER_MS = 0.000032
"""Step of the simulated event timer unless a test asks for another one."""
COARSE_TIMER_MS = 0.0005
"""Step of the event timer that CUDA's manual promises."""

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


def block(gpu: NoisyGpu, a_ms: float, b_ms: float) -> float:
    """One ABBA or BAAB block: ln(B/A)."""
    if gpu.rng.random() < 0.5:
        a1, b1, b2, a2 = (segment(gpu, ms) for ms in (a_ms, b_ms, b_ms, a_ms))
    else:
        b1, a1, a2, b2 = (segment(gpu, ms) for ms in (b_ms, a_ms, a_ms, b_ms))
    return (b1 + b2 - a1 - a2) / 2
