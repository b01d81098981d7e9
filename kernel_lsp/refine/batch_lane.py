"""Judges the answers of a sweep for one kernel in a lane, and tells each step as soon as it is known.

While one kernel's answers are judged, those for the next one are built and its session is opened. This module knows
neither the sweep's files nor the store: a lane may be on another machine.
"""

import contextlib
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import KernelLspError, RunnerError, as_ours
from kernel_lsp.judge.record import Record
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.protocol import Work
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.refine.dialogue.conversation import tell as told_of
from kernel_lsp.refine.dialogue.kernelbench import Style
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, ModelTask, format_for, make_task
from kernel_lsp.refine.model_session import brief, drawn_by
from kernel_lsp.refine.outcome import Exchange, ModelTurn, Tried
from kernel_lsp.refine.turn_outcome import REJECTED
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.runner.shield import start
from kernel_lsp.source.candidate import Candidate


class WaitingAnswer(Record):
    """An answer to be judged: the id of its request, the prompt as JSON, and the seed that it was drawn with."""

    id: str
    answer: ModelAnswer
    prompt: str
    seed: int


class SweptKernel(Record):
    """A kernel of a sweep, with answers to be judged.

    Attributes:
        number: its place in the sweep.
        path, kernel: the file, and the kernel in it; None for all of them.
        workload: its file; None if that is the kernel's.
        profile: of the model, by its id or its file.
        model: name that the requests ask for.
        write: what kernels for plain PyTorch modules are written in; None leaves it to the profile.
        turn: number of the turn.
        answers: in the order in which they are judged.
    """

    number: int
    path: Path
    kernel: str | None
    workload: Path | None
    profile: str
    model: str
    write: Style | None
    turn: int
    answers: tuple[WaitingAnswer, ...] = ()


class AnswerStep(Record):
    """A step of judging an answer; one without anything but `id` says that it begins.

    Attributes:
        number: of the kernel.
        id: of the answer's request.
        verdict: of a candidate.
        exchange: the turn with its result so far.
        line: the answer's line in `outcomes.jsonl`, the last step.
    """

    number: int
    id: str
    verdict: Verdict | None = None
    exchange: Exchange | None = None
    line: dict[str, Any] | None = None


class BriefedKernel(Record):
    """The facts on a kernel, by its place in the sweep."""

    number: int
    briefing: Briefing


def kernel_parts(
    target: Target, settings: Settings, profile: str, write: Style | None
) -> tuple[Profile, Prompts, ModelTask]:
    """Return the profile, and what a model is asked about a kernel."""
    found = find_profile(profile)
    prompts = Prompts(format_for(target.source, found, write), settings.model.templates)
    return found, prompts, make_task(target, found, prompts)


async def judge_answers(
    lane: Lane, request: SweptKernel, tell: Callable[[AnswerStep], None], ahead: SweptKernel | None
) -> None:
    """Judge the answers for one kernel in one session; see `Work.attend`.

    Raises:
        RunnerError: workers broke, or anything else at an answer: another session may judge it.
        KernelLspError: the kernel cannot be opened.
    """
    target = _target(lane, request)
    profile, prompts, task = kernel_parts(target, lane.settings, request.profile, request.write)
    built = _built_ahead(lane, request, target, task)
    async with lane.session(target, keep=False) as session:
        if ahead is not None:
            with contextlib.suppress(KernelLspError):  # it is reported when that kernel is reached
                following = _target(lane, ahead)
                lane.foresee(following)
                _, _, asked = kernel_parts(following, lane.settings, ahead.profile, ahead.write)
                _built_ahead(lane, ahead, following, asked)
        for place, one in enumerate(request.answers, 1):
            lane.say(f"turn {request.turn}: {request.path.name}, answer {place} of {len(request.answers)}")
            tell(AnswerStep(number=request.number, id=one.id))
            try:
                line = await _judge(lane, session, request, (profile, prompts, task), one, tell)
            except RunnerError:
                raise
            except Exception as error:
                raise RunnerError(str(as_ours(error))) from error
            tell(AnswerStep(number=request.number, id=one.id, line=line))
    for candidate in built:
        lane.builders.forget(candidate)


async def brief_kernel(
    lane: Lane, request: SweptKernel, tell: Callable[[BriefedKernel], None], ahead: SweptKernel | None
) -> None:
    """Gather the facts that prompts tell about a kernel; see `Work.attend`."""
    lane.say(f"turn {request.turn}: measuring {request.path.name}")
    plain = lane.settings.on_plain_inputs
    async with lane.session(_target(lane, request), plain, keep=False) as session:
        if ahead is not None:
            with contextlib.suppress(KernelLspError):  # as above
                lane.foresee(_target(lane, ahead), plain)
        tell(BriefedKernel(number=request.number, briefing=brief(session, ())))


def kernel_files(request: SweptKernel) -> Iterable[Path]:
    """Return the files of a kernel: its own, its workload, and the model's profile where that is one."""
    profile = Path(request.profile) if request.profile.endswith(".toml") else None
    return filter(None, (request.path, request.workload, profile))


JUDGE_ANSWERS = Work(f"{__name__}:JUDGE_ANSWERS", SweptKernel, AnswerStep, judge_answers, kernel_files)
BRIEF_KERNEL = Work(f"{__name__}:BRIEF_KERNEL", SweptKernel, BriefedKernel, brief_kernel, kernel_files)


def _target(lane: Lane, request: SweptKernel) -> Target:
    return make_target(request.path, request.kernel, request.workload, problems=lane.settings.kernelbench.root)


def _built_ahead(lane: Lane, request: SweptKernel, target: Target, task: ModelTask) -> list[Candidate]:
    """Start to build the answers that are candidates, and return these; the session will request the same builds."""
    found: list[Candidate] = []
    for one in request.answers:
        with contextlib.suppress(RejectedAnswer):
            found.append(task.candidate(one.answer))
    for candidate in found:
        start(lane.builders.build(target.workload, candidate))
    return found


async def _judge(
    lane: Lane,
    session: Session,
    request: SweptKernel,
    parts: tuple[Profile, Prompts, ModelTask],
    one: WaitingAnswer,
    tell: Callable[[AnswerStep], None],
) -> dict[str, Any]:
    """Judge one answer and tell its steps; return its line in `outcomes.jsonl`."""
    profile, prompts, task = parts
    verdicts: list[Verdict] = []

    def record(tried: Tried) -> None:
        if tried.verdict is not None:
            verdicts.append(tried.verdict.made_in(lane.where))
            tell(AnswerStep(number=request.number, id=one.id, verdict=verdicts[-1]))

    bench = Workbench(
        session,
        lane.settings.refine.budget,
        on_progress=lambda _: None,
        on_tried=record,
        on_exchange=lambda said: tell(AnswerStep(number=request.number, id=one.id, exchange=said)),
        on_confirmed=None,
        seed=0,
    )
    turn = ModelTurn(0, request.turn, one.prompt, one.answer, drawn_by(profile, request.model, one.seed))
    bench.heard(turn)
    received = await AnswerHandler(bench, task, remember=False).receive(one.answer)
    told = told_of(prompts, received.outcome)
    bench.exchanged(turn, received, told)
    best, outcome = bench.result.best, received.outcome
    return {
        "told": told,
        "candidate": received.candidate.digest if received.candidate else None,
        "verdict": verdicts[-1].id if verdicts else None,
        "outcome": REJECTED if isinstance(outcome, str) else outcome.verdict.value,
        "speedup": best.speedup if best else None,
    }
