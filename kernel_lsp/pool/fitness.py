"""Looks at a lane's GPU before a task: one that is broken, slowed down or used by others is no place to measure."""

import asyncio
from types import TracebackType
from typing import Self

from kernel_lsp import policy
from kernel_lsp.device.nvml import SLOWED_BY_HARDWARE, Faults, Gpu, read_state
from kernel_lsp.model.servers import running
from kernel_lsp.pool.queue import LaneUnfitError
from kernel_lsp.runner.sessions import members

BROKEN = {
    48: "memory with an error that cannot be corrected",
    64: "a row of memory that could not be replaced",
    74: "a fault of NVLink",
    79: "fallen off the bus",
    95: "memory errors that were not contained",
    119: "its firmware gives no answer",
    120: "an error of its firmware",
}
"""Xid numbers of a GPU that is broken; others, as 13, 31 and 43, are mostly a program's own fault. From NVIDIA's
"Xid Errors" (deployment guides)."""
_LOOKS = 3  # all of which have to show a trouble that may pass
_BETWEEN_SECONDS = 0.5


class GpuFitness:
    """The fitness of one GPU, or of the emulator, which is always fit. A context manager.

    Args:
        gpu: None for the emulator.
    """

    def __init__(self, gpu: Gpu | None) -> None:
        self._gpu = gpu
        self._faults = Faults(gpu) if gpu is not None else None
        self._broken: int | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._faults is not None:
            self._faults.close()

    async def require(self, ours: frozenset[int]) -> None:
        """Check that the GPU is fit to measure on.

        Args:
            ours: processes of the lane; what others do is known only while one of these is on the GPU, and not in a
                container.

        Raises:
            LaneUnfitError: it is not.
        """
        if self._gpu is None or self._faults is None:
            return
        self._broken = next((xid for xid in self._faults.drain() if xid in BROKEN), self._broken)
        if self._broken is not None:
            raise LaneUnfitError(f"it is broken (Xid {self._broken}: {BROKEN[self._broken]})", lasting=True)
        trouble = ""
        for look in range(_LOOKS):
            await asyncio.sleep(_BETWEEN_SECONDS if look else 0)
            if not (trouble := passing_trouble(self._gpu, ours)):
                return
        raise LaneUnfitError(trouble)


def passing_trouble(gpu: Gpu, ours: frozenset[int]) -> str:
    """Return what makes times on a GPU worthless now but may pass; empty for nothing.

    Model servers of this user's do not count: the judge keeps them quiet.
    """
    servers = (server.pid for server in running() if gpu.uuid in server.gpus)
    state = read_state(gpu, ours.union(*(members(pid) for pid in servers if pid)))
    if slowed := SLOWED_BY_HARDWARE & set(state.throttle):
        return f"it is slowed down: {', '.join(sorted(slowed))}"
    busy = state.others_percent or 0
    return f"others keep it busy, {busy} % of the time" if busy > policy.SHARED_BUSY_PERCENT else ""
