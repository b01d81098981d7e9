"""The records of a job: what is asked for, and where it stands."""

import asyncio
import time
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from kernel_lsp.lsp.catalog import JobKind
from kernel_lsp.lsp.documents import Document
from kernel_lsp.report.units import interval_text, speedup_text, talking_text


class State(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is asked for: a kind of job on `kernel` of a text, or on all of them where that is None.

    `label` names a rewrite, or a module's choice. Nobody is told of the end of what is `unasked`: its diagnostics speak
    for it.
    """

    kind: JobKind
    document: Document
    kernel: str | None = None
    label: str | None = None
    unasked: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for jobs that would do the same to a file."""
        return self.kind.name, self.document.uri, self.kernel, self.label

    @property
    def title(self) -> str:
        """What is done to what, for a person."""
        return self.kind.title.format(name=self.kernel or self.document.path.name, label=self.label)


@dataclass
class Job:
    """One job.

    Attributes:
        id: its name in requests.
        wanted: what it is for; once it has ended, without the text.
        state: where it stands.
        doing: what it does now, a few words.
        reason: how it ended, one sentence.
        progress: the search's last report, `refine.progress.Progress` as JSON; None before the first.
        verdict: id of the verdict that its result rests on.
        notes: what was left out and why, sentences for the user.
        result: the result of its work, see `kinds.job`; gone once it has ended.
        started: when it was given its turn, on the clock of `time.monotonic`; None before.
        heard: when `progress` was true, on that clock.
        told: when its client last heard of it, on that clock.
        ended: set when it has.
    """

    id: str
    wanted: Wanted
    state: State = State.WAITING
    doing: str = "waiting"
    reason: str = ""
    progress: dict[str, Any] | None = None
    verdict: str | None = None
    notes: tuple[str, ...] = ()
    result: dict[str, Any] | None = None
    started: float | None = None
    heard: float = 0.0
    told: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def elapsed(self) -> float:
        """Seconds since it was given its turn."""
        return time.monotonic() - self.started if self.started is not None else 0.0

    @property
    def text(self) -> str:
        """Where it stands, in one line."""
        if self.state.ended:
            return self.reason
        if (found := self.progress) is None:
            return self.doing
        talking = talking_text(**found["talking"])
        counts = [f"{found['proposed']} candidates", f"{found['correct']} correct"]
        parts = [*filter(None, (self.doing, talking)), *counts]
        if (best := found["best"]) is not None:
            sure = "" if best["confirmed"] else ", to be confirmed"
            parts.append(f"best {speedup_text(best['speedup'])} ({interval_text(tuple(best['interval']))}{sure})")
        left = max(0, round(found["budget"] - found["elapsed"]))
        return ", ".join([*parts, f"{left // 60}:{left % 60:02} left"])

    def as_json(self) -> dict[str, Any]:
        """As requests and notifications show it."""
        return {
            "id": self.id,
            "work": self.wanted.kind.name,
            "uri": self.wanted.document.uri,
            "version": self.wanted.document.version,
            "kernel": self.wanted.kernel,
            "label": self.wanted.label,
            "title": self.wanted.title,
            "state": self.state,
            "text": self.text,
            "doing": self.doing,
            "elapsed": round(self.elapsed, 1),
            "progress": self.progress,
            "verdict": self.verdict,
            "reason": self.reason,
            "notes": self.notes,
            "unasked": self.wanted.unasked,
        }
