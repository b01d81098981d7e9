"""A Ray cluster of several nodes on this machine's loopback interface, for tests. Needs no Ray itself."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from types import TracebackType
from typing import Self

import pytest

ROOT = Path(__file__).parents[3]
VERSION = f"python{sys.version_info.major}.{sys.version_info.minor}"
RAY_SITE = Path(os.environ.get("TEST_RAY_SITE", ROOT / f".venv-pool/lib/{VERSION}/site-packages"))
"""The folder of packages that has Ray: `.ci/run` installs it there."""

needs_ray = [
    pytest.mark.ray,
    pytest.mark.skipif(not (RAY_SITE / "ray").exists(), reason=f"no Ray in {RAY_SITE}; .ci/run installs it"),
]

TOKEN = "a token of this cluster, which is long enough"
NODE = Path(__file__).with_name("ray_node.py")
START = "from kernel_lsp.cli.main import main; main()"


class RayCluster:
    """Nodes of this machine; the first is the head. All processes end with the block.

    Args:
        folder: for what lanes and driver keep.
        token: asked for by its nodes; empty: they ask for none.
        cpus: of each node, by Ray's account.
    """

    def __init__(self, folder: Path, token: str = TOKEN, cpus: int = 1) -> None:
        self.folder, self._token, self._cpus = folder, token, cpus
        self._short = tempfile.mkdtemp(prefix="r", dir="/tmp")  # paths of sockets are short
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.address = f"127.0.0.1:{free.getsockname()[1]}"
        self._nodes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        port = self.address.partition(":")[2]
        self.add("--head", f"--port={port}", "--include-dashboard=false", f"--temp-dir={self._short}")
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number in range(len(self._nodes)):
            self.kill(number)

    @property
    def environment(self) -> dict[str, str]:
        """The environment of nodes and drivers, with folders of their own."""
        ray = (
            {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token} if self._token else {"RAY_AUTH_MODE": "disabled"}
        )
        own = {"HOME": self._short, "XDG_RUNTIME_DIR": self._short, "CUDA_VISIBLE_DEVICES": "", "PYTHONSAFEPATH": "1"}
        own |= {f"KERNEL_LSP_PATHS_{name}": str(self.folder / name.lower()) for name in ("DATA", "CACHE")}
        return {**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, (*sys.path, str(RAY_SITE)))), **ray, **own}

    def add(self, *asked: str) -> int:
        """Start a node and return its number, once it belongs to the cluster."""
        which = asked or ("--address", self.address)
        log = self.folder / f"node{len(self._nodes)}.log"
        options = [
            "--node-ip-address=127.0.0.1",
            f"--num-cpus={self._cpus}",
            "--num-gpus=0",
            "--object-store-memory=100000000",
        ]
        with log.open("wb") as said:
            node = subprocess.Popen(
                [sys.executable, NODE, "start", *which, *options, "--block"],
                env=self.environment,
                stdout=said,
                stderr=said,
                cwd=self._short,
                start_new_session=True,
            )
        self._nodes.append(node)
        until = time.monotonic() + 120
        while b"Ray runtime started" not in log.read_bytes():
            assert node.poll() is None, log.read_text()[-3000:]
            assert time.monotonic() < until, log.read_text()[-3000:]
            time.sleep(0.1)
        return len(self._nodes) - 1

    def kill(self, number: int) -> None:
        """End a node at once, with all of its processes."""
        node = self._nodes[number]
        for pid in (*descendants(node.pid), node.pid):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        node.wait()

    def pids(self) -> list[int]:
        """The processes of all nodes."""
        return [pid for node in self._nodes for pid in (node.pid, *descendants(node.pid))]

    def command(self, *asked: str, **changes: str) -> subprocess.Popen[str]:
        """Start `kernel-lsp`, in the folder of the cluster."""
        return self.python("-c", START, *asked, **changes)

    def python(self, *asked: str, **changes: str) -> subprocess.Popen[str]:
        """Start a Python program, in the folder of the cluster."""
        return subprocess.Popen(
            [sys.executable, *asked],
            env=self.environment | changes | {"COLUMNS": "160"},
            cwd=self.folder,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )


def descendants(pid: int) -> list[int]:
    """Return the processes that a process started, with those that they started, the latest first."""
    found: list[int] = []
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found = [*descendants(int(child)), int(child), *found]
    return found
