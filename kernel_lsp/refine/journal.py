"""Keep the turns of a search in the store: each candidate with its outcome, also if it lost or was not judged."""

import hashlib
import re
from dataclasses import replace

from kernel_lsp.judge.measure.digest import policy_digest
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.verdict import Record, Stage
from kernel_lsp.refine.dialogue.task import normalised
from kernel_lsp.refine.outcome import Exchange, Tried
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.store.store import Store, Turn

REJECTED = "REJECTED"
"""Result of an answer that breaks the rules of its format or changes nothing."""
NOT_JUDGED = "NOT_JUDGED"
"""Result of a candidate on which nothing was decided: the search ended first, or what judges broke."""

_WORD = re.compile(r"[A-Za-z_]\w*")


class TurnOutcome(Record):
    """The result of a candidate, as a turn keeps it.

    Attributes:
        result: the name of an `Outcome`, REJECTED or NOT_JUDGED.
        stage: the stage that decided it; None without a candidate or a decision.
        reason: one sentence.
        speedup: the baseline's time over the candidate's; None untimed.
        interval: its confidence interval.
        judged: True if a full judgement decided it, and not a race, whose checks are fewer.
        told: the feedback that the model's next turn is given.
    """

    result: str
    stage: Stage | None = None
    reason: str = ""
    speedup: float | None = None
    interval: tuple[float, float] | None = None
    judged: bool = False
    told: str = ""


class Circumstances(Record):
    """The model, the GPU and the judge of a turn.

    Attributes:
        kernel: path of the user's file.
        language: it is written in.
        gpu: name of the GPU that candidates ran on; None for the emulator.
        judge: digest of the judge's rules and code.
        collect: False if the project's settings keep its turns out of datasets.
        model, profile, temperature, top_p, top_k, seed: see `Drawn`; None where no model was asked.
        complete: True if the model ended its answer, and no limit did.
    """

    kernel: str
    language: str
    gpu: str | None
    judge: str
    collect: bool
    model: str | None = None
    profile: str | None = None
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None
    complete: bool = True


class Journal:
    """Writes the turns of searches in one session to a store."""

    def __init__(self, store: Store, session: Session) -> None:
        target, settings = session.target, session.settings
        self._store, self._target = store, kernel_key(target.baseline)
        self._circumstances = Circumstances(
            kernel=str(target.source.path.absolute()),
            language=str(target.language),
            gpu=session.gpu.name if session.gpu else None,
            judge=policy_digest(),
            collect=settings.learn.collect,
        )

    def tried(self, session: str, tried: Tried) -> None:
        """Keep a candidate that no model wrote, and its verdict; a model's are kept with the conversation."""
        if tried.verdict is not None:
            self._store.save_verdict(tried.verdict.model_dump(mode="json"))
        if not tried.candidate.origin.startswith("model:"):
            self._store.append_turn(
                session,
                tried.candidate.digest,
                verdict=tried.verdict.id if tried.verdict else None,
                target=self._target,
                outcome=turn_outcome(tried.feedback, judged=tried.verdict is not None).model_dump(mode="json"),
                circumstances=self._circumstances.model_dump(mode="json"),
            )

    def exchanged(self, session: str, said: Exchange) -> None:
        """Keep a turn of a model in its place, the same for each state of the turn."""
        turn, drawn = said.turn, said.turn.drawn
        outcome = turn_outcome(said.outcome, judged=said.verdict is not None, told=said.told)
        circumstances = self._circumstances.model_copy(
            update={name: getattr(drawn, name) for name in drawn.__dataclass_fields__}
            | {"complete": turn.answer.complete}
        )
        self._store.append_turn(
            session,
            said.candidate.digest if said.candidate else "",
            prompt=turn.prompt,
            answer=turn.answer.whole,
            verdict=said.verdict.id if said.verdict else None,
            number=turn.number,
            target=self._target,
            outcome=outcome.model_dump(mode="json"),
            circumstances=circumstances.model_dump(mode="json"),
        )


def turn_outcome(outcome: Feedback | str | None, *, judged: bool, told: str = "") -> TurnOutcome:
    """Return an outcome as a turn keeps it; a text is the reason of a rejection, None says that nothing was decided."""
    if outcome is None:
        return TurnOutcome(result=NOT_JUDGED, told=told)
    if isinstance(outcome, str):
        return TurnOutcome(result=REJECTED, reason=outcome, told=told)
    return TurnOutcome(
        result=outcome.verdict.value,
        stage=outcome.stage,
        reason=outcome.message,
        speedup=1 / outcome.ratio if outcome.ratio else None,
        interval=(1 / outcome.interval[1], 1 / outcome.interval[0]) if outcome.interval else None,
        judged=judged,
        told=told,
    )


def turn_outcome_of(turn: Turn) -> TurnOutcome:
    """Return the outcome of a stored turn: not judged where an older version of this program kept none."""
    return TurnOutcome.model_validate(turn.outcome) if turn.outcome else TurnOutcome(result=NOT_JUDGED)


def kernel_key(baseline: Candidate) -> str:
    """Return the digest of a kernel file without its comments, layout and names, nor that of its launch.

    Copies of one kernel have equal keys wherever they lie and however they are renamed. Kernels that differ in nothing
    but the names of the functions they call have equal keys too.
    """
    numbers: dict[str, int] = {}
    text = normalised(replace(baseline, launch=None))
    words = _WORD.sub(lambda word: f"${numbers.setdefault(word[0], len(numbers))};", text)
    return hashlib.sha256("".join(words.split()).encode()).hexdigest()
