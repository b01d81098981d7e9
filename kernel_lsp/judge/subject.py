"""A version of the kernel under judgement, loaded in a worker of its own."""

import time
from dataclasses import dataclass, field
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.errors import named_as_given
from kernel_lsp.judge.measure.cost import LAUNCHING, TIMING, LaunchTime
from kernel_lsp.runner.messages import Answer, Request
from kernel_lsp.runner.messages.subject import Run, SubjectRole, buffer_of
from kernel_lsp.runner.turns import SessionTurns
from kernel_lsp.runner.worker import Worker
from kernel_lsp.source.candidate import Candidate


@dataclass
class Subject:
    """One version of the kernel, loaded in a worker.

    Attributes:
        name: how the oracle knows its memory.
        candidate: the version.
        built: its build.
        worker: the process.
        bound: buffers that it has, by the first of those that were bound together.
        recorded: how each recording was made, by its name.
        own_weights: weights of a KernelBench problem that it does not have under their names, but makes itself.
        launch_time: what launches took, shared with all versions of its harness.
        turns: of its session.
        run_s: the longest of its runs, in seconds.
        took_s: seconds of its latest answer, without those in which it waited for its turn.
    """

    name: str
    candidate: Candidate
    built: Built
    worker: Worker
    bound: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    recorded: dict[str, object] = field(default_factory=dict[str, object])
    own_weights: tuple[str, ...] = ()
    launch_time: LaunchTime = field(default_factory=LaunchTime)
    turns: SessionTurns = field(default_factory=lambda: SessionTurns(None))
    run_s: float = 0.0
    took_s: float = 0.0

    def forget_recordings(self, buffer: str) -> None:
        """Forget the recordings on buffers that were bound together, named by the first buffer."""
        for name in [name for name in self.recorded if buffer_of(name) == buffer]:
            del self.recorded[name]

    async def ask(
        self, request: Request[SubjectRole, Answer], *, deadline: float = policy.WORKER_ANSWER_SECONDS
    ) -> Answer:
        """Send a request to the worker and return its answer, once it is the session's turn.

        Raises:
            OutOfTimeError: it would launch, beside a slow baseline, and there is no time left for that.
            WorkerFailure, KernelLspError: as `Worker.ask`.
        """
        launches, times = isinstance(request, LAUNCHING), type(request) in TIMING
        async with self.turns.alone() if times else self.turns.piece():
            started = time.perf_counter()
            try:
                with named_as_given(self.candidate.kernel, self.candidate.launch):
                    return await self._ask(request, self.launch_time.deadline(deadline) if launches else deadline)
            finally:
                self.took_s = time.perf_counter() - started
                if launches:
                    self._launched(request, self.took_s)

    async def _ask(self, request: Request[SubjectRole, Answer], deadline: float) -> Answer:
        return await self.worker.ask(request, deadline=deadline)

    def _launched(self, request: object, seconds: float) -> None:
        self.launch_time.spent_s += seconds
        if isinstance(request, Run):
            self.run_s = max(self.run_s, seconds)

    @property
    def triton_cache(self) -> Path:
        """Return the folder of Triton's cache in its process."""
        return self.worker.scratch / "triton"
