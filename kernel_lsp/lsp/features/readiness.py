"""Find out, before a job is started, why it cannot be done on a text."""

from pathlib import Path
from typing import TYPE_CHECKING

from kernel_lsp.lsp.catalog import JobKind, Need
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.refine.kernel_generation import LANGUAGES, new_path
from kernel_lsp.source.language import source_part

if TYPE_CHECKING:
    from kernel_lsp.lsp.document_status import DocumentStatus


NO_GPU = "it needs an NVIDIA GPU, and this machine has none"


class Readiness:
    """Compares a job's needs with the state of the text and the machine."""

    def __init__(self, documents: Documents, permission: Permission, board: Board, jobs: Jobs) -> None:
        self._documents, self._permission, self._board, self._jobs = documents, permission, board, jobs

    def why_not(
        self, kind: JobKind, document: Document, status: "DocumentStatus", label: str | None = None
    ) -> str | None:
        """Return the first unmet need of a job, as a sentence; None if all are met."""
        found = (self._missing(need, document, status, label or "") for need in kind.needs)
        return next((why for why in found if why is not None), None)

    def can_draft(self, document: Document, status: "DocumentStatus") -> bool:
        """Return True if a first workload can be drafted: none is there, and it would be beside a kernel on disk."""
        language = document.language
        launches = language is not None and not source_part(language).launches_itself
        there = status.workload is not None or status.problem is not None
        return bool(document.kernels) and launches and document.on_disk and not there

    def covers(self, document: Document) -> bool:
        """Return True if the text's folder is trusted."""
        return self._permission.covers(document)

    def folder_to_trust(self, document: Document) -> Path:
        """Return the folder that a question about trust names: the workspace's that the text lies in, else its own."""
        return self._permission.folder_of(document)

    def _missing(self, need: Need, document: Document, status: "DocumentStatus", label: str) -> str | None:
        match need:
            case Need.FILE:
                return None if document.on_disk else "this text is not in a file yet: save it first"
            case Need.TRUST:
                why = "this folder is not trusted: nothing in it is compiled or run"
                return None if self._permission.covers(document) else why
            case Need.SOUND_WORKLOAD:
                return status.problem
            case Need.WORKLOAD:
                return None if status.workload is not None else _wanted_workload(document)
            case Need.GPU:
                there = self._jobs.gpu is not False or status.untimed
                return None if there else NO_GPU
            case Need.MODEL:
                return status.voiceless.get(label)
            case Need.FREE_PLACE:
                place = new_path(document.path, LANGUAGES[label])
                return f"{place.name} is there already: refine that" if self._documents.has(place) else None
            case Need.SAVED:
                why = "the baseline is of the file, and this text differs from it: save it first"
                return None if status.saved else why
            case Need.NO_ERRORS:
                wrong = self._board.wrong(document.uri)
                return "it has errors: only a file without errors is recorded" if wrong else None


def _wanted_workload(document: Document) -> str:
    if document.language is not None and source_part(document.language).launches_itself:
        return f"it has no problem file, which says what is right: write {document.path.stem}_problem.py beside it"
    return "it has no workload, which says how it is called and what is right: draft one"
