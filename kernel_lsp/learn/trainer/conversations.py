"""Turn traces into tokens, by the chat template of the model that is trained. Imports no torch."""

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Protocol, cast

_THINK = "<think>"


class NotTrainableError(Exception):
    """The dataset and the model do not fit each other; the text says why, for the user."""


class ChatTokenizer(Protocol):
    """The part of transformers' tokenizers that is used here."""

    chat_template: Any
    eos_token: str | None

    def apply_chat_template(
        self, conversation: Sequence[dict[str, str]], *, tokenize: bool, add_generation_prompt: bool
    ) -> str:
        """Return the text of a conversation up to the model's next answer."""
        ...

    def __call__(self, text: str, *, add_special_tokens: bool) -> Any:
        """Return the tokens of a text."""
        ...


def tokenised(tokenizer: ChatTokenizer, file: Path, length: int) -> tuple[list[dict[str, list[int]]], int]:
    """Return `input_ids` and `completion_mask` of each conversation, and how many were longer than `length` tokens.

    Raises:
        NotTrainableError: the tokenizer has no chat template, or one that leaves out parts of a conversation.
    """
    if not tokenizer.chat_template or tokenizer.eos_token is None:
        raise NotTrainableError("The model's tokenizer has no chat template or no end token: it is not a chat model.")
    rows: list[dict[str, list[int]]] = []
    longer = 0
    for line in _lines(file):
        prompt = _prompt(tokenizer, line["messages"])
        asked = _ids(tokenizer, prompt)
        said = _ids(tokenizer, completion(prompt, line["reasoning"], line["answer"]) + tokenizer.eos_token)
        if len(asked) + len(said) > length:
            longer += 1
        else:
            rows.append({"input_ids": asked + said, "completion_mask": [0] * len(asked) + [1] * len(said)})
    return rows, longer


def completion(prompt: str, reasoning: str, answer: str) -> str:
    """Return the text that the model is to say after a prompt: once and only once with an opened `<think>`."""
    opened = prompt.rstrip().endswith(_THINK)
    if not (opened or reasoning):
        return answer
    begin = "" if opened else f"{_THINK}\n"
    return f"{begin}{reasoning}\n</think>\n\n{answer}"


def _prompt(tokenizer: ChatTokenizer, messages: Sequence[dict[str, str]]) -> str:
    text = tokenizer.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    for message in messages:
        if message["content"].strip() not in text:
            kind = message["role"]
            raise NotTrainableError(f"The model's chat template leaves out or changes a message of the {kind}.")
    return text


def _ids(tokenizer: ChatTokenizer, text: str) -> list[int]:
    return cast(list[int], tokenizer(text, add_special_tokens=False)["input_ids"])


def _lines(file: Path) -> Iterator[dict[str, Any]]:
    with file.open(encoding="utf-8") as opened:
        yield from (json.loads(line) for line in opened if line.strip())
