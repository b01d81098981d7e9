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
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu
from kernel_lsp.errors import ConfigurationError, KernelLspError, RunnerError, unforeseen
from kernel_lsp.judge.session import Pools, Session, open_session
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.client import Message, estimate_tokens
from kernel_lsp.model.profile import Profile, find_profile
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.batch_files import append_line, read_answers, read_lines, read_whole_lines, write_whole
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages, tell
from kernel_lsp.refine.dialogue.kernelbench import Style
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, ModelTask, format_for, make_task
from kernel_lsp.refine.journal import Journal
from kernel_lsp.refine.model_session import brief, drawn_by, gpu_name, opening
from kernel_lsp.refine.outcome import ModelTurn, Tried
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, REJECTED
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.runner.pool import ATTEMPTS
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


async def advance_batch(batch: Batch, settings: Settings, store: Store, show: Show = lambda _: None) -> Stand:
    """Judge the answers, write the next turn's requests, and so on, as far as there are answers.

    Can be killed at any point and called again. A kernel that cannot be opened is left out.

    Raises:
        ConfigurationError: a file of answers is not what a batch endpoint writes.
    """
    judged, troubles = 0, dict[str, str]()
    async with Pools(settings) as pools:
        work = _Work(batch, settings, store, pools, troubles, show)
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
    pools: Pools
    troubles: dict[str, str]
    show: Show


async def _ask(work: _Work, number: int, due: Sequence[str]) -> None:
    """Write the requests of a turn, all at once."""
    batch = work.batch
    before = [_outcomes(batch.turn(n)) for n in range(1, number)]
    known = _briefings(batch)
    lines: list[str] = []
    for kernel, ids in _by_kernel(batch, due).items():
        work.show(f"turn {number}: asking about {kernel}")
        try:
            target = _target(kernel, work.settings)
            profile, prompts, task = _parts(target, work.settings, batch)
            briefing = known.get(kernel) or await _brief(work, kernel, target, prompts)
            begun = opening(prompts, task, target.baseline)
            for one in ids:
                attempts = [*begun, *(_attempt(outcomes[one]) for outcomes in before)]
                said = await messages(task, profile.talk, briefing, attempts, _estimate)
                lines.append(json.dumps(_request(batch, profile, one, number, said), ensure_ascii=False))
        except Exception as error:  # an error on one kernel must not stop the others
            work.troubles[kernel] = await _broken(work, error)
    batch.turn(number).mkdir(parents=True, exist_ok=True)
    write_whole(batch.turn(number) / "requests.jsonl", "".join(f"{line}\n" for line in lines))


async def _brief(work: _Work, kernel: str, target: Target, prompts: Prompts) -> Briefing:
    """Return the facts that prompts tell about a kernel, gathered once and stored."""
    if prompts.tells_facts:
        async with open_session(target, work.settings, work.pools.now()) as session:
            briefing = brief(session, ())
    else:
        briefing = Briefing(gpu_name(choose_gpu(work.settings.gpu)))
    append_line(work.batch.folder / "briefings.jsonl", {"kernel": kernel, **asdict(briefing)})
    return briefing


async def _judge(work: _Work, number: int, said: Mapping[str, ModelAnswer]) -> int:
    """Judge answers, kernel by kernel; each is stored, and then recorded in `outcomes.jsonl`."""
    batch, judged = work.batch, 0
    requests = read_lines(batch.turn(number) / "requests.jsonl") if said else []
    asked = {str(r["custom_id"]): json.dumps(r["body"]["messages"], ensure_ascii=False) for r in requests}
    for kernel, ids in _by_kernel(batch, list(said)).items():
        work.show(f"turn {number}: judging {len(ids)} answers for {kernel}")
        waiting = [_Waiting(one, said[one], asked[one]) for one in ids]
        tries = 0
        while waiting:
            first = waiting[0]
            try:
                await _judge_in_turn(work, number, kernel, waiting)
            except Exception as error:  # an error on one kernel must not stop the others
                reason = await _broken(work, error)
                tries = tries + 1 if first in waiting else 1
                opened = bool(waiting and waiting[0].begun)
                if opened and waiting[0].begun >= ATTEMPTS:
                    _note(batch, number, waiting.pop(0), _not_judged(reason))
                elif not opened and not isinstance(error, RunnerError):
                    work.troubles[kernel] = reason
                    break
                elif not opened and tries >= ATTEMPTS:
                    while waiting:
                        _note(batch, number, waiting.pop(0), _not_judged(reason))
        judged += len(ids) - len(waiting)
    return judged


