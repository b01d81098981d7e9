"""Requests and answers: what goes in comes out, and what is broken never crashes the parent."""

import asyncio
import contextlib
import math
import signal
import socket
import struct
import subprocess
import threading
import time
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.errors import CannotJudgeError, KernelLspError, WorkloadError
from kernel_lsp.runner import messages, protocol
from kernel_lsp.runner.messages import Request
from kernel_lsp.runner.protocol import CallFrame, Greeting, Reply, WorkerFailure
from kernel_lsp.runner.spans import WORKER, SpanLog
from kernel_lsp.runner.worker import Worker, WorkerDied

PROTECTIONS = ("limits",)
LONE = "\ud800 alone"


@dataclass(frozen=True, slots=True)
class Parcel:
    """A record with a value of each kind that travels."""

    text: str = ""
    data: bytes = b""
    numbers: tuple[int | float, ...] = ()
    named: dict[str, tuple[int, str] | None] | None = None
    path: Path = Path("/")
    inner: "tuple[Parcel, ...]" = ()


class EchoRole(Protocol):
    def send_back(self, request: "SendBack", /) -> Parcel: ...
    def fail(self, request: "Fail", /) -> None: ...
    def count(self) -> int: ...


class SendBack(Request[EchoRole, Parcel], frozen=True, kw_only=True):
    parcel: Parcel

    def answered_by(self, role: EchoRole) -> Parcel:
        return role.send_back(self)


class Fail(Request[EchoRole, None], frozen=True, kw_only=True):
    kind: str

    def answered_by(self, role: EchoRole) -> None:
        role.fail(self)


class Count(Request[EchoRole, int], frozen=True, kw_only=True):
    def answered_by(self, role: EchoRole) -> int:
        return role.count()


class Echo:
    def __init__(self, first: int = 0) -> None:
        self.counted = first

    def send_back(self, request: SendBack) -> Parcel:
        return request.parcel

    def fail(self, request: Fail) -> None:
        errors = {
            "own": WorkloadError("CASES is empty", Path("/home/me/w.py"), 7, "Add one."),
            "other": ZeroDivisionError("division by zero"),
            "no text": ValueError(LONE),
        }
        raise errors[request.kind]

    def count(self) -> int:
        self.counted += 1
        return self.counted


@contextlib.asynccontextmanager
async def opposite(
    run: Callable[[socket.socket], None], scratch: Path, parameters: object = None, spans: SpanLog | None = None
) -> AsyncGenerator[Worker]:
    """A worker of the parent's side whose other end is a thread of ours; `parameters` are sent to it first."""
    ours, theirs = socket.socketpair()
    if parameters is not None:
        ours.sendall(protocol.frame(parameters))
    ours.setblocking(False)
    # A process of its own session to be killed in place of a worker.
    process = subprocess.Popen(["sleep", "60"], start_new_session=True)

    def end() -> None:
        with theirs, contextlib.suppress(OSError, struct.error):  # it was killed
            run(theirs)

    thread = threading.Thread(target=end)
    thread.start()
    worker = Worker(process.pid, ours, scratch, "subject", spans=spans)
    try:
        yield worker
    finally:
        worker.kill()
        await asyncio.to_thread(thread.join)
        assert process.wait() == -signal.SIGKILL


def ask(scratch: Path, *requests: Request[Any, Any], **parameters: object) -> list[object]:
    """What a real loop of a worker answers, or the error that a request ends with."""

    def run(line: socket.socket) -> None:
        protocol.serve(line, Echo, PROTECTIONS)

    async def ask_all() -> list[object]:
        said: list[object] = []
        async with opposite(run, scratch, parameters) as worker:
            for request in requests:
                try:
                    said.append(await worker.ask(request, deadline=20))
                except (WorkerFailure, KernelLspError) as error:
                    said.append(error)
            assert worker.protections == PROTECTIONS
            assert worker.alive
        return said

    return asyncio.run(ask_all())


TEXTS = st.text()
PARCELS = st.recursive(
    st.builds(
        Parcel,
        text=TEXTS,
        data=st.binary(),
        numbers=st.lists(
            st.integers(-(2**63), 2**64 - 1) | st.floats(allow_nan=False) | st.just(math.inf), max_size=4
        ).map(tuple),
        named=st.none() | st.dictionaries(TEXTS, st.none() | st.tuples(st.integers(0, 9), TEXTS), max_size=3),
        path=st.sampled_from([Path("/home/me/k.cu"), Path("relative"), Path("/with space/ü")]),
    ),
    lambda inner: st.builds(Parcel, inner=st.lists(inner, max_size=3).map(tuple)),
    max_leaves=6,
)


