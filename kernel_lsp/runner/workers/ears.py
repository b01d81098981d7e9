"""Record the launches that our own launchers make, so that a trace shows which kernels are a version's own.

A kernel's name proves nothing: a candidate may give its own kernel the name of a library's. A launch by our launchers
(`driver.LoadedModule`, `inline_gpu.GpuLaunches`, the launchers that Triton's driver makes) does.
"""

import contextlib
import importlib
from collections.abc import Callable, Generator
from typing import Any

import torch

from kernel_lsp.compiler.triton.launchers import TritonDriver, TritonMetadata, TritonSource
from kernel_lsp.device.arguments import LaunchShape
from kernel_lsp.runner.messages.subject_answers import HeardLaunch

_is_capturing = torch.cuda.is_current_stream_capturing


class Ears:
    """The launches heard between `listen` and `heard`, and those captured in graphs of the version's own.

    A graph repeats its launches without notice. So launches under a capture that is not the harness's are kept for
    good: any such kernel in a trace is the version's own.
    """

    def __init__(self) -> None:
        self._launches: list[HeardLaunch] | None = None
        self._in_graphs: dict[HeardLaunch, None] = {}
        self._recording = False
        self.ours = 0
        """Launches so far of compiled CUDA kernels, which go through our launchers."""

    def listen(self) -> None:
        """Start to record launches."""
        self._launches = []

    def heard(self) -> tuple[HeardLaunch, ...]:
        """Return the launches recorded, and stop recording."""
        launches, self._launches = self._launches or [], None
        return tuple(launches)

    @property
    def in_graphs(self) -> tuple[HeardLaunch, ...]:
        """Return the launches that graphs of the version's own may repeat."""
        return tuple(self._in_graphs)

    @contextlib.contextmanager
    def recording(self) -> Generator[None]:
        """Treat captures in this block as the harness's."""
        self._recording = True
        try:
            yield
        finally:
            self._recording = False

    def launch(self, entry: str, shape: LaunchShape) -> None:
        """Record a launch of a compiled CUDA kernel; a `driver.Ear`."""
        self.ours += 1
        self._keep(entry, shape.grid, shape.block)

    def _keep(self, entry: str, grid: tuple[int, int, int], block: tuple[int, int, int]) -> None:
        captured = not self._recording and _is_capturing()
        if self._launches is None and not captured:
            return
        launch = HeardLaunch(entry, grid, block)
        if self._launches is not None:
            self._launches.append(launch)
        if captured:
            self._in_graphs[launch] = None

    def hear_triton(self) -> None:
        """Record Triton's launches from now on, except of kernels that were launched before.

        Triton makes its driver, for which it runs a C compiler, at the first use, and most versions use none.
        """
        drivers: Any = importlib.import_module("triton.runtime.driver")
        if drivers.driver._active is not None:
            self._hear(drivers.driver.active)
            return
        make = drivers._create_driver

        def made() -> TritonDriver:
            driver: TritonDriver = make()
            self._hear(driver)
            return driver

        drivers._create_driver = made

    def _hear(self, driver: TritonDriver) -> None:
        make = driver.launcher_cls

        def launcher(source: TritonSource, metadata: TritonMetadata) -> Callable[..., object]:
            made = make(source, metadata)
            name, warps, blocks = metadata.name, metadata.num_warps, getattr(metadata, "num_ctas", 1)

            def launch(x: int, y: int, z: int, *rest: object) -> object:
                if x * y * z:
                    self._keep(name, (x * blocks, y, z), (32 * warps, 1, 1))
                return made(x, y, z, *rest)

            return launch

        driver.launcher_cls = launcher
