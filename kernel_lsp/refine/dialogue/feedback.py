"""The feedback to a model on its answer: one of six kinds, by the stage that the answer reached, and the message."""

import re
from typing import Literal

from kernel_lsp.judge.verdict import Mismatch, Outcome, checked_right
from kernel_lsp.refine.proposer import Facts, Feedback

Kind = Literal["unparsed", "uncompiled", "crashed", "incorrect", "unjudged", "correct"]

ERRORS = 3
"""How many compiler errors a model is shown, each with the line after it."""
CHARACTERS = 1000
"""Length of all that a compiler or a traceback is quoted with."""

_ERROR = re.compile(r"\berror\b|\bError\b", re.IGNORECASE)
_KINDS: dict[Outcome, Kind] = {
    Outcome.BUILD_FAILED: "uncompiled",
    Outcome.RUN_FAILED: "crashed",
    Outcome.TIMED_OUT: "crashed",
    Outcome.WRONG: "incorrect",
    Outcome.ILLEGITIMATE: "incorrect",
}


def kind_of(feedback: Feedback) -> Kind:
    """Return the kind of a candidate's feedback.

    Slower candidates are still correct, and untimed ones whose outputs were compared.
    """
    if feedback.verdict.is_failure:
        return _KINDS[feedback.verdict]
    return "correct" if checked_right(feedback.verdict, feedback.stage, feedback.message) else "unjudged"


def message_of(feedback: Feedback) -> str:
    """Return the judge's finding, in words for a model."""
    return f"{_found(feedback)} {feedback.setting}".strip()


def _found(feedback: Feedback) -> str:
    match kind_of(feedback):
        case "uncompiled":
            return condensed(feedback.log or feedback.message)
        case "crashed" | "unjudged":
            return _cut(feedback.message)
        case "incorrect":
            shown = _cut(feedback.message)
            return f"{shown}\n{_wrong_element(feedback.mismatch)}" if feedback.mismatch is not None else shown
        case _:
            return _speed(feedback)


def condensed(log: str) -> str:
    """Return the first errors of a compiler's output, each with the next line; its beginning if no line is an error."""
    lines = log.strip().splitlines()
    picked: list[str] = []
    errors = 0
    for at, line in enumerate(lines):
        if errors < ERRORS and _ERROR.search(line):
            errors += 1
            picked += lines[at : at + 2]
    return _cut("\n".join(dict.fromkeys(picked)) or log.strip())


def facts_lines(facts: Facts | None) -> list[str]:
    """Return compiler facts as short phrases."""
    if facts is None:
        return []
    lines: list[str] = []
    if facts.registers is not None:
        lines.append(f"{facts.registers} registers a thread")
    if facts.spill_bytes:
        lines.append(f"{facts.spill_bytes} bytes of them spilled to local memory")
    if facts.shared_bytes:
        lines.append(f"{facts.shared_bytes:,} bytes of shared memory a block")
    if facts.occupancy is not None:
        lines.append(f"occupancy {facts.occupancy:.0%}")
    return lines


def _speed(feedback: Feedback) -> str:
    if feedback.ratio is None:
        return feedback.message
    speedup = 1 / feedback.ratio
    text = f"It runs at {speedup:.2f} times the speed of the baseline"
    if feedback.interval is not None:
        text += f" (95 % interval {1 / feedback.interval[1]:.2f} to {1 / feedback.interval[0]:.2f})"
    return f"{text}."


def _wrong_element(mismatch: Mismatch) -> str:
    where = ", ".join(str(i) for i in mismatch.index)
    return (
        f"Case {mismatch.case}, {mismatch.family} inputs: element [{where}] of output {mismatch.output} is "
        f"{mismatch.actual} and should be {mismatch.expected}; {mismatch.count:,} of {mismatch.total:,} are wrong."
    )


def _cut(text: str) -> str:
    text = text.strip()
    return text if len(text) <= CHARACTERS else f"{text[: CHARACTERS - 3].rstrip()}..."
