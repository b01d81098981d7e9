"""What confined code may not do, tried from inside a worker, and in processes confined by hand."""

import json
import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from runner_support import run_on_nothing

from kernel_lsp.runner import sandbox
from kernel_lsp.runner.messages.subject import Bind, Load
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.sessions import members
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import surroundings

ROOT = Path(__file__).parents[3]
needs_landlock = pytest.mark.skipif(sandbox.landlock_version() == 0, reason="this Linux has no Landlock")
needs_scopes = pytest.mark.skipif(sandbox.landlock_version() < 6, reason="this Linux's Landlock knows no signals")

CONFINED = """
import ctypes, json, os, socket, subprocess, sys, threading
from kernel_lsp.runner.sandbox import confine
allowed = json.loads(sys.argv[1])
active = confine(allowed)
try:
    said = repr(eval(sys.argv[2]))
except OSError as error:
    said = type(error).__name__
print(json.dumps([active, said]))
"""


def confined(expression: str, read=(), write=(), *, files: bool = True, processes: bool = True):
    """What protections were in force, and what the expression gave there."""
    python = [sys.prefix, sys.base_prefix, "/usr", "/lib", "/lib64", "/etc", "/proc", "/dev", str(ROOT / "kernel_lsp")]
    allowed = {
        "read": [*python, *map(str, read)] if files else None,
        "write": list(map(str, write)),
        "processes": processes,
        "limits": {"RLIMIT_FSIZE": 1 << 20},
    }
    done = subprocess.run(
        [sys.executable, "-c", CONFINED, json.dumps(allowed), expression],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@needs_scopes
def test_it_says_what_is_in_force():
    assert confined("1")[0] == ["limits", "files", "signals", "network", "system calls"]
    assert confined("1", files=False)[0] == ["limits", "network", "system calls"]


@needs_landlock
def test_files_outside_what_is_allowed_cannot_be_read_written_listed_or_made(tmp_path):
    inside, outside = tmp_path / "inside", tmp_path / "outside"
    for folder in (inside, outside):
        folder.mkdir()
        (folder / "file").write_text("text")
    for expression, allowed in (
        ("open({!r}).read()", "'text'"),
        ("open({!r}, 'a').write('more')", "4"),
        ("os.listdir(os.path.dirname({!r}))", "['file']"),
        ("os.mkdir({!r} + '.d')", "None"),
        ("os.rename({0!r}, {0!r} + '.new')", "None"),
    ):
        assert confined(expression.format(str(outside / "file")), write=[inside])[1] == "PermissionError"
        assert confined(expression.format(str(inside / "file")), write=[inside])[1] == allowed
    assert [path.name for path in outside.iterdir()] == ["file"]


@needs_landlock
def test_what_may_be_read_may_not_be_written(tmp_path):
    (tmp_path / "file").write_text("text")
    assert confined(f"open({str(tmp_path / 'file')!r}).read()", read=[tmp_path])[1] == "'text'"
    assert confined(f"open({str(tmp_path / 'file')!r}, 'a')", read=[tmp_path])[1] == "PermissionError"


@pytest.mark.parametrize("family", ["AF_INET", "AF_INET6", "AF_NETLINK", "AF_PACKET"])
def test_there_is_no_network(family):
    assert confined(f"socket.socket(socket.{family}, socket.SOCK_DGRAM)")[1] == "PermissionError"


def test_local_sockets_threads_and_children_work():
    assert confined("socket.socketpair()[0].family.name")[1] == "'AF_UNIX'"
    assert confined("subprocess.check_output(['echo', 'hello'])")[1] == "b'hello\\n'"
    thread = (
        "(lambda done: [(t := threading.Thread(target=lambda: done.append(1))), t.start(), t.join(), done][-1])([])"
    )
    assert confined(thread)[1] == "[1]"


@pytest.mark.parametrize(
    "expression",
    [
        "os.setsid()",
        "ctypes.get_errno() if ctypes.CDLL(None, use_errno=True).unshare(0x10000000) else 0",
        "ctypes.get_errno() if ctypes.CDLL(None, use_errno=True).ptrace(0, 0, 0, 0) else 0",
        "ctypes.get_errno() if ctypes.CDLL(None, use_errno=True).mount(b'a', b'/', b'tmpfs', 0, 0) else 0",
    ],
)
def test_a_session_a_namespace_a_tracer_and_a_mount_are_refused(expression):
    assert confined(expression)[1] in {"PermissionError", "1"}  # 1 is EPERM


@needs_scopes
def test_other_processes_cannot_be_signalled():
    with subprocess.Popen(["sleep", "60"]) as other:
        assert confined(f"os.kill({other.pid}, 9)")[1] == "PermissionError"
        assert other.poll() is None
        other.kill()


def test_a_file_cannot_grow_past_its_limit(tmp_path):
    assert confined(f"open({str(tmp_path / 'big')!r}, 'wb', 0).write(bytes(3 << 20))", write=[tmp_path])[1] == "1048576"


TRIES = """
import os, socket
import torch
def launch(module):
    try:
        {attempt}
    except OSError as error:
        raise ValueError(type(error).__name__) from None
    raise ValueError("it could")
"""


@needs_landlock
@pytest.mark.parametrize(
    "attempt",
    [
        "open(os.path.expanduser('~root/.profile'))",
        "os.listdir('/home' if os.listdir('/home') else '/root')",
        "open('/tmp/of-another-run', 'w')",
        "socket.create_connection(('127.0.0.1', 9))",
        "os.setsid()",
    ],
)
def test_a_worker_under_test_is_confined(run, subject, attempt):
    worker = run(subject(TRIES.format(attempt=attempt)))
    with pytest.raises(WorkerFailure, match="ValueError: PermissionError"):
        run(run_on_nothing(worker))
    assert {"files", "network", "system calls", "limits"} <= set(worker.protections)


@needs_landlock
def test_a_pool_lets_its_workers_into_the_folders_it_is_told(pool, run, subject, tmp_path):
    (tmp_path / "table.txt").write_text("7")
    text = TRIES.format(attempt=f"raise ValueError(open({str(tmp_path / 'table.txt')!r}).read())")
    with pytest.raises(WorkerFailure, match="PermissionError"):
        run(run_on_nothing(run(subject(text))))
    pool.allow(read=[tmp_path])
    with pytest.raises(WorkerFailure, match="ValueError: 7"):
        run(run_on_nothing(run(subject(text))))


def test_what_one_of_two_sessions_allows_does_not_end_with_the_other(tmp_path):
    pool = Pool()
    mine, others = tmp_path / "mine", tmp_path / "others"
    before = pool.allowed
    with ExitStack() as other:
        other.enter_context(pool.allowing())
        with pool.allowing():
            pool.allow([others])
            other.enter_context(pool.allowing())
            pool.allow([mine])
        assert {str(mine), str(others)} <= pool.allowed
    assert pool.allowed == before


@needs_landlock
def test_a_worker_may_read_what_it_was_started_for(run, pool, tmp_path):
    (tmp_path / "table.txt").write_text("7")
    worker = run(pool.worker(Flavour.EMULATE, "subject", device="cpu", read=[tmp_path]))
    text = TRIES.format(attempt=f"raise ValueError(open({str(tmp_path / 'table.txt')!r}).read())")
    run(worker.ask(Load(path="/home/me/k.py", text=text), deadline=60))
    run(worker.ask(Bind(buffers=("nothing",), arguments=(), nbytes=1), deadline=60))
    with pytest.raises(WorkerFailure, match="ValueError: 7"):
        run(run_on_nothing(worker))


def test_temporary_files_lie_in_the_workers_own_folder(run, subject):
    text = TRIES.format(attempt="import tempfile; raise ValueError(tempfile.mkdtemp())")
    worker = run(subject(text))
    with pytest.raises(WorkerFailure, match=f"ValueError: {worker.scratch}"):
        run(run_on_nothing(worker))


def test_a_child_in_a_group_of_its_own_dies_with_its_worker(pool, run):
    async def scenario() -> int:
        worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
        spawn = "import subprocess\nsubprocess.Popen(['sleep', '600'], process_group=0)\ndef launch(module): return 1\n"
        await worker.ask(Load(path="/home/me/k.py", text=spawn), deadline=30)
        assert len(members(worker.pid)) == 2
        worker.kill()
        return worker.pid

    pid = run(scenario())
    end = time.monotonic() + 60
    while members(pid) and time.monotonic() < end:
        time.sleep(0.02)
    assert not members(pid)


def test_the_surroundings_of_a_file_are_its_project(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    deep = tmp_path / "project" / "kernels" / "deep"
    deep.mkdir(parents=True)
    file = SourceFile(deep / "k.cu", "")
    assert surroundings(file) == {deep}
    (tmp_path / ".git").mkdir()
    assert surroundings(file) == {deep}, "a home under version control is no project"
    (tmp_path / "project" / "pyproject.toml").touch()
    assert surroundings(file) == {tmp_path / "project"}


def test_a_process_that_may_start_none_still_starts_threads():
    def tried(expression: str) -> str:
        return confined(expression, files=False, processes=False)[1]

    assert confined("1", files=False, processes=False)[0] == ["limits", "network", "system calls", "processes"]
    assert tried("os.fork()") == "PermissionError"
    assert tried("subprocess.run(['true'])") == "PermissionError"
    assert tried("os.posix_spawn('/bin/true', ['true'], {})") == "PermissionError"
    assert tried("[t := threading.Thread(target=int), t.start(), t.join()][1:]") == "[None, None]"


@needs_landlock
def test_a_version_under_test_cannot_write_where_builds_are_kept(pool, run, tmp_path):
    (tmp_path / "kept").write_text("")

    async def main(**allowed) -> str | None:
        worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu", **allowed)
        text = f"open({str(tmp_path / 'kept')!r}, 'a').write('more')\ndef launch(module): pass\n"
        try:
            await worker.ask(Load(path="/home/me/k.py", text=text), deadline=60)
        except Exception as error:
            return str(error)
        else:
            return None
        finally:
            worker.kill()

    pool.allow(read=[tmp_path])
    assert "Permission denied" in (run(main()) or "")
    assert run(main(write=[tmp_path])) is None
