"""Keeps the environments of a policy's kernels open from step to step or round to round, as far as memory allows.

Opening one takes the judge some seconds, and a step asks the same kernels again and again. Several are used side by
side, so that the model answers on some kernels while the judge is at another.
"""

from contextlib import AbstractAsyncContextManager
from types import TracebackType
from typing import Self

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.target import Target
from kernel_lsp.learn.environment import KernelEnvironment, Memory
from kernel_lsp.learn.judges import Judges
from kernel_lsp.pool.kept import Kept


class KeptEnvironments:
    """Environments by their kernels' keys; those that were used last stay. A context manager.

    Args:
        judges: open them.
    """

    def __init__(self, judges: Judges) -> None:
        self._judges = judges
        self._kept = Kept[KernelEnvironment](judges.room, lambda environment: environment.whole)
        self._memories: dict[str, Memory] = {}

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._kept.close()

    def using(self, key: str, target: Target, settings: Settings) -> AbstractAsyncContextManager[KernelEnvironment]:
        """Return a context with the environment of a kernel; what was judged in it before is remembered.

        It stays open as long as the block lasts. Where memory is short, this waits until others are no longer used.

        Raises:
            WorkloadError: the kernel itself is wrong, or its workload cannot tell right from wrong.
            KernelLspError: the kernel, its workload or the profile cannot be used.
        """
        memory = self._memories.setdefault(key, {})
        return self._kept.using(key, lambda: self._judges.open(target, settings, memory))

    async def rest(self) -> None:
        """Close all of them, and leave the memory of GPUs to others; they can be asked for again."""
        await self._kept.close()
        await self._judges.rest()
