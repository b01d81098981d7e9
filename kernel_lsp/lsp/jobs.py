"""Jobs: work that takes seconds or minutes, each in a process of its own, which is killed with all its children.

A job belongs to one kernel of one file and to the text that it was started with. Starting it again joins it; starting
it for another text ends the older one. Jobs that time on the GPU take turns. A job's process stores its results as they
are found, so that nothing is lost when that process, or this one, dies.
"""

import asyncio
import itertools
import time
from collections.abc import Iterator, Mapping
from contextlib import nullcontext
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from lsprotocol import types

from kernel_lsp.errors import ConfigurationError, KernelLspError
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.catalog import CAPTURE, CHECK, FIX, SEARCHES, JobKind
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import TOO_LARGE, Document, Documents
from kernel_lsp.lsp.job import Job, JobRequest
from kernel_lsp.lsp.process import Service, ServiceFailure
from kernel_lsp.lsp.profiles import Profiles
from kernel_lsp.lsp.progress_bar import ProgressBar, job_of
from kernel_lsp.lsp.requests import JOB_PROGRESS
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.warm_service import WarmService
from kernel_lsp.lsp.wire import State, as_json, from_json
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.refine.progress import SearchProgress

if TYPE_CHECKING:
    from kernel_lsp.config.settings import Settings

_OFTEN = 0.1  # least seconds between two reports
_TICK = 1.0  # seconds between reports when only the time changes
_LENSES = 2.0  # least seconds between two refreshes of lenses while a job runs
_ANSWER = 2.0  # seconds that a job waits for its progress bar, which may also appear later
_KEPT = 50  # ended jobs that are kept


class NoGpuError(KernelLspError):
    """A search needs a GPU, and this machine has none; known at once, so nothing is started."""

    def __init__(self, title: str) -> None:
        super().__init__(
            f"{title} needs an NVIDIA GPU, and this machine has none.",
            fix="Open the folder on a machine with one, over SSH for example. "
            "With the setting `refine.untimed` a search goes on without one, but claims no speedup.",
        )


