"""The client of a session: its capabilities, requests to the client, and messages to its user."""

from typing import Any

from lsprotocol import types
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from kernel_lsp import __version__
from kernel_lsp.lsp import initialize
from kernel_lsp.lsp.protocol import Protocol
from kernel_lsp.lsp.requests import STATUS_CHANGED


class EditorConnection(LanguageServer):
    """The connection to one client, with pygls's typed notifications and requests; it knows no feature."""

    protocol: Protocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self) -> None:
        super().__init__(
            initialize.NAME,
            __version__,
            types.TextDocumentSyncKind.Full,
            protocol_cls=Protocol,
            converter_factory=default_converter,
        )

    @property
    def pulls_diagnostics(self) -> bool:
        """True if the client asks for diagnostics, and can be told to ask again."""
        workspace, text = self.client_capabilities.workspace, self.client_capabilities.text_document
        again = workspace.diagnostics if workspace else None
        return text is not None and text.diagnostic is not None and again is not None and again.refresh_support is True

    @property
    def wants_job_progress(self) -> bool:
        """True if the client asked for typed progress, in its experimental capabilities."""
        return self._wants("jobProgress")

    @property
    def wants_status(self) -> bool:
        """True if the client asked to be told when the state of the server changes: it shows it, also what is wrong."""
        return self._wants("statusChanged")

    @property
    def asks_user(self) -> bool:
        """True if the client shows questions to its user, with answers to choose from."""
        window = self.client_capabilities.window
        return window is not None and window.show_message is not None

    @property
    def shows_documents(self) -> bool:
        """True if the client can be asked to show a file."""
        window = self.client_capabilities.window
        return window is not None and window.show_document is not None and window.show_document.support

    @property
    def shows_disabled_actions(self) -> bool:
        """True if the client shows disabled code actions with their reason."""
        capability = self._code_actions
        return capability is not None and capability.disabled_support is True

    @property
    def resolves_edits(self) -> bool:
        """True if the client fetches an action's edit when the user picks it, and keeps its data until then."""
        capability = self._code_actions
        if capability is None or not capability.data_support or capability.resolve_support is None:
            return False
        return "edit" in capability.resolve_support.properties

    @property
    def creates_files(self) -> bool:
        """True if an edit may create new files."""
        edits = self.edits
        kinds = edits.resource_operations if edits and edits.document_changes else None
        return bool(kinds) and types.ResourceOperationKind.Create in kinds

    @property
    def edits(self) -> types.WorkspaceEditClientCapabilities | None:
        """Return the client's capabilities for workspace edits."""
        workspace = self.client_capabilities.workspace
        return workspace.workspace_edit if workspace else None

    def show(self, message: str, kind: types.MessageType = types.MessageType.Warning) -> None:
        """Show the user a message."""
        self.window_show_message(types.ShowMessageParams(kind, message))

    async def choose(self, kind: types.MessageType, message: str, *answers: str) -> str | None:
        """Ask the user, and return the answer that was chosen; None if none was."""
        items = [types.MessageActionItem(answer) for answer in answers]
        given = await self.window_show_message_request_async(types.ShowMessageRequestParams(kind, message, items))
        return given.title if given is not None and given.title in answers else None

    def tell_status(self) -> None:
        """Tell a client that shows the state of the server to ask for it again."""
        if self.wants_status:
            self.protocol.notify(STATUS_CHANGED, {})

    def refresh(self) -> None:
        """Have the client request lenses, hints and diagnostics again, if it supports that."""
        capabilities = self.client_capabilities.workspace
        lens = capabilities.code_lens if capabilities else None
        hints = capabilities.inlay_hint if capabilities else None
        if self.pulls_diagnostics:
            self.workspace_diagnostic_refresh(None)
        if lens is not None and lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if hints is not None and hints.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def report_server_error(self, error: Exception, source: Any) -> None:
        """Do nothing: pygls reports here errors that were answered already or that `Background.complain` has shown."""

    def _wants(self, what: str) -> bool:
        said: Any = self.client_capabilities.experimental
        try:
            return said["kernelLsp"][what] is True
        except (KeyError, TypeError):
            return False

    @property
    def _code_actions(self) -> types.CodeActionClientCapabilities | None:
        text_document = self.client_capabilities.text_document
        return text_document.code_action if text_document else None
