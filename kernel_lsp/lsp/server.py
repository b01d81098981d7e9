"""The language server: its state, and which handler answers which message.

The server process parses text and talks; it imports nothing heavy, runs nobody's code and blocks on nothing. Compilers
and jobs live in processes of their own, see `process`.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Coroutine, Mapping
from functools import wraps
from pathlib import Path
from typing import Any, NoReturn

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError
from pygls.lsp.server import LanguageServer
from pygls.protocol import default_converter

from kernel_lsp import __version__
from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp import greeting, protocol, workspace
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.features import code_actions, code_lens, commands, diagnostics, hover, inlay_hints, requests, views
from kernel_lsp.lsp.jobs import Jobs, Wanted, Work
from kernel_lsp.lsp.results import Results
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.trust import Trust
from kernel_lsp.lsp.workspace import Folders

log = logging.getLogger("kernel-lsp")
logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it shows a traceback for whatever a client does wrong

_PATIENCE = 3.0  # seconds that processes of ours get to end by themselves

Handler = Callable[..., Any]

_REQUESTS: dict[str, tuple[Handler, object | None]] = {
    types.TEXT_DOCUMENT_HOVER: (hover.hover, None),
    types.TEXT_DOCUMENT_CODE_LENS: (code_lens.code_lenses, types.CodeLensOptions(resolve_provider=False)),
    types.TEXT_DOCUMENT_INLAY_HINT: (inlay_hints.inlay_hints, None),
    types.TEXT_DOCUMENT_CODE_ACTION: (code_actions.code_actions, code_actions.OPTIONS),
    types.CODE_ACTION_RESOLVE: (code_actions.resolve, None),
    **{method: (handler, None) for method, handler in (requests.REQUESTS | views.REQUESTS).items()},
}
_COMMANDS: dict[str, Handler] = {
    "kernel-lsp.trust": commands.trust,
    "kernel-lsp.untrust": commands.untrust,
    **requests.COMMANDS,
}


class Server(LanguageServer):
    """The state of one session with one client.

    Attributes:
        documents: the client's open texts.
        folders: the workspace's folders.
        trust: which folders may be compiled and run.
        settings: the settings in force at each file.
        diagnostics: what is known to be wrong with each text, and how the client hears of it.
        analysis: compile messages and facts of each text.
        jobs: what is being worked on, and was of late.
        results: what the store knows of each text.
        watcher: what tells of files that change; None before `initialized`.
        watches_folders: whether it is the server that watches the workspace, not the client.
        stopping: functions that end what the server started, run before it ends.
    """

    protocol: protocol.Protocol  # pyright: ignore[reportIncompatibleVariableOverride]

    def __init__(self, commanded: Mapping[str, object]) -> None:
        super().__init__(
            greeting.NAME,
            __version__,
            types.TextDocumentSyncKind.Full,
            protocol_cls=protocol.Protocol,
            converter_factory=default_converter,
        )
        self.documents = Documents()
        self.folders = Folders()
        self.trust = Trust()
        self.settings = ClientSettings(self, commanded)
        self.diagnostics = diagnostics.Board(self)
        self.analysis = Analysis(self)
        self.watcher: workspace.Watcher | None = None
        self.watches_folders = False
        self.jobs = Jobs(self)
        self.results = Results(self)
        self.stopping: list[Callable[[], Coroutine[Any, Any, None]]] = [
            self.analysis.close,
            self.jobs.close,
            self.results.close,
        ]
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, work: Coroutine[Any, Any, None]) -> "asyncio.Task[None]":
        """Work in the background; an error in it is logged and told to the user when it happens."""
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def vouch(self) -> None:
        """The workspace's folders are trusted in this session if the client said so when it began."""
        self.trust.vouched = frozenset(map(Path.resolve, self.folders.paths)) if self.settings.vouched else frozenset()

    def is_trusted(self, document: Document) -> bool:
        """Whether a text may be compiled and run; one that is on no disk is trusted where the whole workspace is."""
        if document.on_disk:
            return self.trust.covers(document.path)
        return bool(self.folders.paths) and all(map(self.trust.covers, self.folders.paths))

    @property
    def wants_job_progress(self) -> bool:
        """Whether the client asked for typed progress, in its experimental capabilities."""
        said: Any = self.client_capabilities.experimental
        try:
            return said["kernelLsp"]["jobProgress"] is True
        except (KeyError, TypeError):
            return False

    def show(self, message: str, kind: types.MessageType = types.MessageType.Warning) -> None:
        """Tell the user something."""
        self.window_show_message(types.ShowMessageParams(kind, message))

    def refresh(self) -> None:
        """Have the client ask anew for lenses, hints and diagnostics, where it can be told to."""
        capabilities = self.client_capabilities.workspace
        lens = capabilities.code_lens if capabilities else None
        hints = capabilities.inlay_hint if capabilities else None
        if self.diagnostics.pulls:
            self.workspace_diagnostic_refresh(None)
        if lens is not None and lens.refresh_support:
            self.workspace_code_lens_refresh(None)
        if hints is not None and hints.refresh_support:
            self.workspace_inlay_hint_refresh(None)

    def texts_changed_meaning(self) -> None:
        """What is known of all open texts may be different: settings, trust or a header changed."""
        for document in self.documents:
            self.diagnostics.parse(document)
            self.analysis.request(document, at_once=True)
        self.refresh()

    def report_server_error(self, error: Exception, source: Any) -> None:
        """pygls tells here what it answered already, or what `complain` said in better words."""

    def complain(self, error: Exception) -> None:
        """Tell the user of an error that is no answer to anything."""
        if isinstance(error, KernelLspError):
            self.show(str(error), types.MessageType.Error)
        elif isinstance(error, JsonRpcException):
            log.warning("the client refused a request: %s", error)
        else:
            log.error("work in the background failed", exc_info=error)
            self.show("Something went wrong in kernel-lsp; its log says what.", types.MessageType.Error)

    async def close(self) -> None:
        """End everything that was started."""
        for task in tuple(self._tasks):
            task.cancel()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(stop() for stop in self.stopping), return_exceptions=True)

    def _ended(self, task: "asyncio.Task[Any]") -> None:
        self._tasks.discard(task)
        if not task.cancelled() and isinstance(error := task.exception(), Exception):
            self.complain(error)


