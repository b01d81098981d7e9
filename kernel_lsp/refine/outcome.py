"""The result of a search: every candidate with its outcome, and the best variant, if there is one."""

from collections.abc import Callable
from dataclasses import dataclass, field

from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.progress import Progress
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.source.candidate import Candidate


@dataclass(frozen=True, slots=True)
class Tried:
    """One candidate with its outcome."""

    candidate: Candidate
    feedback: Feedback
    verdict: Verdict | None = None


@dataclass(frozen=True, slots=True)
class Exchange:
    """One turn of a model, stored verbatim.

    Attributes:
        trajectory: number of the conversation, from 0.
        prompt: the messages, as JSON.
        answer: all that the model said, reasoning in `<think>` marks first.
        candidate: the candidate in the answer; None where it broke the rules of its format.
        verdict: the full judgement on the candidate, where there was one.
    """

    trajectory: int
    prompt: str
    answer: str
    candidate: Candidate | None
    verdict: Verdict | None


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


OnProgress = Callable[[Progress], None]
OnTried = Callable[[Tried], None]
OnExchange = Callable[[Exchange], None]
