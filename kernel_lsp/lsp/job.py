"""The records of a job: the request, and its state."""

import asyncio
import time
from dataclasses import asdict, dataclass, field
from typing import Any

from kernel_lsp.lsp.catalog import JobKind, JobSubject
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.wire import JobRecord, State, Work
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.report.units import interval_text, speedup_text, talking_text


@dataclass(frozen=True, slots=True)
class JobRequest:
    """A request for a job of one kind, on `kernel` of a text, or on all of its kernels if that is None.

    `label` names a rewrite, or a module's choice; of a search it is the sentence that the user asked it with. With
    `unasked` the user is not told of the end: its diagnostics are enough.
    """

    kind: JobKind
    document: Document
    kernel: str | None = None
    label: str | None = None
    unasked: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Return a key that is equal for jobs that would do the same to a file."""
        label = None if self.kind.subject is JobSubject.KERNEL else self.label
        return self.kind.name, self.document.uri, self.kernel, label

    @property
    def title(self) -> str:
        """Return a title for the user: the kind of work and its object."""
        return self.kind.title.format(name=self.kernel or self.document.path.name, label=self.label)


@dataclass
class Job:
    """One job.

    Attributes:
        id: its name in requests.
        wanted: what it is for; once it has ended, without the text.
        state: its state.
        doing: what it does now, a few words.
        share: of its work that is done, from 0 to 1; of a search `progress` tells.
        reason: how it ended, one sentence.
        progress: the search's last report; None before the first.
        verdict: id of the verdict that its result rests on.
        notes: what was left out and why, sentences for the user.
        result: the result of its work, see `lsp.services.job`; gone once it has ended.
        started: when it was given its turn, on the clock of `time.monotonic`; None before.
        heard: when `progress` was reported, on that clock.
        told: when its client was last notified, on that clock.
        ended: set when it has.
    """

    id: str
    wanted: JobRequest
    state: State = State.WAITING
    doing: str = "waiting"
    share: float = 0.0
    reason: str = ""
    progress: SearchProgress | None = None
    verdict: str | None = None
    notes: tuple[str, ...] = ()
    result: dict[str, Any] | None = None
    started: float | None = None
    heard: float = 0.0
    told: float = 0.0
    ended: asyncio.Event = field(default_factory=asyncio.Event)

    @property
    def elapsed(self) -> float:
        """Return the seconds since its work began; 0 before."""
        return time.monotonic() - self.started if self.started is not None else 0.0

    @property
    def text(self) -> str:
        """Return its state in one line."""
        if self.state.ended:
            return self.reason
        if (found := self.progress) is None:
            return self.doing
        talking = talking_text(**asdict(found.talking))
        counts = [f"{found.proposed} candidates", f"{found.correct} correct"]
        parts = [*filter(None, (self.doing, talking)), *counts]
        if (best := found.best) is not None:
            sure = "" if best.confirmed else ", to be confirmed"
            parts.append(f"best {speedup_text(best.speedup)} ({interval_text(best.interval)}{sure})")
        return ", ".join([*parts, f"{self.time_left} left"])

    @property
    def percentage(self) -> int:
        """Return how much of its work is done, at most 99; 0 where that is not known."""
        found = self.progress
        return min(99, round(100 * (self.share if found is None else found.elapsed / found.budget)))

    @property
    def time_left(self) -> str:
        """Return the rest of its budget as `0:49`; empty before a search began."""
        if self.progress is None:
            return ""
        left = max(0, round(self.progress.budget - self.progress.elapsed))
        return f"{left // 60}:{left % 60:02}"

    @property
    def record(self) -> JobRecord:
        """Return it as requests and notifications show it."""
        wanted = self.wanted
        return JobRecord(
            id=self.id,
            work=Work(wanted.kind.name),
            uri=wanted.document.uri,
            version=wanted.document.version,
            kernel=wanted.kernel,
            label=wanted.label,
            title=wanted.title,
            state=self.state,
            text=self.text,
            doing=self.doing,
            percentage=self.percentage,
            elapsed=round(self.elapsed, 1),
            progress=self.progress,
            verdict=self.verdict,
            reason=self.reason,
            notes=self.notes,
            unasked=wanted.unasked,
        )
