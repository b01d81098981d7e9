"""The emulator as the GPU of a user's whole program. Runs in every Python process of the program.

`capture/inject/sitecustomize.py` calls `begin` once torch is imported, and nothing of it ends before the process does.
A launch or an extension that cannot be emulated raises `LaunchNotEmulated`, which pytest and unittest take for a
skipped test.
"""

import atexit
import contextlib
import importlib
import inspect
import os
import sys
import threading
import time
import unittest
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from types import ModuleType
from typing import Any
from unittest import mock

import torch

from kernel_lsp.compiler.fakes.gpu import on_the_cpu
from kernel_lsp.compiler.host.request import ExtensionRequest
from kernel_lsp.compiler.toolchain.emulated import program_devices
from kernel_lsp.compiler.triton.launchers import TritonMetadata, TritonSource
from kernel_lsp.device.device import Device
from kernel_lsp.emulate.errors import LaunchError
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.runner.emulated import EmulatedFinding
from kernel_lsp.runner.programs import EMULATE, NotRun, ProgramCounts, ProgramFinding, ProgramKernel, write_process
from kernel_lsp.runner.workers.emulated_extensions import EmulatedExtensions
from kernel_lsp.runner.workers.emulated_launch import Emulated, TritonKernel
from kernel_lsp.runner.workers.emulated_program_memory import ProgramMemory, ProgramOperations
from kernel_lsp.runner.workers.emulated_report import findings
from kernel_lsp.runner.workers.emulator import EmulatedLaunches, Emulator
from kernel_lsp.runner.workers.inline import answering

_WRITE_EVERY_SECONDS = 1.0
_TORCH: Any = torch  # of which a part is replaced
_PACKAGE = Path(__file__).parents[2]
_PLACED = contextlib.ExitStack()  # what is entered once and left by nobody
_PHASES = (" (setup)", " (call)", " (teardown)")


class LaunchNotEmulated(CannotJudgeError, unittest.SkipTest):  # noqa: N818  (a skipped test rather than a mistake)
    """The emulator cannot run a launch of a program."""


class ProgramRecorder:
    """Adds up what happened in this process, and writes it to the folder of the program's record."""

    def __init__(self, folder: Path, arch: str) -> None:
        self._counts = ProgramCounts(arch)
        self._folder, self._number, self._written = folder, os.getpid(), 0.0

    def forked(self) -> None:
        """Begin anew in a child: what its parent recorded is its parent's."""
        self.__init__(self._folder, self._counts.process.arch)

    def compiled(self) -> None:
        """Count a call of `torch.compile`."""
        self._counts.process.uncompiled += 1

    def launched(self, name: str, file: str, line: int, found: Sequence[EmulatedFinding], seconds: float) -> None:
        """Add a launch that ran, and its findings."""
        self._counts.add_kernel(ProgramKernel(name, file, line, 1))
        self._counts.process.seconds += seconds
        for finding in found:
            self.found(finding, file)
        if time.monotonic() - self._written > _WRITE_EVERY_SECONDS:
            self.write()

    def found(self, finding: EmulatedFinding, file: str) -> None:
        """Add a finding of one launch."""
        self._counts.add_finding(ProgramFinding(finding, file, 1, current_tests()))
        self.write()

    def refused(self, name: str, file: str, error: CannotJudgeError) -> None:
        """Add a launch that the emulator could not run."""
        line = error.line if error.line and str(error.path) == file else 0
        self._counts.add_not_run(NotRun(name, file, line, error.message, 1, current_tests()))
        self.write()

    def write(self) -> None:
        """Write the record; a disk that is full does not stop the program."""
        self._written = time.monotonic()
        with contextlib.suppress(OSError):
            write_process(self._counts.process, self._folder, self._number)


def current_tests() -> list[str]:
    """Return the name of the test that is running, as pytest or unittest says it; nothing if none is known to."""
    name = os.environ.get("PYTEST_CURRENT_TEST", "")
    if name:
        return [next((name.removesuffix(phase) for phase in _PHASES if name.endswith(phase)), name)]
    frame = inspect.currentframe()
    while frame is not None:
        owner = frame.f_locals.get("self") if frame.f_code.co_name.startswith("test") else None
        if isinstance(owner, unittest.TestCase):
            return [owner.id()]
        frame = frame.f_back
    return []


