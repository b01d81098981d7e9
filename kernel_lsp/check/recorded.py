"""Records the launches of one case on the GPU, for a program that repeats them without torch or the user's Python."""

import json
import sys
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp import runner
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.session import Session
from kernel_lsp.runner.messages.subject import RecordLaunches
from kernel_lsp.runner.workers.replay import RecordedLaunches

REPLAY = (sys.executable, "-I", str(Path(runner.__file__).parent / "workers" / "replay.py"))
"""The program, which takes a recording's file."""
_MOST_INPUT_BYTES = 32 << 20  # a recording holds 64 MiB, of what launches have written too
_SECONDS = 60.0


@dataclass(frozen=True, slots=True)
class RecordedCase:
    """The launches of a file's kernels on one case: a file for `replay.py`, and the case as a person would write it."""

    file: Path
    case: str

    @property
    def content(self) -> RecordedLaunches:
        """Return what the file holds."""
        return json.loads(self.file.read_text(encoding="utf-8"))


@asynccontextmanager
async def recorded_launches(session: Session) -> AsyncGenerator[RecordedCase]:
    """Yield the launches of the baseline, in an open session, on the largest case that can be recorded.

    Raises:
        CannotJudgeError: the baseline was not measured, or its launches cannot be recorded.
        WorkerFailure, WorkerDied, WorkerTimedOut: it did not run.
    """
    path, measured = session.target.source.path, session.measured
    if measured is None:
        raise CannotJudgeError(session.unmeasured, path)
    harness = measured.harness
    subject = await harness.enter(measured.baseline.candidate, measured.baseline.built)
    try:
        draw = _largest(measured.profile.draws)
        await harness.fill(subject, draw)
        kept = await subject.ask(RecordLaunches(buffers=(draw.buffer,)), deadline=_SECONDS)
        if not kept.file:
            raise CannotJudgeError(f"its launches cannot be recorded: {kept.reason}", path)
        await harness.settle()
        yield RecordedCase(Path(kept.file), harness.cases[draw.case])
    finally:
        harness.leave_behind(harness.leave(subject))


def _largest(draws: Sequence[Draw]) -> Draw:
    """Return the plain inputs of the largest case that can be recorded, else of the smallest."""
    plain = sorted((draw for draw in draws if draw.is_plain), key=lambda draw: draw.input_bytes)
    fitting = [draw for draw in plain if draw.input_bytes <= _MOST_INPUT_BYTES]
    return fitting[-1] if fitting else plain[0]
