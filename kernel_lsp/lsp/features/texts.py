"""React to texts that open, change or close, and to changes that affect all of them."""

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Documents
from kernel_lsp.lsp.results import Results


class OpenTexts:
    """Has open texts parsed and compiled."""

    def __init__(
        self, client: EditorConnection, documents: Documents, board: Board, analysis: Analysis, results: Results
    ) -> None:
        self._client, self._documents, self._board = client, documents, board
        self._analysis, self._results = analysis, results

    def did_open(self, params: types.DidOpenTextDocumentParams) -> None:
        """Parse and compile an opened text."""
        document = self._documents.open(params.text_document)
        self._board.parse(document)
        self._analysis.request(document, at_once=True)

    def did_change(self, params: types.DidChangeTextDocumentParams) -> None:
        """Parse and compile an edited text."""
        changed = params.text_document
        document = self._documents.change(changed.uri, changed.version, [*params.content_changes])
        if document is not None:
            self._board.parse(document)
            self._analysis.request(document)

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
