"""Predict how long a version of a kernel takes on a GPU that is not there, next to the user's own version.

The emulator counts what a few blocks of the largest case execute and move; the build tells what limits the blocks on a
multiprocessor. A kernel takes as long as the slowest part of a multiprocessor is busy: the schedulers, the paths to L1
and L2, the banks of shared memory (a roofline). Beside that its warps wait for memory, which more warps and wider
accesses shorten (Little's law; Volkov, Understanding Latency Hiding on GPUs, 2016). DRAM has to move the inputs in any
case. None of the constants was fitted to measured times. The result orders candidates; it is no measurement, and is
never shown as one.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, fields
from math import hypot, prod

from kernel_lsp.device.architectures import SUB_PARTITIONS, WARP
from kernel_lsp.device.device import Device
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.emulation import KernelTotals, LineCounters
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.sampling import CaseSample, sample_largest, sample_version
from kernel_lsp.judge.session import Session
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import base_name

# Cycles, and sectors of 32 bytes a cycle and multiprocessor. L1: 128 bytes a cycle; L2: 5120 bytes a cycle for the 108
# multiprocessors of an A100, by its whitepaper. Latencies are rounded from published microbenchmarks of Hopper.
_L1_SECTORS = 4.0
_L2_SECTORS = 1.5
_GLOBAL_LATENCY = 600.0
_SHARED_LATENCY = 30.0
_BARRIER_LATENCY = 30.0
_RESULT_LATENCY = 4.0
_ATOMIC_CYCLES = 8.0  # of a request of a warp, whose threads add to the same few addresses
_LONG = {"div": 16, "rem": 24, "sqrt": 8, "rsqrt": 4, "ex2": 4, "lg2": 4, "sin": 4, "cos": 4, "rcp": 4, "tanh": 4}
"""Issue slots of an instruction of PTX that becomes several of the machine's, or runs on a unit of fewer lanes."""
_COUNTS = tuple(one.name for one in fields(LineCounters) if one.name not in ("kernel", "path", "line"))


@dataclass(frozen=True, slots=True)
class SampledVersion:
    """A version that was built, and a few of its blocks emulated on a large case.

    Attributes:
        built: its build.
        sample: what these blocks did.
    """

    built: Built
    sample: CaseSample


def predicted_ratio(device: Device, baseline: SampledVersion, candidate: SampledVersion) -> float:
    """Return the candidate's predicted time over the baseline's on a device; both are sampled on the same case."""
    return _cycles(device, candidate) / _cycles(device, baseline)


def _cycles(device: Device, version: SampledVersion) -> float:
    """Return the predicted cycles of a version's launches on its case; never less than DRAM takes for its bytes."""
    run, counts = version.sample.run, dict[str, Counter[str]]()
    for line in run.counters:
        counts.setdefault(line.kernel, Counter()).update({name: getattr(line, name) for name in _COUNTS})
    grids = Counter[str]()
    for launch in run.launches:
        grids[launch.kernel] += launch.grid_blocks
    cycles = sum(
        _kernel_cycles(device, version, one, counts.get(one.kernel, Counter())) * grids[one.kernel] / one.blocks
        for one in run.totals
    )
    return hypot(cycles, version.sample.input_bytes * device.clock_mhz * 1e6 / device.bandwidth)


def _kernel_cycles(device: Device, version: SampledVersion, totals: KernelTotals, counts: Mapping[str, int]) -> float:
    """Return the predicted cycles of the sampled blocks of one kernel, spread over the GPU as its whole grid is."""
    busy, warps = _spread(device, version, base_name(totals.kernel))
    slots = sum(times * _LONG.get(opcode, 1) for opcode, times in totals.opcodes.items())
    sectors = counts["load_sectors"] + counts["store_sectors"]
    shared = counts["shared_load_wavefronts"] + counts["shared_store_wavefronts"]
    units = (
        slots / SUB_PARTITIONS,
        sectors / _L1_SECTORS,
        sectors / _L2_SECTORS,
        shared + _ATOMIC_CYCLES * counts["atomic_requests"],
    )
    waits = (
        counts["load_requests"] * _GLOBAL_LATENCY
        + counts["shared_load_requests"] * _SHARED_LATENCY
        + totals.opcodes.get("bar", 0) * _BARRIER_LATENCY
        + slots * _RESULT_LATENCY
    )
    return hypot(max(units), waits / warps) / busy


def _spread(device: Device, version: SampledVersion, kernel: str) -> tuple[int, float]:
    """Return how many multiprocessors a kernel's largest launch on the case keeps busy, and the warps on each."""
    plans = [plan for plan in version.built.plans if plan.case == version.sample.case]
    launches = [one for plan in plans for one in plan.launches if base_name(one.kernel) == kernel]
    resources = next((one for one in resources_of(version.built) if base_name(one.name) == kernel), None)
    occupancy = resources.occupancy if resources is not None and resources.occupancy is not None else 0.5
    resident = device.limits.threads / WARP * occupancy
    if not launches:
        return device.multiprocessors, resident
    grid, block = max((prod(one.grid), max(prod(one.block), 1)) for one in launches)
    busy = max(1, min(grid, device.multiprocessors))
    return busy, max(1.0, min(resident, block / WARP * grid / busy))


class Predictor:
    """Predicts the times of right candidates of one session without a GPU, each in a fraction of a second."""

    def __init__(self, session: Session) -> None:
        self._session = session
        self._baseline: SampledVersion | None = None
        self._hopeless = session.gpu is not None or session.measured is None

    async def ratio(self, candidate: Candidate, built: Built) -> float | None:
        """Return a candidate's predicted time over the baseline's; None where there is a GPU, or no whole sample."""
        baseline, measured = await self._of_baseline(), self._session.measured
        if baseline is None or measured is None:
            return None
        sample = await sample_version(measured.harness, candidate, built)
        if sample is None:
            return None
        return predicted_ratio(self._session.device, baseline, SampledVersion(built, sample))

    async def _of_baseline(self) -> SampledVersion | None:
        """Return the sampled baseline; None where it cannot be sampled, which is tried once."""
        measured, built = self._session.measured, self._session.baseline_built
        if self._baseline is None and not self._hopeless and measured is not None and built is not None:
            sample = await sample_largest(measured.harness, measured.baseline)
            self._baseline = None if sample is None else SampledVersion(built, sample)
            self._hopeless = sample is None
        return self._baseline
