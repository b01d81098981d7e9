"""Hears the launches that our own launchers make, so that a trace shows which kernels are a version's own.

A kernel's name proves nothing: a candidate may give its own kernel the name of a library's. A launch by our launchers
(`driver.LoadedModule`, `inline_gpu.GpuLaunches`, the launchers that Triton's driver makes) does.
"""

from collections.abc import Callable, Sequence
from typing import cast

from kernel_lsp.build.launchers import TritonDriver, TritonMetadata, TritonSource
from kernel_lsp.device.arguments import LaunchShape
from kernel_lsp.runner.messages.subject import HeardLaunch


class Ears:
    """Launches heard since `listen`, until `heard` is asked for."""

    def __init__(self) -> None:
        self._launches: list[HeardLaunch] | None = None

    def listen(self) -> None:
        """Begin to keep launches."""
        self._launches = []

    def heard(self) -> tuple[HeardLaunch, ...]:
        """Return the launches kept, and keep no more."""
        launches, self._launches = self._launches or [], None
        return tuple(launches)

    def launch(
        self, _image: bytes, entry: str, shape: LaunchShape, _packed: Sequence[bytes], _given: Sequence[object]
    ) -> None:
        """Hear of a launch of a compiled CUDA kernel; a listener of `driver.LoadedModule`."""
        if self._launches is not None:
            self._launches.append(HeardLaunch(entry, shape.grid, shape.block))

    def hear_triton(self) -> None:
        """Hear Triton's launches from now on, of kernels that are launched for the first time after this."""
        from triton.runtime.driver import driver

        active = cast(TritonDriver, driver.active)
        make = active.launcher_cls

        def launcher(source: TritonSource, metadata: TritonMetadata) -> Callable[..., object]:
            made = make(source, metadata)
            name, warps, blocks = metadata.name, metadata.num_warps, getattr(metadata, "num_ctas", 1)

            def launch(x: int, y: int, z: int, *rest: object) -> object:
                if self._launches is not None and x * y * z:
                    self._launches.append(HeardLaunch(name, (x * blocks, y, z), (32 * warps, 1, 1)))
                return made(x, y, z, *rest)

            return launch

        active.launcher_cls = launcher
