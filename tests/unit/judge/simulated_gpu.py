"""A GPU whose launches take the seconds that texts of versions say, on a clock that a test makes pass.

All of the judge but its worker processes is real: a session is opened on these workers and judges as on a GPU.
"""

import contextlib
import itertools
import random
import re
import time
from collections.abc import AsyncGenerator, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import device_named
from kernel_lsp.device.nvml import Gpu, GpuState
from kernel_lsp.device.tensors import BufferHandle, TensorSpec
from kernel_lsp.judge import evidence
from kernel_lsp.judge import harness as harnesses
from kernel_lsp.judge import session as sessions
from kernel_lsp.judge.measure import blocks, cases, device_state
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.stages import final_checks
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.runner.messages import oracle as truth
from kernel_lsp.runner.messages import subject as messages
from kernel_lsp.runner.messages import subject_answers as answers
from kernel_lsp.runner.messages.oracle_answers import (
    BaselineError,
    Compared,
    LoadedWorkload,
    Made,
    MemoryRates,
    OutputDistance,
    Varied,
)
from kernel_lsp.runner.spans import SpanLog
from kernel_lsp.runner.turns import GpuTurns
from kernel_lsp.runner.worker import WorkerTimedOut

SAXPY = Path(__file__).parents[3] / "examples" / "cuda" / "saxpy.cu"
GPU = Gpu(0, "a GPU", "GPU-0", "sm_90", "1", 80 << 30)
OUTPUT = TensorSpec("float32", (4,), (1,), 0, 16)
PUBLISHED = answers.PublishedOutputs((OUTPUT,), ((1,),))
OFFSETS = {"unaligned": 4, "strided": 512, "padded": 1024, "misaligned-1": 8}
"""By family, where the only input lies then; in all others it lies as before."""
_SECONDS = re.compile(r"// seconds: (.*)")


NEAR = "n=97"
"""A size near the largest, which CASES does not name."""


class Clock:
    """Seconds that pass only as launches take them."""

    def __init__(self) -> None:
        self.s = 0.0

    def perf_counter(self) -> float:
        return self.s


class Version:
    """A process with one version; its text says how many seconds a launch takes on each case."""

    alive, pid, scratch = True, 42, Path("/nonexistent")
    protections = ()

    def __init__(self, gpu: "SimulatedGpu") -> None:
        self.gpu, self.seconds = gpu, list[float]()
        self.launches: dict[str, int] = {}

    def kill(self) -> None:
        self.alive = False

    async def ask(self, request: Any, *, deadline: float) -> Any:
        match request:
            case messages.Load():
                self.seconds = seconds_of(request.text)
                return answers.Loaded()
            case messages.Bind():
                return BufferHandle(16)
            case messages.Run():
                self._launch(request.buffer, 1, deadline)
                return answers.Ran(PUBLISHED, (0,), (), ("",), False)
            case messages.CallRepeatedly():
                self._launch(request.buffer, request.count, deadline)
                return request.count
            case messages.Sustain():
                return answers.Stretch(1, self._launch(request.buffer, 1, deadline)[0], 1500.0)
            case messages.TraceLaunch():
                self._launch(request.buffer, 1, deadline)
                return answers.Traced((), failed="nothing is traced here")
            case messages.LookForChanges():
                return answers.ProcessChanges((), ())
            case messages.RecordSegment():
                self.launches[request.recording] = len(request.buffers)
                return answers.Recorded()
            case messages.RunSegments():
                rows = [
                    [self._segment(request.recording, deadline) for _ in range(request.repeats)]
                    for _ in range(request.count)
                ]
                return tuple(row[-1] for row in rows)
            case messages.Publish() | messages.PublishEarlier():
                return PUBLISHED
            case messages.Forget():
                return ()
            case _:
                pass
        return None

    def _segment(self, recording: str, deadline: float) -> answers.Segment:
        times = self._launch(recording, self.launches[recording], deadline)
        return answers.Segment(tuple(s * 1e6 for s in times), ((1,),) * len(times), 1500.0)

    def _launch(self, buffer: str, count: int, deadline: float) -> list[float]:
        """Seconds of so many launches, a thousandth about the version's own."""
        usual = self.seconds[min(int(buffer.partition("/")[0]), len(self.seconds) - 1)]  # the last for other sizes
        times = [usual * self.gpu.rng.gauss(1.0, 1e-3) for _ in range(count)]
        self.gpu.launched.append((self.seconds[0], count))
        if sum(times) > deadline:
            self.gpu.clock.s += deadline
            raise WorkerTimedOut(f"the subject process did not finish in {deadline:.1f} s")
        self.gpu.clock.s += sum(times)
        return times


