"""Split a model's answer into its reasoning, the fenced code, and the text around the code."""

import re
from dataclasses import dataclass

_THINK_ENDS = "</think>"
_THINK_BEGINS = "<think>"
_FENCE = re.compile(r"^(?P<mark>`{3,}|~{3,})[ \t]*(?P<tag>[\w+-]*)[^\n]*\n(?P<body>.*?)^(?P=mark)[ \t]*$", re.M | re.S)
_OPEN_FENCE = re.compile(r"^(?:`{3,}|~{3,})", re.M)


class RejectedAnswer(Exception):  # noqa: N818 - it is no error of this program: the model is told and tries again
    """An answer that breaks the rules of its format; the text says which rule, for the model to read."""


@dataclass(frozen=True, slots=True)
class ModelAnswer:
    """One answer.

    Attributes:
        text: what comes after the reasoning, without surrounding space.
        reasoning: the model's reasoning; never sent back.
        complete: whether the model ended it by itself.
    """

    text: str
    reasoning: str = ""
    complete: bool = True

    @property
    def whole(self) -> str:
        """Return the whole answer, with the reasoning in `<think>` marks."""
        return f"<think>\n{self.reasoning}\n</think>\n{self.text}" if self.reasoning else self.text


def read_answer(said: str, reasoning: str = "", *, complete: bool = True) -> ModelAnswer:
    """Return the answer with reasoning and text apart, whether or not the server has split them.

    Args:
        said: the message's content. Up to `</think>` it is reasoning; the last such mark counts, since models quote it.
        reasoning: what the server itself has kept apart.
        complete: false where the answer was cut off.
    """
    thought, mark, text = said.rpartition(_THINK_ENDS)
    if not mark and said.lstrip().startswith(_THINK_BEGINS):
        thought, text = said, ""  # cut off before the answer began
    thought = thought.strip().removeprefix(_THINK_BEGINS)
    return ModelAnswer(text.strip(), "\n".join(filter(None, (reasoning.strip(), thought.strip()))), complete)


def fenced_code(answer: ModelAnswer) -> str:
    """Return the code of the first fenced block.

    Raises:
        RejectedAnswer: there is none, or the answer ended inside it.
    """
    found = _FENCE.search(answer.text)
    if found is not None and found["body"].strip():
        return found["body"]
    if not answer.text:
        raise RejectedAnswer("The answer holds nothing after the reasoning. Reason more briefly and give the code.")
    if _OPEN_FENCE.search(answer.text) or not answer.complete:
        raise RejectedAnswer("The answer ends before its code block does. Give the complete code in less space.")
    raise RejectedAnswer("The answer holds no fenced code block. Put the complete code into one block fenced by ```.")


def summary(answer: ModelAnswer) -> str:
    """Return the model's own words about its code: the text without fenced blocks."""
    return re.sub(r"\n{3,}", "\n\n", _FENCE.sub("", answer.text)).strip()
