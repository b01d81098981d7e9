"""With a model: trajectories of turns, each answer built, checked and judged, its outcome told before the next turn.

`serial` keeps trajectories independent, `beam` keeps the best of them after each turn and copies those (Baronio et al.,
arXiv 2507.11948, section 5), `archive` goes on from the best of each approach (`strategies.elites`), `tree` has the
model plan steps before it takes them (`strategies.steps`). Answers are generated while others are built and measured.
The best variant counts, not the last.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field

from kernel_lsp.config.settings import Settings
from kernel_lsp.model.errors import ModelError
from kernel_lsp.refine.answer_handler import AnswerHandler
from kernel_lsp.refine.approach import approach_of
from kernel_lsp.refine.dialogue.conversation import PastTurn, tell
from kernel_lsp.refine.dialogue.feedback import kind_of
from kernel_lsp.refine.model_session import ModelSession
from kernel_lsp.refine.outcome import ModelTurn
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.strategies.elites import Archive, Elite
from kernel_lsp.refine.strategies.steps import PlannedStep, StepTree, read_plan
from kernel_lsp.refine.toolbox import Toolbox
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.source.candidate import Candidate

_SEEDS = 1000  # between trajectories
_FAILED, _RIGHT, _BUILT = float("inf"), 1.0, 2.0  # ratios of what was not timed
_PLANLESS = "The model planned no step in the form it was asked for; versions were asked for without a plan."


@dataclass
class Trajectory:
    """One conversation.

    Attributes:
        number: from 0; two trajectories draw different answers to the same prompt.
        attempts: its turns so far; of `archive` those that led to what it goes on from, too.
        ratio: time of the latest answer over that of the user's file. Infinite where it was not right; 1 where it was
            right and not timed, 2 where it is known only to build.
        latest: the candidate that was tried out for the latest answer; None where that had none.
    """

    number: int
    attempts: list[PastTurn] = field(default_factory=list[PastTurn])
    ratio: float = _FAILED
    latest: Candidate | None = None


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

    async def archive(self) -> None:
        """Run turn after turn, each trajectory going on from the best candidate of some approach, whoever made it.

        The first goes on from the fastest of all and stays with its approach; the others take turns at asking for
        another approach.

        Raises:
            ModelError: the server failed before any answer came.
        """
        archive, read = Archive(random.Random(self._bench.seed)), 0
        for number in range(1, self._turns + 1):
            if not self._may_go_on():
                return
            tried = self._bench.result.tried
            for one in tried[read:]:  # of others; answers come with the conversation that led to them
                if not one.candidate.origin.startswith("model:"):
                    ratio = _ratio(one.feedback)
                    await self._keep(archive, one.candidate, ratio, self._speaker.opening(one.candidate, ratio))
            read = len(tried)
            parents = archive.draw(self._settings.trajectories)
            trajectories = [Trajectory(n) for n in range(self._settings.trajectories)]
            for trajectory, parent in zip(trajectories, parents, strict=False):
                trajectory.attempts = list(parent.conversation)

            async def turn(trajectory: Trajectory, number: int = number) -> None:
                other = trajectory.number > 0 and (trajectory.number + number) % 2 == 0
                await self._turn(trajectory, number, self._approaches(archive, other=other))
                if trajectory.latest is not None:
                    await self._keep(archive, trajectory.latest, trajectory.ratio, trajectory.attempts)

            await self._together(trajectories, turn)

    async def _keep(
        self, archive: Archive, candidate: Candidate, ratio: float, conversation: Sequence[PastTurn]
    ) -> None:
        """Put a candidate that is right into the archive, if a conversation can express it."""
        if ratio == _FAILED or not conversation:
            return
        built = await self._bench.built(candidate)
        archive.add(Elite(None if built is None else approach_of(built), ratio, tuple(conversation)))

    def _approaches(self, archive: Archive, *, other: bool) -> str:
        """Return what the next prompt says of the approaches that were taken; `other` asks for another one."""
        known = [(str(one.approach), _came_to(one.ratio)) for one in archive.elites if one.approach is not None]
        return self._speaker.prompts.render("approaches", approaches=known, other=other).strip() if known else ""

    async def tree(self) -> None:
        """Have steps planned, carry out the likeliest of them side by side, and plan anew with what came of them.

        Raises:
            ModelError: the server failed before any answer came.
        """
        tree = StepTree()
        for number in range(1, self._turns + 1):
            if not self._may_go_on():
                return
            await self._plan(tree, number)
            taken = tree.take(self._settings.trajectories)
            trajectories = [Trajectory(n, list(tree.conversation(step))) for n, step in enumerate(taken)]

            async def turn(trajectory: Trajectory, number: int = number, taken: list[PlannedStep] = taken) -> None:
                if not taken:
                    await self._turn(trajectory, number)
                    return
                step, had = taken[trajectory.number], len(trajectory.attempts)
                wish = self._speaker.prompts.render("step", step=step.text, why=step.why).strip()
                await self._turn(trajectory, number, wish)
                if len(trajectory.attempts) > had:  # else the time was up
                    tree.finish(step, trajectory.ratio, trajectory.attempts)

            await self._together(trajectories or [Trajectory(0)], turn)

    async def _plan(self, tree: StepTree, number: int) -> None:
        """Ask for a plan; without a step in it the next version is asked for without one, and a note says so."""
        bench, speaker = self._bench, self._speaker
        bench.show("the model is planning")
        try:
            async with asyncio.timeout(max(bench.left(), 0.1)):
                said = await speaker.plan(
                    speaker.briefing(bench.result.tried),
                    bench.seed + number,
                    done=[(one.number, one.planned.after, one.planned.text, _came_to(one.ratio)) for one in tree.done],
                    planned=[(one.chance, one.after, one.text) for one in tree.planned],
                    count=2 * self._settings.trajectories,
                )
        except TimeoutError:
            return
        tree.plan(read_plan(said))
        if tree.planned:
            bench.talking.plan = tree.planned[0].text
        elif _PLANLESS not in bench.notes:
            bench.notes.append(_PLANLESS)

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

    async def _turn(self, trajectory: Trajectory, number: int | None = None, wish: str = "") -> None:
        """Ask for one answer and try it out.

        Args:
            trajectory: gets the answer and its outcome.
            number: of the turn, from 1; by default its attempts are all of its turns, and go on from the opening.
            wish: is added to the prompt.
        """
        bench, speaker = self._bench, self._speaker
        opening = self._opening if number is None or not trajectory.attempts else []
        number = len(trajectory.attempts) + 1 if number is None else number
        bench.talking.turn, bench.talking.turns = max(bench.talking.turn, number), self._turns
        briefing = speaker.briefing(bench.result.tried)
        seed = bench.seed + trajectory.number * _SEEDS + number
        bench.show("the model is writing")
        try:
            async with asyncio.timeout(max(bench.left(), 0.1)):
                advice = wish
                attempts = [*opening, *trajectory.attempts]
                if self._settings.second_opinion and attempts:
                    advice = "\n\n".join(filter(None, (await speaker.opinion(briefing, seed), wish)))
                tools = (
                    Toolbox(bench, speaker.task, self._reception, self._settings.tools)
                    if self._settings.tools
                    else None
                )
                prompt, answer = await speaker.ask(attempts, briefing, seed=seed, advice=advice, toolbox=tools)
        except TimeoutError:
            return  # the budget is spent, and an unfinished answer is of no use
        turn = ModelTurn(trajectory.number, number, prompt, answer, speaker.drawn(seed))
        bench.heard(turn)
        received = await self._reception.receive(answer)
        told = tell(speaker.prompts, received.outcome)
        trajectory.attempts.append(PastTurn(answer, told))
        trajectory.ratio, trajectory.latest = _ratio(received.outcome), received.tried
        bench.exchanged(turn, received, told)


def survivors(trajectories: list[Trajectory], keep: int) -> list[Trajectory]:
    """Return as many trajectories as before, all copies of the `keep` whose latest answers have the lowest ratios."""
    best = sorted(trajectories, key=lambda t: t.ratio)[:keep]
    return [
        Trajectory(number, list(best[number % len(best)].attempts), best[number % len(best)].ratio)
        for number in range(len(trajectories))
    ]


def _came_to(ratio: float) -> str:
    untimed = {_FAILED: "not right", _RIGHT: "right", _BUILT: "it builds; nothing else is known"}
    return untimed.get(ratio) or f"{1 / ratio:.2f}x"


def _ratio(outcome: Feedback | str) -> float:
    if isinstance(outcome, str):
        return _FAILED
    match kind_of(outcome):
        case "correct":
            return outcome.ratio or _RIGHT
        case "unjudged":
            return _BUILT
        case _:
            return _FAILED
