"""With a model: trajectories of turns, each answer built, checked and judged, its outcome told before the next turn.

`serial` keeps trajectories independent, `beam` keeps the best of them after each turn and copies those (Baronio et al.,
arXiv 2507.11948, section 5). Answers are generated while others are built and measured. The best variant counts, not
the last.
"""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.model.errors import ModelError
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.dialogue.conversation import PastTurn, tell
from kernel_lsp.refine.dialogue.feedback import kind_of
from kernel_lsp.refine.model_session import ModelSession
from kernel_lsp.refine.outcome import ModelTurn
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.workbench import Workbench

_SEEDS = 1000  # between trajectories


@dataclass
class Trajectory:
    """One conversation.

    Attributes:
        number: from 0; two trajectories draw different answers to the same prompt.
        attempts: its turns so far.
        ratio: time of the latest answer over that of the user's file. Infinite where it was not right; 1 where it was
            right and not timed, 2 where it is known only to build.
    """

    number: int
    attempts: list[PastTurn] = field(default_factory=list[PastTurn])
    ratio: float = float("inf")


class Turns:
    """Asks one model in several trajectories, within the budgets of the settings."""

    def __init__(self, bench: Workbench, speaker: ModelSession, settings: Settings) -> None:
        self._bench, self._speaker, self._settings = bench, speaker, settings.refine
        self._turns = settings.refine.turns or speaker.profile.talk.turns
        self._reception = AnswerHandler(bench, speaker.task)
        self._opening = speaker.opening(bench.result.variant or bench.session.target.baseline, bench.best_ratio)

    async def serial(self) -> None:
        """Run every trajectory independently to its last turn.

        Raises:
            ModelError: the server failed before any answer came.
        """
        trajectories = [Trajectory(n) for n in range(self._settings.trajectories)]
        await self._together(trajectories, self._alone)

    async def beam(self) -> None:
        """Run one turn of all trajectories; copies of the best take the next one.

        Raises:
            ModelError: the server failed before any answer came.
        """
        trajectories = [Trajectory(n) for n in range(self._settings.trajectories)]
        for _ in range(self._turns):
            if not self._may_go_on():
                return
            await self._together(trajectories, self._turn)
            trajectories = survivors(trajectories, self._settings.keep)

    async def _alone(self, trajectory: Trajectory) -> None:
        for _ in range(self._turns):
            if not self._may_go_on():
                return
            await self._turn(trajectory)

    async def _together(self, trajectories: list[Trajectory], work: Callable[[Trajectory], Awaitable[None]]) -> None:
        """Run all at once; a failing server ends one trajectory, or raises if no trajectory got an answer."""
        ends = await asyncio.gather(*(work(t) for t in trajectories), return_exceptions=True)
        errors = [end for end in ends if isinstance(end, BaseException)]
        for error in errors:
            if not isinstance(error, ModelError):
                raise error
        if errors and not any(t.attempts for t in trajectories):
            raise errors[0]
        notes = self._bench.notes
        notes += [said for said in dict.fromkeys(str(error) for error in errors) if said not in notes]

    def _may_go_on(self) -> bool:
        bench, settings = self._bench, self._settings
        tokens, most = bench.talking.tokens, settings.tokens
        within = (most is None or tokens < most) and (
            settings.candidates is None or bench.candidates < settings.candidates
        )
        return bench.left() > 0 and within and bench.settled() is None

    async def _turn(self, trajectory: Trajectory) -> None:
        bench, speaker = self._bench, self._speaker
        number = len(trajectory.attempts) + 1
        bench.talking.turn, bench.talking.turns = max(bench.talking.turn, number), self._turns
        briefing = speaker.briefing(bench.result.tried)
        seed = bench.seed + trajectory.number * _SEEDS + number
        bench.show("the model is writing")
        try:
            async with asyncio.timeout(max(bench.left(), 0.1)):
                advice = ""
                attempts = [*self._opening, *trajectory.attempts]
                if self._settings.second_opinion and attempts:
                    advice = await speaker.opinion(briefing, seed)
                prompt, answer = await speaker.ask(attempts, briefing, seed=seed, advice=advice)
        except TimeoutError:
            return  # the budget is spent, and an unfinished answer is of no use
        turn = ModelTurn(trajectory.number, number, prompt, answer, speaker.drawn(seed))
        bench.heard(turn)
        received = await self._reception.receive(answer)
        told = tell(speaker.prompts, received.outcome)
        trajectory.attempts.append(PastTurn(answer, told))
        trajectory.ratio = _ratio(received.outcome)
        bench.exchanged(turn, received, told)


def survivors(trajectories: list[Trajectory], keep: int) -> list[Trajectory]:
    """Return as many trajectories as before, all copies of the `keep` whose latest answers have the lowest ratios."""
    best = sorted(trajectories, key=lambda t: t.ratio)[:keep]
    return [
        Trajectory(number, list(best[number % len(best)].attempts), best[number % len(best)].ratio)
        for number in range(len(trajectories))
    ]


def _ratio(outcome: Feedback | str) -> float:
    if isinstance(outcome, str) or kind_of(outcome.verdict) != "correct":
        return float("inf")
    if outcome.verdict is Outcome.UNTIMED and outcome.stage is not Stage.CORRECT:
        return 2.0  # it builds; nothing else is known
    return outcome.ratio or 1.0
