"""A zygote whose parent is gone leaves no process and no file, however it hears of it."""

import asyncio
import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_lsp.runner import messages, protocol
from kernel_lsp.runner.fork_server_client import ForkedZygote
from kernel_lsp.runner.sessions import members

ROOT = Path(__file__).parents[3]
WORKER = """
import pathlib, subprocess, sys, time
from kernel_lsp.runner.messages import Request
class Say(Request[object, str], frozen=True, kw_only=True):
    def answered_by(self, role):
        return "answer"
def methods():
    writer = "import itertools; [open(f'{n % 100}', 'w').close() for n in itertools.count()]"
    subprocess.Popen([sys.executable, "-c", writer])
    while not pathlib.Path("99").exists():
        time.sleep(0.01)
    return None
"""


class Parent:
    """The parent's side of a zygote that forks workers of the test's own."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "pool" / "emulate"
        self.folder.mkdir(parents=True)
        (folder / "writing_worker.py").write_text(WORKER)
        self.control, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [sys.executable, "-P", "-m", "kernel_lsp.runner.zygote", str(self.folder), "json"],
                stdin=theirs.fileno(),
                env=os.environ | {"PYTHONPATH": f"{ROOT}{os.pathsep}{folder}"},
                start_new_session=True,
            )
        assert self.control.recv(64) == b"ready\n"

    def fork(self) -> tuple[int, socket.socket]:
        """A worker that started another process, which writes into its folder without end; and our end of its line."""
        scratch = self.folder / "subject-0"
        scratch.mkdir()
        ours, theirs = socket.socketpair()
        environment = {"PATH": os.environ["PATH"]}
        confinement = {"read": None, "write": [str(scratch)], "processes": True, "limits": {}}
        request = {"module": "writing_worker", "scratch": str(scratch), "first": None, "libraries": []}
        request |= {"environment": environment, "confinement": confinement}
        with theirs:
            socket.send_fds(self.control, [json.dumps(request).encode()], [theirs.fileno()])
            worker = int(self.control.recv(64))
        ours.settimeout(20)
        ours.sendall(protocol.frame({}) + protocol.frame(protocol.CallFrame("1", "Say", messages.encode({}))))
        said = b""
        while b"answer" not in said:
            said += ours.recv(1 << 10)
        return worker, ours

    def signal(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self.process.pid, signal.SIGTERM)


@pytest.fixture
def parent(tmp_path):
    made = Parent(tmp_path)
    yield made
    made.control.close()
    made.process.kill()
    made.process.wait()


def await_no(members_of: int) -> bool:
    end = time.monotonic() + 60
    while (left := members(members_of)) and time.monotonic() < end:
        time.sleep(0.01)
    return not left


def test_what_a_worker_started_ends_with_it_when_nobody_else_is_there_to_see(parent):
    worker, line = parent.fork()
    assert len(members(worker)) == 2
    line.close()
    assert await_no(worker)


def test_files_still_being_written_at_the_end_are_removed(parent):
    worker, _line = parent.fork()
    parent.control.close()
    assert parent.process.wait(60) == 0
    assert await_no(worker)
    assert not parent.folder.parent.exists()


def test_hearing_of_the_end_twice_at_the_same_moment_leaves_nothing(parent):
    """The socket closes and the system's signal comes, while the zygote begins to clear away."""
    worker, _line = parent.fork()
    parent.control.close()
    while parent.process.poll() is None:
        parent.signal()
        time.sleep(0.0002)
    assert parent.process.returncode == 0
    assert await_no(worker)
    assert not parent.folder.parent.exists()


def test_a_zygote_that_is_told_to_end_clears_away(parent):
    worker, _line = parent.fork()
    parent.signal()
    assert parent.process.wait(60) == 0
    assert await_no(worker)
    assert not parent.folder.parent.exists()


def test_all_who_wait_for_a_forked_zygote_hear_of_its_end() -> None:
    """A pool may close while a worker that it lost asks for another zygote: both end the same one."""

    async def main() -> None:
        process = subprocess.Popen(["sleep", "60"])
        zygote = ForkedZygote(process.pid, os.pidfd_open(process.pid))
        waiting = [asyncio.create_task(zygote.wait()) for _ in range(2)]
        await asyncio.sleep(0)
        zygote.kill()
        async with asyncio.timeout(10):
            await asyncio.gather(*waiting, zygote.wait())
        process.wait()
        with pytest.raises(ProcessLookupError):
            zygote.kill()

    asyncio.run(main())
