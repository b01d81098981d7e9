"""One set of sessions for all tests on a GPU, and what must be true when the last of them is over."""

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest
import spinning
from judges import CommandLine, Judges, eventually, memory_of_others, shares_gpu

from kernel_lsp.device.nvml import Gpu, find_gpus
from tests.processes import processes_below

START = "from kernel_lsp.cli.main import main; main()"


@pytest.fixture(scope="session", autouse=True)
def gpu() -> Iterator[Gpu]:
    """The GPU of all tests; with `-n GPUS --dist loadfile` each process of pytest-xdist has one of its own."""
    gpus = find_gpus()
    if not gpus:
        pytest.skip("no NVIDIA GPU was found")
    number = int(os.environ.get("PYTEST_XDIST_WORKER", "gw0").removeprefix("gw"))
    chosen = gpus[number % len(gpus)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", chosen.uuid)
        yield chosen


@pytest.fixture(scope="session")
def house(gpu: Gpu, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder in which all work is done. After the last test no process, folder or GPU memory is left of it."""
    folder = tmp_path_factory.mktemp("house")
    before = memory_of_others(gpu)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TMPDIR", str(folder))
        patch.setattr(tempfile, "tempdir", str(folder))
        yield folder
    eventually(lambda: not processes_below(folder), "worker processes are left over")
    if not shares_gpu():
        eventually(lambda: memory_of_others(gpu) < before + (256 << 20), "GPU memory is left over")
    assert list(folder.glob("kernel-lsp-*")) == []


@pytest.fixture(scope="session")
def judges(house: Path) -> Iterator[Judges]:
    """Judgements in this process; each kernel file's session is opened once."""
    with Judges(house) as opened:
        yield opened


@pytest.fixture(scope="session")
def scale(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The kernel file of `spinning`."""
    return spinning.write(tmp_path_factory.mktemp("scale"))


@pytest.fixture
def kernel_lsp(house: Path, tmp_path: Path) -> Iterator[CommandLine]:
    """Start the command in `tmp_path`, with a store of its own there and builds shared with all other tests."""
    started: list[subprocess.Popen[str]] = []

    def start(*args: str, **changes: str) -> "subprocess.Popen[str]":
        folders = {"KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"), "KERNEL_LSP_PATHS_CACHE": str(house / "cache")}
        environment = {**os.environ, **folders, "PYTHONPATH": os.pathsep.join(sys.path), "COLUMNS": "100", **changes}
        process = subprocess.Popen(
            [sys.executable, "-c", START, *args],
            cwd=tmp_path,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        started.append(process)
        return process

    yield start
    for process in started:
        process.kill()
        process.communicate()
