"""Start workers on demand, each forked by the zygote of its flavour; all of them end when the pool is closed."""

import asyncio
import contextlib
import os
import shutil
import socket
import sys
import tempfile
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from types import TracebackType
from typing import Self

import msgspec
from platformdirs import user_cache_path

from kernel_lsp.config.variables import named_variables
from kernel_lsp.errors import RunnerError
from kernel_lsp.runner.child_program import ChildProgram
from kernel_lsp.runner.environment import environment_in, passed_on, system_paths
from kernel_lsp.runner.fork_server import ZygoteRequest
from kernel_lsp.runner.fork_server_client import ForkedZygote, ForkServer
from kernel_lsp.runner.libraries import importable, shared
from kernel_lsp.runner.open_zygote import OpenZygote, ZygoteGoneError, fork_worker
from kernel_lsp.runner.sandbox import Confinement
from kernel_lsp.runner.sessions import kill_session
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.spans import SpanLog, WorkSpan
from kernel_lsp.runner.turns import GpuTurns
from kernel_lsp.runner.worker import Worker
from kernel_lsp.runner.zygote import ForkRequest

ATTEMPTS = 2
"""How often anything is tried that breaks the workers, each time with others."""
_START_SECONDS = 120.0
_ITSELF = "/proc/self"  # CUDA's driver writes the names of its threads there, and fails if it cannot
_DEVICES = ("/dev/null", "/dev/zero", "/dev/full", "/dev/random", "/dev/urandom", "/dev/shm")


class Flavour(StrEnum):
    """The set of modules that a worker's zygote has imported, and its environment."""

    GPU = "gpu"
    COMPILE = "compile"
    BUILD = "build"
    EMULATE = "emulate"


@dataclass(frozen=True, slots=True)
class _Recipe:
    """The modules and environment of a zygote; it imports those in `own` itself, as they depend on its environment."""

    imports: tuple[str, ...]
    own: tuple[str, ...] = ()
    environment: dict[str, str] = field(default_factory=dict[str, str])


_ROLES = "kernel_lsp.runner.workers"
_WORKERS = (f"{_ROLES}.oracle", f"{_ROLES}.subject")
_FIRST = {
    (True, False): f"{_ROLES}.triton_once",
    (False, True): f"{_ROLES}.problem_once",
    (True, True): f"{_ROLES}.problem_once",
}
_UNPACKED = (f"{_ROLES}.nvrtc_once",)
_NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
_RECIPES = {
    Flavour.GPU: _Recipe((*_WORKERS, "cuda.bindings.driver", f"{_ROLES}.recording")),
    Flavour.COMPILE: _Recipe((f"{_ROLES}.compile", "cuda.bindings.nvrtc"), _UNPACKED, _NO_GPU),
    Flavour.EMULATE: _Recipe((*_WORKERS, f"{_ROLES}.emulator", "cuda.bindings.nvrtc"), _UNPACKED, _NO_GPU),
}
_ZYGOTES = {Flavour.BUILD: Flavour.EMULATE}  # whose zygote forks workers of a flavour that has none of its own


