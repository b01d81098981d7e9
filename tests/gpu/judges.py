"""Sessions that stay open, so that many tests can ask about the same kernel file without measuring it anew."""

import asyncio
import os
import subprocess
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path
from types import SimpleNamespace, TracebackType
from typing import Self

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine import workbench
from kernel_lsp.refine.outcome import Refinement
from kernel_lsp.refine.search import refine
from kernel_lsp.source.candidate import Candidate

CommandLine = Callable[..., "subprocess.Popen[str]"]
"""Starts `kernel-lsp` with the arguments given, and with environment variables as keywords."""

EXAMPLES = Path(__file__).parents[2] / "examples"


def edited(text: str, *changes: tuple[str, str]) -> str:
    """The text with each first string, which must stand there once, replaced by the second."""
    for old, new in changes:
        assert text.count(old) == 1, f"{old!r} stands there {text.count(old)} times"
        text = text.replace(old, new)
    return text


def shares_gpu() -> bool:
    """True where other processes of this test run use the same GPU: its memory then tells nothing of one test."""
    return int(os.environ.get("PYTEST_XDIST_WORKER_COUNT", "1")) > len(find_gpus())


def used_memory(gpu: Gpu) -> int:
    """Bytes of the GPU's memory that anybody uses, as the driver says."""
    import pynvml

    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)


def memory_of_others(gpu: Gpu) -> int:
    """Bytes of the GPU's memory that other processes than this one use, which has a context too once a test made one.

    0 where they cannot be told apart, for the driver calls this one by another id, as in some containers.
    """
    import pynvml
    import torch

    running = pynvml.nvmlDeviceGetComputeRunningProcesses(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid))
    ours = [process.usedGpuMemory for process in running if process.pid == os.getpid()]
    if None in ours or (torch.cuda.is_initialized() and not ours):
        return 0
    return used_memory(gpu) - sum(ours)


def eventually(holds: Callable[[], bool], otherwise: str, seconds: float = 15.0) -> None:
    """Wait until something holds: the kernel and the driver take their time to bury a process."""
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end, otherwise
        time.sleep(0.1)


_MOST_OPEN = 2  # each holds some GiB of the GPU, and test processes may share one


class Judges:
    """Sessions by kernel file, the latest ones of which stay open, all on one event loop. A context manager."""

    def __init__(self, folder: Path) -> None:
        self.settings = Settings(paths=PathSettings(data=folder / "data", cache=folder / "cache"))
        self._runner = asyncio.Runner()
        self._sessions: dict[Path, tuple[Session, AsyncExitStack]] = {}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with self._runner:
            for path in list(self._sessions):
                self._close(path)

    def session(self, path: Path) -> Session:
        """The session of a kernel file, opened unless it is one of the latest that were asked for."""
        session, stack = self._sessions.pop(path, None) or self._opened(path)
        self._sessions[path] = session, stack
        for longest_unused in list(self._sessions)[:-_MOST_OPEN]:
            self._close(longest_unused)
        return session

    def _opened(self, path: Path) -> tuple[Session, AsyncExitStack]:
        stack = AsyncExitStack()
        return self._runner.run(stack.enter_async_context(open_session(make_target(path), self.settings))), stack

    def _close(self, path: Path) -> None:
        _, stack = self._sessions.pop(path)
        self._runner.run(stack.aclose())

    def examine(self, path: Path, text: str) -> tuple[Ruling | None, Findings]:
        """The last look at a variant of a kernel file, as if it had been found faster."""
        session = self.session(path)

        async def look() -> tuple[Ruling | None, Findings]:
            assert session.measured is not None
            assert session.measured.looks is not None
            candidate = session.target.version(text, "variant", "user")
            built = await session.builders.build(session.target.workload, candidate)
            subject = await session.measured.harness.enter(candidate, built)
            findings, loaded = Findings(), asyncio.Event()
            loaded.set()
            try:
                return await session.measured.looks.examine(subject, findings, Timeline(), loaded), findings
            finally:
                await session.measured.harness.leave(subject)

        return self._runner.run(look())

    def judge(self, path: Path, text: str, launch: str | None = None) -> Verdict:
        """The verdict on a variant of a kernel file, and of its workload file where `launch` gives one."""
        session = self.session(path)
        return self._runner.run(session.judge(session.target.version(text, "variant", "user", launch), always_run=True))

    def refine(self, path: Path, text: str) -> Refinement:
        """The result of a search in which one variant of a kernel file is proposed."""
        session = self.session(path)
        waiting = [session.target.version(text, "variant", "user")]

        async def propose(_: int) -> list[Candidate]:
            proposed, waiting[:] = list(waiting), []
            return proposed

        proposer = SimpleNamespace(next=propose, tell=lambda *_: None)
        chosen = self.settings.refine.model_copy(update={"strategy": "tuner-only"})
        session.settings = self.settings.model_copy(update={"refine": chosen})
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(workbench, "find_proposers", lambda *_: (lambda *_: [proposer],))
            return self._runner.run(refine(session, budget=120.0))