@settings(max_examples=60, deadline=None)
@given(PARCELS)
def test_records_come_back_as_they_went(parcel):
    request = messages.decode_request("SendBack", messages.encode(SendBack(parcel=parcel)))
    assert request == SendBack(parcel=parcel)
    assert messages.decode_answer(request, messages.encode(parcel)) == parcel


def test_eight_megabytes_travel_unharmed(tmp_path):
    parcel = Parcel(data=bytes(range(256)) * (8 << 12))
    assert len(parcel.data) == 8 << 20
    assert ask(tmp_path, SendBack(parcel=parcel)) == [parcel]


def test_a_role_is_set_up_with_its_parameters_and_answers_in_order(tmp_path):
    assert ask(tmp_path, Count(), Count(), first=3) == [4, 5]


def test_answers_and_errors_bring_the_time_that_the_worker_spent(tmp_path):
    WORKER.drain()  # what other tests of this process left there
    log, began = SpanLog(), time.monotonic_ns()

    def run(line: socket.socket) -> None:
        protocol.serve(line, Echo, PROTECTIONS)

    async def ask_both() -> None:
        async with opposite(run, tmp_path, {}, log) as worker:
            with pytest.raises(WorkerFailure):
                await worker.ask(Fail(kind="other"), deadline=20)
            await worker.ask(Count(), deadline=20)

    asyncio.run(ask_both())
    spans = {logged.span.name: logged.span for logged in log.since(began)}
    assert list(spans) == ["Fail", "set up", "answer Fail", "Count", "answer Count"]
    assert all(began <= span.began <= span.ended for span in spans.values())
    assert spans["Count"].began <= spans["answer Count"].began
    assert spans["answer Count"].ended <= spans["Count"].ended


def test_errors_come_back_and_the_worker_goes_on(tmp_path):
    own, other, fine = ask(tmp_path, Fail(kind="own"), Fail(kind="other"), Count())
    assert own == WorkloadError("CASES is empty", Path("/home/me/w.py"), 7, "Add one.")
    assert isinstance(other, WorkerFailure)
    assert (other.kind, other.message) == ("ZeroDivisionError", "division by zero")
    assert "in fail" in other.trace
    assert fine == 1


def test_words_that_are_no_text_are_escaped_whichever_way_they_go(tmp_path):
    sent = Parcel(text=LONE, named={LONE: (1, LONE)}, inner=(Parcel(LONE, b"\xff"),), path=Path("/a") / LONE)
    back, error, fine = ask(tmp_path, SendBack(parcel=sent), Fail(kind="no text"), Count())
    escaped = "\\ud800 alone"
    assert back == Parcel(
        escaped, named={escaped: (1, escaped)}, inner=(Parcel(escaped, b"\xff"),), path=Path("/a") / escaped
    )
    assert isinstance(error, WorkerFailure)
    assert error.message == escaped
    assert fine == 1


