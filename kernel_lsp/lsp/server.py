"""The language server: the services of one session, and the handler of each message.

The server process parses text and communicates; it imports nothing heavy, runs no user code and blocks on nothing.
Compilers and jobs have processes of their own, see `process`.
"""

import asyncio
import contextlib
import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, NoReturn

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInternalError, JsonRpcInvalidParams

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp import protocol
from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.background import Background
from kernel_lsp.lsp.catalog import COMMANDS, Command
from kernel_lsp.lsp.checks import KnownChecks
from kernel_lsp.lsp.client import EditorConnection
from kernel_lsp.lsp.diagnostics import Board
from kernel_lsp.lsp.documents import Documents
from kernel_lsp.lsp.features import code_actions, pulled_diagnostics
from kernel_lsp.lsp.features.code_lens import CodeLenses
from kernel_lsp.lsp.features.commands import ResultCommands, TrustCommands
from kernel_lsp.lsp.features.edits import Edits
from kernel_lsp.lsp.features.files import Files
from kernel_lsp.lsp.features.hover import Hover
from kernel_lsp.lsp.features.inlay_hints import InlayHints
from kernel_lsp.lsp.features.job_lenses import JobLenses
from kernel_lsp.lsp.features.job_requests import JobRequests
from kernel_lsp.lsp.features.readiness import Readiness
from kernel_lsp.lsp.features.symbols import Symbols
from kernel_lsp.lsp.features.texts import OpenTexts
from kernel_lsp.lsp.features.views import Views
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.process import Service
from kernel_lsp.lsp.profiles import Profiles
from kernel_lsp.lsp.requests import REQUESTS, RequestKind
from kernel_lsp.lsp.results import StoredVerdicts
from kernel_lsp.lsp.rule_pages import RulePages
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.trust import Trust
from kernel_lsp.lsp.wire import as_json, from_json
from kernel_lsp.lsp.workspace import Folders, Permission

log = logging.getLogger("kernel-lsp")
logging.getLogger("pygls").setLevel(logging.CRITICAL)  # it shows a traceback for every error of a client

_PATIENCE = 3.0  # seconds that our processes get to end by themselves

Handler = Callable[..., Any]


