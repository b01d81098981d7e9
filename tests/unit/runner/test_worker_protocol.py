"""Frames between the parent and a worker: what goes in comes out, and what is broken never crashes the parent."""

import asyncio
import contextlib
import json
import math
import signal
import socket
import struct
import subprocess
import threading
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.errors import KernelLspError, WorkloadError
from kernel_lsp.runner import protocol
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import Worker, WorkerDied

PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text() | st.binary()
KEYS = st.text().filter(lambda key: key != "$bytes")
VALUES = st.recursive(PLAIN, lambda v: st.lists(v) | st.dictionaries(KEYS, v), max_leaves=8)


def body_of(frame: bytes) -> bytes:
    (length,) = protocol.HEADER.unpack(frame[: protocol.HEADER.size])
    body = frame[protocol.HEADER.size :]
    assert len(body) == length
    return body


def test_words_that_are_no_text_can_be_printed():
    for error in (ValueError("\ud800 alone"), WorkloadError("`reference` raised: \ud800 alone")):
        assert protocol.describe_error(error)["message"].encode().endswith(b"\\ud800 alone")


@settings(max_examples=50)
@given(st.dictionaries(KEYS, VALUES))
def test_messages_come_back_as_they_went(message):
    assert protocol.decode(body_of(protocol.encode(message))) == message


def test_bytes_of_all_kinds_and_infinities_travel():
    data = bytes(range(256))
    message = {"a": data, "b": [bytearray(data), {"c": memoryview(data)}], "d": math.inf}
    assert protocol.decode(body_of(protocol.encode(message))) == {"a": data, "b": [data, {"c": data}], "d": math.inf}


def test_what_cannot_travel_is_refused_when_it_is_sent():
    with pytest.raises(TypeError, match="set cannot travel"):
        protocol.encode({"a": {1, 2}})


BROKEN = [
    b"",
    b"{",
    b"\xff\xfe",
    b"[1, 2]",
    b"null",
    b'{"id": {"$bytes": "no base64!"}}',
    b'{"id": {"$bytes": 5}}',
    b'{"id": ' + b"[" * 100_000,
]


@pytest.mark.parametrize("body", BROKEN, ids=lambda body: repr(body[:30]))
def test_a_broken_body_is_a_value_error(body):
    with pytest.raises(ValueError):
        protocol.decode(body)


class Answering:
    """A worker of the parent's side whose other end is a thread that answers each request with given bytes."""

    def __init__(self, folder: Path, answer) -> None:
        self.folder, self.answer = folder, answer

    async def ask(self, deadline: float = 10.0):
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        # A process of its own session to be killed in place of a worker.
        process = subprocess.Popen(["sleep", "60"], start_new_session=True)

        def reply() -> None:
            with theirs:
                theirs.sendall(protocol.encode({"protections": ["limits"]}))
                header = theirs.recv(4, socket.MSG_WAITALL)
                request = json.loads(theirs.recv(struct.unpack("<I", header)[0], socket.MSG_WAITALL))
                with contextlib.suppress(OSError):
                    theirs.sendall(self.answer(request))

        thread = threading.Thread(target=reply)
        thread.start()
        self.worker = Worker(process.pid, ours, self.folder, "subject")
        try:
            return await self.worker.call("run", deadline=deadline, name="a")
        finally:
            self.worker.kill()
            thread.join()
            assert process.wait() == -signal.SIGKILL


def ask(folder: Path, answer):
    return asyncio.run(Answering(folder, answer).ask())


def test_an_answer_is_taken_from_the_frame_with_the_requests_nonce(tmp_path):
    asked = {}

    def answer(request):
        asked.update(request)
        return protocol.encode({"id": request["id"], "result": [1, b"two"]})

    assert ask(tmp_path, answer) == [1, b"two"]
    assert (asked["method"], asked["params"]) == ("run", {"name": "a"})
    assert len(asked["id"]) == 32


