"""Refine many kernels, one turn at a time, with a model that runs elsewhere and answers through files.

A folder holds the whole sweep. `batch.json` lists the kernels and settings. `turn-01/requests.jsonl` holds the prompts
of the first turn in the form of OpenAI's batch endpoint, which `vllm run-batch` takes too. The next call reads its
output, `answers.jsonl` beside it, judges the answers and writes `turn-02`. `outcomes.jsonl` has a line for each judged
answer, written after the store: a call that is killed loses at most the judgement under way, which the next call
repeats and stores in the same place. `briefings.jsonl` keeps the facts on each kernel at the first turn, so that every
turn tells the model the same.
"""

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import ConfigurationError, KernelLspError, RunnerError, as_ours
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.model.client import Message, estimate_tokens
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.pool.protocol import LanePool
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.refine.batch_files import append_line, read_answers, read_lines, read_whole_lines, write_whole
from kernel_lsp.refine.batch_lane import (
    BRIEF_KERNEL,
    JUDGE_ANSWERS,
    AnswerStep,
    BriefedKernel,
    SweptKernel,
    WaitingAnswer,
    kernel_parts,
)
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages
from kernel_lsp.refine.dialogue.kernelbench import Style
from kernel_lsp.refine.dialogue.task import Briefing
from kernel_lsp.refine.journal import Journal
from kernel_lsp.refine.model_session import gpu_name, opening
from kernel_lsp.refine.turn_outcome import NOT_JUDGED
from kernel_lsp.store.store import Store

_FORM = 1  # of the files


@dataclass(frozen=True, slots=True)
class Batch:
    """The contents of `batch.json`.

    Attributes:
        folder: where it lies.
        kernels: `path` or `path::kernel`, as given.
        profile: the model's profile, by its id or its file.
        model: name that the requests ask for.
        turns: how many there are to be.
        trajectories: for each kernel.
        name: of the sweep in the store; the same kernels, texts and numbers give the same name.
        write: what kernels for plain PyTorch modules are written in; None leaves it to the profile.
    """

    folder: Path
    kernels: tuple[str, ...]
    profile: str
    model: str
    turns: int
    trajectories: int
    name: str
    write: Style | None = None

    def turn(self, number: int) -> Path:
        """Return the folder of a turn, counted from 1."""
        return self.folder / f"turn-{number:02}"

    def outcomes(self) -> list["AnswerOutcome"]:
        """Return the outcomes judged so far, turn by turn."""
        return [
            AnswerOutcome(self.kernels[int(one.partition("-")[0])], number, str(said["outcome"]), said["speedup"])
            for number in range(1, self.turns + 1)
            for one, said in _outcomes(self.turn(number)).items()
        ]

    def ids(self) -> list[str]:
        """Return the `custom_id` of each trajectory: the number of its kernel, then its own."""
        return [f"{k:04}-{t:02}" for k in range(len(self.kernels)) for t in range(self.trajectories)]


@dataclass(frozen=True, slots=True)
class AnswerOutcome:
    """The result of one answer: the verdict's name, REJECTED or NOT_JUDGED, and the speedup if it is FASTER."""

    kernel: str
    turn: int
    outcome: str
    speedup: float | None


@dataclass(frozen=True, slots=True)
class Stand:
    """The state of a sweep after a call.

    Attributes:
        turn: the turn that waits for answers, or the last one.
        waits_for: the file in which they are missing; None where all turns are done.
        judged: answers judged in this call.
        missing: requests of the turn that have no answer.
        troubles: kernels that could not be opened, and requests that were answered with an error, each with the reason.
    """

    turn: int
    waits_for: Path | None
    judged: int
    missing: int
    troubles: tuple[str, ...]


Show = Callable[[str], None]


