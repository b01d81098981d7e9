"""Judges the answers of a policy in lanes: a lane keeps the sessions of some kernels open from answer to answer.

This module does not know the store: a lane may be on another machine.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import RunnerError
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.learn.environment import SessionJudge
from kernel_lsp.pool.calls import LaneCalls, NumberedRecord
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.protocol import Work
from kernel_lsp.refine.dialogue.task import Briefing
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.source.candidate import Candidate


class AnswerRequest(NumberedRecord):
    """A candidate to be judged, or a kernel to be briefed on.

    Attributes:
        target: the kernel.
        candidate: None for the facts on the kernel as it stands.
    """

    target: Target
    candidate: Candidate | None = None


class AnswerResult(NumberedRecord):
    """The feedback on a candidate and its verdict, if it has one; or the facts on a kernel."""

    feedback: Feedback | None = None
    verdict: Verdict | None = None
    briefing: Briefing | None = None


async def judge_answer(
    lane: Lane, request: AnswerRequest, tell: Callable[[AnswerResult], None], ahead: AnswerRequest | None
) -> None:
    """Judge a candidate in full, or tell the facts on its kernel; see `Work.attend`.

    The session of the kernel that is asked about next is opened meanwhile.

    Raises:
        RunnerError: something broke that says nothing of the candidate; another session may judge it.
        KernelLspError: the kernel cannot be used.
    """
    name = request.target.source.path.name
    lane.say(f"judging an answer on {name}" if request.candidate else f"measuring {name}")
    async with lane.session(request.target) as session:
        if ahead is not None:
            lane.foresee(ahead.target)
        judge = SessionJudge(session)
        if request.candidate is None:
            tell(AnswerResult(number=request.number, briefing=judge.briefing))
            return
        feedback, verdict = await judge.judge(request.candidate)
        lane.builders.forget(request.candidate)
    placed = verdict and verdict.made_in(lane.where)
    tell(AnswerResult(number=request.number, feedback=feedback, verdict=placed))


def answer_files(request: AnswerRequest) -> Iterable[Path]:
    """Return the files of a kernel: its own and its workload."""
    return {request.target.source.path, request.target.workload.source.path}


JUDGE_ANSWER = Work(f"{__name__}:JUDGE_ANSWER", AnswerRequest, AnswerResult, judge_answer, answer_files)
AnswerCalls = LaneCalls[AnswerRequest, AnswerResult]


@dataclass(frozen=True, slots=True)
class LaneJudge:
    """Judges candidates for one kernel in whatever lanes are free. Make it with `lane_judge`."""

    calls: AnswerCalls
    target: Target
    briefing: Briefing

    @property
    def gpu(self) -> Gpu | None:
        """Return a GPU of the lanes' kind; None for the emulator."""
        return next(iter(self.calls.pool.gpus), None)

    @property
    def whole(self) -> bool:
        """Return True: a lane that breaks is replaced."""
        return True

    async def judge(self, candidate: Candidate) -> tuple[Feedback, Verdict | None]:
        """Return the result of a full judgement; see `KernelJudge.judge`."""
        try:
            result = await self.calls.ask(AnswerRequest(target=self.target, candidate=candidate))
        except RunnerError as error:
            raise UnjudgedError(str(error)) from error
        assert result.feedback is not None, "a candidate was sent"
        return result.feedback, result.verdict


async def lane_judge(calls: AnswerCalls, target: Target) -> LaneJudge:
    """Return the judge of a kernel, which a lane has measured.

    Raises:
        KernelLspError: the kernel cannot be used, or no lane can.
    """
    result = await calls.ask(AnswerRequest(target=target))
    assert result.briefing is not None, "no candidate was sent"
    return LaneJudge(calls, target, result.briefing)
