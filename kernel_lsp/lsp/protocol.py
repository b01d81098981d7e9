"""JSON-RPC by the specification, where pygls is lenient: every request gets an answer, even a malformed one.

pygls answers neither messages that it cannot parse nor those before `initialize` or after `shutdown`, keeps its own
mirror of texts with other line breaks than the protocol's, and ends the process from within a callback on `exit`.
"""

import asyncio
import json
import logging
from collections.abc import Generator
from typing import Any, cast

from lsprotocol import types
from pygls.exceptions import JsonRpcException, JsonRpcInvalidParams
from pygls.protocol import (
    JsonRPCNotification,
    JsonRPCRequestMessage,
    LanguageServerProtocol,
    lsp_method,
)

from kernel_lsp.errors import KernelLspError
from kernel_lsp.lsp.framing import LARGEST_MESSAGE, read_message

log = logging.getLogger("kernel-lsp")

_ERRORS = types.ErrorCodes
_INITIALIZE = {
    "jsonrpc": "2.0",
    "method": types.INITIALIZE,
    "params": {"processId": None, "rootUri": None, "capabilities": {}},
}


class RequestFailed(JsonRpcException):
    """A valid request that failed; the message is for the user."""

    CODE = types.LSPErrorCodes.RequestFailed
    MESSAGE = "The request failed"


def failed(error: KernelLspError, *, told: bool = False) -> RequestFailed:
    """Return one of our errors as an answer; `told` tells the client that the user has already seen it."""
    return RequestFailed(error.with_place, data={"told": True} if told else None)