class Pool:
    """Starts workers. Use as an async context manager; leaving it kills every worker it started, and starts no more.

    `gpu` is the UUID of the one GPU that its workers see. Build workers are forked from the zygote of emulating
    workers, for importing torch once more takes seconds, and what else these need a tenth of one. `folder` holds all
    files that workers write, and is removed with the pool; if this process is killed, each zygote removes its own part.
    With `warm_minutes` the imported modules stay in memory for that long, for the next session of this user (see
    `fork_server`). `spans` has the time of each start and request, for traces; `turns` are those of the sessions that
    use the GPU. Processes that use the GPU stay on `cores`, if there are any.
    """

    def __init__(
        self, gpu: str | None = None, *, warm_minutes: float = 0.0, cores: frozenset[int] = frozenset()
    ) -> None:
        self.gpu, self.cores, self.spans, self.turns = gpu, cores, SpanLog(), GpuTurns()
        self._warm_minutes = warm_minutes
        self._servers: dict[Flavour, ForkServer] = {}
        self._first_imports: dict[Flavour, dict[str, None]] = {}
        self._libraries: dict[str, None] = {}
        self._unwanted: set[str] = set()
        self.folder = Path(tempfile.mkdtemp(prefix="kernel-lsp-"))
        self._readable = set(system_paths())
        self._variables: set[str] = set()
        self._allowing, self._before = 0, (self._readable, self._variables)
        self._writable = {_ITSELF, *_DEVICES, *map(str, Path("/dev").glob("nvidia*"))}
        self._zygotes: dict[Flavour, asyncio.Task[OpenZygote]] = {}
        self._workers: set[Worker] = set()
        self._programs: set[int] = set()
        self._closed = False
        self._pids: set[int] = set()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    @property
    def allowed(self) -> frozenset[str]:
        """Return the paths that later workers may read, and the additional variables that they see."""
        return frozenset({*self._readable, *self._variables})

    def allow(self, read: Iterable[Path], variables: Iterable[str] = ()) -> None:
        """Let later workers read these files and folders with all their contents, and these variables.

        A variable is given by its name, or by the start of its name and a `*`.
        """
        self._readable |= {str(path) for path in read}
        self._variables |= set(variables)

    @contextlib.contextmanager
    def allowing(self) -> Generator[None]:
        """Undo at the end of the block what was allowed within; of several parallel blocks, at the end of the last."""
        if not self._allowing:
            self._before = set(self._readable), set(self._variables)
        self._allowing += 1
        try:
            yield
        finally:
            self._allowing -= 1
            if not self._allowing:
                self._readable, self._variables = self._before

    def preload(self, *flavours: Flavour) -> None:
        """Start importing in the background, so that the first worker need not wait; anew where that failed before."""
        for zygote in map(self._zygote, flavours):
            if zygote not in self._zygotes or _has_failed(self._zygotes[zygote]):
                self._zygotes[zygote] = start(self._start(zygote))

    @property
    def libraries(self) -> tuple[str, ...]:
        """Return the modules that zygotes import before later workers start."""
        return tuple(self._libraries)

    def foresee(self, libraries: Iterable[str]) -> None:
        """Let zygotes import modules of installed packages before later workers start."""
        self._libraries |= dict.fromkeys(name for name in libraries if name not in self._unwanted)

    def scratch(self, flavour: Flavour) -> Path:
        """Return the folder in which workers of one flavour live."""
        folder = self.folder / self._zygote(flavour) / flavour
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    def _zygote(self, flavour: Flavour) -> Flavour:
        """Return the flavour whose zygote forks these workers."""
        return _ZYGOTES.get(flavour, flavour)

    async def worker(
        self,
        flavour: Flavour,
        role: str,
        *,
        triton: bool = False,
        problem: bool = False,
        read: Iterable[Path] = (),
        write: Iterable[Path] = (),
        processes: bool = True,
        **parameters: object,
    ) -> Worker:
        """Return a fresh worker running the module ROLE of `kernel_lsp.runner.workers` with `parameters`.

        With `triton` or `problem` its zygote first imports modules for Triton or for KernelBench problems. Besides its
        own folder and the paths in `allowed` it may read the paths in `read`, write those in `write`, and start
        processes only with `processes`.

        Raises:
            RunnerError: the libraries it needs cannot be imported, or no process can be started.
        """
        self._require_open()
        readable, variables = self._readable | set(map(str, read)), set(self._variables)
        self.preload(flavour)
        with self.spans.span(f"wait for the imports of {flavour} workers"):
            zygote = await asyncio.shield(self._zygotes[self._zygote(flavour)])
        if (first := _FIRST.get((triton, problem))) is not None:
            self._first_imports.setdefault(self._zygote(flavour), {})[first] = None
        scratch = Path(tempfile.mkdtemp(prefix=f"{role}-", dir=self.scratch(flavour)))
        confinement: Confinement = {
            # The oracle maps the memory of subjects, which Landlock would forbid; it runs no candidate.
            "read": None if role == "oracle" else sorted(readable),
            "write": sorted({*self._writable, str(scratch), *map(str, write)}),
            "processes": processes,
            # Address space stays unlimited: CUDA reserves far more than it uses.
            "limits": {"RLIMIT_CORE": 0, "RLIMIT_FSIZE": 4 << 30},
        }
        own = _RECIPES[self._zygote(flavour)].environment
        request = ForkRequest(
            module=f"{_ROLES}.{role}",
            scratch=str(scratch),
            first=first,
            libraries=() if flavour is Flavour.COMPILE else self.libraries,  # which starts within a second
            environment=named_variables(variables) | environment_in(scratch) | _visible(self.gpu) | own,
            confinement=confinement,
        )
        with self.spans.span(f"fork {role}"):
            pid, ours = await self._forked(flavour, zygote, request, parameters)
        worker = Worker(pid, ours, scratch, role, frozenset(readable | variables), self.spans)
        self._workers.add(worker)
        self._pids.add(pid)
        worker.at_close(lambda: self._workers.discard(worker))
        if self._closed:  # while it was forked
            worker.kill()
        return worker

    async def _forked(
        self, flavour: Flavour, zygote: OpenZygote, request: ForkRequest, parameters: Mapping[str, object]
    ) -> tuple[int, socket.socket]:
        """Return a fresh process and our end of its socket, from another zygote where this one is gone."""
        try:
            return await fork_worker(zygote, request, parameters)
        except ZygoteGoneError as error:
            self._unwanted |= set(error.unwanted)
            self._libraries = {name: None for name in self._libraries if name not in self._unwanted}
            request = msgspec.structs.replace(request, libraries=self.libraries if request.libraries else ())
            Path(request.scratch).mkdir(parents=True, exist_ok=True)
            return await fork_worker(await self._another(flavour, zygote), request, parameters)

    async def _another(self, flavour: Flavour, gone: OpenZygote) -> OpenZygote:
        """Return a zygote in place of one that is gone; of several callers the first starts it."""
        self._require_open()
        kind = self._zygote(flavour)
        task = self._zygotes.get(kind)
        if task is not None and task.done() and not _has_failed(task) and task.result() is gone:
            del self._zygotes[kind]
            await gone.close()
        self._require_open()
        self.preload(flavour)
        return await asyncio.shield(self._zygotes[kind])

    async def program(self, command: Sequence[str]) -> ChildProgram:
        """Start a program. It gets the environment of a worker, in a folder of its own.

        Raises:
            RunnerError: the pool is closed.
        """
        self._require_open()
        scratch = Path(tempfile.mkdtemp(prefix="program-", dir=self.scratch(Flavour.GPU)))
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            cwd=scratch,
            env=environment_in(scratch) | _visible(self.gpu),
            start_new_session=True,
        )
        self._programs.add(process.pid)
        if self._closed:  # while it started
            kill_session(process.pid)

        def ended(span: WorkSpan | None) -> None:
            self._programs.discard(process.pid)
            if span is not None:
                self.spans.add(process.pid, Path(command[0]).name, span)

        return ChildProgram(process, scratch, ended)

    def count_in(self, pid: int) -> None:
        """Count a process that a program has started among those of this pool, as a GPU may report it."""
        self._pids.add(pid)

    def pids(self) -> frozenset[int]:
        """Return the process ids of all workers so far: a GPU reports a process for a while after its end."""
        return frozenset(self._pids)

    async def close(self) -> None:
        """Kill all workers, programs and zygotes."""
        self._closed = True
        for worker in tuple(self._workers):
            worker.kill()
        for program in self._programs:
            kill_session(program)
        for task in tuple(self._zygotes.values()):
            task.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError):
                await (await task).close()
        self._zygotes.clear()
        for flavour, server in self._servers.items():
            await server.should_import(tuple(self._first_imports.get(flavour, ())), shared(self._libraries))
        shutil.rmtree(self.folder, ignore_errors=True)

    def _require_open(self) -> None:
        if self._closed:
            raise RunnerError("no process is started any more: what would use it has ended", fix="Start again.")

    async def _start(self, flavour: Flavour) -> OpenZygote:
        ours, theirs = socket.socketpair()
        recipe, folder = _RECIPES[flavour], self.folder / flavour
        folder.mkdir(exist_ok=True)
        environment = _environment_of(recipe, self.gpu) | {"XDG_CACHE_HOME": str(user_cache_path())}
        process: asyncio.subprocess.Process | ForkedZygote | None = None
        if self._warm_minutes:
            request = ZygoteRequest(str(folder), environment, recipe.own)
            process = await self._warm_zygote(flavour, request, theirs)
        if process is None:
            process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-P", "-m", "kernel_lsp.runner.zygote", str(folder), *recipe.imports, *recipe.own),
                stdin=theirs.fileno(),
                stdout=asyncio.subprocess.DEVNULL,
                stderr=asyncio.subprocess.PIPE,
                env=environment,
                start_new_session=True,  # Ctrl-C is handled by this process, which ends its workers
            )
        theirs.close()
        ours.setblocking(False)
        zygote = OpenZygote(process, ours)
        try:
            async with asyncio.timeout(_START_SECONDS):
                ready = await asyncio.get_running_loop().sock_recv(ours, 64)
        except (TimeoutError, OSError):
            ready = b""
        except asyncio.CancelledError:
            await zygote.close()
            raise
        if ready != b"ready\n":
            said = await zygote.close()
            if not said:  # it was killed, or took too long: nothing is missing
                raise RunnerError(f"the {flavour} workers did not start", fix="Try again.")
            fix = "Install what is missing with: pip install 'kernel-lsp[gpu]'."
            raise RunnerError(f"the {flavour} workers cannot start: {said[-1]}", fix=fix)
        if self.cores and flavour is Flavour.GPU:  # what it forks stays there too
            with contextlib.suppress(OSError):  # it has just ended, or no core is this user's any more
                os.sched_setaffinity(process.pid, self.cores)
        return zygote

    async def _warm_zygote(
        self, flavour: Flavour, request: ZygoteRequest, control: socket.socket
    ) -> ForkedZygote | None:
        """Return a zygote of the fork server that has imported the foreseen libraries too, or of that without them."""
        server = fork_server(flavour, self.gpu, self._warm_minutes)
        libraries = importable(self._libraries) if flavour is not Flavour.COMPILE else []
        if len(shared(libraries)) < len(libraries):
            own = {name: value for name, value in request.environment.items() if name != "PATH"}
            self._servers[flavour] = server.importing(libraries, own)
            if (zygote := await self._servers[flavour].zygote(request, control)) is not None:
                return zygote
        self._servers[flavour] = server
        return await server.zygote(request, control)


def fork_server(flavour: Flavour, gpu: str | None, minutes: float) -> ForkServer:
    """Return the server that forks zygotes of a flavour, started when first asked.

    Args:
        flavour: one that has zygotes of its own.
        gpu: UUID of the one GPU that workers see.
        minutes: how long it stays after it was last asked.
    """
    recipe = _RECIPES[flavour]
    environment = _environment_of(recipe, gpu)
    environment.pop("PATH", None)  # no import depends on it, and shells differ in it
    return ForkServer(recipe.imports, environment, minutes)


def _environment_of(recipe: _Recipe, gpu: str | None) -> dict[str, str]:
    path = os.pathsep.join(filter(None, (str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH"))))
    return passed_on() | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"} | _visible(gpu) | recipe.environment


def _visible(gpu: str | None) -> dict[str, str]:
    return {} if gpu is None else {"CUDA_VISIBLE_DEVICES": gpu}


def _has_failed(start: "asyncio.Task[OpenZygote]") -> bool:
    return start.done() and (start.cancelled() or start.exception() is not None)
