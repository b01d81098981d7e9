"""A worker that takes too much of the machine is ended, and its death says why."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kernel_lsp.runner.messages.subject import Load
from kernel_lsp.runner.pool import Flavour
from kernel_lsp.runner.sessions import members
from kernel_lsp.runner.watch import SessionUsage, cap_output, excess, look
from kernel_lsp.runner.worker import WorkerDied

GIB = 1 << 30


def seen_of(code: str, scratch: Path, lines: int = 1) -> SessionUsage:
    """What a session that runs this code uses once it has printed so many lines."""
    with subprocess.Popen([sys.executable, "-c", code], start_new_session=True, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        for _ in range(lines):
            process.stdout.readline()
        try:
            return look(process.pid, scratch)
        finally:
            os.killpg(process.pid, 9)


@pytest.mark.parametrize(
    ("usage", "words"),
    [
        (SessionUsage(64, GIB, GIB), None),
        (SessionUsage(65, GIB, GIB), "it started 65 processes, more than 64"),
        (SessionUsage(3, 5 * GIB, GIB), "it took 5,120 MiB of memory, more than 4,096"),
        (SessionUsage(3, GIB, 9 * GIB), "it wrote 9,216 MiB of files, more than 8,192"),
    ],
)
def test_too_much_is_named(usage, words):
    assert excess(usage, 4 * GIB) == words


def test_a_session_is_seen_with_all_it_started(tmp_path):
    (tmp_path / "below").mkdir()
    (tmp_path / "below" / "file").write_bytes(b"x" * 100_000)
    grow = (
        "import subprocess, time; held = bytearray(b'x' * (50 << 20)); subprocess.Popen(['sleep', '60']); "
        "print(1, flush=True); time.sleep(60)"
    )
    seen = seen_of(grow, tmp_path)
    assert seen.processes == 2
    assert 50 << 20 <= seen.memory_bytes < 150 << 20
    assert 100_000 <= seen.disk_bytes < 200_000


def test_what_forks_have_in_common_counts_once(tmp_path):
    grow = (
        "import os, time; held = bytearray(b'x' * (50 << 20)); forks = [os.fork() for _ in range(3)]; "
        "print(1, flush=True); time.sleep(60)"
    )
    seen = seen_of(grow, tmp_path, lines=8)
    assert seen.processes == 8
    assert 50 << 20 <= seen.memory_bytes < 100 << 20


def test_what_has_ended_uses_nothing(tmp_path):
    process = subprocess.Popen(["true"])
    process.wait()
    assert look(process.pid, tmp_path / "gone") == SessionUsage(0, 0, 0)


def test_a_log_that_grows_too_long_begins_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("kernel_lsp.policy.MOST_LOG_BYTES", 1000)
    log = tmp_path / "output.log"
    with log.open("ab", buffering=0) as file:
        file.write(b"x" * 1000)
        cap_output(log)
        assert log.stat().st_size == 1000
        file.write(b"x")
        cap_output(log)
        assert log.stat().st_size == 0
        file.write(b"later")
    assert log.read_bytes() == b"later"
    cap_output(tmp_path / "none")


def test_a_worker_that_starts_many_processes_is_ended(pool, run):
    bomb = "import subprocess, time\nheld = [subprocess.Popen(['sleep', '60']) for _ in range(80)]\ntime.sleep(60)\n"

    async def main() -> tuple[int, str]:
        worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
        with pytest.raises(WorkerDied) as caught:
            await worker.ask(Load(path="/home/me/k.py", text=bomb), deadline=30)
        return worker.pid, caught.value.message

    leader, message = run(main())
    assert "stopped: it started" in message
    end = time.monotonic() + 60
    while members(leader) and time.monotonic() < end:
        time.sleep(0.05)
    assert not members(leader)