class Protocol(LanguageServerProtocol):
    """pygls's protocol with the life cycle enforced and the text of documents left to `documents`."""

    initialized = False
    exited = False
    _answered: str | int | None = None

    # We keep the documents, so pygls's own handling of them is removed; `server` registers handlers.
    lsp_text_document__did_open = None  # pyright: ignore[reportAssignmentType]
    lsp_text_document__did_change = None  # pyright: ignore[reportAssignmentType]
    lsp_text_document__did_close = None  # pyright: ignore[reportAssignmentType]
    lsp_notebook_document__did_open = None  # pyright: ignore[reportAssignmentType]
    lsp_notebook_document__did_change = None  # pyright: ignore[reportAssignmentType]
    lsp_notebook_document__did_close = None  # pyright: ignore[reportAssignmentType]
    lsp_workspace__did_change_workspace_folders = None  # pyright: ignore[reportAssignmentType]
    lsp_work_done_progress_cancel = None  # pyright: ignore[reportAssignmentType]

    @lsp_method(types.EXIT)
    def lsp_exit(self, *_: object) -> None:  # pyright: ignore[reportIncompatibleMethodOverride]
        """Mark the end; the loop in `run` stops."""
        self.exited = True

    @lsp_method(types.WORKSPACE_EXECUTE_COMMAND)
    def lsp_workspace__execute_command(self, params: types.ExecuteCommandParams) -> Generator[Any, Any, Any]:
        """Call a command's handler with the list of its arguments."""
        handler = self.fm.commands.get(params.command)
        if handler is None:
            raise JsonRpcInvalidParams(f"There is no command `{params.command}`.")
        return (yield handler, (list(params.arguments or ()),), None)

    @property
    def was_shut_down(self) -> bool:
        """Return True if the client has sent `shutdown`."""
        return self._shutdown

    async def run(
        self, reader: asyncio.StreamReader, first: bytes | int | None, answered: str | int | None = None
    ) -> None:
        """Handle messages until the client sends `exit` or is gone.

        Args:
            reader: the client's messages.
            first: the first of them.
            answered: its id, where it is an `initialize` and was answered already.
        """
        message, self._answered = first, answered
        while message is not None:
            if isinstance(message, int):
                self._refuse_size(message)
            else:
                self.receive(message)
            if self._answered is not None and not self.initialized:  # its parameters are not sound: go without them
                self.receive(json.dumps(_INITIALIZE | {"id": answered}).encode())
            if self.exited:
                return
            message = await read_message(reader)

    def receive(self, body: bytes) -> None:
        """Handle one message, or answer why not. Never raises, whatever the client sends."""
        try:
            message = json.loads(body)
        except (ValueError, RecursionError):
            self._refuse(None, _ERRORS.ParseError, "The message is not JSON.")
            return
        if not isinstance(message, dict) or cast("dict[str, Any]", message).get("jsonrpc") != self.VERSION:
            self._refuse(_id_of(message), _ERRORS.InvalidRequest, "The message is not JSON-RPC 2.0.")
            return
        try:
            self._receive(cast("dict[str, Any]", message))
        except Exception:
            log.exception("a message could not be handled")
            if "method" in message and "id" in message:
                self._refuse(_id_of(message), _ERRORS.InternalError, "An error in the server; see its log.")

    def _refuse_size(self, size: int) -> None:
        """Reject a message that was not read because of its size."""
        limit = f"{LARGEST_MESSAGE >> 20} MiB"
        self._refuse(None, _ERRORS.InvalidRequest, f"The message has {size} bytes; at most {limit} are read.")

    def _receive(self, message: dict[str, Any]) -> None:
        method, is_request = message.get("method"), "id" in message
        if method is None and is_request:
            self._take_answer(message)
            return
        request = _id_of(message)
        if not isinstance(method, str) or (is_request and request is None):
            self._refuse(request, _ERRORS.InvalidRequest, "A request has a method and an id that is text or a number.")
            return
        if (why := self._out_of_order(method)) is not None:
            if is_request:
                self._refuse(request, *why)
            return
        known = method in self.fm.builtin_features or method in self.fm.features or method == types.CANCEL_REQUEST
        if not known:
            if is_request:
                self._refuse(request, _ERRORS.MethodNotFound, f"There is no method `{method}`.")
            return
        try:
            structured = self._structured(method, message, is_request)
        except JsonRpcException:
            if is_request:
                self._refuse(request, _ERRORS.InvalidParams, f"The parameters do not fit `{method}`.")
            return
        if is_request is not _is_request(structured):  # a request sent as a notification, or vice versa
            if is_request:
                self._refuse(request, _ERRORS.InvalidRequest, f"`{method}` is a notification.")
            return
        self.initialized |= method == types.INITIALIZE
        self.handle_message(structured)

    def _out_of_order(self, method: str) -> tuple[_ERRORS, str] | None:
        """Return why a message cannot be handled now, None if it can; `exit` always can."""
        if method == types.EXIT:
            return None
        if self._shutdown:
            return _ERRORS.InvalidRequest, "The server was shut down."
        if method == types.INITIALIZE:
            return (_ERRORS.InvalidRequest, "The server is initialized already.") if self.initialized else None
        return None if self.initialized else (_ERRORS.ServerNotInitialized, "The server is not initialized.")

    def _structured(self, method: str, message: dict[str, Any], is_request: bool) -> Any:
        """Return the message with typed parameters; those of unknown methods stay plain JSON."""
        if self.get_message_type(method) is not None:
            return self.structure_message(message)
        if is_request:
            return JsonRPCRequestMessage(message["id"], method, self.VERSION, message.get("params"))
        return JsonRPCNotification(method, self.VERSION, message.get("params"))

    def _take_answer(self, message: dict[str, Any]) -> None:
        """Handle the client's answer to one of our requests; its waiter gets an error if it cannot be read."""
        request = _id_of(message)
        waiting = self._request_futures.get(cast(str, request)) if request is not None else None
        if waiting is None or request not in self._result_types:
            return
        try:
            self.handle_message(cast(Any, self.structure_message(message)))
        except JsonRpcException as error:
            self._request_futures.pop(cast(str, request), None)
            self._result_types.pop(cast(str, request), None)
            if not waiting.done():
                waiting.set_exception(error)

    def _send_response(self, msg_id: Any, result: Any = None, error: types.ResponseError | None = None) -> None:
        if msg_id == self._answered:
            self._answered = None
        else:
            super()._send_response(msg_id, result, error)

    def _refuse(self, request: str | int | None, code: _ERRORS, why: str) -> None:
        if request is None or request != self._answered:
            self._send_data({"jsonrpc": self.VERSION, "id": request, "error": {"code": code.value, "message": why}})


def _id_of(message: object) -> str | int | None:
    request = cast("dict[str, Any]", message).get("id") if isinstance(message, dict) else None
    return request if isinstance(request, str | int) and not isinstance(request, bool) else None


def _is_request(message: object) -> bool:
    return hasattr(message, "id")
