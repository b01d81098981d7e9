"""Read what an OpenAI-compatible server answers: pieces of a stream, or a whole answer with its tokens."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens of a request so far."""

    prompt: int
    completion: int


@dataclass(frozen=True, slots=True)
class CallPart:
    """A further part of a call of a tool: what was said before of the call of this number goes on here.

    Attributes:
        number: of the call in its answer, from 0.
        id: the server's; empty in later parts.
        name: of the tool; empty in later parts.
        arguments: more of them, as JSON.
    """

    number: int
    id: str = ""
    name: str = ""
    arguments: str = ""


@dataclass(frozen=True, slots=True)
class Piece:
    """A further part of an answer. `finish` is set on the last one: `stop`, or another reason for the end."""

    reasoning: str = ""
    text: str = ""
    finish: str | None = None
    usage: Usage | None = None
    calls: tuple[CallPart, ...] = ()


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
        tuple(_call_part(number, part) for number, part in enumerate(delta.get("tool_calls") or ())),
    )


def _call_part(number: int, part: dict[str, Any]) -> CallPart:
    function = part.get("function") or {}
    name, arguments = function.get("name") or "", function.get("arguments") or ""
    return CallPart(part.get("index", number), part.get("id") or "", name, arguments)


def calls_of(parts: Iterable[CallPart]) -> list[CallPart]:
    """Return the whole calls that parts make up, by their numbers."""
    found: dict[int, CallPart] = {}
    for part in parts:
        known = found.get(part.number, CallPart(part.number))
        arguments = known.arguments + part.arguments
        found[part.number] = CallPart(part.number, known.id or part.id, known.name or part.name, arguments)
    return [found[number] for number in sorted(found)]


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
