"""A tree of steps: the changes that a model means to make, its reasons, and the outcomes.

Planning is kept apart from writing code: the model says which steps it would take, on which right version each builds,
and how likely each is to help. The likeliest is carried out; with its outcome the model plans anew, so that siblings
rise, fall or go. A step whose code fails does not end the idea that it belongs to (Cao, Mao, Gonzalez, Stoica:
K-Search, arXiv 2602.19128, section 4).
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from kernel_lsp.refine.dialogue.conversation import PastTurn

MOST_FAILURES = 3
"""Times that the code of a step may fail before it is given up."""

_LINE = re.compile(
    r"^\W*?(?P<chance>0?\.\d+|[01](?:\.\d+)?)\s*\|\s*(?P<after>\d+)\s*\|(?P<step>[^|]+)(?:\|(?P<why>.*))?$"
)


@dataclass(frozen=True, slots=True)
class PlannedStep:
    """A step that is not carried out yet.

    Attributes:
        text: the change, in a sentence.
        why: the reason for it.
        after: number of the step on which it builds; 0 for what the search began with.
        chance: how likely it is to help, by the model, from 0 to 1.
    """

    text: str
    why: str
    after: int
    chance: float


@dataclass(frozen=True, slots=True)
class DoneStep:
    """A step that was carried out.

    Attributes:
        number: from 1.
        planned: what was meant.
        ratio: time over that of the user's file; infinite where the code was not right.
        conversation: turns that ended in its code.
    """

    number: int
    planned: PlannedStep
    ratio: float
    conversation: tuple[PastTurn, ...]

    @property
    def right(self) -> bool:
        """True if its code was right."""
        return self.ratio != float("inf")


def read_plan(text: str) -> list[PlannedStep]:
    """Return the steps of a model's plan, in its order; lines of another form are left out."""
    found: list[PlannedStep] = []
    for line in text.splitlines():
        if (said := _LINE.match(line.strip().strip("`"))) is not None:
            why = (said["why"] or "").strip()
            found.append(PlannedStep(said["step"].strip(), why, int(said["after"]), min(float(said["chance"]), 1.0)))
    return found


class StepTree:
    """The steps that are planned, and those that were done."""

    def __init__(self) -> None:
        self.planned: list[PlannedStep] = []
        self.done: list[DoneStep] = []

    def plan(self, steps: Sequence[PlannedStep]) -> None:
        """Put a plan in the place of the last one.

        Left out are steps that were done, or failed `MOST_FAILURES` times, and those that build on a failure.
        """
        tried = [_words(one.planned.text) for one in self.done]
        known = {_words(one.planned.text) for one in self.done if one.right}
        known |= {words for words in tried if tried.count(words) >= MOST_FAILURES}
        right = {0, *(one.number for one in self.done if one.right)}
        self.planned = []
        for step in steps:
            if step.after in right and (words := _words(step.text)) not in known:
                known.add(words)
                self.planned.append(step)

    def take(self, count: int) -> list[PlannedStep]:
        """Return the likeliest steps, at most so many, which are no longer planned then; of equals the first."""
        best = sorted(self.planned, key=lambda one: -one.chance)[:count]
        self.planned = [one for one in self.planned if one not in best]
        return best

    def finish(self, planned: PlannedStep, ratio: float, conversation: Sequence[PastTurn]) -> None:
        """Note what came of a step."""
        self.done.append(DoneStep(len(self.done) + 1, planned, ratio, tuple(conversation)))

    def conversation(self, planned: PlannedStep) -> Sequence[PastTurn]:
        """Return the turns that a step goes on from; none for what the search began with.

        They are those of its last failure, or those that led to the version on which it builds.
        """
        said = _words(planned.text)
        for one in reversed(self.done):
            if not one.right and one.planned.after == planned.after and _words(one.planned.text) == said:
                return one.conversation
        return next((one.conversation for one in self.done if one.number == planned.after), ())


def _words(text: str) -> str:
    return " ".join(re.findall(r"\w+", text.lower()))
