"""Runs a bench: one lane per GPU takes problem after problem, and builds the next one's candidates meanwhile.

A lane has its own pool of workers on its GPU. For each problem it opens one session for all candidates, which measures
the eagerly run model once; then one against `torch.compile` of the model, for right candidates; then it asks for
KernelBench's own verdicts. Each part is in the ledger before the next one begins. Without a GPU there is one lane, on
the emulator.
"""

import contextlib
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from kernel_lsp.bench.lanes import Lane, run_lanes
from kernel_lsp.bench.plan import Asked, Job, Plan, outstanding
from kernel_lsp.bench.published import ask_published
from kernel_lsp.bench.records import Ledger, Result, cheat_of, comparison_of
from kernel_lsp.bench.suite import Problem
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.runner.shield import start
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store

_COMPILED = """

import torch as _torch
import torch._inductor.config as _inductor

_inductor.compile_threads = 1
Model.forward = _torch.compile(Model.forward)
"""


@dataclass
class Progress:
    """The state of a bench.

    Attributes:
        plan: all jobs.
        results: results by key, perhaps incomplete.
        troubles: candidates that could not be judged, each with the reason.
        doing: present activity of each lane.
        judged: candidates judged in this run.
        started: its beginning, in seconds of the monotonic clock.
    """

    plan: Plan
    results: dict[str, Result]
    troubles: dict[str, str] = field(default_factory=dict[str, str])
    doing: dict[str, str] = field(default_factory=dict[str, str])
    judged: int = 0
    started: float = field(default_factory=time.monotonic)

    @property
    def seconds(self) -> float:
        """Return the wall time since it began, in seconds."""
        return time.monotonic() - self.started

    @property
    def in_order(self) -> list[Result]:
        """Return the results in the order of the plan."""
        return [self.results[job.key] for job in self.plan.jobs if job.key in self.results]


Show = Callable[[Progress], None]


async def run_bench(
    plan: Plan,
    asked: Asked,
    settings: Settings,
    ledger: Ledger,
    store: Store,
    gpus: Sequence[Gpu] = (),
    show: Show = lambda _: None,
) -> Progress:
    """Judge the candidates missing from the ledger; may be killed at any time and called again.

    Args:
        plan: the jobs.
        asked: comparisons requested beside the verdict.
        settings: those in force.
        ledger: where results are kept.
        store: where verdicts are kept with their evidence.
        gpus: one lane each; none is the emulator.
        show: called whenever something has changed.

    Returns:
        The state at the end. A candidate on which the machine failed is among the troubles, and tried again by the
        next call.
    """
    keys = {job.key for job in plan.jobs}
    progress = Progress(plan, {key: result for key, result in ledger.read().items() if key in keys})
    todo = [job for job in plan.jobs if _left(progress.results.get(job.key), asked)]
    queue = deque(tuple(jobs) for _, jobs in groupby(todo, key=lambda job: job.problem))
    work = _Work(asked, ledger, store, progress, queue, show)

    async def attend(lane: Lane, jobs: tuple[Job, ...]) -> None:
        await _Bench(work, lane).problem(jobs)

    def fail(jobs: tuple[Job, ...], error: KernelLspError) -> None:
        progress.troubles |= {job.label: str(error) for job in jobs if _left(work.result(job), asked)}

    await run_lanes(queue, gpus, settings, attend, fail, work.say)
    return progress


def compiled_target(target: Target) -> Target:
    """Return the target with `torch.compile` of the problem's model as its baseline, and the same reference.

    The model compiles with inductor and its default mode, as KernelBench's second baseline does, in the process that
    runs it.
    """
    return replace(target, source=SourceFile(target.source.path, target.source.text + _COMPILED))


@dataclass(frozen=True, slots=True)
class _Work:
    """The state that lanes share."""

    asked: Asked
    ledger: Ledger
    store: Store
    progress: Progress
    queue: deque[tuple[Job, ...]]
    show: Show

    def say(self, lane: str, what: str) -> None:
        self.progress.doing[lane] = what
        self.show(self.progress)

    def keep(self, result: Result) -> None:
        self.ledger.append(result)
        self.progress.results[result.key] = result
        self.show(self.progress)

    def result(self, job: Job) -> Result | None:
        return self.progress.results.get(job.key)

    def waiting(self, jobs: Sequence[Job], part: str) -> list[Job]:
        """Return the jobs with a verdict that lack this part."""
        known = ((job, self.result(job)) for job in jobs)
        return [job for job, result in known if result and getattr(outstanding(result, self.asked), part)]