def make_server(commanded: Mapping[str, object]) -> Server:
    """Return a server with all its handlers; settings that are `commanded` hold whatever the client says."""
    server = Server(commanded)
    server.feature(types.INITIALIZE)(_answering(_initialize))
    for method, handler in _NOTIFICATIONS.items():
        server.feature(method)(_noticing(handler))
    for method, (handler, options) in _REQUESTS.items():
        server.feature(method, options)(_answering(handler))
    for name, handler in _COMMANDS.items():
        server.command(name)(_answering(handler))
    return server


def _initialize(ls: Server, params: types.InitializeParams) -> None:
    """Only what the answer needs: what takes time waits for `initialized`."""
    ls.documents.encoding = str(ls.protocol.workspace.position_encoding)
    ls.folders.begin(params)
    ls.settings.begin(params.initialization_options)
    ls.vouch()
    diagnostics.register(ls, params.capabilities)


async def _initialized(ls: Server, _: types.InitializedParams) -> None:
    ls.start(ls.jobs.look_for_gpu())
    await workspace.watch(ls)
    await ls.settings.ask()
    await ls.settings.subscribe()


def _did_open(ls: Server, params: types.DidOpenTextDocumentParams) -> None:
    document = ls.documents.open(params.text_document)
    ls.diagnostics.parse(document)
    ls.analysis.request(document, at_once=True)


def _did_change(ls: Server, params: types.DidChangeTextDocumentParams) -> None:
    document = ls.documents.change(params.text_document.uri, params.text_document.version, [*params.content_changes])
    if document is not None:
        ls.diagnostics.parse(document)
        ls.analysis.request(document)


async def _did_save(ls: Server, params: types.DidSaveTextDocumentParams) -> None:
    document = ls.documents.get(params.text_document.uri)
    if document is None or not document.on_disk:
        return
    workspace.changed(ls, [document.path])
    wanted = ls.settings.at(document.path).editor.check_on_save and document.kernels and ls.is_trusted(document)
    if wanted and (await ls.results.of(document)).workload is not None:
        ls.jobs.start(Wanted(Work.CHECK, document, unasked=True))


def _did_close(ls: Server, params: types.DidCloseTextDocumentParams) -> None:
    ls.documents.close(params.text_document.uri)
    ls.analysis.forget(params.text_document.uri)
    ls.diagnostics.forget(params.text_document.uri)
    ls.results.forget(params.text_document.uri)


async def _did_change_configuration(ls: Server, params: types.DidChangeConfigurationParams) -> None:
    await ls.settings.changed(params.settings)


def _cancel_progress(ls: Server, params: types.WorkDoneProgressCancelParams) -> None:
    ls.jobs.cancel_by_token(params.token)


_NOTIFICATIONS: dict[str, Handler] = {
    types.INITIALIZED: _initialized,
    types.TEXT_DOCUMENT_DID_OPEN: _did_open,
    types.TEXT_DOCUMENT_DID_CHANGE: _did_change,
    types.TEXT_DOCUMENT_DID_SAVE: _did_save,
    types.TEXT_DOCUMENT_DID_CLOSE: _did_close,
    types.WINDOW_WORK_DONE_PROGRESS_CANCEL: _cancel_progress,
    types.WORKSPACE_DID_CHANGE_CONFIGURATION: _did_change_configuration,
    types.WORKSPACE_DID_CHANGE_WATCHED_FILES: workspace.did_change_watched_files,
    types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: workspace.did_change_folders,
}


def _answering(handler: Handler) -> Handler:
    """The handler of a request; what it raises becomes an answer."""
    return _catching(handler, _as_answer)


def _noticing(handler: Handler) -> Handler:
    """The handler of a notification, which nobody waits for; what it raises is told to the user."""
    return _catching(handler, Server.complain)


def _catching(handler: Handler, instead: Callable[[Server, Exception], None]) -> Handler:
    if inspect.iscoroutinefunction(handler):

        @wraps(handler)
        async def catch_later(ls: Server, *given: Any) -> Any:
            try:
                return await handler(ls, *given)
            except Exception as error:
                return instead(ls, error)

        return catch_later

    @wraps(handler)
    def catch(ls: Server, *given: Any) -> Any:
        try:
            return handler(ls, *given)
        except Exception as error:
            return instead(ls, error)

    return catch


def _as_answer(_: Server, error: Exception) -> NoReturn:
    if isinstance(error, JsonRpcException):
        raise error
    if isinstance(error, KernelLspError):
        raise protocol.failed(error) from None
    log.error("a request failed", exc_info=error)
    raise JsonRpcInternalError("An error in the server; its log says which.") from None
