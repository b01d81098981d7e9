"""Zygotes forked by a server that earlier sessions left running: nothing is imported twice, nothing is left."""

import asyncio
import os
import signal
import site
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pytest

from kernel_lsp.runner import fork_server_client
from kernel_lsp.runner.fork_server import ZygoteRequest
from kernel_lsp.runner.fork_server_client import ForkedZygote, ForkServer
from kernel_lsp.runner.pool import Flavour, Pool

ROOT = Path(__file__).parents[3]
ENVIRONMENT = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT)}


@pytest.fixture(autouse=True)
def runtime(monkeypatch):
    """A runtime folder of the test's own, with a short name as sockets need one; servers end when it is gone."""
    with tempfile.TemporaryDirectory(prefix="run-") as folder:
        monkeypatch.setenv("XDG_RUNTIME_DIR", folder)
        yield Path(folder, "kernel-lsp", "warm")


class Asked:
    """A zygote as a pool asks for it, and the pool's side of its socket."""

    def __init__(self, folder: Path, server: ForkServer, environment: dict[str, str] = ENVIRONMENT) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.control, theirs = socket.socketpair()
        self.control.settimeout(60)
        request = ZygoteRequest(str(folder), environment, ())
        with theirs:
            self.zygote = asyncio.run(server.zygote(request, theirs))

    @property
    def process(self) -> ForkedZygote:
        assert self.zygote is not None
        assert self.control.recv(64) == b"ready\n"
        return self.zygote

    def end(self) -> None:
        self.control.close()
        if self.zygote is not None:
            asyncio.run(self.zygote.wait())


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def until(holds, seconds: float = 20.0) -> None:
    end = time.monotonic() + seconds
    while not holds():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_two_sessions_have_zygotes_of_one_server_and_none_is_theirs(tmp_path):
    server = ForkServer(("json",), ENVIRONMENT, minutes=1)
    first, second = Asked(tmp_path / "a" / "emulate", server), Asked(tmp_path / "b" / "emulate", server)
    one, other = first.process.pid, second.process.pid
    assert one != other
    assert parent_of(one) == parent_of(other) != os.getpid()
    assert Path(f"/proc/{one}/cwd").resolve() == first.folder
    first.end()
    second.end()
    assert not first.folder.parent.exists()  # what a zygote leaves goes with it


@pytest.mark.parametrize(
    "other",
    [
        lambda: ForkServer(("json", "ast"), ENVIRONMENT, minutes=1),
        lambda: ForkServer(("json",), ENVIRONMENT | {"LANG": "C"}, minutes=1),
    ],
    ids=["modules", "variables"],
)
def test_what_is_imported_otherwise_has_another_server(tmp_path, runtime, other):
    asked = [
        Asked(tmp_path / name / "emulate", server)
        for name, server in (("a", ForkServer(("json",), ENVIRONMENT, minutes=1)), ("b", other()))
    ]
    assert len({parent_of(one.process.pid) for one in asked}) == 2
    for one in asked:
        one.end()


def test_a_change_of_this_program_has_another_server(tmp_path, monkeypatch):
    before = ForkServer(("json",), ENVIRONMENT, minutes=1)._path
    monkeypatch.setattr(fork_server_client, "_surroundings", lambda: iter(["other"]))
    assert ForkServer(("json",), ENVIRONMENT, minutes=1)._path != before


def test_an_installation_has_another_server_and_what_imports_leave_has_not(tmp_path, monkeypatch):
    monkeypatch.setattr(site, "getsitepackages", lambda: [str(tmp_path)])
    facts = tmp_path / "one-1.0.dist-info"
    seen = []
    for change in (
        lambda: facts.mkdir(),
        (tmp_path / "__pycache__").mkdir,
        lambda: os.utime(facts, (1, 1)),
        (tmp_path / "two").mkdir,
    ):
        change()
        seen.append(ForkServer(("json",), ENVIRONMENT, minutes=1)._path)
    assert seen[0] == seen[1]
    assert len(set(seen)) == 3


def test_a_killed_server_is_followed_by_another(tmp_path):
    server = ForkServer(("json",), ENVIRONMENT, minutes=1)
    first = Asked(tmp_path / "a" / "emulate", server)
    keeper = parent_of(first.process.pid)
    os.kill(keeper, signal.SIGKILL)
    first.end()
    second = Asked(tmp_path / "b" / "emulate", server)
    assert parent_of(second.process.pid) != keeper
    second.end()


