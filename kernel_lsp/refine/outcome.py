"""The result of a search: every candidate with its outcome, and the best variant, if there is one."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.source.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate with its outcome."""

    candidate: Candidate
    feedback: Feedback
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Drawn:
    """The model that an answer was drawn from, and how; None leaves a choice to the server.

    Attributes:
        model: name that the server knows it by; an adapter has one of its own.
        profile: id of its profile.
        temperature, top_p, top_k, seed: of the sampling.
    """

    model: str
    profile: str
    temperature: float | None = None
    top_p: float | None = None
    top_k: int | None = None
    seed: int | None = None


@dataclass(frozen=True, slots=True)
class ModelTurn:
    """One turn of a model, verbatim.

    Attributes:
        trajectory: number of the conversation, from 0.
        number: its place there, from 1.
        prompt: the messages, as JSON.
        answer: what the model said.
        drawn: the model, and how it was asked.
    """

    trajectory: int
    number: int
    prompt: str
    answer: ModelAnswer
    drawn: Drawn


@dataclass(frozen=True, slots=True)
class Received:
    """An answer that was handled.

    Attributes:
        candidate: the one in the answer; None where it broke the rules of its format.
        tried: the candidate that was tried out for it: the same, or an earlier one that says the same.
        outcome: the feedback with the best settings that were found for it; a text says why there is no candidate.
    """

    candidate: Candidate | None
    tried: Candidate | None
    outcome: Feedback | str


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of a model with its result so far.

    Attributes:
        turn: the turn.
        candidate: the candidate in the answer; None where it broke the rules of its format, or is not yet known.
        outcome: of the candidate as it was written, before settings were tuned; a text says why there is no candidate,
            and None that nothing was decided.
        verdict: the full judgement on the candidate, where there was one.
        told: the feedback that the model's next turn is given; empty if nothing was decided.
    """

    turn: ModelTurn
    candidate: Candidate | None = None
    outcome: Feedback | str | None = None
    verdict: Verdict | None = None
    told: str = ""


@dataclass
class Refinement:
    """The result of a search.

    Attributes:
        best: the verdict on the best variant, FASTER and confirmed; None when there is none.
        variant: its text.
        tried: every candidate in the order in which it was decided.
        reason: one sentence: what was found, or why nothing was.
        seconds: wall time of the search, without the baseline's measurement, which opens the session.
        seconds_to_first: wall time to the first FASTER verdict.
        cancelled: whether it was stopped before it was done.
        notes: sentences for the user about what was left out, such as why no model was asked.
    """

    best: Verdict | None = None
    variant: Candidate | None = None
    tried: list[Tried] = field(default_factory=list[Tried])
    reason: str = ""
    seconds: float = 0.0
    seconds_to_first: float | None = None
    cancelled: bool = False
    notes: tuple[str, ...] = ()


OnProgress = Callable[[SearchProgress], None]
OnTried = Callable[[Tried], None]
OnExchange = Callable[[Exchange], None]
