"""Opens the pool that the setting `pool.address` names."""

from collections.abc import Generator
from contextlib import contextmanager

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpus
from kernel_lsp.pool.cluster import connected
from kernel_lsp.pool.local import LocalPool
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.pool.ray import RayPool


@contextmanager
def opened_pool(settings: Settings, most: int | None = None) -> Generator[LanePool]:
    """Open the pool of these settings; its lanes end with the block.

    Args:
        settings: those in force.
        most: lanes, at most; by default one on this machine, and all of a cluster.

    Raises:
        ConfigurationError: the address or the GPU cannot be used.
        CannotJudgeError: there are fewer GPUs than asked for, or no lane of the cluster can be used.
    """
    if settings.pool.address == "local":
        yield LocalPool(choose_gpus(settings.gpu, most), settings)
        return
    with connected(settings.pool.address) as ray:
        pool = RayPool(ray, settings, most)
        try:
            pool.open()
            yield pool
        finally:
            pool.close()


@contextmanager
def asked_pool(settings: Settings, most: int | None) -> Generator[LanePool | None]:
    """Open the pool that was asked for; None where that is one GPU of this machine, which needs no lane.

    Raises:
        KernelLspError: as `opened_pool` does.
    """
    if settings.pool.address == "local" and most is None:
        yield None
        return
    with opened_pool(settings, most) as pool:
        yield pool
