"""What runs between the parent and a worker: one JSON object after its length, over a private socket.

The socket is a pair made for one worker and passed by descriptor; a worker's stdout and stderr are only ever a log.
Bytes travel as base64 inside the object. The first object holds the parameters of the worker's role, the worker's first
one says what it is confined by; a request is `{"id", "method", "params"}`; its answer `{"id", "result"}` or
`{"id", "error": {...}}`, where the id is a fresh random nonce that the answer must repeat.
"""

import base64
import json
import socket
import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kernel_lsp.errors import KernelLspError

HEADER = struct.Struct("<I")
MAX_MESSAGE = 256 << 20


def encode(message: Mapping[str, Any]) -> bytes:
    """One frame."""
    body = json.dumps(message, separators=(",", ":"), default=_bytes).encode()
    return HEADER.pack(len(body)) + body


def decode(body: bytes) -> dict[str, Any]:
    """The object in a frame's body; raises ValueError when it is not one."""
    try:
        message = json.loads(body, object_hook=_unbytes)
    except (TypeError, RecursionError) as error:  # a worker may have been made to send anything
        raise ValueError(f"a frame cannot be read: {error}") from error
    if not isinstance(message, dict):
        raise ValueError("a frame must hold an object")
    return message


def serve(
    connection: socket.socket, role: Callable[..., Mapping[str, Callable[..., Any]]], protections: Sequence[str]
) -> None:
    """Set the role up, then answer requests one by one until the parent closes the socket. Runs in the worker.

    The first thing it says, before any of the user's code has run, is which `protections` are in force.
    """
    parameters = _receive(connection)
    if parameters is None:
        return
    connection.sendall(encode({"protections": list(protections)}))
    methods = role(**parameters)
    while (request := _receive(connection)) is not None:
        try:
            answer = encode({"id": request["id"], "result": methods[request["method"]](**request["params"])})
        except Exception as error:
            answer = encode({"id": request["id"], "error": describe_error(error)})
        connection.sendall(answer)


def describe_error(error: Exception) -> dict[str, Any]:
    """An exception as data: kind, message, and for our own errors the place and the cure."""
    described: dict[str, Any] = {
        "kind": type(error).__name__,
        "message": _utf8(str(error).strip()) or type(error).__name__,
        "trace": _utf8(traceback.format_exc()),
        "own": isinstance(error, KernelLspError),  # anyone may call an error of theirs by the same name
    }
    if isinstance(error, KernelLspError):
        described |= {
            "message": _utf8(error.message),
            "path": str(error.path) if error.path else None,
            "line": error.line,
            "cure": error.cure,
        }
    return described


def raise_error(described: Mapping[str, Any], known: Mapping[str, type[KernelLspError]]) -> None:
    """Raise the error that a worker described: as itself if it is one of `known`, else as a `WorkerFailure`."""
    kind = known.get(described["kind"]) if described.get("own") else None
    if kind is None:
        raise WorkerFailure(described["kind"], described["message"], described.get("trace", ""))
    path = described.get("path")
    raise kind(described["message"], Path(path) if path else None, described.get("line"), described.get("cure"))


class WorkerFailure(Exception):  # noqa: N818 - it is the candidate that failed, often rightly
    """Code under judgement, or a library below it, raised in a worker. The worker itself lives."""

    def __init__(self, kind: str, message: str, trace: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.trace = kind, message, trace


def _receive(connection: socket.socket) -> dict[str, Any] | None:
    header = _exactly(connection, HEADER.size)
    if header is None:
        return None
    body = _exactly(connection, HEADER.unpack(header)[0])
    return None if body is None else decode(body)


def _exactly(connection: socket.socket, count: int) -> bytes | None:
    chunks: list[bytes] = []
    while count:
        chunk = connection.recv(min(count, 1 << 20))
        if not chunk:
            return None
        chunks.append(chunk)
        count -= len(chunk)
    return b"".join(chunks)


def _utf8(text: str) -> str:
    """Words of the user's code as they can be printed and kept: lone surrogates are escaped."""
    return text.encode(errors="backslashreplace").decode()


def _bytes(value: object) -> dict[str, str]:
    if isinstance(value, (bytes, bytearray, memoryview)):
        return {"$bytes": base64.b64encode(value).decode()}
    raise TypeError(f"{type(value).__name__} cannot travel to or from a worker")


def _unbytes(value: dict[str, Any]) -> Any:
    return base64.b64decode(value["$bytes"], validate=True) if value.keys() == {"$bytes"} else value
