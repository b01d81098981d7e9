"""Diagnostics for clients that ask for them."""

import hashlib
from typing import Any

from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.diagnostics import SOURCE, Board
from kernel_lsp.lsp.documents import Documents

OPTIONS = types.DiagnosticOptions(inter_file_dependencies=True, workspace_diagnostics=False, identifier=SOURCE)


class Superseded(JsonRpcException):
    """The text changed while its diagnostics were being made; the client asks again by itself."""

    CODE = types.LSPErrorCodes.ServerCancelled
    MESSAGE = "The text changed meanwhile"

    def __init__(self) -> None:
        super().__init__(data={"retriggerRequest": False})


class PulledDiagnostics:
    """Answers with diagnostics of the parser and the compilers; all others are pushed."""

    def __init__(self, documents: Documents, board: Board, analysis: Analysis) -> None:
        self._documents, self._board, self._analysis = documents, board, analysis

    async def pull(self, params: types.DocumentDiagnosticParams) -> Any:
        """Return the parser's findings at once if there are any, else the compilers' for the text as it stands."""
        uri = params.text_document.uri
        document = self._documents.get(uri)
        if document is not None and not self._board.of(uri, pulled=True):
            await self._analysis.settled(document)
            if self._documents.get(uri) is not document:
                raise Superseded
        found = self._board.of(uri, pulled=True)
        name = hashlib.sha256(repr(found).encode()).hexdigest()[:16]
        if name == params.previous_result_id:
            return types.RelatedUnchangedDocumentDiagnosticReport(name)
        return types.RelatedFullDocumentDiagnosticReport(found, result_id=name)
