"""Says what limits a pipeline of bulk copies: its stages, their bytes in flight, and how many the memory needs.

A memory of bandwidth B that answers after a time T is busy while B T bytes are under way (Little's law; V. Volkov,
Understanding Latency Hiding on GPUs, EECS-2016-143, UC Berkeley, chapter 4). The stages and bytes are those that the
emulator saw announced to mbarriers.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from kernel_lsp.device.device import Device
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.runner.emulated import FilledRing, KernelTotals, WarpRegisters
from kernel_lsp.source.kernel import base_name

LATENCY_SECONDS = 1e-6
"""Time in which a busy memory answers. Chosen: above that of a single load (Luo et al., arXiv 2402.13499)."""


@dataclass(frozen=True, slots=True)
class Pipeline:
    """The rings of stages that a kernel's copies fill, and the registers of its warps.

    Attributes:
        rings: by the line that announces their bytes.
        registers: what `setmaxnreg` gives to warps.
        refilled: True if a block fills its stages again and again.
        resident: blocks of a multiprocessor at a time; 0 if unknown.
        wanted_bytes: in flight on a multiprocessor, for the memory of `device` to be busy.
        spare_bytes: of a multiprocessor's shared memory that no block uses; 0 if that is unknown.
        device: the GPU.
    """

    rings: tuple[FilledRing, ...]
    registers: tuple[WarpRegisters, ...]
    refilled: bool
    resident: int
    wanted_bytes: int
    spare_bytes: int
    device: str

    @property
    def stage_bytes(self) -> int:
        """Return the bytes of one more stage of each ring that has most of them."""
        most = max((ring.stages for ring in self.rings), default=0)
        return sum(ring.stage_bytes for ring in self.rings if ring.stages == most)

    @property
    def flight_bytes(self) -> int:
        """Return the most bytes that can be in flight on a multiprocessor; 0 if that is unknown."""
        return self.resident * sum(ring.stages * ring.stage_bytes for ring in self.rings)

    @property
    def further_stages(self) -> int:
        """Return how many more stages fit into shared memory that no block uses."""
        return self.spare_bytes // (self.resident * self.stage_bytes) if self.resident and self.stage_bytes else 0

    @property
    def is_shallow(self) -> bool:
        """Return True if stages are filled again and again with too few bytes in flight, and another one would fit."""
        return self.refilled and 0 < self.flight_bytes < self.wanted_bytes / 2 and self.further_stages > 0


def pipeline_of(
    kernel: str, everyone: Iterable[KernelTotals], resources: Iterable[KernelResources], device: Device
) -> Pipeline:
    """Return the pipeline of one kernel.

    Args:
        kernel: its name, without template arguments.
        everyone: of all kernels, one for each emulated run.
        resources: of all instances; that of the kernel with most shared memory counts.
        device: the GPU.
    """
    totals = [total for total in everyone if base_name(total.kernel) == kernel]
    rings: dict[tuple[str, int], FilledRing] = {}
    for ring in (ring for total in totals for ring in total.rings):
        known = rings.get((ring.path, ring.line))
        deepest = max(filter(None, (known, ring)), key=lambda one: one.stages * one.stage_bytes)
        rings[ring.path, ring.line] = deepest
    own = (one for one in resources if base_name(one.name) == kernel)
    most = max(own, key=lambda one: one.shared_bytes, default=None)
    limits, resident, spare = device.limits, 0, 0
    if most is not None and most.occupancy and most.threads:
        resident = max(1, round(most.occupancy * limits.threads / most.threads))
        spare = limits.shared_bytes - resident * (most.shared_bytes + limits.reserved_shared_bytes)
    wanted = int(device.bandwidth * LATENCY_SECONDS / device.multiprocessors)
    refilled = any(ring.fills > ring.stages * total.blocks for total in totals for ring in total.rings)
    registers = max((total.registers for total in totals), key=len, default=())
    return Pipeline(tuple(rings.values()), registers, refilled, resident, wanted, max(spare, 0), device.name)


def in_flight(pipeline: Pipeline) -> str:
    """Return what a pipeline keeps in flight beside what the memory needs, and what limits it, in words."""
    have, wanted = (count / 1024 for count in (pipeline.flight_bytes, pipeline.wanted_bytes))
    said = f"{have:.0f} KiB in flight on a multiprocessor, where the memory of {pipeline.device} needs {wanted:.0f}"
    if pipeline.flight_bytes >= pipeline.wanted_bytes:
        return said
    more = pipeline.further_stages
    room = f"{more} more {'stage fits' if more == 1 else 'stages fit'} into" if more else "no further stage fits into"
    return f"{said}; {room} shared memory"