class ProgramEmulator(Emulator):
    """The GPU of a program: each launch is run and recorded by itself."""

    def __init__(self, device: Device, recorder: ProgramRecorder) -> None:
        super().__init__(device)
        self._devices = [device]  # the one that the program is told of
        self.expect(Path(), triton=True)
        self._recorder = recorder
        self._files: dict[tuple[str, str], tuple[str, int]] = {}  # by PTX and symbol
        self.memory: ProgramMemory = ProgramMemory()

    def launch(
        self,
        source: TritonSource,
        metadata: TritonMetadata,
        kernel: TritonKernel,
        grid: tuple[int, int, int],
        arguments: Sequence[object],
    ) -> None:
        """Run a Triton kernel; raises as `run`."""
        code: Any = getattr(getattr(source.fn, "fn", None), "__code__", None)
        if code is not None:
            self.placed(kernel.ptx, kernel.symbol, code.co_filename, code.co_firstlineno)
        with self.memory.turn, self._noting(source.fn.__name__, kernel.ptx, kernel.symbol):
            super().launch(source, metadata, kernel, grid, arguments)

    def placed(self, ptx: str, entry: str, file: str, line: int) -> None:
        """Note where a kernel stands."""
        self._files[ptx, entry] = (file, line)

    def _run(self, launch: Emulated) -> None:
        file, line = self._files.get((launch.ptx, launch.entry), ("", 0))
        profile = sys.getprofile()
        sys.setprofile(None)  # older Pythons' recorder of calls has nothing to learn from the emulator's own
        try:
            with self.memory.turn, self._noting(launch.name, launch.ptx, launch.entry):
                self.memory.sweep()
                super()._run(launch)
                found = findings(self.results, Path(file))
                self._recorder.launched(launch.name, file, line, found, self.results[-1].seconds)
        finally:
            self.results.clear()
            sys.setprofile(profile)

    @contextlib.contextmanager
    def _noting(self, name: str, ptx: str, entry: str) -> Generator[None]:
        """Record in this block a launch that cannot be emulated, and one that no GPU would make.

        Raises:
            LaunchNotEmulated: the launch cannot be emulated.
            WorkloadError: no GPU would make it.
        """
        file, _ = self._files.get((ptx, entry), ("", 0))
        self._path, self._refused = Path(file), None
        try:
            yield
        except LaunchNotEmulated:
            raise
        except CannotJudgeError as error:
            if not isinstance(error.__cause__, LaunchNotEmulated):  # `launch` and `_run` both enter this block
                self._recorder.refused(name, file, error)
            raise LaunchNotEmulated(error.message, error.path, error.line, error.fix) from error
        except WorkloadError as error:
            if isinstance(error.__cause__, LaunchError):
                self._recorder.found(EmulatedFinding("trap", f"{error.message}.", "", 0, name), file)
                error.__cause__ = None  # so that it is recorded once
            raise


def _extending(
    device: Device, emulator: ProgramEmulator, recorder: ProgramRecorder
) -> Callable[[ExtensionRequest], ModuleType]:
    """Return what answers requests for extensions; those that cannot be emulated are recorded as not run."""
    extensions = EmulatedExtensions(device, EmulatedLaunches(emulator), emulator.placed)

    def answer(request: ExtensionRequest) -> ModuleType:
        try:
            return extensions.module(request, _asking())
        except CannotJudgeError as error:
            recorder.refused(request.name, "", error)
            raise LaunchNotEmulated(error.message, error.path, error.line, error.fix) from error

    return answer


def _asking() -> Path:
    """Return the file of the program that calls `load` or `load_inline`."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_code.co_filename.startswith(f"{_PACKAGE}{os.sep}"):
        frame = frame.f_back
    return Path(frame.f_code.co_filename if frame is not None else "")


def begin() -> None:
    """Make the emulator this process's GPU until it ends.

    Raises:
        ImportError: Triton is not installed.
    """
    importlib.import_module("torch._dynamo")  # while torch does not yet believe in a GPU
    from kernel_lsp.compiler.triton.driver import compiling_for_later

    device, *later = program_devices(os.environ[EMULATE])
    recorder = ProgramRecorder(Path(os.environ["KERNEL_LSP_CAPTURE"]), device.arch)
    emulator = ProgramEmulator(device, recorder)
    _PLACED.enter_context(emulator.placement())
    _PLACED.enter_context(compiling_for_later(emulator, later))
    _PLACED.enter_context(ProgramOperations(emulator.memory))
    _PLACED.enter_context(_in_threads(emulator.memory))
    _PLACED.enter_context(answering(_extending(device, emulator, recorder)))
    _TORCH.compile = _uncompiled(_TORCH.compile, recorder)
    os.register_at_fork(after_in_child=recorder.forked)
    atexit.register(_end, recorder)


def _in_threads(memory: ProgramMemory) -> contextlib.AbstractContextManager[object]:
    """Let the threads that the program starts in this block see the emulator, too."""
    start = threading.Thread.start

    def begun(thread: threading.Thread) -> None:
        run = thread.run

        def inside() -> None:
            with on_the_cpu(), ProgramOperations(memory):
                run()

        thread.run = inside
        start(thread)

    return mock.patch.object(threading.Thread, "start", begun)


def _end(recorder: ProgramRecorder) -> None:
    recorder.write()
    with contextlib.suppress(Exception):  # the program may have left modes of its own entered
        _PLACED.close()


def _uncompiled(original: Callable[..., Any], recorder: ProgramRecorder) -> Callable[..., Any]:
    """Return `torch.compile` as it is where `TORCHDYNAMO_DISABLE` is set, which counts its calls."""

    def counted(*args: Any, **named: Any) -> Any:
        recorder.compiled()
        return original(*args, **named)

    return counted
