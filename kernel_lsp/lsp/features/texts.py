"""React to texts that open, change or close, and to changes that affect all of them."""

import asyncio
from pathlib import Path

from lsprotocol import types

from kernel_lsp.errors import SourceError
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.source.files import read_source

_THIS_SESSION, _ALWAYS = "Trust", "Always"


class OpenTexts:
    """Follows what the client opens, changes and closes, and has those texts parsed and compiled."""

    def __init__(
        self,
        client: EditorConnection,
        background: Background,
        documents: Documents,
        permission: Permission,
        board: Board,
        analysis: Analysis,
        checks: KnownChecks,
        results: StoredVerdicts,
    ) -> None:
        self._background, self._checks = background, checks
        self._client, self._documents, self._permission, self._board = client, documents, permission, board
        self._told: set[Path] = set()
        self._analysis, self._results = analysis, results

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Parse and compile an opened text."""
        document = self._documents.open(params.text_document)
        self._permission.opened(document)
        self._look_at_trust(document)
        self._board.parse(document)
        self._analysis.request(document, at_once=True)
        if document.kernels and document.on_disk:
            self._background.start(self._note_saved(document))
            self._background.start(self._checks.opened(document))

    async def _note_saved(self, document: Document) -> None:
        """Note an opened text as the saved one, unless an editor has brought unsaved changes back with it."""
        try:
            on_disk = await asyncio.to_thread(read_source, document.path)
        except SourceError:
            return
        if on_disk.text == document.text:
            self._analysis.saved(document)

    def _look_at_trust(self, document: Document) -> None:
        """Say once for each folder that nothing is compiled there, and ask for trust if the client has none itself."""
        folder = self._permission.folder_of(document)
        if self._permission.is_the_clients or folder in self._told or not (document.kernels and document.on_disk):
            return
        if self._permission.covers(document):
            return
        self._told.add(folder)
        message = "Nothing is compiled or run in a folder that is not trusted."
        if self._client.asks_user:
            self._background.start(self._ask_for_trust(folder, f"Kernel LSP: {message} Trust {folder}?"))
        else:
            self._client.show(f"{message} A code action at a kernel trusts it. ({folder})", types.MessageType.Info)

    async def _ask_for_trust(self, folder: Path, message: str) -> None:
        answer = await self._client.choose(types.MessageType.Info, message, _THIS_SESSION, _ALWAYS, "Not Now")
        if answer == _THIS_SESSION:
            self._permission.trust.grant(folder)
        elif answer == _ALWAYS:
            self._permission.trust.add(folder)
        else:
            return
        self.reconsider()

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Parse and compile an edited text."""
        changed = params.text_document
        document = self._documents.change(changed.uri, changed.version, [*params.content_changes])
        if document is not None:
            self._board.parse(document)
            self._analysis.request(document)
            self._background.start(self._checks.changed(document))

    def did_close(self, params: types.DidCloseTextDocumentParams) -> None:
        """Forget a closed text."""
        uri = params.text_document.uri
        self._documents.close(uri)
        self._analysis.forget(uri)
        self._board.forget(uri)
        self._results.forget(uri)

    def reconsider(self) -> None:
        """Parse and compile all open texts again, after settings, trust or a header changed."""
        for document in self._documents:
            self._board.parse(document)
            self._analysis.request(document, at_once=True)
        self._client.refresh()
        self._client.tell_status()