class Oracle:
    """An oracle to which every answer is right."""

    alive, pid = True, 41

    def __init__(self, cases: int) -> None:
        self.cases = cases

    def kill(self) -> None:
        self.alive = False

    async def ask(self, request: Any, *, deadline: float) -> Any:
        numbers = tuple(range(self.cases))
        made = Made((OUTPUT,), 16, 16)
        match request:
            case truth.LoadWorkload():
                return LoadedWorkload(tuple(f"n={n}" for n in numbers), ("x",), numbers)
            case truth.MeasureRates():
                return MemoryRates(1e12, 1e12, 1e12, 0.0)
            case truth.InputSizes():
                return (16,) * self.cases
            case truth.OtherSizes():
                assert request.near, "small ones are for the emulator"
                return (NEAR,)
            case truth.Prepare() | truth.Touch():
                return made
            case truth.LayOut():
                return replace(made, arguments=(replace(OUTPUT, offset=OFFSETS.get(request.family, 0)),))
            case truth.Vary():
                return Varied(made, matters=True)
            case truth.Compare():
                exact = OutputDistance(0.0, 0.0, 0, 4)
                return Compared(distances=(exact,), fingerprints=(1,), baseline=(BaselineError(0.0, 0.0),))
            case truth.Discriminate():
                return ()
            case truth.Probe():
                return True
            case _:
                return None


class SimulatedGpu:
    """Opens sessions and keeps what was launched: seconds of the version on its first case, and how often."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.rng = Clock(), random.Random(1)
        self.launched: list[tuple[float, int]] = []
        monkeypatch.setattr(time, "perf_counter", self.clock.perf_counter)
        idle = GpuState(1500, None, None, (), 0)
        for module in (cases, blocks, sessions):
            monkeypatch.setattr(module, "free_bytes", lambda _: 60 << 30)
        monkeypatch.setattr(harnesses, "uses", lambda *_: False)
        monkeypatch.setattr(blocks, "read_throttle", lambda _: ())
        monkeypatch.setattr(device_state, "read_state", lambda *_: idle)
        monkeypatch.setattr(sessions, "Faults", lambda _: SimpleNamespace(drain=tuple, close=lambda: None))
        monkeypatch.setattr(sessions.gate, "asleep", lambda *_, **__: contextlib.nullcontext(False))
        monkeypatch.setattr(evidence, "resources_of", lambda _: ())
        for module in (evidence, final_checks):
            monkeypatch.setattr(module, "opcodes", lambda *_: {})
        monkeypatch.setattr(Session, "timer", lambda _: contextlib.nullcontext(()))

    def count(self, seconds: float) -> int:
        """Launches of the version that takes so long."""
        return sum(count for own, count in self.launched if own == seconds)

    @contextlib.asynccontextmanager
    async def opened(
        self, baseline: Sequence[float], tmp_path: Path, said: list[str], **judge: Any
    ) -> AsyncGenerator[Session]:
        """Open a session whose baseline takes so many seconds on each case."""
        settings = Settings()
        options = {"sanitize": "off", "steady_load": "off", **judge}
        settings = settings.model_copy(update={"judge": settings.judge.model_copy(update=options)})
        source = tmp_path / SAXPY.name
        source.write_text(SAXPY.read_text() + marked(baseline))
        (tmp_path / "saxpy_workload.py").write_text((SAXPY.parent / "saxpy_workload.py").read_text())
        pool = self._pool(len(baseline), tmp_path)
        session = Session(pool, make_target(source), settings, GPU, self._builders(tmp_path), said.append)
        try:
            await session.open()
            yield session
        finally:
            await session.close()

    def _pool(self, cases: int, folder: Path) -> Any:
        async def worker(_: object, role: str, **__: object) -> Any:
            return Oracle(cases) if role == "oracle" else Version(self)

        imports: dict[str, Any] = {
            "turns": GpuTurns(),
            "libraries": (),
            "foresee": lambda _: None,
            "preload": lambda *_: None,
        }
        pids = frozenset[int]
        return SimpleNamespace(
            worker=worker, scratch=lambda _: folder, allow=lambda *_: None, pids=pids, spans=SpanLog(), **imports
        )

    def _builders(self, folder: Path) -> Any:
        binary = Binary("sm_90", b"", None, {}, ())
        built = Built(Build(binary, (), "nvrtc", 0.0), ())

        async def build(*_: object) -> Built:
            return built

        async def own(_: str) -> Binary:
            return binary

        async def reference(*_: object) -> dict[str, object]:
            return {}

        return SimpleNamespace(
            build=build,
            own=own,
            reference=reference,
            extensions=lambda: folder,
            arch="sm_90",
            device=device_named("H100"),
            close=lambda: None,
        )


async def judged(session: Session, seconds: Sequence[float]) -> Verdict:
    """The verdict on a candidate that takes so many seconds on each case."""
    number = next(_NUMBERS)
    text = f"// candidate {number}\n{SAXPY.read_text()}{marked(seconds)}"
    return await session.judge(session.target.version(text, f"candidate {number}", "user"), always_run=True)


_NUMBERS = itertools.count(1)


def marked(seconds: Sequence[float]) -> str:
    """The comment that says how long launches take."""
    return f"\n// seconds: {' '.join(map(str, seconds))}\n"


def seconds_of(text: str) -> list[float]:
    """What such a comment says."""
    found = cast("re.Match[str]", _SECONDS.search(text))
    return [float(word) for word in found[1].split()]