def test_a_server_that_cannot_import_gives_no_zygote(tmp_path):
    assert Asked(tmp_path / "a" / "emulate", ForkServer(("no_such_module",), ENVIRONMENT, minutes=1)).zygote is None


def test_a_runtime_folder_of_others_is_not_used(tmp_path, runtime):
    runtime.mkdir(parents=True)
    runtime.chmod(0o755)
    assert Asked(tmp_path / "a" / "emulate", ForkServer(("json",), ENVIRONMENT, minutes=1)).zygote is None


def test_a_server_ends_when_nobody_asks_or_its_socket_is_gone(tmp_path, runtime):
    idle = ForkServer(("json",), ENVIRONMENT, minutes=1 / 600)
    first = Asked(tmp_path / "a" / "emulate", idle)
    keeper = parent_of(first.process.pid)
    first.end()
    until(lambda: not Path(f"/proc/{keeper}").exists())
    assert [path.name for path in runtime.iterdir()] == ["lock"]


def test_what_a_zygote_had_to_import_later_ones_find(tmp_path):
    server = ForkServer(("json",), ENVIRONMENT, minutes=1)
    first = Asked(tmp_path / "a" / "emulate", server)
    keeper = parent_of(first.process.pid)
    asyncio.run(server.should_import(("sqlite3",), ("no_such_package", "numpy")))
    until(lambda: all(part in Path(f"/proc/{keeper}/maps").read_text() for part in ("_sqlite3", "/numpy/")))
    first.end()


def test_a_request_that_is_none_does_no_harm(tmp_path):
    server = ForkServer(("json",), ENVIRONMENT, minutes=1)
    first = Asked(tmp_path / "a" / "emulate", server)
    keeper = parent_of(first.process.pid)
    connection = server._connect(server._path)
    assert connection is not None
    connection.sendall(b"no request")
    connection.close()
    second = Asked(tmp_path / "b" / "emulate", server)
    assert parent_of(second.process.pid) == keeper
    first.end()
    second.end()


CONFINED = """
import asyncio, os, socket, sys
from pathlib import Path
from kernel_lsp.runner import fork_server_client
from kernel_lsp.runner.fork_server import ZygoteRequest
from kernel_lsp.runner.sandbox import confine
environment = {"PATH": os.environ["PATH"], "PYTHONPATH": os.environ["PYTHONPATH"]}
if sys.argv[1] == "confined":
    confine({"read": None, "write": [], "processes": True, "limits": {}})
fork_server_client.is_confined = lambda _: False  # as one that means ill would have it
mine, theirs = socket.socketpair()
server = fork_server_client.ForkServer(("json",), environment, minutes=1)
zygote = asyncio.run(server.zygote(ZygoteRequest(sys.argv[2], environment, ()), theirs))
print(zygote is not None)
"""


@pytest.mark.parametrize("who", ["confined", "free"])
def test_a_worker_gets_no_zygote_which_would_not_be_confined(tmp_path, who):
    server = ForkServer(("json",), ENVIRONMENT, minutes=1)
    first = Asked(tmp_path / "a" / "emulate", server)
    assert first.process.pid
    folder = tmp_path / "b" / "emulate"
    folder.mkdir(parents=True)
    command = [sys.executable, "-c", CONFINED, who, str(folder)]
    ran = subprocess.run(command, env=os.environ | ENVIRONMENT, capture_output=True, text=True, timeout=60)
    assert ran.stdout == f"{who == 'free'}\n", ran.stderr
    first.end()


def test_a_pool_that_stays_warm_works_as_any_other(tmp_path):
    async def main() -> tuple[Path, int]:
        async with Pool(warm_minutes=1) as pool:
            worker = await pool.worker(Flavour.EMULATE, "build")
            zygote = await pool._zygotes[Flavour.EMULATE]
            assert isinstance(zygote.process, ForkedZygote)
            assert parent_of(worker.pid) == zygote.process.pid
            return pool.folder, zygote.process.pid

    folder, zygote = asyncio.run(main())
    assert not Path(f"/proc/{zygote}").exists()
    assert not folder.exists()