def begin_batch(folder: Path, kernels: Sequence[str], settings: Settings) -> Batch:
    """Write `batch.json`, or read it if it exists.

    Raises:
        ConfigurationError: there is none and no kernels are named, or it is of other kernels.
        KernelLspError: a kernel cannot be used.
    """
    file = folder / "batch.json"
    if file.exists():
        batch = _read_batch(file)
        if kernels and tuple(kernels) != batch.kernels:
            fix = "Leave the files out to go on with it, or name another folder."
            raise ConfigurationError("This sweep was begun for other kernels.", file, fix=fix)
        return batch
    if not kernels:
        raise ConfigurationError(
            "There is no sweep in this folder yet.", folder, fix="Name the kernel files to refine."
        )
    profile = find_profile(settings.model.profile)
    texts = [_target(name, settings).baseline.digest for name in kernels]
    turns = settings.refine.turns or profile.talk.turns
    write = settings.refine.write
    told = [profile.id, turns, settings.refine.trajectories, *texts, *([write] if write else [])]
    name = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:12]
    model = settings.model.name or profile.weights or profile.id
    said = settings.model.profile
    said = str(Path(said).expanduser().absolute()) if said.endswith(".toml") else said
    batch = Batch(folder, tuple(kernels), said, model, turns, settings.refine.trajectories, f"batch-{name}", write)
    shown = {"form": _FORM, **asdict(batch)}
    del shown["folder"]  # so that a sweep can be moved
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(file, json.dumps(shown, indent=2) + "\n")
    return batch


async def advance_batch(
    batch: Batch, settings: Settings, store: Store, pool: LanePool, show: Show = lambda _: None
) -> Stand:
    """Judge the answers, write the next turn's requests, and so on, as far as there are answers.

    Can be killed at any point and called again. A kernel that cannot be opened is left out.

    Args:
        batch: the sweep.
        settings: those in force.
        store: takes verdicts and turns.
        pool: the lanes that measure kernels and judge answers, each kernel in one lane at a time.
        show: called with what is being done.

    Raises:
        CannotJudgeError: no lane of the pool can be used any more.
        ConfigurationError: a file of answers is not what a batch endpoint writes.
    """
    judged, troubles = 0, dict[str, str]()
    work = _Work(batch, settings, store, pool, troubles, show)
    for number in range(1, batch.turns + 1):
        folder = batch.turn(number)
        requests, answers = folder / "requests.jsonl", folder / "answers.jsonl"
        due = [i for i in batch.ids() if number == 1 or i in _outcomes(batch.turn(number - 1))]
        if not requests.exists():
            await _ask(work, number, due)
        asked = [str(line["custom_id"]) for line in read_lines(requests)]
        if not answers.exists():
            return Stand(number, answers if asked else None, judged, len(asked), tuple(troubles.values()))
        said, outcomes = read_answers(answers, troubles), _outcomes(folder)
        judged += await _judge(work, number, {i: said[i] for i in asked if i in said and i not in outcomes})
        if missing := [i for i in asked if i not in said]:
            return Stand(number, answers, judged, len(missing), tuple(troubles.values()))
    return Stand(batch.turns, None, judged, 0, tuple(troubles.values()))


@dataclass(frozen=True, slots=True)
class _Work:
    """The state that the steps of one call share."""

    batch: Batch
    settings: Settings
    store: Store
    pool: LanePool
    troubles: dict[str, str]
    show: Show

    @property
    def gpu(self) -> Gpu | None:
        """Return a GPU of the kind that judges; None for the emulator."""
        return next(iter(self.pool.gpus), None)

    def request(self, kernel: int, target: Target, turn: int, answers: Iterable[WaitingAnswer] = ()) -> SweptKernel:
        """Return the request for a kernel, by its place in the sweep."""
        workload, batch = target.workload, self.batch
        return SweptKernel(
            number=kernel,
            path=target.source.path,
            kernel=batch.kernels[kernel].partition("::")[2] or None,
            workload=None if workload.in_kernel_file else workload.source.path,
            profile=batch.profile,
            model=batch.model,
            write=batch.write,
            turn=turn,
            answers=tuple(answers),
        )

    def say(self, lane: str, what: str) -> None:
        """Show the activity of a lane."""
        self.show(f"{lane}: {what}")


