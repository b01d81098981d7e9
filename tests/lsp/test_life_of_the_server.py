"""How the server starts, what it weighs, and how it ends, with all that it started."""

import asyncio
import contextlib
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.lsp.job_session import ROOT, SERVE, alive, below, children, editor, recorded
from tests.lsp.test_diagnostics import BAD, messages
from tests.lsp.test_reading_features import lenses

HEAVY = {"torch", "triton", "numpy", "cuda", "vllm"}
COMMAND = [sys.executable, "-c", SERVE, "serve"]


def frame(**message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    return b"Content-Length: %d\r\n\r\n" % len(body) + body


def read(stream):
    length = 0
    while line := stream.readline().strip():
        name, _, value = line.partition(b":")
        length = int(value) if name.lower() == b"content-length" else length
    return json.loads(stream.read(length))


def start(*options):
    return subprocess.Popen(
        [*COMMAND, *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
    )


INITIALIZE = frame(id=1, method="initialize", params={"processId": None, "rootUri": None, "capabilities": {}})


def test_it_starts_at_once_and_weighs_little():
    """The limit here is what a busy machine allows; `tests.bench.lsp_responsiveness` measures."""
    began = time.perf_counter()
    with start() as server:
        server.stdin.write(INITIALIZE)
        server.stdin.flush()
        assert read(server.stdout)["result"]["serverInfo"]["name"] == "kernel-lsp"
        assert time.perf_counter() - began < 3
        status = Path(f"/proc/{server.pid}/status").read_text()
        assert int(re.search(r"VmRSS:\s+(\d+) kB", status)[1]) < 120 * 1024
        server.stdin.write(frame(id=2, method="shutdown") + frame(method="exit"))
        server.stdin.flush()
        assert server.wait(60) == 0


def test_nothing_heavy_is_imported():
    """Neither by the server nor by anything that it imports later, inside functions."""
    modules = [
        ".".join(path.relative_to(ROOT).with_suffix("").parts)
        for path in (ROOT / "kernel_lsp/lsp").rglob("*.py")
        if path.stem not in ("__init__",)
    ]
    code = f"import sys, importlib; [importlib.import_module(m) for m in {modules}]; print({HEAVY} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_settings_and_records_wait_until_the_client_is_answered():
    """pydantic and the rooms below take longer to import than an editor should wait."""
    late = {"pydantic", "sqlite3", "rich", "watchdog"}
    code = f"import sys, kernel_lsp.lsp.server as s; s.Server({{}}, s.Service()); print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


def test_what_is_known_of_a_text_needs_neither_prompts_nor_a_model():
    """They are for modules without kernels; evidence and rewrites are for those who ask."""
    late = {"httpx", "jinja2", "kernel_lsp.refine.run", "kernel_lsp.refine.rewrites", "kernel_lsp.report.evidence"}
    code = f"import sys, kernel_lsp.lsp.document_status; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.thorough
def test_garbage_of_the_start_is_not_kept_for_good():
    """Looking for garbage is put off while the protocol's types are made, and what is there then is never looked at."""
    made = "import gc, kernel_lsp.lsp.serving as s; kept = s._make_server({}, s.Service())"
    code = f"{made}; gc.unfreeze(); print(gc.collect())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert int(done.stdout) < 3000, done.stderr


def test_the_answer_to_initialize_waits_for_no_library():
    late = {"lsprotocol", "pygls", "attrs", "cattrs", "tree_sitter"}
    code = f"import sys, kernel_lsp.cli.serve; print({late} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "set()", done.stderr


@pytest.mark.parametrize("options", [[], ["--stdio"]])
def test_what_reads_options_is_not_imported_where_there_are_none(options):
    given = f"import sys; sys.argv = ['kernel-lsp', 'serve', *{options}]; import kernel_lsp.lsp.serving as serving"
    instead = "serving.serve_stdio = lambda _: print('pydantic' in sys.modules) or 7"
    code = f"{given}; {instead}; from kernel_lsp.cli.main import main; main()"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert (done.stdout, done.returncode) == ("False\n", 7), done.stderr


def test_what_compiles_starts_before_a_text_is_opened_and_by_the_clients_settings():
    """Without minutes to stay warm there is no fork server: the zygote is a program of its own."""
    options = {"trusted": True, "runner": {"warm_minutes": 0}}
    params = {"processId": None, "rootUri": None, "capabilities": {}, "initializationOptions": options}
    with start() as server:
        server.stdin.write(frame(id=1, method="initialize", params=params))
        server.stdin.flush()
        assert read(server.stdout)["id"] == 1
        deadline = time.monotonic() + 60
        while not any(map(_compiles, below(server.pid))):
            assert time.monotonic() < deadline
            time.sleep(0.05)
        server.stdin.write(frame(id=2, method="shutdown") + frame(method="exit"))
        server.stdin.flush()
        assert server.wait(60) == 0


def _compiles(pid):
    try:
        return b"kernel_lsp.runner.workers.compile" in Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
    except OSError:  # it has just ended
        return False


def converse(*messages):
    """What the server answers to each message that has an id, in order; then it is shut down."""
    with start() as server:
        last = frame(id="last", method="shutdown"), frame(method="exit")
        server.stdin.write(b"".join((*messages, *last)))
        server.stdin.flush()
        answers = []
        while not answers or answers[-1].get("id") != "last":
            answers.append(read(server.stdout))
        assert server.wait(10) == 0
        assert server.stderr.read() == b""
        return [answer for answer in answers[:-1] if "id" in answer and "method" not in answer]


@pytest.mark.parametrize(
    "name",
    [
        "vscode_1.139_languageclient11",
        *(pytest.param(name, marks=pytest.mark.thorough) for name in ("neovim_0.11.4", "neovim_0.7.2", None)),
    ],
)
def test_the_early_answer_is_the_one_that_the_library_gives(name):
    params = {"processId": None, "rootUri": None, "capabilities": recorded(name) if name else {}}
    initialize = frame(id=1, method="initialize", params=params)
    [early] = converse(initialize)
    [late] = converse(frame(method="$/setTrace", params={}), initialize)  # what comes first is no `initialize`
    for said in ("willSave", "willSaveWaitUntil"):
        assert late["result"]["capabilities"]["textDocumentSync"].pop(said, False) is False
    assert early == late


@pytest.mark.parametrize(
    "capabilities",
    [
        pytest.param({"textDocument": {"hover": 3}}, marks=pytest.mark.thorough),
        {"general": {"positionEncodings": ["utf-8"]}, "window": []},
    ],
)
def test_a_client_whose_capabilities_cannot_be_read_is_served_as_one_that_has_none(capabilities):
    params = {"processId": None, "rootUri": None, "capabilities": capabilities}
    first, second = converse(frame(id=1, method="initialize", params=params), frame(id=2, method="kernelLsp/jobs"))
    assert first["result"]["capabilities"]["hoverProvider"] is True
    assert second["result"] == {"jobs": []}


@pytest.mark.parametrize(
    "params",
    [
        *(pytest.param(params, marks=pytest.mark.thorough) for params in (None, [], {}, {"capabilities": None})),
        {"capabilities": {"general": 3}},
    ],
)
def test_an_initialize_that_is_none_is_refused(params):
    [refused, again] = converse(frame(id=1, method="initialize", params=params), INITIALIZE)
    assert refused["error"]["code"] == -32602
    assert again["result"]["serverInfo"]["name"] == "kernel-lsp"


@pytest.mark.sampled(2)
@pytest.mark.parametrize(
    ("messages", "code"),
    [
        (b"", 1),
        (INITIALIZE, 1),
        (frame(method="exit"), 1),
        (INITIALIZE + frame(method="exit"), 1),
        (INITIALIZE + frame(id=2, method="shutdown") + frame(method="exit"), 0),
        (INITIALIZE + frame(id=2, method="shutdown"), 0),
    ],
)
def test_the_exit_code_says_whether_it_was_shut_down(messages, code):
    server = start()
    server.communicate(messages, timeout=20)
    assert server.returncode == code


def test_it_ends_without_a_word_when_its_client_has_died():
    with start() as server:
        server.stdin.write(INITIALIZE)
        server.stdin.flush()
        assert read(server.stdout)["id"] == 1
        server.stdout.close()
        server.stdin.close()
        assert (server.stderr.read(), server.wait(20)) == (b"", 1)


def test_without_a_client_it_says_what_it_is_for():
    done = subprocess.run(
        COMMAND, stdin=subprocess.DEVNULL, capture_output=True, text=True, cwd=ROOT, timeout=20, check=False
    )
    assert done.returncode == 2
    assert "must be pipes" in done.stderr


def connect(server):
    said = server.stderr.readline().decode()
    port = int(re.fullmatch(r"listening on 127\.0\.0\.1:(\d+)\n", said)[1])
    return socket.create_connection(("127.0.0.1", port), timeout=20)


def test_it_serves_one_client_over_a_socket():
    with start("--socket", "0") as server, connect(server) as connection, connection.makefile("rwb") as stream:
        stream.write(INITIALIZE)
        stream.flush()
        assert read(stream)["id"] == 1
        stream.write(frame(id=2, method="shutdown") + frame(method="exit"))
        stream.flush()
        assert read(stream) == {"id": 2, "jsonrpc": "2.0", "result": None}
        assert server.wait(60) == 0


def test_a_client_that_hangs_up_ends_it():
    with start("--socket", "0") as server:
        connect(server).close()
        assert server.wait(60) == 1


def test_a_port_in_use_is_said():
    with socket.create_server(("127.0.0.1", 0)) as taken, start("--socket", str(taken.getsockname()[1])) as server:
        _, said = server.communicate(timeout=20)
        assert server.returncode == 2
        assert b"cannot be used" in said
        assert b"Traceback" not in said


@pytest.mark.thorough
@pytest.mark.asyncio
@pytest.mark.parametrize("end", ["stdin closed", signal.SIGTERM, signal.SIGKILL])
async def test_nothing_outlives_it(end, tmp_path):
    async with editor(tmp_path, real=True, ends_well=False, runner={"warm_minutes": 0}) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        pids = {session.pid} | below(session.pid)
        assert len(pids) >= 4  # the server, the service, a zygote, a worker
        if end == "stdin closed":
            session.client._server.stdin.close()
        else:
            os.kill(session.pid, end)
        deadline = time.monotonic() + 60
        while left := alive(pids):
            assert time.monotonic() < deadline, f"still there: {left}"
            await asyncio.sleep(0.05)


@pytest.mark.asyncio
@pytest.mark.parametrize("asked", [False, True])
async def test_a_compile_process_that_dies_is_replaced(asked, tmp_path):
    async with editor(tmp_path, real=True) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        before = below(session.pid)
        for pid in before:
            os.kill(pid, signal.SIGSTOP if asked else signal.SIGKILL)
        session.edit(uri, BAD.replace("two", "three"))
        if asked:  # it dies with the question in its hands
            await asyncio.sleep(1)
            for pid in before:
                os.kill(pid, signal.SIGKILL)
        await session.until(lambda: any("three" in text for text in messages(session, uri)))
        assert not before & below(session.pid)


@pytest.mark.asyncio
async def test_what_compiles_is_killed_as_it_starts_and_that_is_no_finding(tmp_path):
    """It is told as the server's state, and the log has it; the next text is compiled by another process."""
    async with editor(tmp_path, real=True, runner={"warm_minutes": 0}) as session:
        uri = session.open(tmp_path / "scale.cu", BAD, "cuda")
        await session.until(lambda: messages(session, uri))
        before = session.statuses
        session.edit(uri, BAD.replace("two", "three"))
        async with asyncio.timeout(60):
            while session.statuses == before:
                for pid in {one for service in children(session.pid) for one in below(service)}:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
                await asyncio.sleep(0.02)
        assert "the compile workers did not start" in (await session.request("status", {}))["trouble"]
        assert (messages(session, uri), session.said) == ([], [])
        assert [title for _, title in await lenses(session, uri)] == ["not compiled: the log says why"]
        session.edit(uri, BAD.replace("two", "four"))
        await session.until(lambda: any("four" in text for text in messages(session, uri)))
        assert (await session.request("status", {}))["trouble"] is None
