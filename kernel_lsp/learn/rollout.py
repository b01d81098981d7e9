"""Trajectories of a policy on one kernel: each answer is judged before the next one is drawn."""

import asyncio
import json
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from kernel_lsp.judge.verdict import Outcome, Record
from kernel_lsp.learn.busy import BusyTime
from kernel_lsp.learn.environment import KernelEnvironment
from kernel_lsp.model.answers import DrawnAnswer
from kernel_lsp.model.client import Limits, Message, ModelClient, Sampling
from kernel_lsp.model.endpoint import Endpoint
from kernel_lsp.model.errors import PromptTooLongError
from kernel_lsp.model.profile import Profile
from kernel_lsp.refine.dialogue.answer import read_answer
from kernel_lsp.refine.dialogue.conversation import PastTurn, messages, tell
from kernel_lsp.refine.outcome import Drawn, Exchange, ModelTurn
from kernel_lsp.refine.turn_outcome import NOT_JUDGED, TurnOutcome, turn_outcome

_SEEDS = 1000  # between trajectories


class SampledTurn(Record):
    """One turn of a trajectory with the tokens that were drawn.

    Attributes:
        prompt: tokens that the model was given.
        tokens: that it answered with, reasoning and end token included.
        logprobs: of each when it was drawn.
        answer: its text, with the reasoning.
        outcome: what the judge said; `told` is what the next turn was given.
        evidence: id of the verdict; None without a full judgement.
    """

    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]
    answer: str
    outcome: TurnOutcome
    evidence: str | None


Trajectory = tuple[SampledTurn, ...]


class Policy:
    """A model or an adapter at a server that tells the tokens that it draws. A context manager.

    Args:
        endpoint: of the server.
        profile: of the model.
        temperature, top_p: of the sampling.

    Attributes:
        drawing: the time in which answers were drawn.
    """

    def __init__(self, endpoint: Endpoint, profile: Profile, temperature: float | None, top_p: float | None) -> None:
        self.endpoint, self.profile, self.drawing = endpoint, profile, BusyTime()
        self._temperature, self._top_p = temperature, top_p
        self._client = ModelClient(endpoint, Limits())

    async def __aenter__(self) -> Self:
        await self._client.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.__aexit__(kind, error, trace)

    def drawn(self, seed: int) -> Drawn:
        """Return how an answer is drawn."""
        return Drawn(self.endpoint.model, self.profile.id, self._temperature, self._top_p, None, seed)

    async def count(self, said: Sequence[Message]) -> int:
        """Return the tokens of a conversation."""
        return await self._client.count_tokens(said)

    async def answer(self, said: Sequence[Message], seed: int, most: int) -> DrawnAnswer:
        """Return an answer of at most so many tokens, fewer if the context has no room for them.

        Raises:
            PromptTooLongError: the context has no room for any.
            ModelError: the server failed.
        """
        room = min(most, self.profile.drawing.max_tokens)
        if (context := self.endpoint.context) is not None:
            room = min(room, context - await self.count(said))
        if room < 1:
            raise PromptTooLongError("The conversation leaves no room for an answer.")
        with self.drawing.running():
            return await self._client.draw(said, Sampling(self._temperature, self._top_p, None, room, seed))


def seed_at(seed: int, step: int, number: int) -> int:
    """Return the seed of a step's answers on one kernel, by its number, far enough from those of others."""
    return ((seed * 10_007 + step) * 1_009 + number) * 100_000


async def rollout(
    environment: KernelEnvironment,
    policy: Policy,
    *,
    name: str,
    trajectories: int,
    turns: int,
    seed: int,
    tokens: int | None = None,
    longest: int | None = None,
    judging: BusyTime | None = None,
) -> list[Trajectory]:
    """Return trajectories on one kernel, drawn side by side while answers of others are judged.

    A trajectory ends after its turns, with its first cheat, where its budget or the context has no room for another
    answer, and where nothing could be decided. Each turn is stored, in a place that depends on `name` alone.

    Args:
        environment: the kernel.
        policy: answers.
        name: of these trajectories in the store.
        trajectories: how many.
        turns: of each, at most.
        seed: of all that is drawn; equal seeds on equal servers draw equal answers.
        tokens: that each trajectory may answer with; None for as many as its answers take.
        longest: tokens of an answer; None for the profile's limit.
        judging: counts the time in which answers are judged.

    Raises:
        ModelError: the server failed.
        RunnerError: workers of the judge failed.
    """
    most = longest or policy.profile.drawing.max_tokens
    limits = (most, tokens if tokens is not None else most * turns)
    judging = judging or BusyTime()
    running = [
        asyncio.ensure_future(
            _trajectory(
                environment, policy, f"{name}-{number:02}", number, turns, seed + number * _SEEDS, limits, judging
            )
        )
        for number in range(trajectories)
    ]
    try:
        return await asyncio.gather(*running)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)  # no answer is judged after the session is closed


async def _trajectory(
    environment: KernelEnvironment,
    policy: Policy,
    name: str,
    number: int,
    turns: int,
    seed: int,
    limits: tuple[int, int],
    judging: BusyTime,
) -> Trajectory:
    attempts: list[PastTurn] = []
    found: list[SampledTurn] = []
    longest, left = limits
    talk = environment.profile.talk
    while len(found) < turns and left > 0:
        said = await messages(environment.task, talk, environment.briefing, attempts, policy.count)
        draw = seed + len(found) + 1
        try:
            drawn = await policy.answer(said, draw, min(longest, left))
        except PromptTooLongError:
            break
        left -= len(drawn.tokens)
        answer = read_answer(drawn.text, drawn.reasoning, complete=drawn.complete)
        prompt = json.dumps(said, ensure_ascii=False)
        turn = ModelTurn(number, len(found) + 1, prompt, answer, policy.drawn(draw))
        environment.journal.exchanged(name, Exchange(turn))
        with judging.running():
            judged = await environment.receive(answer)
        told = "" if judged.outcome is None else tell(environment.prompts, judged.outcome)
        environment.journal.exchanged(name, Exchange(turn, judged.candidate, judged.outcome, judged.verdict, told))
        outcome = turn_outcome(judged.outcome, judged=judged.verdict is not None, told=told)
        evidence = judged.verdict.id if judged.verdict else None
        found.append(
            SampledTurn(
                prompt=drawn.prompt,
                tokens=drawn.tokens,
                logprobs=drawn.logprobs,
                answer=answer.whole,
                outcome=outcome,
                evidence=evidence,
            )
        )
        if outcome.result in (NOT_JUDGED, Outcome.ILLEGITIMATE):
            break
        attempts.append(PastTurn(answer, told))
    return tuple(found)