class Jobs:
    """The jobs of one server. `gpu` is True if there is a GPU to time on; None until that is known."""

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        settings: ClientSettings,
        permission: Permission,
        checks: KnownChecks,
        results: StoredVerdicts,
        profiles: Profiles,
    ) -> None:
        self._client, self._background = client, background
        self._documents, self._settings, self._permission = documents, settings, permission
        self._checks, self._results, self._profiles = checks, results, profiles
        self._jobs: dict[str, Job] = {}
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._bars: dict[str, ProgressBar] = {}
        self._services: dict[str, Service] = {}
        self._numbers = itertools.count(1)
        self._noted: set[str] = set()
        self._turn = asyncio.Lock()
        self._refreshed = 0.0
        self._warm_service = WarmService(background.start)
        self.gpu: bool | None = None

    async def look_for_gpu(self) -> None:
        """Find out if there is a GPU; the driver may take a while to answer."""
        self.gpu = await asyncio.to_thread(_has_gpu)
        if not self.gpu:
            self._client.refresh()  # lenses that offer a search say now that it needs one

    def __iter__(self) -> Iterator[Job]:
        """Yield the jobs under way and the last of the ended ones, oldest first."""
        return iter(tuple(self._jobs.values()))

    def get(self, job_id: str) -> Job | None:
        """Return the job with this id, or None."""
        return self._jobs.get(job_id)

    def under_way(self, uri: str, kernel: str | None = None) -> list[Job]:
        """Return the jobs under way for a text, or for one of its kernels."""
        mine = (j for j in self._jobs.values() if j.wanted.document.uri == uri and not j.state.ended)
        return [job for job in mine if kernel is None or job.wanted.kernel in (None, kernel)]

    def running(self, kind: JobKind, uri: str, kernel: str | None = None, label: str | None = None) -> list[Job]:
        """Return the running jobs of one kind for a text, optionally for one kernel or one label."""
        mine = (job for job in self.under_way(uri, kernel) if job.wanted.kind is kind)
        return [job for job in mine if label is None or job.wanted.label == label]

    def expect(self, document: Document) -> None:
        """Keep a process ready, as the user may soon time something in this text; not during another timing."""
        if self.gpu and not self._turn.locked():
            self._warm_service.keep(self._settings.at(document.path))

    def start(self, wanted: JobRequest) -> tuple[Job, bool]:
        """Return the job for a request, and True if it was already under way.

        Raises:
            ConfigurationError: the file is not trusted, is not on disk, or is too large; or no program is named.
            NoGpuError: it is a search, and there is no GPU to time on.
        """
        document = wanted.document
        if not document.on_disk:
            raise ConfigurationError("This text is not in a file yet.", document.path, fix="Save it first.")
        if not self._permission.covers(document):
            fix = f"Trust {document.path.parent}: a code action at the kernel does that."
            raise ConfigurationError("Nothing is run in a folder that you do not trust.", document.path, fix=fix)
        if document.is_too_large:
            raise ConfigurationError(TOO_LARGE, document.path)
        if wanted.kind in SEARCHES and self.gpu is False and not self._settings.at(document.path).refine.untimed:
            raise NoGpuError(wanted.title)
        if wanted.kind is CAPTURE and not wanted.label:
            wanted = replace(wanted, label=self._program(document))
        for job in self._jobs.values():
            if job.wanted.key == wanted.key and not job.state.ended:
                if job.wanted.document.text == document.text:
                    return job, True
                self.cancel(job.id, "the text was changed, and the work was started again")
        job = Job(f"{wanted.kind.name}-{next(self._numbers)}", wanted)
        self._jobs[job.id] = job
        task = self._tasks[job.id] = self._background.start(self._run(job))
        task.add_done_callback(lambda _: self._never_began(job))
        return job, False

    def _program(self, document: Document) -> str:
        """Return the program that a capture runs; raises `ConfigurationError` where the settings name none."""
        if named := self._settings.at(document.path).capture.command.strip():
            return named
        fix = "Name one with the setting `capture.command`, such as python train.py."
        raise ConfigurationError("No program is named that a capture could run.", document.path, fix=fix)

    async def wish(self, job: Job, sentence: str) -> None:
        """Give a search a sentence of the user's for the next prompt of its model."""
        if (service := self._services.get(job.id)) is not None:
            await service.ask("job", {"work": "wish", "text": sentence})

    def cancel(self, job_id: str, why: str = "it was cancelled") -> bool:
        """End a job and all its processes; return False if no such job is under way."""
        job, task = self._jobs.get(job_id), self._tasks.get(job_id)
        if job is None or task is None or job.state.ended:
            return False
        job.reason = f"{why}; what was found before is kept" if job.wanted.kind in SEARCHES else why
        task.cancel()
        return True

    def cancel_by_token(self, params: types.WorkDoneProgressCancelParams) -> None:
        """End the job whose progress bar the user cancelled."""
        if (job_id := job_of(params.token)) is not None:
            self.cancel(job_id)

    async def close(self) -> None:
        """End all jobs."""
        self._warm_service.close()
        for task in self._tasks.values():
            task.cancel()
        await asyncio.gather(*self._tasks.values(), return_exceptions=True)

    async def _run(self, job: Job) -> None:
        bar = self._bars[job.id] = ProgressBar(self._client, job)
        kind = job.wanted.kind
        service = self._warm_service.take() if kind.is_judging or kind is CHECK else Service()
        self._services[job.id] = service
        ticking, asking = self._background.start(self._tick(job)), self._background.start(bar.begin())
        try:
            await asyncio.wait([asking], timeout=_ANSWER)
            settings = self._settings.at(job.wanted.document.path)
            async with self._turn if kind.exclusive else nullcontext():
                await self._work(job, service, settings)
            job.state = State.DONE
            if kind is CHECK and not self._turn.locked():  # the next edit will be checked, too
                self._warm_service.keep(settings)
        except asyncio.CancelledError:
            job.state = State.CANCELLED
            raise
        except KernelLspError as error:
            job.state, job.reason = State.FAILED, error.with_place
        except ServiceFailure:
            job.state, job.reason = State.FAILED, "Something went wrong in kernel-lsp; its log says what."
        finally:
            service.kill()
            ticking.cancel()
            asking.cancel()
            self._end(job)

    def _never_began(self, job: Job) -> None:
        """End a job whose task was cancelled before it ran."""
        if not job.state.ended:
            job.state = State.CANCELLED
            self._end(job)

    async def _work(self, job: Job, service: Service, settings: "Settings") -> None:
        wanted, document = job.wanted, job.wanted.document
        job.state, job.started, job.doing = State.RUNNING, time.monotonic(), "starting"
        self._changed(job)
        texts = {str(d.path): d.text for d in self._documents if d.on_disk} | {str(document.path): document.text}
        params = {
            "work": wanted.kind.name,
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
            self._results.take(settings, event["verdict"])
            self._client.refresh()
        elif "confirmed" in event:
            self._results.confirm(settings, event["confirmed"], job.id)
            self._client.refresh()
        elif "notice" in event:
            self._results.notice(event["notice"])
        elif "progress" in event:
            job.progress, job.heard = from_json(event["progress"], SearchProgress), time.monotonic()
            job.doing = job.progress.doing
        else:
            job.doing, job.share = event["doing"], max(job.share, event.get("share", 0.0))
        if (now := time.monotonic()) - job.told > _OFTEN:
            job.told = now
            self._changed(job)

    async def _tick(self, job: Job) -> None:
        """Report while time passes, as the remaining time is shown."""
        while not job.state.ended:
            if job.progress is not None:
                passed, job.heard = time.monotonic() - job.heard, time.monotonic()
                elapsed = min(job.progress.elapsed + passed, job.progress.budget)
                job.progress = replace(job.progress, elapsed=elapsed)
            self._changed(job)
            await asyncio.sleep(_TICK)

    def _changed(self, job: Job) -> None:
        if (bar := self._bars.get(job.id)) is not None:
            bar.report()
        if self._client.wants_job_progress:
            self._client.protocol.notify(JOB_PROGRESS, as_json(job.record))
        now = time.monotonic()
        if job.state.ended or now - self._refreshed > _LENSES:
            self._refreshed = now
            self._client.refresh()

    def _end(self, job: Job) -> None:
        self._tasks.pop(job.id, None)
        self._services.pop(job.id, None)
        ended = [j.id for j in self._jobs.values() if j.state.ended]
        for old in ended[:-_KEPT]:
            del self._jobs[old]
        if (bar := self._bars.pop(job.id, None)) is not None:
            bar.end()
        if job.result is not None and "report" in job.result:
            self._checks.take(job.wanted.document, job.result)
            self._fix(job, job.result)
        elif job.result is not None and "fixes" in job.result:
            self._checks.take_fixes(job.wanted.document, job.result["fixes"])
        elif job.result is not None and "profile" in job.result:
            self._profiles.take(job.wanted.document, job.result["profile"])
        elif job.result is not None and "captures" in job.result:
            self._results.read_anew()
        self._results.withdraw(job.id)
        self._background.start(self._results.settle())
        tells = not self._client.wants_job_progress  # a client with job progress shows the end itself
        if tells and job.state is not State.CANCELLED and not job.wanted.unasked:
            failed = job.state is State.FAILED
            kind = types.MessageType.Error if failed else types.MessageType.Info
            self._client.show(f"{job.wanted.title}: {job.reason}", kind)
            for note in [note for note in job.notes if note not in self._noted]:
                self._noted.add(note)  # a note that comes with every search is shown once
                self._client.show(note, types.MessageType.Info)
        self._changed(job)
        # Only its name is needed from here on, and fifty texts of 5,000 lines take 30 MiB.
        job.wanted, job.result = replace(job.wanted, document=replace(job.wanted.document, text="")), None
        job.ended.set()

    def _fix(self, job: Job, result: dict[str, Any]) -> None:
        """Have mechanical fixes of a check's errors checked in turn, if the text is still the same."""
        document = job.wanted.document
        now = self._documents.get(document.uri)
        wanted = job.wanted.kind is CHECK and self._settings.at(document.path).editor.judge_fixes
        if wanted and now is not None and now.text == document.text and result["fixable"]:
            self.start(JobRequest(FIX, now, unasked=True))


def _has_gpu() -> bool:
    from kernel_lsp.device.nvml import find_gpus

    return bool(find_gpus())
