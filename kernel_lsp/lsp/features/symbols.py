"""The kernels of a text as its symbols, for outlines and breadcrumbs."""

from lsprotocol import types

from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.documents import Documents

_KIND = types.SymbolKind.Function
_DETAIL = "kernel"


class Symbols:
    """Answers from the parser alone."""

    def __init__(self, client: EditorConnection, documents: Documents) -> None:
        self._client, self._documents = client, documents

    def symbols(self, params: types.DocumentSymbolParams) -> list[types.DocumentSymbol] | list[types.SymbolInformation]:
        """Return a text's kernels in order, in the form that the client takes."""
        document = self._documents.read(params.text_document.uri)
        text = self._client.client_capabilities.text_document
        offered = text.document_symbol if text else None
        places = [(k.name, document.range(k.span), document.range(k.name_span)) for k in document.kernels]
        if offered is not None and offered.hierarchical_document_symbol_support:
            return [types.DocumentSymbol(name, _KIND, whole, own, detail=_DETAIL) for name, whole, own in places]
        return [
            types.SymbolInformation(types.Location(document.uri, whole), name, _KIND, container_name=_DETAIL)
            for name, whole, _ in places
        ]
