"""Handle a model's answer: turn it into a candidate, try it out, and tune its settings."""

import asyncio
from dataclasses import replace

from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.verdict import Stage
from kernel_lsp.refine.dialogue.answer import ModelAnswer, RejectedAnswer
from kernel_lsp.refine.dialogue.task import ModelTask, normalised
from kernel_lsp.refine.outcome import Received
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate

_WORTH_TUNING = 1.15  # largest ratio to the best so far for which settings are tuned
_TUNING_SHARE = 0.2  # of the remaining time, for tuning one answer
_LONGEST_TUNING = 20.0  # seconds

_TriedOut = tuple[Candidate, Feedback]


class AnswerHandler:
    """Handles the answers to one task.

    Args:
        bench: where candidates are tried out.
        task: what the answers are to.
        remember: True to reject an answer equal to an earlier one, with a message, instead of judging it again.
    """

    def __init__(self, bench: Workbench, task: ModelTask, *, remember: bool = True) -> None:
        self._bench, self._task, self._remember = bench, task, remember
        self._heard: dict[str, asyncio.Future[_TriedOut]] = {}  # by normalised text
        self._by_tools: set[str] = set()  # likewise: tried by a model within its turn
        self._read = 0  # number of the bench's tried candidates that were looked at

    async def receive(self, answer: ModelAnswer) -> Received:
        """Return the candidate of an answer and its feedback, or the reason why there is no candidate."""
        try:
            candidate = self._task.candidate(answer)
        except RejectedAnswer as rejection:
            self._bench.show("an answer was not taken up")
            return Received(None, None, str(rejection))
        said = normalised(candidate)
        if said == normalised(self._bench.session.target.baseline):
            return Received(None, None, "The answer is the kernel as it stands. Change something.")
        if self._remember and (earlier := self._earlier(said)) is not None:
            tried, feedback = await asyncio.shield(earlier)
            if said in self._by_tools:
                self._by_tools.discard(said)  # the model's own trial: now it answers with that
                return Received(candidate, tried, feedback)
            known = f"It says the same as what was tried before ({tried.label}). Try another way."
            return Received(candidate, tried, replace(feedback, setting=known))
        self._heard[said] = trying = asyncio.ensure_future(self._try_out(candidate))
        return Received(candidate, *(await trying))

    def note_trial(self, candidate: Candidate) -> None:
        """Note that a model has a candidate tried out within its turn, so that it may answer with that text."""
        said = normalised(candidate)
        if self._earlier(said) is None:
            self._by_tools.add(said)

    def _earlier(self, said: str) -> asyncio.Future[_TriedOut] | None:
        """Return the outcome of an earlier candidate with the same normalised text, of any proposer, or None."""
        tried = self._bench.result.tried
        for one in tried[self._read :]:
            known = asyncio.get_running_loop().create_future()
            known.set_result((one.candidate, one.feedback))
            self._heard.setdefault(normalised(one.candidate), known)
        self._read = len(tried)
        return self._heard.get(said)

    async def _try_out(self, candidate: Candidate) -> _TriedOut:
        feedback = await self._bench.try_out(candidate)
        return candidate, await self._at_its_best(candidate, feedback)

    async def _at_its_best(self, candidate: Candidate, feedback: Feedback) -> Feedback:
        """Return the feedback for the best setting that the tuner finds, if the candidate is worth tuning.

        The answer's own outcome stands where tuning breaks down.
        """
        bench, ratio = self._bench, feedback.ratio
        if ratio is None or feedback.stage is not Stage.TIMED or ratio > bench.best_ratio * _WORTH_TUNING:
            return feedback
        seconds = min(_LONGEST_TUNING, bench.left() * _TUNING_SHARE)
        try:
            tuned = await bench.tune(candidate, ratio, seconds) if seconds > 1 else None
        except UnjudgedError as error:
            bench.notes.append(f"`{candidate.label}` was not tuned further: {error}")
            return feedback
        if tuned is None or tuned[1].ratio is None or tuned[1].ratio >= ratio:
            return feedback
        label = tuned[0].label.removeprefix(f"{candidate.label}; ")
        return replace(tuned[1], setting=f"That is with {label}; as you wrote it, it is {1 / ratio:.2f}x.")
