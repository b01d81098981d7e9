"""Read what an OpenAI-compatible server answers: pieces of a stream, or a whole answer with its tokens."""

import json
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request so far."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class Piece:
    """A further part of an answer. `finish` is set on the last one: `stop`, or another reason for the end."""

    reasoning: str = ""
    text: str = ""
    finish: str | None = None
    usage: Usage | None = None


@dataclass(frozen=True, slots=True)
class DrawnAnswer:
    """An answer with the tokens that were drawn.

    Attributes:
        text, reasoning: as the server tells them apart.
        complete: True if the model ended it, and no limit did.
        prompt: tokens of the prompt, by the server's chat template.
        tokens: of the answer, with reasoning and the end token.
        logprobs: natural logarithm of each token's probability under the distribution that it was drawn from.
    """

    text: str
    reasoning: str
    complete: bool
    prompt: tuple[int, ...]
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def event_of(line: str) -> dict[str, Any] | None:
    """Return the JSON of one line of an event stream; None if it has none."""
    data = line.removeprefix("data:").strip() if line.startswith("data:") else ""
    return None if data in ("", "[DONE]") else decoded(data.encode())


def piece_of(event: dict[str, Any]) -> Piece:
    """Return the part of an answer that an event brings."""
    choice = next(iter(event.get("choices") or ()), {})
    delta = choice.get("delta") or {}
    usage = event.get("usage")
    return Piece(
        delta.get("reasoning") or delta.get("reasoning_content") or "",
        delta.get("content") or "",
        choice.get("finish_reason"),
        Usage(usage["prompt_tokens"], usage.get("completion_tokens") or 0) if usage else None,
    )


def drawn_answer_of(said: dict[str, Any]) -> DrawnAnswer:
    """Return a whole answer with its tokens.

    Raises:
        KeyError, TypeError, ValueError: the server did not tell them.
    """
    [choice] = said["choices"]
    message = choice["message"]
    return DrawnAnswer(
        text=message.get("content") or "",
        reasoning=message.get("reasoning") or message.get("reasoning_content") or "",
        complete=choice["finish_reason"] == "stop",
        prompt=tuple(said["prompt_token_ids"]),
        tokens=tuple(choice["token_ids"]),
        logprobs=tuple(float(one["logprob"]) for one in choice["logprobs"]["content"]),
    )


def decoded(content: bytes) -> dict[str, Any]:
    """Return a JSON object; other content becomes the message of one."""
    try:
        value = json.loads(content)
    except ValueError:
        value = {"error": content.decode(errors="replace")}
    return value if isinstance(value, dict) else {"error": str(value)}
