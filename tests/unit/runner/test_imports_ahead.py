"""A command has workers' imports begun before it has made its own."""

import asyncio
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from test_warm_zygotes import parent_of, runtime, until

from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.runner import ahead
from kernel_lsp.runner.pool import Flavour, Pool, fork_server

__all__ = ["runtime"]  # a fixture

_COMMAND = """
import sys
from kernel_lsp.cli import judge

def begin(settings):
    early = {"kernel_lsp.judge.session", "kernel_lsp.cli.judging"} & sys.modules.keys()
    print(settings.runner.warm_minutes, *sorted(early))
    sys.exit()

judge.begin_imports = begin
judge.app(["kernel.py", "other.py"])
"""


def settings_with(minutes: float) -> Settings:
    return load_settings(overrides={"runner.warm_minutes": minutes})[0]


def sockets(folder: Path) -> list[Path]:
    return [path for path in folder.glob("*") if path.is_socket()]


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch) -> Callable[[str | None], None]:
    """Has a GPU of this UUID chosen, or none; at first there is none."""

    def choose(uuid: str | None) -> None:
        monkeypatch.setattr(ahead, "choose_gpu", lambda _: uuid and SimpleNamespace(uuid=uuid))

    choose(None)
    return choose


@pytest.mark.usefixtures("gpu")
def test_a_session_asks_the_server_that_was_begun(runtime: Path) -> None:
    ahead.begin_imports(settings_with(1.0))
    server = fork_server(Flavour.EMULATE, None, 1.0)
    until(lambda: server.runs)
    begun = sockets(runtime)

    async def keeper() -> int:
        async with Pool(warm_minutes=1.0) as pool:
            return parent_of(parent_of((await pool.worker(Flavour.BUILD, "build")).pid))

    assert asyncio.run(keeper()) != os.getpid()
    assert sockets(runtime) == begun
    assert len(begun) == 1


def test_on_a_gpu_all_are_begun_that_a_session_there_asks(runtime: Path, gpu: Callable[[str | None], None]) -> None:
    gpu("GPU-0")
    ahead.begin_imports(settings_with(1.0))
    servers = [fork_server(flavour, "GPU-0", 1.0) for flavour in (Flavour.GPU, Flavour.EMULATE, Flavour.COMPILE)]
    until(lambda: all(server.runs for server in servers))
    assert len(sockets(runtime)) == len(servers)


@pytest.mark.usefixtures("gpu")
def test_what_runs_is_not_begun_again(runtime: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = fork_server(Flavour.EMULATE, None, 1.0)
    server.begin()
    (began,) = [path.stat().st_ino for path in sockets(runtime)]
    server.begin()
    monkeypatch.setattr(threading, "Thread", None)
    ahead.begin_imports(settings_with(1.0))
    assert [path.stat().st_ino for path in sockets(runtime)] == [began]


def test_nothing_is_begun_where_nothing_stays_warm(runtime: Path) -> None:
    ahead.begin_imports(settings_with(0))
    assert not runtime.exists()


def test_judge_begins_them_before_it_has_imported_the_judge() -> None:
    ran = subprocess.run([sys.executable, "-c", _COMMAND], capture_output=True, text=True, timeout=60)
    assert ran.stdout == "10.0\n", ran.stderr
