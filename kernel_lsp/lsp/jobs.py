"""Jobs: work that takes seconds or minutes, each in a process of its own, which is killed with everything below it.

A job belongs to one kernel of one file and to the text that it was started with. Starting it again joins it; starting
it for another text ends the older one. Jobs that time on the GPU take turns. What a job finds out is stored by its own
process as it is found, so that nothing is lost when that process, or this one, dies.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from kernel_lsp.compiler.binary import Diagnostic, Severity
from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.process import Service, ServiceFailure
from kernel_lsp.lsp.spare import Spare
from kernel_lsp.report.units import interval_text, speedup_text, talking_text

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.lsp.server import Server

PROGRESS = "kernelLsp/jobProgress"
"""A notification for clients that ask for it; see docs/lsp-protocol.md."""

_OFTEN = 0.1  # least seconds between two reports
_TICK = 1.0  # seconds between reports when nothing happens but time
_LENSES = 2.0  # least seconds between two refreshes of lenses while a job runs
_ANSWER = 2.0  # seconds that a job waits for its progress bar; a client that agrees later has it later
_KEPT = 50  # jobs that have ended


class Work(StrEnum):
    """What a job does; see `kinds.job`."""

    REFINE = "refine"
    CHECK = "check"
    BASELINE = "baseline"
    COMPARE = "compare"
    REWRITE = "rewrite"
    LOWER = "lower"


_WITH_WORKERS = (Work.REFINE, Work.LOWER, Work.COMPARE, Work.REWRITE)
"""What judges with the workers that a process kept ready has begun to set up."""


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
    """What is asked for: `kernel` of a text, or None for all of them; `label` names a rewrite, or what a kernel for a
    module is written in.

    Nobody is told of the end of what is `unasked`: its diagnostics speak for it.
    """

    work: Work
    document: Document
    kernel: str | None = None
    label: str | None = None
    unasked: bool = False

    @property
    def key(self) -> tuple[object, ...]:
        """Equal for jobs that would do the same to a file."""
        return self.work, self.document.uri, self.kernel, self.label

    @property
    def title(self) -> str:
        """What is done to what, for a person."""
        name = self.kernel or self.document.path.name
        return {
            Work.REFINE: f"Refining {name}",
            Work.CHECK: f"Checking {name}",
            Work.BASELINE: f"Recording the baseline of {name}",
            Work.COMPARE: f"Comparing {name} with the last commit",
            Work.REWRITE: f"Judging {self.label} on {name}",
            Work.LOWER: f"Writing a kernel for {name}",
        }[self.work]


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
        bar: its progress bar at the client.
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
    bar: "_Bar | None" = None
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
            "work": self.wanted.work,
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


class Jobs:
    """The jobs of one server. `gpu` says whether there is one to time on; None before that is known."""

    def __init__(self, server: "Server") -> None:
        self._server = server
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._numbers = itertools.count(1)
        self._noted: set[str] = set()
        self._turn = asyncio.Lock()
        self._refreshed = 0.0
        self._spare = Spare(server.start)
        self.gpu: bool | None = None

    async def look_for_gpu(self) -> None:
        """Find out whether there is one; the driver may take its time to answer."""
        self.gpu = await asyncio.to_thread(_has_gpu)

    def __iter__(self) -> Iterator[Job]:
        """The jobs that there are and the last of those that there were, oldest first."""
        return iter(tuple(self._jobs.values()))

    def get(self, job_id: str) -> Job | None:
        """The job of that name."""
        return self._jobs.get(job_id)

    def under_way(self, uri: str, kernel: str | None = None) -> list[Job]:
        """What goes on for a text, or for one kernel of it."""
        mine = (j for j in self._jobs.values() if j.wanted.document.uri == uri and not j.state.ended)
        return [job for job in mine if kernel is None or job.wanted.kernel in (None, kernel)]

    def expect(self, document: Document) -> None:
        """Somebody might start to time something of this text next; not while something is timed already."""
        if self.gpu and not self._turn.locked():
            self._spare.keep(self._server.settings.at(document.path))

    def start(self, wanted: Wanted) -> tuple[Job, bool]:
        """The job that does this, and whether it was under way before.

        Raises:
            ConfigurationError: the file is not trusted, or is not on disk.
        """
        document = wanted.document
        if not document.on_disk:
            raise ConfigurationError("This text is in no file yet.", document.path, cure="Save it first.")
        if not self._server.is_trusted(document):
            cure = f"Trust it with the command `kernel-lsp.trust` or with `kernel-lsp trust {document.path.parent}`."
            raise ConfigurationError("Nothing is run in a folder that you do not trust.", document.path, cure=cure)
        for job in self._jobs.values():
            if job.wanted.key == wanted.key and not job.state.ended:
                if job.wanted.document.text == document.text:
                    return job, True
                self.cancel(job.id, "the text was changed, and the work begun anew")
        job = Job(f"{wanted.work}-{next(self._numbers)}", wanted)
        self._jobs[job.id] = job
        task = self._tasks[job.id] = self._server.start(self._run(job))
        task.add_done_callback(lambda _: self._never_began(job))
        return job, False

    def cancel(self, job_id: str, why: str = "it was cancelled") -> bool:
        """End a job and all its processes; False when there is no such job under way."""
        job, task = self._jobs.get(job_id), self._tasks.get(job_id)
        if job is None or task is None or job.state.ended:
            return False
        job.reason = f"{why}; what was found before is kept"
        task.cancel()
        return True

    def cancel_by_token(self, token: object) -> None:
        """The client's user pressed cancel on a progress bar."""
        if isinstance(token, str):
            self.cancel(token.removeprefix(_TOKEN))

    async def close(self) -> None:
        """End all jobs."""
        self._spare.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, job: Job) -> None:
        bar = job.bar = _Bar(self._server, job)
        service = self._spare.take() if job.wanted.work in _WITH_WORKERS else Service()
        ticking, asking = self._server.start(self._tick(job)), self._server.start(bar.begin())
        try:
            await asyncio.wait([asking], timeout=_ANSWER)
            settings = self._server.settings.at(job.wanted.document.path)
            if job.wanted.work is Work.CHECK:
                await self._work(job, service, settings)
            else:
                async with self._turn:
                    await self._work(job, service, settings)
            job.state = State.DONE
        except asyncio.CancelledError:
            job.state = State.CANCELLED
            raise
        except KernelLspError as error:
            job.state, job.reason = State.FAILED, str(error)
        except ServiceFailure:
            job.state, job.reason = State.FAILED, "Something went wrong in kernel-lsp; its log says what."
        finally:
            service.kill()
            ticking.cancel()
            asking.cancel()
            self._end(job)

    def _never_began(self, job: Job) -> None:
        """A task that is cancelled at once does not run at all."""
        if not job.state.ended:
            job.state = State.CANCELLED
            self._end(job)

    async def _work(self, job: Job, service: Service, settings: "Settings") -> None:
        wanted, document = job.wanted, job.wanted.document
        job.state, job.started, job.doing = State.RUNNING, time.monotonic(), "starting"
        self._changed(job)
        texts = {str(d.path): d.text for d in self._server.documents if d.on_disk} | {str(document.path): document.text}
        params = {
            "work": wanted.work,
            "path": str(document.path),
            "kernel": wanted.kernel,
            "label": wanted.label,
            "texts": texts,
            "settings": settings.model_dump(mode="json"),
        }
        result = await service.ask("job", params, lambda event: self._hear(job, settings, event))
        job.result, job.reason, job.verdict = result, result["reason"], result["verdict"]
        job.notes = tuple(result.get("notes", ()))

    def _hear(self, job: Job, settings: "Settings", event: Mapping[str, Any]) -> None:
        if "verdict" in event:
            self._server.results.take(settings, event["verdict"])
            self._server.refresh()
        elif "notice" in event:
            self._server.results.notice(event["notice"])
        elif "progress" in event:
            job.progress, job.heard = dict(event["progress"]), time.monotonic()
            job.doing = job.progress["doing"]
        else:
            job.doing = event["doing"]
        if (now := time.monotonic()) - job.told > _OFTEN:
            job.told = now
            self._changed(job)

    async def _tick(self, job: Job) -> None:
        """Report as time passes, for what is shown says how much of it is left."""
        while not job.state.ended:
            if job.progress is not None:
                passed, job.heard = time.monotonic() - job.heard, time.monotonic()
                job.progress["elapsed"] = min(job.progress["elapsed"] + passed, job.progress["budget"])
            self._changed(job)
            await asyncio.sleep(_TICK)

    def _changed(self, job: Job) -> None:
        if job.bar is not None:
            job.bar.report()
        if self._server.wants_job_progress:
            self._server.protocol.notify(PROGRESS, job.as_json())
        now = time.monotonic()
        if job.state.ended or now - self._refreshed > _LENSES:
            self._refreshed = now
            self._server.refresh()

    def _end(self, job: Job) -> None:
        self._tasks.pop(job.id, None)
        ended = [j.id for j in self._jobs.values() if j.state.ended]
        for old in ended[:-_KEPT]:
            del self._jobs[old]
        if job.bar is not None:
            job.bar.end()
        if job.result is not None and "report" in job.result:
            said = [one | {"severity": Severity(one["severity"])} for one in job.result["report"]["diagnostics"]]
            self._server.diagnostics.checked(job.wanted.document, [Diagnostic(**one) for one in said])
            if (emulation := job.result["report"]["emulation"]) is not None:
                counters = [one for run in emulation["runs"] for one in run["counters"]]
                self._server.analysis.counted(job.wanted.document, counters)
        self._server.start(self._server.results.settle())
        tells = not self._server.wants_job_progress  # who hears of jobs shows their end better than a message can
        if tells and job.state is not State.CANCELLED and not job.wanted.unasked:
            failed = job.state is State.FAILED
            kind = types.MessageType.Error if failed else types.MessageType.Info
            self._server.show(f"{job.wanted.title}: {job.reason}", kind)
            for note in [note for note in job.notes if note not in self._noted]:
                self._noted.add(note)  # once is enough of what is the same after every search
                self._server.show(note, types.MessageType.Warning)
        self._changed(job)
        # From here on only its name is asked for, and fifty texts of 5,000 lines take 30 MiB.
        job.wanted, job.result = replace(job.wanted, document=replace(job.wanted.document, text="")), None
        job.ended.set()


