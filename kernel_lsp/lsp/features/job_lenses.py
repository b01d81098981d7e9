"""Lenses about judging: the next step with a kernel, its measured time, its jobs, and its verified variants.

The next step is trust, then a workload, then a check, then a search, then its difference.
"""

from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.catalog import CHECK, PREFIX, REFINE, JobKind, JobSubject, jobs_on
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.readiness import NO_GPU, Readiness
from kernel_lsp.lsp.job import Job
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.uris import uri_of
from kernel_lsp.report.captured_calls import basis_text, of_kernel, usage_text
from kernel_lsp.report.titles import brief_title, short_title, speedup_title
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.judge.verdict import Verdict
    from kernel_lsp.lsp.document_status import DocumentStatus

Lens = types.Command


class JobLenses:
    """Makes them from known results; newer results are read, and the client then asks again."""

    def __init__(
        self, results: StoredVerdicts, jobs: Jobs, checks: KnownChecks, readiness: Readiness, edits: Edits
    ) -> None:
        self._results, self._jobs, self._checks = results, jobs, checks
        self._readiness, self._edits = readiness, edits

    def of_verdict(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return `0.40 ms, 82 % of roofline`, the last measurement of this text; picking it shows the evidence.

        There is one for each workload with which the text was measured.
        """
        status = self._results.latest(document)
        timings = status.timings if status is not None else ()
        return [_lens(text, "evidence", verdict, document.uri) for text, verdict in timings]

    def of_jobs(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return the next step, and the progress of a search or an offer to start one.

        Steps: trust, draft a workload, finish or mend it, check; a text that was checked shows the result.
        """
        if not self._readiness.covers(document):
            return self._trust(document)
        status = self._results.latest(document)
        kinds = [kind for kind in jobs_on(JobSubject.KERNEL) if kind.lens]
        jobs = [lens for kind in kinds for lens in self._job(kind, document, status, kernel.name)]
        return [*self._workload(document, kernel, status), *jobs]

    def _trust(self, document: Document) -> list[Lens]:
        if not document.on_disk:
            return []
        folder = self._readiness.folder_to_trust(document)
        return [_lens(f"Not trusted: trust {folder.name or folder}", "trust", uri_of(folder))]

    def _workload(self, document: Document, kernel: Kernel, status: "DocumentStatus | None") -> list[Lens]:
        """Return the step that a kernel's workload is at."""
        if status is None:
            return []
        if status.draft is not None:
            return [_lens(f"Draft: finish {status.draft.name}", "draft", document.uri)]
        if status.broken is not None and status.broken != document.path:
            lens = _lens(f"Mend {status.broken.name}", "draft", document.uri)
            lens.tooltip = status.problem
            return [lens]
        if self._readiness.can_draft(document, status):
            return [_lens("Draft a workload", "draft", document.uri, kernel.name)]
        if status.workload is None:
            return []
        checked = self._checks.found(document)
        if checked is None or self._jobs.running(CHECK, document.uri):
            return self._job(CHECK, document, status, None)
        return [_lens(checked, CHECK.name, document.uri)]

    def of_variants(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return the best verified variant; picking it shows its difference from the text."""
        status = self._results.latest(document)
        offers = status.offers_for(kernel.name) if status is not None else []
        return [_difference(document, one.verdict) for one in offers[:1]]

    def of_captures(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return `38 % of train.py's host time, 4 shapes, 12,480 calls` for each captured program; picking it lists
        them.
        """
        status = self._results.latest(document)
        found = of_kernel(status.captures, kernel.name) if status is not None else {}
        lenses = [_lens(usage_text(*one), "captures", document.uri, kernel.name) for one in found.items()]
        for lens, captures in zip(lenses, found.values(), strict=True):
            lens.tooltip = basis_text(captures)
        return lenses

    def of_module_jobs(self, document: Document) -> list[Lens]:
        """Return the progress of generating a module's kernel, else offers to start that."""
        kinds = [kind for kind in jobs_on(JobSubject.MODULE) if kind.lens]
        if running := [job for kind in kinds for job in self._jobs.running(kind, document.uri)]:
            return [_stop(job) for job in running]
        status = self._results.latest(document)
        pairs = [(kind, choice) for kind in kinds for choice in kind.choices]
        return [lens for kind, choice in pairs for lens in self._job(kind, document, status, None, choice)]

    def of_written(self, document: Document) -> list[Lens]:
        """Return the best verified kernel for a module; picking it writes a new file."""
        status = self._results.latest(document)
        offers = self._edits.unwritten(document, status) if status is not None else []
        return [
            _lens(
                f"Write {one.new_path(document.path).name}: {short_title(one.verdict)}",
                *("apply", document.uri, one.verdict.id),
            )
            for one in offers[:1]
        ]

    def _job(
        self,
        kind: JobKind,
        document: Document,
        status: "DocumentStatus | None",
        kernel: str | None,
        choice: tuple[str | None, str] = (None, ""),
    ) -> list[Lens]:
        label, shown = choice
        if running := self._jobs.running(kind, document.uri, kernel, label)[:1]:
            return [_stop(job) for job in running]
        if status is None:
            return []
        why = self._readiness.why_not(kind, document, status, label)
        given = [one for one in (kernel, label) if one is not None]
        title = kind.lens.format(name=kernel or document.path.name, label=shown)
        if why == NO_GPU and kind is REFINE:
            lens = _lens(f"{title} (needs a GPU)", kind.name, document.uri, *given)
            lens.tooltip = f"Nothing can be timed here: {why}. Picking this tells what can be done."
            return [lens]
        return [] if why is not None else [_lens(title, kind.name, document.uri, *given)]


def _difference(document: Document, verdict: "Verdict") -> Lens:
    lens = _lens(f"{brief_title(verdict)}: show difference", "difference", document.uri, verdict.id)
    lens.tooltip = speedup_title(verdict)
    return lens


def _stop(job: Job) -> Lens:
    """Return `Stop (0:49)`, which leaves room for the other lenses; all that is known of the job is in its tooltip."""
    left = f" ({job.time_left})" if job.time_left else ""
    lens = _lens(f"Stop{left}", "cancel", job.id)
    lens.tooltip = f"{job.wanted.title}: {job.text}"
    return lens


def _lens(title: str, command: str, *arguments: str | None) -> Lens:
    return Lens(title, PREFIX + command, arguments=list(arguments))
