"""The frames between the parent and a worker: msgpack after its length, over a private socket.

The socket is a pair made for one worker and passed by descriptor; a worker's stdout and stderr are only ever a log. The
first frame holds the parameters of the worker's role; the worker's first frame lists its protections. Then a
`CallFrame` goes one way and a `Reply` the other, which must repeat the call's fresh random nonce. A reply also brings
the spans of time that the worker has noted since its last one (`spans`).
"""

import socket
import struct
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from kernel_lsp.errors import KernelLspError
from kernel_lsp.runner import messages
from kernel_lsp.runner.spans import WORKER, WorkSpan

HEADER = struct.Struct("<I")
MAX_MESSAGE = 256 << 20
_TORCH_LACKS_MEMORY = "OutOfMemoryError"  # the kind of the error
_LASTING = (  # errors that end a process's use of the GPU, as the runtime and the driver word them
    "device-side assert triggered",
    "an illegal memory access was encountered",
    "an illegal instruction was encountered",
    "misaligned address",
    "unspecified launch failure",
    "CUDA_ERROR_ASSERT",
    "CUDA_ERROR_ILLEGAL_ADDRESS",
    "CUDA_ERROR_ILLEGAL_INSTRUCTION",
    "CUDA_ERROR_LAUNCH_FAILED",
    "CUDA_ERROR_MISALIGNED_ADDRESS",
)
_DRIVER_LACKS_MEMORY = "CUDA_ERROR_OUT_OF_MEMORY"  # stands in its message


class CallFrame(msgspec.Struct, frozen=True):
    """One request: the nonce, the name of the request's class, and its fields as msgpack."""

    nonce: str
    name: str
    body: bytes


@dataclass(frozen=True, slots=True)
class RemoteError:
    """An exception in a worker, as data.

    Attributes:
        kind: name of its class.
        message: its text.
        trace: its traceback.
        own: True for an error of ours: anyone may call one of theirs by the same name.
        path, line, fix: of an error of ours.
    """

    kind: str
    message: str
    trace: str = ""
    own: bool = False
    path: str | None = None
    line: int | None = None
    fix: str | None = None


class Reply(msgspec.Struct, frozen=True):
    """The answer to a call, as msgpack in `body`, or the error that the call raised; and where the time went."""

    nonce: str
    body: bytes = b""
    error: RemoteError | None = None
    spans: tuple[WorkSpan, ...] = ()


class Greeting(msgspec.Struct, frozen=True):
    """The first message of a worker, sent before any of the user's code runs: the protections that confine it."""

    protections: tuple[str, ...]


def frame(message: object) -> bytes:
    """Return a message as bytes, preceded by its length."""
    body = messages.encode(message)
    return HEADER.pack(len(body)) + body


def serve(connection: socket.socket, role: Callable[..., object], protections: Sequence[str]) -> None:
    """Set the role up, then answer requests one by one until the parent closes the socket. Runs in the worker."""
    parameters = _receive(connection)
    if parameters is None:
        return
    connection.sendall(frame(Greeting(tuple(protections))))
    with WORKER.span("set up"):
        answering = role(**msgspec.msgpack.decode(parameters, type=dict[str, object]))
    while (body := _receive(connection)) is not None:
        call = msgspec.msgpack.decode(body, type=CallFrame)
        try:
            with WORKER.span(f"answer {call.name}"):
                answer = messages.encode(messages.decode_request(call.name, call.body).answered_by(answering))
            reply = Reply(call.nonce, answer, spans=WORKER.drain())
        except Exception as error:
            reply = Reply(call.nonce, error=describe_error(error), spans=WORKER.drain())
        connection.sendall(frame(reply))


def describe_error(error: BaseException) -> RemoteError:
    """Return an exception as data."""
    trace = _utf8(traceback.format_exc())
    if isinstance(error, KernelLspError):
        path = str(error.path) if error.path else None
        return RemoteError(type(error).__name__, _utf8(error.message), trace, True, path, error.line, error.fix)
    return RemoteError(type(error).__name__, _utf8(str(error).strip()) or type(error).__name__, trace)


def error_of(described: RemoteError, known: Mapping[str, type[KernelLspError]]) -> Exception:
    """Return the error that a worker described: as an instance of its class if in `known`, else a `WorkerFailure`."""
    kind = known.get(described.kind) if described.own else None
    if kind is None:
        return WorkerFailure(described.kind, described.message, described.trace)
    path = Path(described.path) if described.path else None
    return kind(described.message, path, described.line, described.fix)


class WorkerFailure(Exception):  # noqa: N818 - it is the candidate that failed, often rightly
    """Code under judgement, or a library that it calls, raised in a worker. The worker itself is alive."""

    def __init__(self, kind: str, message: str, trace: str = "") -> None:
        super().__init__(f"{kind}: {message}")
        self.kind, self.message, self.trace = kind, message, trace

    @property
    def lost_device(self) -> bool:
        """Return True if nothing more can be done on the GPU in that process: an error of CUDA that stays."""
        return any(words in self.message for words in _LASTING)

    @property
    def driver_lacks_memory(self) -> bool:
        """Return True if CUDA's driver had no memory left, from which the judge allocates what it needs itself."""
        return _DRIVER_LACKS_MEMORY in self.message

    @property
    def lacks_memory(self) -> bool:
        """Return True if the GPU had no memory left, for the driver or for a tensor that torch was to allocate."""
        return self.kind == _TORCH_LACKS_MEMORY or self.driver_lacks_memory


def _receive(connection: socket.socket) -> bytes | None:
    header = _exactly(connection, HEADER.size)
    return None if header is None else _exactly(connection, HEADER.unpack(header)[0])


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
    """Return text of the user's code that can be printed and stored: lone surrogates are escaped."""
    return text.encode(errors="backslashreplace").decode()