def serve(*calls: CallFrame) -> list[Reply]:
    """What a worker replies to calls, the greeting taken off."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in ({}, *calls):
            ours.sendall(protocol.frame(message))
        ours.shutdown(socket.SHUT_WR)
        protocol.serve(theirs, Echo, PROTECTIONS)
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    frames: list[bytes] = []
    while data:
        (length,) = protocol.HEADER.unpack(data[:4])
        frames.append(data[4 : 4 + length])
        data = data[4 + length :]
    assert msgspec.msgpack.decode(frames[0], type=Greeting) == Greeting(PROTECTIONS)
    return [msgspec.msgpack.decode(body, type=Reply) for body in frames[1:]]


@pytest.mark.parametrize(
    ("name", "body"),
    [
        ("Absent", messages.encode({})),
        ("SendBack", messages.encode({})),
        ("SendBack", messages.encode({"parcel": {"data": 5}})),
        ("SendBack", b"\xc1"),
        ("SendBack", b""),
    ],
)
def test_what_is_no_request_is_an_error_and_the_worker_goes_on(name, body):
    broken, fine = serve(CallFrame("1", name, body), CallFrame("2", "Count", messages.encode(Count())))
    assert broken.nonce == "1"
    assert broken.error is not None
    assert not broken.error.own
    assert (fine.nonce, fine.body, fine.error) == ("2", messages.encode(1), None)


@pytest.mark.parametrize("made", [{"a": object()}, 2**70], ids=["any object", "a large integer"])
def test_an_answer_that_cannot_travel_is_that_requests_error(monkeypatch, made):
    monkeypatch.setattr(Echo, "count", lambda _: made)
    (reply,) = serve(CallFrame("1", "Count", messages.encode(Count())))
    assert reply.error is not None


def test_a_closed_socket_ends_the_worker():
    assert serve() == []
    ours, theirs = socket.socketpair()
    with theirs:
        ours.close()
        protocol.serve(theirs, Echo, PROTECTIONS)


def frame(body: bytes, length: int | None = None) -> bytes:
    return protocol.HEADER.pack(len(body) if length is None else length) + body


DEEP = b"\x81\xa1x" + b"\x91" * 100_000 + b"\xc0"
BROKEN = [b"", b"\xc1", b"\xff\xfe", b"[1, 2]", b"\x93\x01\x02\x03", b"\xc0", b"\x81\xa5nonce\x05", DEEP]
GREETING = protocol.frame(Greeting(PROTECTIONS))


def answered(line: socket.socket, greeting: bytes, answer: Callable[[CallFrame], bytes]) -> None:
    line.sendall(greeting)
    (length,) = protocol.HEADER.unpack(line.recv(4, socket.MSG_WAITALL))
    call = msgspec.msgpack.decode(line.recv(length, socket.MSG_WAITALL), type=CallFrame)
    line.sendall(answer(call))


def ask_one(scratch: Path, answer: Callable[[CallFrame], bytes], greeting: bytes = GREETING) -> int:
    async def run() -> int:
        async with opposite(lambda line: answered(line, greeting, answer), scratch) as worker:
            return await worker.ask(Count(), deadline=10)

    return asyncio.run(run())


def test_an_answer_is_taken_from_the_frame_with_the_calls_nonce(tmp_path):
    asked: list[CallFrame] = []

    def answer(call: CallFrame) -> bytes:
        asked.append(call)
        return protocol.frame(Reply(call.nonce, messages.encode(5)))

    assert ask_one(tmp_path, answer) == 5
    assert (asked[0].name, asked[0].body) == ("Count", messages.encode(Count()))
    assert len(asked[0].nonce) == 32


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda _: b"", id="none"),
        pytest.param(lambda _: b"\x01", id="half a header"),
        pytest.param(lambda _: frame(b"\x82", 4000), id="half a body"),
        pytest.param(lambda _: frame(b"\x80", protocol.MAX_MESSAGE + 1), id="oversized"),
        pytest.param(lambda _: protocol.frame({"body": b"\x01"}), id="no nonce"),
        pytest.param(lambda c: protocol.frame(Reply(c.nonce[::-1], messages.encode(1))), id="another nonce"),
        pytest.param(lambda c: protocol.frame(Reply(c.nonce, messages.encode("1"))), id="another type"),
        pytest.param(lambda c: protocol.frame(Reply(c.nonce, b"\xc1")), id="an answer that is none"),
        pytest.param(lambda c: protocol.frame({"nonce": c.nonce, "error": {"kind": "X"}}), id="half an error"),
        *(pytest.param(lambda _, body=body: frame(body), id=repr(body[:20])) for body in BROKEN),
    ],
)
def test_a_worker_that_breaks_the_protocol_counts_as_dead(tmp_path, answer):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(WorkerDied):
        ask_one(scratch, answer)
    assert not scratch.exists()


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: repr(body[:20]))
def test_a_worker_that_greets_wrongly_counts_as_dead(tmp_path, body):
    with pytest.raises(WorkerDied):
        ask_one(tmp_path / "scratch", lambda c: protocol.frame(Reply(c.nonce, messages.encode(1))), frame(body))


def test_an_error_cannot_take_the_name_of_one_of_our_own():
    """A candidate must not be able to say what only the judge may: that it needs a GPU, or that a runner broke."""
    known: dict[str, type[KernelLspError]] = {"CannotJudgeError": CannotJudgeError}
    foreign = type("CannotJudgeError", (Exception,), {})
    assert isinstance(protocol.error_of(protocol.describe_error(foreign("no")), known), WorkerFailure)
    assert protocol.error_of(protocol.describe_error(CannotJudgeError("no")), known) == CannotJudgeError("no")
