"""Jobs, started by commands and by requests of clients that know this server."""

from collections.abc import Callable
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcInvalidParams

from kernel_lsp.errors import SourceError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.catalog import CHECK, JOBS, REFINE, JobKind, JobSubject
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Documents
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.jobs import Jobs, NoGpuError
from kernel_lsp.lsp.requests import Nothing, OneJob, StartJob
from kernel_lsp.lsp.wire import JobCancelled, JobList, StartedJob, extended

_CHECK, _WHAT_TO_DO = "Check without One", "What to Do"


class JobRequests:
    """Starts, lists and ends jobs."""

    def __init__(self, client: EditorConnection, background: Background, documents: Documents, jobs: Jobs) -> None:
        self._client, self._background = client, background
        self._documents, self._jobs = documents, jobs

    @property
    def commands(self) -> dict[str, Callable[..., Any]]:
        """Return the handlers by the names of their commands."""
        starting = {kind.name: self._starting(kind) for kind in JOBS.values()}
        return {**starting, "cancel": self.cancel_all, "ask": self.ask}

    @property
    def requests(self) -> dict[str, Callable[[Any], Any]]:
        """Return the handlers by their methods."""
        return {
            "kernelLsp/startJob": self.start,
            "kernelLsp/cancelJob": self.cancel,
            "kernelLsp/jobs": self.list,
        }

    async def ask(self, uri: str, sentence: str, kernel: str | None) -> StartedJob:
        """Have a sentence go into the next prompt of the search on a kernel; begin a search if none runs."""
        running = self._jobs.running(REFINE, uri, kernel)
        if not sentence.strip():
            raise JsonRpcInvalidParams("A sentence is needed, such as: keep the accumulation in fp32.")
        if not running:
            return self._start(REFINE, uri, kernel, sentence.strip())
        await self._jobs.wish(running[0], sentence.strip())
        return extended(StartedJob, running[0].record, joined=True)

    async def _offer_to_check(self, uri: str, error: NoGpuError) -> None:
        """Say why nothing can be timed here, which is no mistake of the user's, and what can be done instead."""
        answer = await self._client.choose(types.MessageType.Info, error.message, _CHECK, _WHAT_TO_DO)
        if answer == _CHECK:
            self._jobs.start(JobRequest(CHECK, self._documents.read(uri)))
        if answer == _WHAT_TO_DO:
            self._client.show(f"{error.fix}", types.MessageType.Info)

    def cancel_all(self, job: str | None) -> bool:
        """End a job, or all jobs; return True if any was under way."""
        ended = [self._jobs.cancel(one.id) for one in self._jobs if job is None or one.id == job]
        return any(ended)

    def start(self, given: StartJob) -> StartedJob:
        """Start a job, or join a running one that does the same."""
        kind = JOBS.get(given.work)
        if kind is None:
            raise JsonRpcInvalidParams(f"`work` is one of {', '.join(JOBS)}.")
        return self._start(kind, given.text_document.uri, given.kernel, given.label)

    def cancel(self, given: OneJob) -> JobCancelled:
        """End a job."""
        return JobCancelled(self._jobs.cancel(given.id))

    def list(self, _: Nothing) -> JobList:
        """Return the jobs under way, and the last of the ended ones."""
        return JobList(tuple(job.record for job in self._jobs))

    def _starting(self, kind: JobKind) -> Callable[..., StartedJob]:
        """Return the handler of the command that starts jobs of this kind."""
        names = [name.rstrip("?") for name in kind.command.arguments]

        def start(*texts: str | None) -> StartedJob:
            given = dict(zip(names, texts, strict=True))
            return self._start(kind, str(given["uri"]), given.get("kernel"), given.get("label"))

        return start

    def _start(self, kind: JobKind, uri: str, kernel: str | None, label: str | None) -> StartedJob:
        document = self._documents.read(uri)
        if kernel is not None and all(k.name != kernel for k in document.kernels):
            raise SourceError(f"There is no kernel {kernel}.", document.path)
        if kind.choices and label not in dict(kind.choices):
            raise JsonRpcInvalidParams(f"A kernel is written in one of {', '.join(dict(kind.choices))}.")
        if kind.subject is JobSubject.MODULE and document.module is None:
            fix = "It needs `Model`, `get_inputs` and `get_init_inputs`; a file with a `ModelNew` is refined."
            raise SourceError("This is not a plain PyTorch module.", document.path, fix=fix)
        try:
            job, joined = self._jobs.start(JobRequest(kind, document, kernel, label))
        except NoGpuError as error:
            self._background.start(self._offer_to_check(uri, error))
            raise protocol.failed(error, told=True) from None
        return extended(StartedJob, job.record, joined=joined)