@dataclass(slots=True)
class _Waiting:
    """An answer to be judged: the id of its request, the prompt, and how often judging it was started."""

    id: str
    answer: ModelAnswer
    prompt: str
    begun: int = 0


async def _judge_in_turn(work: _Work, number: int, kernel: str, waiting: list[_Waiting]) -> None:
    """Judge answers for one kernel in one session, and remove each from the list when it is done."""
    target = _target(kernel, work.settings)
    _, prompts, task = _parts(target, work.settings, work.batch)
    async with open_session(target, work.settings, work.pools.now()) as session:
        while waiting:
            one = waiting[0]
            one.begun += 1
            line = await _judge_one(session, work, prompts, task, one, number)
            _note(work.batch, number, waiting.pop(0), line)


def _note(batch: Batch, number: int, one: _Waiting, line: Mapping[str, Any]) -> None:
    known = {"custom_id": one.id, "answer": one.answer.text}
    append_line(batch.turn(number) / "outcomes.jsonl", {**known, **line})


def _not_judged(reason: str) -> dict[str, Any]:
    """Return the line of an answer that repeatedly broke the judge."""
    told = f"It could not be judged: {reason}"
    return {"told": told, "candidate": None, "verdict": None, "outcome": NOT_JUDGED, "speedup": None}


async def _broken(work: _Work, error: Exception) -> str:
    """Return an error as text; workers that may have caused it are ended."""
    broken = error if isinstance(error, KernelLspError) else unforeseen(error)
    if isinstance(broken, RunnerError):
        await work.pools.end()
    return str(broken)


async def _judge_one(
    session: Session, work: _Work, prompts: Prompts, task: ModelTask, one: _Waiting, number: int
) -> dict[str, Any]:
    """Judge and store one answer; return its line in `outcomes.jsonl`."""
    batch, verdicts = work.batch, list[Verdict]()
    journal = Journal(work.store, session)

    def record(tried: Tried) -> None:
        if tried.verdict is not None:
            work.store.save_verdict(tried.verdict.model_dump(mode="json"))
            verdicts.append(tried.verdict)

    bench = Workbench(
        session,
        work.settings.refine.budget,
        on_progress=lambda _: None,
        on_tried=record,
        on_exchange=lambda said: journal.exchanged(f"{batch.name}-{one.id}", said),
        on_confirmed=None,
        seed=0,
    )
    drawn = drawn_by(find_profile(batch.profile), batch.model, _seed(one.id, number))
    turn = ModelTurn(0, number, one.prompt, one.answer, drawn)
    bench.heard(turn)
    received = await AnswerHandler(bench, task, remember=False).receive(one.answer)
    told = tell(prompts, received.outcome)
    bench.exchanged(turn, received, told)
    best, outcome = bench.result.best, received.outcome
    return {
        "told": told,
        "candidate": received.candidate.digest if received.candidate else None,
        "verdict": verdicts[-1].id if verdicts else None,
        "outcome": REJECTED if isinstance(outcome, str) else outcome.verdict.value,
        "speedup": best.speedup if best else None,
    }


def _parts(target: Target, settings: Settings, batch: Batch) -> tuple[Profile, Prompts, ModelTask]:
    profile = find_profile(batch.profile)
    prompts = Prompts(format_for(target.source, profile, batch.write), settings.model.templates)
    return profile, prompts, make_task(target, profile, prompts)


def _target(name: str, settings: Settings) -> Target:
    path, _, kernel = name.partition("::")
    return make_target(Path(path), kernel or None, problems=settings.kernelbench.root, folders=settings.workloads)


def _by_kernel(batch: Batch, ids: Sequence[str]) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for one in ids:
        found.setdefault(batch.kernels[int(one.partition("-")[0])], []).append(one)
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


def _briefings(batch: Batch) -> dict[str, Briefing]:
    """Return the facts on each kernel that were gathered at the first turn."""
    found: dict[str, Briefing] = {}
    for line in read_whole_lines(batch.folder / "briefings.jsonl"):
        lists = {name: tuple(line[name]) for name in ("facts", "standing", "tried")}
        found[str(line["kernel"])] = Briefing(line["gpu"], line["device"], **lists)
    return found


def _outcomes(folder: Path) -> dict[str, dict[str, Any]]:
    """Return the judged outcomes of a turn, by `custom_id`."""
    return {str(line["custom_id"]): line for line in read_whole_lines(folder / "outcomes.jsonl")}