_TOKEN = "kernel-lsp/"


class _Bar:
    """A job's progress bar at the client, where it has such a thing."""

    def __init__(self, server: "Server", job: Job) -> None:
        self._server, self._job = server, job
        self._shown = False
        self._said = ""

    async def begin(self) -> None:
        """Ask the client for a bar, and show it once it agrees."""
        window = self._server.client_capabilities.window
        if window is None or not window.work_done_progress:
            return
        params = types.WorkDoneProgressCreateParams(self._token)
        try:
            await self._server.window_work_done_progress_create_async(params)
        except Exception:  # the client does not want to
            return
        self._shown = True
        begun = types.WorkDoneProgressBegin(
            self._job.wanted.title, cancellable=True, message=self._job.text, percentage=self._percentage
        )
        self._send(begun)

    def report(self) -> None:
        """Show where the job stands."""
        if self._shown and self._job.text != self._said:
            self._said = self._job.text
            self._send(types.WorkDoneProgressReport(cancellable=True, message=self._said, percentage=self._percentage))

    def end(self) -> None:
        """Take the bar away."""
        if self._shown:
            self._shown = False
            self._send(types.WorkDoneProgressEnd(message=self._job.reason or self._job.state))

    @property
    def _token(self) -> str:
        return _TOKEN + self._job.id

    @property
    def _percentage(self) -> int:
        found = self._job.progress
        return 0 if found is None else min(99, round(100 * found["elapsed"] / found["budget"]))

    def _send(
        self, value: types.WorkDoneProgressBegin | types.WorkDoneProgressReport | types.WorkDoneProgressEnd
    ) -> None:
        self._server.progress(types.ProgressParams(self._token, value))


def _has_gpu() -> bool:
    from kernel_lsp.device.nvml import find_gpus

    return bool(find_gpus())
