"""Judges the candidates for one problem in a lane, and tells each part of a result as soon as it is known.

One session serves all candidates and measures the eagerly run model once; a second one compares with `torch.compile` of
the model, for right candidates; then come KernelBench's own verdicts. While a problem is judged, the candidates for the
next one are built and its session is opened. This module knows neither ledger nor store: a lane may be on another
machine.
"""

import contextlib
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.bench.plan import BenchJob, Comparisons, outstanding
from kernel_lsp.bench.published import ask_published
from kernel_lsp.bench.records import CandidateResult, cheat_of, comparison_of
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.record import Record
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.protocol import Work
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.turns import SessionTurns
from kernel_lsp.source.candidate import SourceFile

_COMPILED = """

import torch as _torch
import torch._inductor.config as _inductor

_inductor.compile_threads = 1
Model.forward = _torch.compile(Model.forward)
"""


class ProblemRequest(Record):
    """The candidates for one problem.

    Attributes:
        jobs: at least one.
        known: finished parts of their results.
        asked: comparisons requested beside the verdict.
    """

    jobs: tuple[BenchJob, ...]
    known: tuple[CandidateResult, ...]
    asked: Comparisons


class ResultPart(Record):
    """A result, perhaps incomplete, that takes the place of an earlier one; `verdict` is there with the first."""

    result: CandidateResult
    verdict: Verdict | None = None


async def judge_problem(
    lane: Lane, request: ProblemRequest, tell: Callable[[ResultPart], None], ahead: ProblemRequest | None
) -> None:
    """Do all requested work on one problem's candidates; see `Work.attend`."""
    await _Attendance(lane, request.asked, tell, {result.key: result for result in request.known}).attend(
        request.jobs, ahead
    )


def problem_files(request: ProblemRequest) -> Iterable[Path]:
    """Return the files of a problem and its candidates."""
    return {file for job in request.jobs for file in (job.problem.path, job.sample.path)}


JUDGE_PROBLEM = Work(f"{__name__}:JUDGE_PROBLEM", ProblemRequest, ResultPart, judge_problem, problem_files)


def compiled_target(target: Target) -> Target:
    """Return the target with `torch.compile` of the problem's model as its baseline, and the same reference.

    The model compiles with inductor and its default mode, as KernelBench's second baseline does, in the process that
    runs it.
    """
    return replace(target, source=SourceFile(target.source.path, target.source.text + _COMPILED))


@dataclass(frozen=True, slots=True)
class _Attendance:
    """The work of a lane on one request; `results` are those known so far, by key."""

    lane: Lane
    asked: Comparisons
    tell: Callable[[ResultPart], None]
    results: dict[str, CandidateResult]

    async def attend(self, jobs: Sequence[BenchJob], ahead: ProblemRequest | None) -> None:
        self._say(jobs[0], "building")
        self._allow(jobs)
        target = make_target(jobs[0].problem.path)
        new = [job for job in jobs if job.key not in self.results]
        if new:
            await self._judge(target, new, ahead)
        if waiting := self._waiting(jobs, "compiled"):
            await self._compare(compiled_target(target), waiting)
        for job in self._waiting(jobs, "published"):
            await self._publish(target, job)
        for job in jobs:
            self.lane.builders.forget(job.candidate)

    def _say(self, job: BenchJob, what: str) -> None:
        self.lane.say(f"level {job.problem.level} {job.problem.name}: {what}")

    def _waiting(self, jobs: Sequence[BenchJob], part: str) -> list[BenchJob]:
        """Return the jobs with a verdict that lack this part."""
        judged = [job for job in jobs if job.key in self.results]
        return [job for job in judged if getattr(outstanding(self.results[job.key], self.asked), part)]

    def _note(self, result: CandidateResult, verdict: Verdict | None = None) -> None:
        self.results[result.key] = result
        self.tell(ResultPart(result=result, verdict=verdict))

    async def _judge(self, target: Target, jobs: Sequence[BenchJob], ahead: ProblemRequest | None) -> None:
        self._build_ahead(target, jobs)
        async with self.lane.session(target, keep=False) as session:
            if following := _unjudged(ahead):
                with contextlib.suppress(KernelLspError):  # it is reported when that problem is reached
                    self._prepare(make_target(following[0].problem.path), following)
            for job in jobs:
                self._say(job, f"judging sample {job.sample.index}")
                async with self.lane.pool.turns.measuring:
                    verdict = (await session.judge(job.candidate)).made_in(self.lane.where)
                self._note(_result(job, verdict, self.lane), verdict)

    def _prepare(self, target: Target, jobs: Sequence[BenchJob]) -> None:
        """Start to open the session of the problem that comes next, and to build the candidates for it."""
        self._allow(jobs)
        self.lane.foresee(target)
        self._build_ahead(target, jobs)

    def _allow(self, jobs: Sequence[BenchJob]) -> None:
        """Let workers read the files of a problem and its candidates."""
        path = jobs[0].problem.path
        self.lane.pool.allow(read={file.parent for file in (path, *(job.sample.path for job in jobs))})

    def _build_ahead(self, target: Target, jobs: Sequence[BenchJob]) -> None:
        for job in jobs:
            start(self.lane.builders.build(target.workload, job.candidate))  # the session will request the same build

    async def _compare(self, target: Target, jobs: Sequence[BenchJob]) -> None:
        """Time right candidates against a compiled model; a model that cannot be compiled is no error.

        Correctness was already judged beside the eagerly run model, so plain inputs suffice.
        """
        plain = self.lane.settings.on_plain_inputs
        self._say(jobs[0], "measuring torch.compile")
        try:
            async with self.lane.session(target, plain, keep=False) as session:
                for job in jobs:
                    self._say(job, f"sample {job.sample.index} against torch.compile")
                    async with self.lane.pool.turns.measuring:
                        verdict = await session.judge(job.candidate, known=True)
                    self._add(job, {"compiled": comparison_of(verdict)})
        except KernelLspError as error:
            for job in self._waiting(jobs, "compiled"):
                self._add(job, {"compiled_trouble": str(error)})

    async def _publish(self, target: Target, job: BenchJob) -> None:
        lane = self.lane
        self._say(job, f"sample {job.sample.index} by KernelBench's method")
        built = await lane.builders.build(target.workload, job.candidate)
        async with SessionTurns(lane.pool.turns).alone():  # it times
            said, trouble = await ask_published(lane.pool, lane.gpu, target, job.candidate, built, lane.settings)
        self._add(job, {"published": said, "published_trouble": trouble})

    def _add(self, job: BenchJob, found: dict[str, object]) -> None:
        self._note(self.results[job.key].model_copy(update=found))


def _unjudged(request: ProblemRequest | None) -> list[BenchJob]:
    judged = {result.key for result in request.known} if request else set[str]()
    return [job for job in request.jobs if job.key not in judged] if request else []


def _result(job: BenchJob, verdict: Verdict, lane: Lane) -> CandidateResult:
    return CandidateResult(
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
        gpu=lane.gpu.name if lane.gpu else None,
        published=None,
        published_trouble="",
        where=lane.where,
    )
