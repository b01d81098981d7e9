"""Runs a bench: a pool's lanes take problem after problem, and this process keeps what they find.

Each part of a result is in the ledger a moment after it is known. Verdicts go to the store with their evidence.
"""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import groupby

from kernel_lsp.bench.attend import JUDGE_PROBLEM, ProblemRequest, ResultPart
from kernel_lsp.bench.plan import BenchJob, BenchPlan, Comparisons, outstanding
from kernel_lsp.bench.records import CandidateResult, GroupedLines, Ledger
from kernel_lsp.errors import KernelLspError
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.store.store import Store


@dataclass
class BenchProgress:
    """The state of a bench.

    Attributes:
        plan: all jobs.
        results: results by key, perhaps incomplete.
        troubles: candidates that could not be judged, each with the reason.
        doing: present activity of each lane.
        judged: candidates judged in this run.
        started: its beginning, in seconds of the monotonic clock.
    """

    plan: BenchPlan
    results: dict[str, CandidateResult]
    troubles: dict[str, str] = field(default_factory=dict[str, str])
    doing: dict[str, str] = field(default_factory=dict[str, str])
    judged: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return the wall time since it began, in seconds."""
        return time.monotonic() - self.started

    @property
    def in_order(self) -> list[CandidateResult]:
        """Return the results in the order of the plan."""
        return [self.results[job.key] for job in self.plan.jobs if job.key in self.results]


Show = Callable[[BenchProgress], None]


async def run_bench(
    plan: BenchPlan, asked: Comparisons, ledger: Ledger, store: Store, pool: LanePool, show: Show = lambda _: None
) -> BenchProgress:
    """Judge the candidates missing from the ledger; may be killed at any time and called again.

    Args:
        plan: the jobs.
        asked: comparisons requested beside the verdict.
        ledger: where results are kept.
        store: where verdicts are kept with their evidence.
        pool: the lanes that judge.
        show: called at the beginning, and whenever something has changed.

    Returns:
        The state at the end. A candidate on which the machine failed is among the troubles, and tried again by the
        next call.

    Raises:
        CannotJudgeError: no lane of the pool can be used any more.
        ConfigurationError: the ledger cannot be read or written.
    """
    keys = {job.key for job in plan.jobs}
    progress = BenchProgress(plan, {key: result for key, result in ledger.read().items() if key in keys})
    show(progress)
    driver = _Driver(asked, GroupedLines(ledger), store, progress, show)
    todo = [job for job in plan.jobs if driver.lacks(job)]
    requests = [driver.request(tuple(jobs)) for _, jobs in groupby(todo, key=lambda job: job.problem)]
    queue = TaskQueue(requests, driver.fail, rest=driver.rest, name=lambda request: request.jobs[0].key)
    try:
        await pool.run(JUDGE_PROBLEM, queue, driver.take, driver.say)
    finally:
        driver.lines.flush()
    return progress


@dataclass(frozen=True, slots=True)
class _Driver:
    """Keeps what lanes tell; the only writer of ledger and store."""

    asked: Comparisons
    lines: GroupedLines
    store: Store
    progress: BenchProgress
    show: Show

    def say(self, lane: str, what: str) -> None:
        self.progress.doing[lane] = what
        self.show(self.progress)

    def take(self, part: ResultPart) -> None:
        """Keep a part of a result."""
        if part.verdict is not None:
            self.store.save_verdict(part.verdict.model_dump(mode="json"))
            self.progress.judged += 1
        self.lines.append(part.result)
        self.progress.results[part.result.key] = part.result
        self.show(self.progress)

    def lacks(self, job: BenchJob) -> bool:
        """Return True if a requested part of the job's result is missing."""
        result = self.progress.results.get(job.key)
        return result is None or outstanding(result, self.asked) != Comparisons(compiled=False, published=False)

    def request(self, jobs: Sequence[BenchJob]) -> ProblemRequest:
        """Return a request for what these jobs of one problem lack."""
        known = (self.progress.results.get(job.key) for job in jobs)
        return ProblemRequest(jobs=tuple(jobs), known=tuple(filter(None, known)), asked=self.asked)

    def rest(self, request: ProblemRequest) -> tuple[ProblemRequest | None, ProblemRequest | None]:
        """Return requests for the candidate at which a lane broke, and for the others that lack something.

        A lane first judges all candidates, then compares, then asks for KernelBench's verdicts, each in order.
        """
        left = sorted((job for job in request.jobs if self.lacks(job)), key=self._reached)
        return self.request(left[:1]) if left else None, self.request(left[1:]) if left[1:] else None

    def fail(self, request: ProblemRequest, error: KernelLspError) -> None:
        """Note why candidates of a request could not be judged."""
        self.progress.troubles |= {job.label: str(error) for job in request.jobs if self.lacks(job)}
        self.show(self.progress)

    def _reached(self, job: BenchJob) -> int:
        result = self.progress.results.get(job.key)
        return 0 if result is None else 1 if outstanding(result, self.asked).compiled else 2