def _left(result: Result | None, asked: Asked) -> bool:
    return result is None or outstanding(result, asked) != Asked(compiled=False, published=False)


@dataclass(frozen=True, slots=True)
class _Bench:
    """The work of one lane."""

    work: _Work
    lane: Lane

    async def problem(self, jobs: Sequence[Job]) -> None:
        """Do all requested work on one problem's candidates."""
        problem, work = jobs[0].problem, self.work
        self.say(problem, "building")
        self.lane.pool.allow(read={file.parent for file in (problem.path, *(job.sample.path for job in jobs))})
        target = make_target(problem.path)
        new = [job for job in jobs if work.result(job) is None]
        if new:
            await self._judge(target, new)
        if waiting := work.waiting(jobs, "compiled"):
            await self._compare(compiled_target(target), waiting)
        for job in work.waiting(jobs, "published"):
            self.say(problem, f"sample {job.sample.index} by KernelBench's method")
            result = work.result(job)
            assert result is not None, "it has a verdict"
            built = await self.lane.builders.build(target.workload, job.candidate)
            said, trouble = await ask_published(
                self.lane.pool, self.lane.gpu, target, job.candidate, built, self.lane.settings
            )
            work.keep(result.model_copy(update={"published": said, "published_trouble": trouble}))
        for job in jobs:
            self.lane.builders.forget(job.candidate)

    def say(self, problem: Problem, what: str) -> None:
        self.lane.say(f"level {problem.level} {problem.name}: {what}")

    async def _judge(self, target: Target, jobs: Sequence[Job]) -> None:
        work = self.work
        self._build_ahead(target, jobs)
        async with open_session(target, self.lane.settings, self.lane.pool, self.lane.builders) as session:
            if work.queue:  # the next problem's candidates are built while these are timed
                following = [job for job in work.queue[0] if work.result(job) is None]
                with contextlib.suppress(KernelLspError):  # it is reported when that problem is reached
                    self._build_ahead(make_target(work.queue[0][0].problem.path), following)
            for job in jobs:
                self.say(job.problem, f"judging sample {job.sample.index}")
                verdict = await session.judge(job.candidate)
                work.store.save_verdict(verdict.model_dump(mode="json"))
                work.progress.judged += 1
                work.keep(_result(job, verdict, self.lane.gpu))

    def _build_ahead(self, target: Target, jobs: Sequence[Job]) -> None:
        for job in jobs:
            start(self.lane.builders.build(target.workload, job.candidate))  # the session will request the same build

    async def _compare(self, target: Target, jobs: Sequence[Job]) -> None:
        """Time right candidates against a compiled model; a model that cannot be compiled is no error.

        Correctness was already judged beside the eagerly run model, so plain inputs suffice.
        """
        work, settings = self.work, self.lane.settings
        plain = settings.model_copy(update={"judge": settings.judge.model_copy(update={"families": ["normal"]})})
        self.say(jobs[0].problem, "measuring torch.compile")
        try:
            async with open_session(target, plain, self.lane.pool, self.lane.builders) as session:
                for job in jobs:
                    self.say(job.problem, f"sample {job.sample.index} against torch.compile")
                    verdict = await session.judge(job.candidate, known=True)
                    self._note(job, {"compiled": comparison_of(verdict)})
        except KernelLspError as error:
            for job in work.waiting(jobs, "compiled"):
                self._note(job, {"compiled_trouble": str(error)})

    def _note(self, job: Job, found: dict[str, object]) -> None:
        result = self.work.result(job)
        assert result is not None, "only what was judged is compared"
        self.work.keep(result.model_copy(update=found))


def _result(job: Job, verdict: Verdict, gpu: Gpu | None) -> Result:
    return Result(
        key=job.key,
        level=job.problem.level,
        number=job.problem.number,
        problem=job.problem.name,
        run=job.sample.run,
        index=job.sample.index,
        language=str(job.candidate.language),
        verdict=verdict.id,
        eager=comparison_of(verdict),
        compiled=None,
        compiled_trouble="",
        cheat=cheat_of(verdict),
        build_way=verdict.evidence.build_way,
        seconds=verdict.seconds,
        gpu=gpu.name if gpu else None,
        published=None,
        published_trouble="",
    )