async def _ask(work: _Work, number: int, due: Sequence[str]) -> None:
    """Write the requests of a turn, all at once."""
    batch = work.batch
    before = [_outcomes(batch.turn(n)) for n in range(1, number)]
    targets = _targets(work, due)
    known = await _briefings(work, targets, number)
    lines: list[str] = []
    for place, ids in _by_kernel(due).items():
        if place not in targets or place not in known:
            continue
        try:
            profile, prompts, task = kernel_parts(targets[place], work.settings, batch.profile, batch.write)
            begun = opening(prompts, task, targets[place].baseline)
            for one in ids:
                attempts = [*begun, *(_attempt(outcomes[one]) for outcomes in before)]
                said = await messages(task, profile.talk, known[place], attempts, _estimate)
                lines.append(json.dumps(_request(batch, profile, one, number, said), ensure_ascii=False))
        except Exception as error:  # an error on one kernel must not stop the others
            work.troubles[batch.kernels[place]] = str(as_ours(error))
    batch.turn(number).mkdir(parents=True, exist_ok=True)
    write_whole(batch.turn(number) / "requests.jsonl", "".join(f"{line}\n" for line in lines))


async def _briefings(work: _Work, targets: Mapping[int, Target], number: int) -> dict[int, Briefing]:
    """Return the facts that prompts tell about each kernel, gathered once and stored; troubles are noted."""
    batch, found = work.batch, _known_briefings(work.batch)

    def keep(told: BriefedKernel) -> None:
        found[told.number] = told.briefing
        kernel = batch.kernels[told.number]
        append_line(batch.folder / "briefings.jsonl", {"kernel": kernel, **asdict(told.briefing)})

    def fail(request: SweptKernel, error: KernelLspError) -> None:
        work.troubles[batch.kernels[request.number]] = str(error)

    waiting: list[SweptKernel] = []
    for place in (place for place in targets if place not in found):
        try:
            prompts = kernel_parts(targets[place], work.settings, batch.profile, batch.write)[1]
        except Exception as error:  # an error on one kernel must not stop the others
            work.troubles[batch.kernels[place]] = str(as_ours(error))
            continue
        if prompts.tells_facts:
            waiting.append(work.request(place, targets[place], number))
        else:
            keep(BriefedKernel(number=place, briefing=Briefing(gpu_name(work.gpu))))
    if waiting:
        queue = TaskQueue(waiting, fail, name=lambda request: request.number)
        await work.pool.run(BRIEF_KERNEL, queue, keep, work.say)
    return found


async def _judge(work: _Work, number: int, said: Mapping[str, ModelAnswer]) -> int:
    """Judge answers, each kernel in a lane; each is stored, and then recorded in `outcomes.jsonl`.

    Returns:
        The number of answers that have an outcome now.
    """
    if not said:
        return 0
    batch = work.batch
    asked = {str(line["custom_id"]): line for line in read_lines(batch.turn(number) / "requests.jsonl")}
    waiting = {
        one: WaitingAnswer(
            id=one,
            answer=answer,
            prompt=json.dumps(asked[one]["body"]["messages"], ensure_ascii=False),
            seed=_seed(one, number),
        )
        for one, answer in said.items()
    }
    targets = _targets(work, list(said))
    journals = {place: Journal(work.store, target, work.settings, work.gpu) for place, target in targets.items()}
    judging = _Judging(work, number, waiting, journals)
    requests = [
        work.request(place, targets[place], number, (waiting[one] for one in ids))
        for place, ids in _by_kernel(list(said)).items()
        if place in targets
    ]
    queue = TaskQueue(requests, judging.fail, rest=judging.rest, name=_ids)
    await work.pool.run(JUDGE_ANSWERS, queue, judging.take, work.say)
    return len(said) - len(waiting)