class Server:
    """One session with one client: every service is made here, once, and passed to the features that use it.

    Attributes:
        client: the connection.
        documents: the client's open texts.

    Args:
        commanded: settings of the command line.
        compiler: the process that compiles, which ends with the session.
    """

    def __init__(self, commanded: Mapping[str, object], compiler: Service) -> None:
        client = self.client = EditorConnection()
        documents = self.documents = Documents()
        self._folders = Folders()
        self._permission = Permission(self._folders, Trust())
        background = self._background = Background(client)
        # Settings report their errors to the board, and the board's rule pages need the settings.
        self._settings = ClientSettings(
            client,
            commanded,
            report=lambda uri, layer, found: self._board.put(uri, layer, found),
            changed=lambda: self._texts.reconsider(),
        )
        self._pages = RulePages(client, self._settings)
        self._board = Board(client, documents, self._pages)
        self._results = StoredVerdicts(client, background, documents, self._settings)
        self._analysis = Analysis(
            client, background, documents, self._settings, self._permission, self._board, compiler
        )
        self._checks = KnownChecks(client, documents, self._settings, self._permission, self._board, self._analysis)
        self._profiles = Profiles()
        self._jobs = Jobs(
            client,
            background,
            documents,
            self._settings,
            self._permission,
            self._checks,
            self._results,
            self._profiles,
        )
        self._texts = OpenTexts(
            client, background, documents, self._permission, self._board, self._analysis, self._checks, self._results
        )
        self._files = Files(
            client,
            documents,
            self._folders,
            self._settings,
            self._permission,
            self._analysis,
            self._results,
            self._jobs,
            self._texts,
        )
        self._register()

    async def close(self) -> None:
        """End everything that was started."""
        self._background.cancel()
        services = (self._files, self._analysis, self._jobs, self._results)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_PATIENCE):
                await asyncio.gather(*(service.close() for service in services), return_exceptions=True)

    def _register(self) -> None:
        """Register the handler of each message with the client's connection."""
        feature = self.client.feature
        feature(types.INITIALIZE)(_answering(self._initialize))
        for method, handler in self._notifications().items():
            feature(method)(_catching(handler, self._background.complain))
        edits = Edits(self.client, self._background, self.documents, self._results, self._jobs)
        for method, (handler, options) in self._requests(edits).items():
            feature(method, options)(_answering(handler))
        views = Views(
            self.documents,
            self._folders,
            self._settings,
            self._permission,
            self._analysis,
            self._checks,
            self._results,
            edits,
        )
        jobs = JobRequests(self.client, self._background, self.documents, self._jobs)
        answers = jobs.requests | views.requests
        for request in REQUESTS:
            feature(request.method)(_answering(_reading(_record(request), answers[request.method])))
        results = ResultCommands(
            self.client,
            self._background,
            self.documents,
            self._settings,
            self._results,
            edits,
            self._analysis,
            self._pages,
        )
        trust = TrustCommands(self._folders, self._permission.trust, self._texts)
        handlers = jobs.commands | results.handlers | trust.handlers
        for command in COMMANDS:
            self.client.command(command.full_name)(_answering(_reading(_texts(command), handlers[command.name])))

    def _notifications(self) -> dict[str, Handler]:
        return {
            types.INITIALIZED: self._initialized,
            types.TEXT_DOCUMENT_DID_OPEN: self._texts.did_open,
            types.TEXT_DOCUMENT_DID_CHANGE: self._texts.did_change,
            types.TEXT_DOCUMENT_DID_SAVE: self._files.did_save,
            types.TEXT_DOCUMENT_DID_CLOSE: self._texts.did_close,
            types.WINDOW_WORK_DONE_PROGRESS_CANCEL: self._jobs.cancel_by_token,
            types.WORKSPACE_DID_CHANGE_CONFIGURATION: self._settings.changed,
            types.WORKSPACE_DID_CHANGE_WATCHED_FILES: self._files.did_change_watched,
            types.WORKSPACE_DID_CHANGE_WORKSPACE_FOLDERS: self._files.did_change_folders,
        }

    def _requests(self, edits: Edits) -> dict[str, tuple[Handler, object | None]]:
        """Return the protocol's own requests, each with the options to announce to the client."""
        readiness = Readiness(self.documents, self._permission, self._board, self._jobs)
        lenses = CodeLenses(
            self.documents,
            self._settings,
            self._permission,
            self._analysis,
            JobLenses(self._results, self._jobs, self._checks, readiness, edits),
        )
        actions = code_actions.CodeActions(
            self.client, self._background, self.documents, self._results, self._jobs, self._checks, readiness, edits
        )
        hover = Hover(
            self.client, self.documents, self._settings, self._analysis, self._results, self._board, self._profiles
        )
        hints = InlayHints(self.documents, self._settings, self._analysis, self._profiles)
        return {
            types.TEXT_DOCUMENT_HOVER: (hover.hover, None),
            types.TEXT_DOCUMENT_CODE_LENS: (lenses.lenses, types.CodeLensOptions(resolve_provider=False)),
            types.TEXT_DOCUMENT_INLAY_HINT: (hints.hints, None),
            types.TEXT_DOCUMENT_CODE_ACTION: (actions.actions, code_actions.OPTIONS),
            types.CODE_ACTION_RESOLVE: (actions.resolve, None),
            types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: (Symbols(self.client, self.documents).symbols, None),
        }

    def _initialize(self, params: types.InitializeParams) -> None:
        """Do only what the answer needs: slow work waits for `initialized`."""
        self.documents.encoding = str(self.client.protocol.workspace.position_encoding)
        self._folders.begin(params)
        self._settings.begin(params.initialization_options)
        self._permission.vouch(self._settings.vouched)
        self._permission.is_the_clients = self._settings.has_own_trust
        if self.client.pulls_diagnostics:
            pulled = pulled_diagnostics.PulledDiagnostics(self.documents, self._board, self._analysis)
            register = self.client.feature(types.TEXT_DOCUMENT_DIAGNOSTIC, pulled_diagnostics.OPTIONS)
            register(_answering(pulled.pull))

    async def _initialized(self, _: types.InitializedParams) -> None:
        self._background.start(self._jobs.look_for_gpu())
        await self._files.watch()
        await self._settings.ask()
        await self._settings.subscribe()


def _texts(command: Command) -> Callable[[list[Any]], Sequence[Any]]:
    """Return a function that turns the arguments of a command into its texts."""

    def read(given: list[Any]) -> Sequence[Any]:
        try:
            return command.texts(given)
        except ValueError as error:
            raise JsonRpcInvalidParams(str(error)) from None

    return read


def _record(request: RequestKind) -> Callable[[Any], Sequence[Any]]:
    """Return a function that turns the parameters of one of our own requests into its record."""

    def read(params: Any) -> Sequence[Any]:
        try:
            return [from_json({} if params is None else params, request.params)]
        except ValueError as error:
            raise JsonRpcInvalidParams(f"The parameters do not fit `{request.method}`: {error}") from None

    return read


def _reading(read: Callable[[Any], Sequence[Any]], handler: Handler) -> Handler:
    """Return a handler that gets the result of `read` on a message, and whose answer becomes JSON.

    It is asynchronous only if the handler is: work that can be done at once uses the texts as they are at that message.
    """
    if inspect.iscoroutinefunction(handler):

        async def handle_later(given: Any) -> Any:
            return as_json(await handler(*read(given)))

        return handle_later

    return lambda given: as_json(handler(*read(given)))


def _answering(handler: Handler) -> Handler:
    """Return the handler of a request; an exception becomes an error response."""
    return _catching(handler, _as_answer)


def _catching(handler: Handler, instead: Callable[[Exception], None]) -> Handler:
    if inspect.iscoroutinefunction(handler):

        @wraps(handler)
        async def catch_later(*given: Any) -> Any:
            try:
                return await handler(*given)
            except Exception as error:
                return instead(error)

        return catch_later

    @wraps(handler)
    def catch(*given: Any) -> Any:
        try:
            return handler(*given)
        except Exception as error:
            return instead(error)

    return catch


def _as_answer(error: Exception) -> NoReturn:
    if isinstance(error, JsonRpcException):
        raise error
    if isinstance(error, KernelLspError):
        raise protocol.failed(error) from None
    log.error("a request failed", exc_info=error)
    raise JsonRpcInternalError("An error in the server; its log says which.") from None
