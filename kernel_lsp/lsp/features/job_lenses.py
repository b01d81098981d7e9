"""Lenses that speak of judging: what a kernel measured, the jobs on it, the variants that were verified."""

from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.catalog import PREFIX, JobKind, Subject, jobs_on
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.readiness import Readiness
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import Results
from kernel_lsp.report.titles import short_title
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.lsp.standing import Standing

Lens = types.Command


class JobLenses:
    """Makes them from what is known already; what is newer is read, and the client then asks again."""

    def __init__(self, results: Results, jobs: Jobs, readiness: Readiness, edits: Edits) -> None:
        self._results, self._jobs, self._readiness, self._edits = results, jobs, readiness, edits

    def of_verdict(self, document: Document, kernel: Kernel) -> list[Lens]:
        """`0.40 ms, 82 % of roofline`, of this text as it was last measured; picking it shows the evidence.

        There is one for each workload that it was measured with.
        """
        standing = self._results.latest(document)
        timings = standing.timings if standing is not None else ()
        return [_lens(text, "evidence", verdict, document.uri) for text, verdict in timings]

    def of_jobs(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Where the search stands, else an offer to begin one: there is always one, so that no line jumps."""
        kinds = [kind for kind in jobs_on(Subject.KERNEL) if kind.lens]
        standing = self._results.latest(document)
        return [lens for kind in kinds for lens in self._job(kind, document, standing, kernel.name)]

    def of_variants(self, document: Document, kernel: Kernel) -> list[Lens]:
        """The best verified variant; picking it applies it."""
        standing = self._results.latest(document)
        offers = standing.offers_for(kernel.name) if standing is not None else []
        return [
            _lens(f"Apply: {short_title(one.verdict)}", "apply", document.uri, one.verdict.id) for one in offers[:1]
        ]

    def of_module_jobs(self, document: Document) -> list[Lens]:
        """Where the writing of a kernel for a module stands, else offers to begin it."""
        kinds = [kind for kind in jobs_on(Subject.MODULE) if kind.lens]
        if running := [job for kind in kinds for job in self._jobs.running(kind, document.uri)]:
            return [_lens(f"Stop: {job.text}", "cancel", job.id) for job in running]
        standing = self._results.latest(document)
        pairs = [(kind, choice) for kind in kinds for choice in kind.choices]
        return [lens for kind, choice in pairs for lens in self._job(kind, document, standing, None, choice)]

    def of_written(self, document: Document) -> list[Lens]:
        """The best verified kernel for a module; picking it writes it into a new file."""
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
        standing: "Standing | None",
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
