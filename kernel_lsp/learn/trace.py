"""Read the turns of models from a store as traces: the conversation, the answer, and the judge's outcome."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from kernel_lsp.judge.record import Record
from kernel_lsp.learn.licence import licence_of
from kernel_lsp.refine.dialogue.answer import read_answer
from kernel_lsp.refine.turn_outcome import Circumstances, TurnOutcome, turn_outcome_of
from kernel_lsp.store.store import Store, Turn


class TraceMessage(Record):
    """One message of a conversation; `role` is system, user or assistant."""

    role: str
    content: str


class TurnTrace(Record):
    """One turn of a model.

    Attributes:
        id: hash of its place in the store, the same whenever it is read.
        kernel: digest of the user's kernel (`kernel_key`); copies of a kernel have the same.
        trajectory: the conversation that it belongs to.
        turn: its number there, from 1.
        turns: how many the conversation has.
        messages: what the model was asked, as its profile's protocol has it.
        answer: what it said after its reasoning.
        reasoning: its reasoning; empty if it showed none.
        complete: True if the model ended the answer, and no limit did.
        outcome: what became of the answer, without what was told about it.
        evidence: id of the verdict; None without a full judgement.
        file: name of the user's kernel file.
        language: of that file.
        licence: of that file, as an SPDX expression; `unknown` if nothing says so.
        gpu: name of the GPU; None for the emulator.
        judge: digest of the judge's rules and code.
        model, profile: who answered, and by which protocol.
    """

    id: str
    kernel: str
    trajectory: str
    turn: int
    turns: int
    messages: tuple[TraceMessage, ...]
    answer: str
    reasoning: str
    complete: bool
    outcome: TurnOutcome
    evidence: str | None
    file: str
    language: str
    licence: str
    gpu: str | None
    judge: str
    model: str
    profile: str


class StoredTurn(Record):
    """A trace with the path of the user's file, which is in no dataset, and its project's say at the time.

    Attributes:
        trace: the trace.
        path: of the kernel file when the turn was taken.
        collect: False if the project's settings kept it out then.
    """

    trace: TurnTrace
    path: Path
    collect: bool


def stored_turns(store: Store, drawn: Mapping[str, int] | None = None) -> Iterator[StoredTurn | None]:
    """Yield every turn of a model, in an order that does not depend on time; None for one without an outcome.

    Such turns were recorded by an older version, or cannot be read. With `drawn`, only its sessions count, each with
    so many turns.
    """
    for session in sorted(store.list_sessions(-1) if drawn is None else drawn):
        turns = store.list_turns(session)[: None if drawn is None else drawn[session]]
        for turn in turns:
            if turn.prompt is not None:
                yield _read(turn, len(turns))


def _read(turn: Turn, turns: int) -> StoredTurn | None:
    if turn.outcome is None or turn.circumstances is None or turn.target is None:
        return None
    try:
        where = Circumstances.model_validate(turn.circumstances)
        outcome = turn_outcome_of(turn)
        messages = tuple(TraceMessage.model_validate(one) for one in json.loads(turn.prompt or ""))
    except (ValueError, ValidationError):
        return None
    answer = read_answer(turn.answer or "", complete=where.complete)
    path = Path(where.kernel)
    trace = TurnTrace(
        id=hashlib.sha256(f"{turn.session}/{turn.number}".encode()).hexdigest()[:16],
        kernel=turn.target,
        trajectory=turn.session,
        turn=turn.number,
        turns=turns,
        messages=messages,
        answer=answer.text,
        reasoning=answer.reasoning,
        complete=where.complete,
        outcome=outcome.model_copy(update={"told": ""}),
        evidence=turn.verdict,
        file=path.name,
        language=where.language,
        licence=licence_of(path),
        gpu=where.gpu,
        judge=where.judge,
        model=where.model or "",
        profile=where.profile or "",
    )
    return StoredTurn(trace=trace, path=path, collect=where.collect)