def frame(body: bytes, length: int | None = None) -> bytes:
    return protocol.HEADER.pack(len(body) if length is None else length) + body


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param(lambda _: b"", id="none"),
        pytest.param(lambda _: b"\x01", id="half a header"),
        pytest.param(lambda _: frame(b'{"id": 1', 4000), id="half a body"),
        pytest.param(lambda _: frame(b"{}", protocol.MAX_MESSAGE + 1), id="oversized"),
        pytest.param(lambda _: frame(b'{"result": 1}'), id="no nonce"),
        pytest.param(lambda r: protocol.encode({"id": r["id"][::-1], "result": 1}), id="another nonce"),
        *(pytest.param(lambda _, body=body: frame(body), id=repr(body[:30])) for body in BROKEN),
    ],
)
def test_a_worker_that_breaks_the_protocol_counts_as_dead(tmp_path, answer):
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    with pytest.raises(WorkerDied):
        ask(scratch, answer)
    assert not scratch.exists()


def serve(role, *messages: dict) -> list[dict]:
    """What a worker of this role answers to the messages."""
    ours, theirs = socket.socketpair()
    with ours, theirs:
        for message in messages:
            ours.sendall(protocol.encode(message))
        ours.shutdown(socket.SHUT_WR)
        protocol.serve(theirs, role, ["limits"])
        theirs.close()
        data = b"".join(iter(lambda: ours.recv(1 << 16), b""))
    answers = []
    while data:
        (length,) = protocol.HEADER.unpack(data[:4])
        answers.append(protocol.decode(data[4 : 4 + length]))
        data = data[4 + length :]
    assert not answers or answers.pop(0) == {"protections": ["limits"]}
    return answers


def test_a_role_is_set_up_with_its_parameters_and_answers_in_order():
    def role(scale):
        return {"times": lambda x: x * scale}

    calls = [{"id": f"{x}", "method": "times", "params": {"x": x}} for x in (1, 2)]
    assert serve(role, {"scale": 3}, *calls) == [{"id": "1", "result": 3}, {"id": "2", "result": 6}]


def test_errors_come_back_as_data_and_the_worker_goes_on():
    def fail(kind):
        if kind == "own":
            raise WorkloadError("CASES is empty", Path("/home/me/w.py"), 7, "Add one.")
        raise ZeroDivisionError("division by zero")

    role = {"fail": fail, "fine": lambda: 1}
    own, other, unknown, fine = serve(
        lambda: role,
        {},
        {"id": "1", "method": "fail", "params": {"kind": "own"}},
        {"id": "2", "method": "fail", "params": {"kind": "other"}},
        {"id": "3", "method": "absent", "params": {}},
        {"id": "4", "method": "fine", "params": {}},
    )
    assert fine == {"id": "4", "result": 1}
    assert unknown["error"]["kind"] == "KeyError"
    with pytest.raises(WorkloadError) as caught:
        protocol.raise_error(own["error"], {"WorkloadError": WorkloadError})
    assert caught.value == WorkloadError("CASES is empty", Path("/home/me/w.py"), 7, "Add one.")
    with pytest.raises(WorkerFailure) as failed:
        protocol.raise_error(other["error"], {"WorkloadError": WorkloadError})
    assert (failed.value.kind, failed.value.message) == ("ZeroDivisionError", "division by zero")
    assert "in fail" in failed.value.trace
    assert not isinstance(failed.value, KernelLspError)


def test_a_result_that_cannot_travel_is_that_methods_error():
    (answer,) = serve(lambda: {"made": lambda: {1, 2}}, {}, {"id": "1", "method": "made", "params": {}})
    assert answer["id"] == "1"
    assert "set cannot travel" in answer["error"]["message"]


def test_a_closed_socket_ends_the_worker():
    assert serve(dict) == []
    assert serve(dict, {}) == []


def test_an_error_cannot_take_the_name_of_one_of_our_own():
    """A candidate must not be able to say what only the judge may: that it needs a GPU, or that a runner broke."""
    known = {"WorkloadError": WorkloadError}
    foreign = type("WorkloadError", (Exception,), {})
    with pytest.raises(WorkerFailure):
        protocol.raise_error(protocol.describe_error(foreign("no")), known)
    with pytest.raises(WorkloadError):
        protocol.raise_error(protocol.describe_error(WorkloadError("no")), known)