@dataclass(frozen=True, slots=True)
class _Judging:
    """Keeps what lanes tell of a turn's answers: `waiting` are those without an outcome, `begun` those under way."""

    work: _Work
    number: int
    waiting: dict[str, WaitingAnswer]
    journals: Mapping[int, Journal]
    begun: set[str] = field(default_factory=set[str])

    def take(self, step: AnswerStep) -> None:
        """Keep a step."""
        if step.verdict is not None:
            self.work.store.save_verdict(step.verdict.model_dump(mode="json"))
        elif step.exchange is not None:
            self.journals[step.number].exchanged(f"{self.work.batch.name}-{step.id}", step.exchange)
        elif step.line is not None:
            self._note(step.id, step.line)
        else:
            self.begun.add(step.id)

    def rest(self, request: SweptKernel) -> tuple[SweptKernel | None, SweptKernel | None]:
        """Return requests for the answer at which a lane broke, all of them if it was at none, and for the others."""
        left = [one for one in request.answers if one.id in self.waiting]
        suspects = [one for one in left if one.id in self.begun] or left
        self.begun.difference_update(one.id for one in suspects)
        parts = (tuple(suspects), tuple(one for one in left if one not in suspects))
        first, others = (request.model_copy(update={"answers": part}) if part else None for part in parts)
        return first, others

    def fail(self, request: SweptKernel, error: KernelLspError) -> None:
        """Give up answers that broke workers again and again; a kernel that cannot be opened is a trouble."""
        if not isinstance(error, RunnerError):
            self.work.troubles[self.work.batch.kernels[request.number]] = str(error)
            return
        told = f"It could not be judged: {error}"
        for one in request.answers:
            line = {"told": told, "candidate": None, "verdict": None, "outcome": NOT_JUDGED, "speedup": None}
            self._note(one.id, line)

    def _note(self, one: str, line: Mapping[str, Any]) -> None:
        known = {"custom_id": one, "answer": self.waiting.pop(one).answer.text}
        append_line(self.work.batch.turn(self.number) / "outcomes.jsonl", {**known, **line})


def _ids(request: SweptKernel) -> tuple[str, ...]:
    return tuple(one.id for one in request.answers)


def _targets(work: _Work, ids: Sequence[str]) -> dict[int, Target]:
    """Return the targets of the kernels of these requests by their places; one that cannot be read is a trouble."""
    found: dict[int, Target] = {}
    for place in _by_kernel(ids):
        kernel = work.batch.kernels[place]
        try:
            found[place] = _target(kernel, work.settings)
        except Exception as error:  # an error on one kernel must not stop the others
            work.troubles[kernel] = str(as_ours(error))
    return found


def _target(name: str, settings: Settings) -> Target:
    path, _, kernel = name.partition("::")
    return make_target(Path(path), kernel or None, problems=settings.kernelbench.root, folders=settings.workloads)


def _by_kernel(ids: Sequence[str]) -> dict[int, list[str]]:
    """Return requests by the place of their kernel."""
    found: dict[int, list[str]] = {}
    for one in ids:
        found.setdefault(int(one.partition("-")[0]), []).append(one)
    return found


def _request(batch: Batch, profile: Profile, one: str, number: int, said: Sequence[Message]) -> dict[str, Any]:
    drawing = profile.drawing
    drawn = drawing.model_dump()
    body = {"model": batch.model, "messages": list(said), "seed": _seed(one, number)}
    body |= {name: value for name, value in drawn.items() if value is not None}
    return {"custom_id": one, "method": "POST", "url": "/v1/chat/completions", "body": body}


def _seed(one: str, number: int) -> int:
    """Return the seed of a trajectory's answer in a turn."""
    return int(one.partition("-")[2]) * 1000 + number


def _attempt(outcome: Mapping[str, Any]) -> PastTurn:
    return PastTurn(ModelAnswer(str(outcome["answer"])), str(outcome["told"]))


async def _estimate(said: Sequence[Message]) -> int:
    """Return an estimate of a conversation's tokens, as no server counts them."""
    return estimate_tokens("".join(message["content"] for message in said))


def _read_batch(file: Path) -> Batch:
    try:
        said = json.loads(file.read_text(encoding="utf-8"))
        if said.pop("form") != _FORM:
            raise ValueError("it is of another version of this program")
        return Batch(file.parent, tuple(said.pop("kernels")), **said)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise ConfigurationError(f"The sweep cannot be read: {error}.", file, fix="Begin another one.") from None


def _known_briefings(batch: Batch) -> dict[int, Briefing]:
    """Return the facts on each kernel that were gathered at the first turn, by its place."""
    found: dict[str, Briefing] = {}
    for line in read_whole_lines(batch.folder / "briefings.jsonl"):
        lists = {name: tuple(line[name]) for name in ("facts", "standing", "tried")}
        found[str(line["kernel"])] = Briefing(line["gpu"], line["device"], **lists)
    return {place: found[kernel] for place, kernel in enumerate(batch.kernels) if kernel in found}


def _outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the judged outcomes of a turn, by `custom_id`."""
    return {str(line["custom_id"]): line for line in read_whole_lines(folder / "outcomes.jsonl")}
