"""Lenses about judging: a kernel's measured time, its jobs, and its verified variants."""

from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.catalog import PREFIX, JobKind, JobSubject, jobs_on
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.readiness import Readiness
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import Results
from kernel_lsp.report.titles import short_title
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.lsp.standing import DocumentStatus

Lens = types.Command


class JobLenses:
    """Makes them from known results; newer results are read, and the client then asks again."""

    def __init__(self, results: Results, jobs: Jobs, readiness: Readiness, edits: Edits) -> None:
        self._results, self._jobs, self._readiness, self._edits = results, jobs, readiness, edits

    def of_verdict(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return `0.40 ms, 82 % of roofline`, the last measurement of this text; picking it shows the evidence.

        There is one for each workload with which the text was measured.
        """
        standing = self._results.latest(document)
        timings = standing.timings if standing is not None else ()
        return [_lens(text, "evidence", verdict, document.uri) for text, verdict in timings]

    def of_jobs(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return the progress of the search, else an offer to start one: always a lens, so that no line jumps."""
        kinds = [kind for kind in jobs_on(JobSubject.KERNEL) if kind.lens]
        standing = self._results.latest(document)
        return [lens for kind in kinds for lens in self._job(kind, document, standing, kernel.name)]

    def of_variants(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return the best verified variant; picking it applies it."""
        standing = self._results.latest(document)
        offers = standing.offers_for(kernel.name) if standing is not None else []
        return [
            _lens(f"Apply: {short_title(one.verdict)}", "apply", document.uri, one.verdict.id) for one in offers[:1]
        ]

    def of_module_jobs(self, document: Document) -> list[Lens]:
        """Return the progress of generating a module's kernel, else offers to start that."""
        kinds = [kind for kind in jobs_on(JobSubject.MODULE) if kind.lens]
        if running := [job for kind in kinds for job in self._jobs.running(kind, document.uri)]:
            return [_lens(f"Stop: {job.text}", "cancel", job.id) for job in running]
        standing = self._results.latest(document)
        pairs = [(kind, choice) for kind in kinds for choice in kind.choices]
        return [lens for kind, choice in pairs for lens in self._job(kind, document, standing, None, choice)]

    def of_written(self, document: Document) -> list[Lens]:
        """Return the best verified kernel for a module; picking it writes a new file."""
        standing = self._results.latest(document)
        offers = self._edits.unwritten(document, standing) if standing is not None else []
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
        standing: "DocumentStatus | None",
        kernel: str | None,
        choice: tuple[str | None, str] = (None, ""),
    ) -> list[Lens]:
        label, shown = choice
        if running := self._jobs.running(kind, document.uri, kernel, label)[:1]:
            return [_lens(f"Stop: {job.text}", "cancel", job.id) for job in running]
        if standing is None or self._readiness.why_not(kind, document, standing, label) is not None:
            return []
        given = [one for one in (kernel, label) if one is not None]
        return [
            _lens(kind.lens.format(name=kernel or document.path.name, label=shown), kind.name, document.uri, *given)
        ]


def _lens(title: str, command: str, *arguments: str | None) -> Lens:
    return Lens(title, PREFIX + command, arguments=list(arguments))
