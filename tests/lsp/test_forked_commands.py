"""A forked command is, to its caller, the command itself."""

import os
import select
import socket
import subprocess
import sys

import pytest

from tests.forked_commands import forked, origin
from tests.lsp.job_session import below, editor, gone
from tests.lsp.raw_client import SERVE
from tests.lsp.test_diagnostics import BAD, messages

REAL = [sys.executable, "-c", SERVE]


@pytest.mark.parametrize("arguments", [("--version",), ("explain", "KL030"), ("frobnicate",)])
def test_it_says_the_same_and_ends_alike(tmp_path, arguments):
    environment = os.environ | {"KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "COLUMNS": "40"}
    said = [
        subprocess.run([*start, *arguments], env=environment, cwd=tmp_path, capture_output=True, check=False)
        for start in (REAL, forked())
    ]
    assert said[0].returncode == said[1].returncode
    assert said[0].stdout == said[1].stdout
    assert said[0].stderr == said[1].stderr


def test_it_reads_files_where_it_is_called(tmp_path):
    (tmp_path / "pyproject.toml").write_text("[tool]\nkernel-lsp = 3\n")
    done = subprocess.run(forked("report"), cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert "not a table" in done.stderr


@pytest.mark.asyncio
async def test_a_server_and_its_services_end_with_who_was_given_them(tmp_path):
    async with editor(tmp_path, ends_well=False, runner={"warm_minutes": 0}) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        _, process = origin()
        started = below(process.pid)
        assert len(started) >= 2, "the server and its service"
        session.client._server.kill()
        await gone(started)


@pytest.mark.parametrize("said", [b"", b'[{"half": "of a request"'])
def test_streams_of_a_relay_that_is_ended_before_it_has_asked_are_closed(said):
    """Else who reads from the server that it was to serve waits for good: a service may be killed as it starts."""
    path, _ = origin()
    reading, writing = os.pipe()
    with socket.socket(socket.AF_UNIX) as relay:
        relay.connect(path)
        socket.send_fds(relay, [b"x"], [writing] * 3)
        relay.sendall(said)
    os.close(writing)
    with os.fdopen(reading, "rb", buffering=0) as stream:
        ready, _, _ = select.select([stream], [], [], 10)
        assert ready, "somebody may still write"
        assert stream.read() == b""
