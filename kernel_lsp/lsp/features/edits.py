"""Edits of a suggestion, made for the current text; an edit counts as made only once the new text arrives."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.errors import KernelLspError, SourceError
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.catalog import REFINE
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.uris import uri_of
from kernel_lsp.source.files import write_new
from kernel_lsp.source.text import apply_edits

if TYPE_CHECKING:
    from kernel_lsp.lsp.document_status import DocumentStatus
    from kernel_lsp.refine.offers import FileEdits, Offer

_SEEN = 10.0  # seconds to wait for the text that an editor says it has changed
_LOOK = 0.02
_BEYOND = "beyond-the-kernel"


class Edits:
    """Makes and applies edits."""

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        results: StoredVerdicts,
        jobs: Jobs,
    ) -> None:
        self._client, self._background, self._documents = client, background, documents
        self._results, self._jobs = results, jobs

    def unwritten(self, document: Document, status: "DocumentStatus") -> "list[Offer]":
        """Return a module's verified kernels that are not in a file yet, best first."""
        return [offer for offer in status.offers if not self._documents.has(offer.new_path(document.path))]

    async def ask_to_judge_again(self, document: Document, kernel: str | None, error: KernelLspError) -> None:
        """Show why nothing was applied, and offer to search a variant of the current text."""
        answer = await self._client.choose(types.MessageType.Warning, error.said, "Refine it again")
        if answer is not None and (now := self._documents.get(document.uri)):
            self._jobs.start(JobRequest(REFINE, now, kernel))

    async def may_apply_early(self, offer: "Offer") -> bool:
        """Ask the user whether to apply a variant whose final checks are under way, and return the answer."""
        label = offer.verdict.evidence.candidate_label
        message = (
            f"The final checks of {label} are under way: its gain is confirmed, and is taken back if the sanitizer, "
            "the emulator or a steady load finds something. It can be applied once they have passed."
        )
        return await self._client.choose(types.MessageType.Warning, message, "Apply it now") is not None

    async def edit_of(self, document: Document, offer: "Offer") -> tuple[types.WorkspaceEdit, "Sequence[FileEdits]"]:
        """Return the edit that turns the current text into a suggestion's variant, for the client and as our records.

        Raises:
            SourceError: what was judged does not stand there any more.
        """
        if offer.creates:
            placed = await asyncio.to_thread(offer.place, document.source, None)
            made = self.creation(uri_of(placed[0].file.path), placed[0].edits[0].text)
            return made or types.WorkspaceEdit(), placed
        workload = (await self._results.of(document)).workload
        texts = [self._documents.read(document.uri)]
        if workload is not None and not workload.in_kernel_file:
            path = workload.source.path
            texts.append(self._documents.at(path) or await asyncio.to_thread(self._documents.read, uri_of(path)))
        placed = await asyncio.to_thread(offer.place, texts[0].source, texts[1].source if len(texts) > 1 else None)
        return self._workspace_edit(texts, placed), placed

    async def apply(self, document: Document, offer: "Offer") -> bool:
        """Have the editor apply a suggestion; return False if it refused.

        Raises:
            SourceError: what was judged does not stand there any more.
        """
        edit, placed = await self.edit_of(document, offer)
        if offer.creates and not self._client.creates_files:
            await asyncio.to_thread(write_new, placed[0].file.path, placed[0].edits[0].text)
            self._client.show(f"The kernel was written to {placed[0].file.path}.", types.MessageType.Info)
            return True
        label = f"Apply {offer.verdict.evidence.candidate_label}"
        answer = await self._client.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))
        if not answer.applied:
            return False
        for one in placed:
            self._background.start(self._see(one))  # an editor may send the new text only when it is idle
        return True

    async def _see(self, made: "FileEdits") -> None:
        """Wait for the edited text; an editor may say that it applied an edit without having done so."""
        if (document := self._documents.at(made.file.path)) is None:
            return
        wanted = apply_edits(made.file.text, made.edits)
        try:
            async with asyncio.timeout(_SEEN):
                while (self._documents.get(document.uri) or document).text != wanted:
                    await asyncio.sleep(_LOOK)
        except TimeoutError:
            message = "The editor said that it applied the variant, but its text is another one."
            raise SourceError(message, made.file.path, fix="Undo, and apply it again.") from None

    def _workspace_edit(self, texts: Sequence[Document], placed: "Sequence[FileEdits]") -> types.WorkspaceEdit:
        """Return the client's edit; `texts` are the kernel file and other edited files, as the edits expect them."""
        capabilities = self._client.edits
        kernel_file = texts[0]
        by_path = {text.path: text for text in texts}
        edits = [
            (text := by_path[one.file.path], [types.TextEdit(text.range(edit.span), edit.text) for edit in one.edits])
            for one in placed
        ]
        if capabilities is None or not capabilities.document_changes:
            return types.WorkspaceEdit(changes={text.uri: own for text, own in edits})
        annotations = None
        if len(placed) > 1 and capabilities.change_annotation_support is not None:
            note = types.ChangeAnnotation("Change the launch in the workload too", needs_confirmation=True)
            annotations = {_BEYOND: note}
        changes: list[types.TextDocumentEdit | types.CreateFile | types.RenameFile | types.DeleteFile] = []
        for text, own in edits:
            apart = annotations is not None and text is not kernel_file
            marked = (
                [types.AnnotatedTextEdit(annotation_id=_BEYOND, range=e.range, new_text=e.new_text) for e in own]
                if apart
                else own
            )
            name = types.OptionalVersionedTextDocumentIdentifier(uri=text.uri, version=text.version)
            changes.append(types.TextDocumentEdit(text_document=name, edits=[*marked]))
        return types.WorkspaceEdit(document_changes=changes, change_annotations=annotations)

    def creation(self, path_uri: str, text: str) -> types.WorkspaceEdit | None:
        """Return an edit that creates a file; None if the client cannot."""
        if not self._client.creates_files:
            return None
        start = types.Position(0, 0)
        name = types.OptionalVersionedTextDocumentIdentifier(uri=path_uri, version=None)
        make = types.CreateFile(uri=path_uri, options=types.CreateFileOptions(overwrite=False, ignore_if_exists=False))
        fill = types.TextDocumentEdit(text_document=name, edits=[types.TextEdit(types.Range(start, start), text)])
        return types.WorkspaceEdit(document_changes=[make, fill])
