"""Edits: made from an offer against the text as it is at that moment, and never taken to be made before it is seen."""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.errors import SourceError
from kernel_lsp.lsp.documents import Document, uri_of
from kernel_lsp.source.files import write_new
from kernel_lsp.source.text import apply_edits

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server
    from kernel_lsp.refine.offers import FileEdits, Offer

_SEEN = 10.0  # seconds in which the text that an editor says it has changed must arrive
_LOOK = 0.02
_BEYOND = "beyond-the-kernel"


async def edit_of(
    ls: "Server", document: Document, offer: "Offer"
) -> tuple[types.WorkspaceEdit, "Sequence[FileEdits]"]:
    """The edit that makes an offer's variant out of the text as it is now, and the same in the house's records.

    Raises:
        SourceError: what was judged does not stand there any more.
    """
    if offer.creates:
        placed = await asyncio.to_thread(offer.place, document.source, None)
        made = creation(ls, uri_of(placed[0].file.path), placed[0].edits[0].text)
        return made or types.WorkspaceEdit(), placed
    workload = (await ls.results.of(document)).workload
    texts = [ls.documents.read(document.uri)]
    if workload is not None and not workload.in_kernel_file:
        path = workload.source.path
        texts.append(ls.documents.at(path) or await asyncio.to_thread(ls.documents.read, uri_of(path)))
    placed = await asyncio.to_thread(offer.place, texts[0].source, texts[1].source if len(texts) > 1 else None)
    return _workspace_edit(ls, texts, placed), placed


async def apply(ls: "Server", document: Document, offer: "Offer") -> bool:
    """Have the editor make an offer's edit; False where it did not want to. That it did is seen later, not believed.

    Raises:
        SourceError: what was judged does not stand there any more.
    """
    edit, placed = await edit_of(ls, document, offer)
    if offer.creates and not creates(ls):
        await asyncio.to_thread(write_new, placed[0].file.path, placed[0].edits[0].text)
        ls.show(f"The kernel was written to {placed[0].file.path}.", types.MessageType.Info)
        return True
    label = f"Apply {offer.verdict.evidence.candidate_label}"
    answer = await ls.workspace_apply_edit_async(types.ApplyWorkspaceEditParams(edit, label))
    if not answer.applied:
        return False
    for one in placed:
        ls.start(_see(ls, one))  # some editors send the new text only when they are idle, which they are not now
    return True


async def _see(ls: "Server", made: "FileEdits") -> None:
    """Wait for the text that the edits make; an editor that says it has applied them may not have."""
    if (document := ls.documents.at(made.file.path)) is None:
        return
    wanted = apply_edits(made.file.text, made.edits)
    try:
        async with asyncio.timeout(_SEEN):
            while (ls.documents.get(document.uri) or document).text != wanted:
                await asyncio.sleep(_LOOK)
    except TimeoutError:
        message = "The editor said that it applied the variant, but its text is another one."
        raise SourceError(message, made.file.path, cure="Undo, and apply it again.") from None


def _workspace_edit(ls: "Server", texts: Sequence[Document], placed: "Sequence[FileEdits]") -> types.WorkspaceEdit:
    """`texts` are the kernel file and what else is edited, as they were when the edits were made."""
    capabilities = ls.client_capabilities.workspace.workspace_edit if ls.client_capabilities.workspace else None
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


def creates(ls: "Server") -> bool:
    """Whether the client makes new files."""
    capabilities = ls.client_capabilities.workspace.workspace_edit if ls.client_capabilities.workspace else None
    kinds = capabilities.resource_operations if capabilities and capabilities.document_changes else None
    return bool(kinds) and types.ResourceOperationKind.Create in kinds


def creation(ls: "Server", path_uri: str, text: str) -> types.WorkspaceEdit | None:
    """An edit that makes a new file; None where the client cannot."""
    if not creates(ls):
        return None
    start = types.Position(0, 0)
    name = types.OptionalVersionedTextDocumentIdentifier(uri=path_uri, version=None)
    make = types.CreateFile(uri=path_uri, options=types.CreateFileOptions(overwrite=False, ignore_if_exists=False))
    fill = types.TextDocumentEdit(text_document=name, edits=[types.TextEdit(types.Range(start, start), text)])
    return types.WorkspaceEdit(document_changes=[make, fill])
