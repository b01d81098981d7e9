"""Build the messages of one trajectory, and drop old turns beyond the history's budget of tokens."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

from kernel_lsp.model.client import Message
from kernel_lsp.model.profile import Talk
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.dialogue.feedback import Kind, facts_lines, kind_of, message_of
from kernel_lsp.refine.dialogue.prompts import Prompts
from kernel_lsp.refine.dialogue.task import Briefing, ModelTask
from kernel_lsp.refine.proposer import Feedback

CountTokens = Callable[[Sequence[Message]], Awaitable[int]]


@dataclass(frozen=True, slots=True)
class PastTurn:
    """A finished turn: the model's answer, without its reasoning, and the feedback on that answer."""

    answer: ModelAnswer
    told: str


def tell(prompts: Prompts, outcome: Feedback | str) -> str:
    """Return the feedback message on one answer; a text is the reason why it was rejected."""
    kind: Kind = "unparsed" if isinstance(outcome, str) else kind_of(outcome)
    message = outcome if isinstance(outcome, str) else message_of(outcome)
    facts = [] if isinstance(outcome, str) else facts_lines(outcome.facts)
    return prompts.render("feedback", kind=kind, message=message, facts=facts).strip()


async def messages(
    task: ModelTask,
    talk: Talk,
    briefing: Briefing,
    attempts: Sequence[PastTurn],
    count: CountTokens,
    advice: str = "",
) -> list[Message]:
    """Return the conversation up to the model's next answer.

    The first turn has the worked example; later ones have the attempts in its place, oldest first, each answer without
    its reasoning. As long as all of it is over the budget, the oldest attempt is dropped, but never the last one.

    Args:
        task: what is worked on.
        talk: the profile's limits.
        briefing: what is known of the kernel.
        attempts: earlier turns of this trajectory, oldest first.
        count: tokens of a conversation, by the model's own tokenizer.
        advice: a second opinion, put at the end of the last message.
    """
    first = task.first(briefing, example=not attempts or talk.example_always).strip()
    system = task.system().strip()
    head = [Message(role="system", content=system)] if system else []
    head.append(Message(role="user", content=first))
    kept = list(attempts)
    while True:
        said = [*head, *_turns(kept)]
        if advice:
            said[-1] = Message(role="user", content=f"{said[-1]['content']}\n{advice}")
        if len(kept) <= 1 or await count(said) <= talk.history_tokens:
            return said
        kept = kept[1:]


def _turns(attempts: Sequence[PastTurn]) -> list[Message]:
    return [
        message
        for attempt in attempts
        for message in (
            Message(role="assistant", content=attempt.answer.text or "(no answer)"),
            Message(role="user", content=attempt.told),
        )
    ]
