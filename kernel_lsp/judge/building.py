"""Builds for the judge: a pool of compile workers, and what came out of each candidate."""

import asyncio
import contextlib
import hashlib
import itertools
import shutil
import zlib
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter, ValidationError

from kernel_lsp.build.binary import Binary, Build, Diagnostic, Severity
from kernel_lsp.build.cache import FileCache
from kernel_lsp.build.cubin import code_digest
from kernel_lsp.build.host.record import ExtensionBuild
from kernel_lsp.build.known import build_keys
from kernel_lsp.build.plan import Plan
from kernel_lsp.build.together import apart, launches_of, together
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import RunnerError, WorkloadError
from kernel_lsp.runner import protocol
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.worker import Worker, WorkerDied, WorkerTimedOut
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import surroundings
from kernel_lsp.source.host_launches import find_host_launches
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import device_units, in_place
from kernel_lsp.workload.spec import WorkloadFile

BUILD_SECONDS = 120.0
DEFAULT_ARCH = "sm_90"
EXTENSION_SECONDS = 600.0
_ANSWERS = ".answer"
_NUMBERS = itertools.count(1)


@dataclass(frozen=True, slots=True)
class Built:
    """A candidate's build: the binary or why there is none, the launches each case makes, and where files were left.

    Attributes:
        build: what the compiler made and said.
        plans: the launches of each case.
        extensions: with host code that is called: the torch extension that a CUDA file is, or those that a Python
            file asks for.
        binaries: Triton: each compilation by itself, in the order of `build.binary.kernels`.
        host_texts: what a Python file gives to `load_inline` and `load`, as far as may be on its lines.
        lasting: whether building the same text again would end the same; a process that died says nothing lasting.
    """

    build: Build
    plans: tuple[Plan, ...]
    extensions: tuple[ExtensionBuild, ...] = ()
    binaries: tuple[Binary, ...] = ()
    host_texts: tuple[str, ...] = ()
    lasting: bool = True

    @property
    def images(self) -> tuple[Binary, ...]:
        """Every piece of machine code there is."""
        return self.binaries or ((self.build.binary,) if self.build.binary else ())

    @property
    def ok(self) -> bool:
        """Whether there is something to run."""
        if self.extensions:
            return all(extension.ok for extension in self.extensions)
        if self.build.way == "torch":
            return not self.build.diagnostics
        return self.build.binary is not None

    @property
    def code(self) -> str | None:
        """What runs on the GPU and how it is launched, as a hash; None where it is not all known (Triton, extensions).

        Two versions of one hash are the same program, whatever their texts say.
        """
        binary = self.build.binary
        if binary is None or self.extensions or self.build.way == "triton":
            return None
        return hashlib.sha256(f"{code_digest(binary.cubin)} {self.plans}".encode()).hexdigest()

    @property
    def first_error(self) -> str:
        """The first error as a person would be told it."""
        for diagnostic in self.build.diagnostics:
            if diagnostic.severity is Severity.ERROR:
                return f"{Path(diagnostic.path).name}:{diagnostic.line}: {diagnostic.message}"
        return "the compiler failed without a message"


_BUILT = TypeAdapter(Built)
_EXTENSION = TypeAdapter(ExtensionBuild)


def known_build(settings: Settings, arch: str, workload: WorkloadFile | None, candidate: Candidate) -> Built | None:
    """What building a candidate brought before, if nothing that goes into it has changed since and it is still kept.

    Starts no process, imports nothing heavy and takes about a millisecond.
    """
    cache = kept_files(settings, _ANSWERS)
    for key in _keys(settings, arch, workload, candidate) or ():
        if (stored := cache.read(key)) is not None:
            try:
                built = _BUILT.validate_python(protocol.decode(zlib.decompress(stored)))
            except (ValueError, ValidationError, zlib.error):  # of an older version
                cache.drop(key)
                continue
            return _in_given_terms(replace(built, build=replace(built.build, cached=True)), candidate)
    return None


def _remember(
    settings: Settings, arch: str, workload: WorkloadFile | None, candidate: Candidate, answer: dict[str, Any]
) -> None:
    keys = _keys(settings, arch, workload, candidate)
    if keys is None:
        return
    by_slice, by_file = keys
    sliced = answer["build"]["binary"] is not None and answer["build"]["way"] != "nvcc"
    body = protocol.encode(answer)[protocol.HEADER.size :]
    kept_files(settings, _ANSWERS).write(by_slice if sliced else by_file, zlib.compress(body, 1))


def kept_files(settings: Settings, suffix: str) -> FileCache:
    """The cache of builds and of what was read from them; each kind of content has a suffix of its own."""
    return _kept_files(settings.paths.cache / "builds", settings.build.cache_limit, suffix)


@lru_cache
def _kept_files(folder: Path, limit: int, suffix: str) -> FileCache:
    return FileCache(folder, limit, suffix)  # one for all callers, as each counts once what lies in the folder


def _keys(settings: Settings, arch: str, workload: WorkloadFile | None, candidate: Candidate) -> tuple[str, str] | None:
    return build_keys(candidate, workload, arch, settings.build.options, settings.build.include_dirs)


class Builders:
    """Compile workers, as many as settings allow, each asked one thing at a time. CUDA's are kept warm.

    Where a build runs code of a candidate (a Triton file, another `launch`, an extension that is imported) it gets a
    process of its own, which cannot write to the cache of builds.
    """

    def __init__(self, pool: Pool, settings: Settings, arch: str) -> None:
        self._pool, self._settings, self.arch = pool, settings, arch
        self._number = str(next(_NUMBERS))
        self._cache_folder = settings.paths.cache / "builds"
        self._room = asyncio.Semaphore(settings.runner.compile_workers)
        self._busy = 0
        self._idle: list[Worker] = []
        self._results: dict[tuple[str, str], asyncio.Task[Built]] = {}
        self._first_triton: Path | None = None

    async def build(self, workload: WorkloadFile | None, candidate: Candidate, arch: str | None = None) -> Built:
        """Build a candidate; the same text is built once. A failed build is a result, not an exception.

        Without a workload nothing says which launches there are: a CUDA file is compiled as it is, and of a Triton
        file there is nothing to compile. `arch` may be another than the one that candidates are judged on.
        """
        key = (candidate.digest, arch or self.arch)
        task = self._results.get(key)
        if task is None or task.cancelled():
            task = self._results[key] = start(self._build(workload, candidate, arch or self.arch))
        return await asyncio.shield(task)

    def forget(self, candidate: Candidate) -> None:
        """Let go of a candidate's result, for those who build without end."""
        for key in [key for key in self._results if key[0] == candidate.digest]:
            del self._results[key]
        folder = self.triton_cache(candidate)
        if folder != self._first_triton:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the workers that wait for the next build."""
        while self._idle:
            self._idle.pop().kill()

    async def own(self, name: str) -> dict[str, Any]:
        """The harness's own kernels of `device/NAME.cu`, for this architecture."""
        async with self._worker() as worker:
            return await worker.call(
                "build_own", deadline=BUILD_SECONDS, name=name, arch=self.arch, **self._cache_options()
            )

    async def prepare_header(self) -> None:
        """Compile ahead what every extension on the fast path begins with; where it fails, they build without."""
        with contextlib.suppress(WorkerFailure, RunnerError):
            async with self._worker() as worker:
                await worker.call("prepare_header", deadline=BUILD_SECONDS, cache_folder=str(self._cache_folder))

    def _cache_options(self) -> dict[str, Any]:
        return {"cache_folder": str(self._cache_folder), "cache_limit": self._settings.build.cache_limit}

    def triton_cache(self, candidate: Candidate) -> Path:
        """Folder of Triton's own cache for one candidate, so that none can reach into another's.

        It is of these builders alone: others of the pool, for another architecture, may forget the same candidate.
        """
        return self._pool.scratch(Flavour.BUILD) / "triton" / self._number / candidate.digest[:32]

    def extensions(self) -> Path:
        """The folder of built extensions, made if it is not there; each candidate has one of its own in it."""
        folder = self._settings.paths.cache / "extensions"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep_launchers(self, folder: Path) -> None:
        """Take over what Triton left in `folder`, the cache of a process that ran the user's own file, for all to come.

        In each process Triton has the host compiler make its driver's module (some releases a launcher for each kernel
        too), which takes longer than to compile the kernel. They go by their source text: no other version's is taken.
        """
        if (first := self._first_triton) is None:
            return
        for built in folder.glob("*/*.so"):
            kept = first / built.parent.name / built.name
            if not kept.exists():
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(built, kept)

    def _seed_triton_cache(self, candidate: Candidate) -> None:
        """Begin with what the user's own file left; a version's folder holds what its code put there."""
        folder = self.triton_cache(candidate)
        if self._first_triton is None:
            self._first_triton = folder if candidate.origin == "baseline" else None
        elif self._first_triton.is_dir() and not folder.exists():
            shutil.copytree(self._first_triton, folder)

    async def _build(self, workload: WorkloadFile | None, candidate: Candidate, arch: str) -> Built:
        settings = self._settings.build
        if candidate.language is Language.TRITON:
            self._seed_triton_cache(candidate)
        triton_cache, extension = self.triton_cache(candidate), self.extensions() / candidate.digest[:32]
        request = {
            "language": str(candidate.language),
            "path": str(candidate.kernel.path.absolute()),  # a worker lives in a folder of its own
            "text": candidate.kernel.text,
            "launch_path": str(candidate.launch.path.absolute()) if candidate.launch else None,
            "launch_text": candidate.launch.text if candidate.launch else None,
            "workload_path": str(workload.source.path.absolute()) if workload else None,
            "workload_text": workload.source.text if workload else None,
            "arch": arch,
            "options": settings.options,
            "include_dirs": [str(folder.absolute()) for folder in settings.include_dirs],
            **self._cache_options(),
            "triton_cache": str(triton_cache),
            "extension_folder": str(extension),
        }
        builds = self._cache_folder
        with contextlib.suppress(OSError):
            builds.mkdir(parents=True, exist_ok=True)
        files = (candidate.kernel, candidate.launch, workload.source if workload else None)
        self._pool.allow(read=[*surroundings(*filter(None, files)), builds, *settings.include_dirs])
        self._pool.allow(read=[self._pool.scratch(Flavour.BUILD), self.extensions()])
        given = (None, workload.source.text if workload else None)
        own_launch = candidate.origin != "baseline" and (candidate.launch and candidate.launch.text) not in given
        try:
            made = candidate.language is Language.TORCH and workload is not None  # its model is constructed
            runs_candidate = candidate.language is Language.TRITON or made or own_launch
            problem = workload is not None and workload.problem
            async with self._worker(triton_cache if runs_candidate else None, problem=problem) as worker:
                processes = self._settings.runner.compile_workers // self._busy  # alone it has all of them
                answer = await worker.call("build", deadline=BUILD_SECONDS, processes=processes, **request)
            requests = answer.pop("requests", [])
            asked = [await self._requested(asked, request, extension) for asked in requests]
        except (WorkerDied, WorkerTimedOut) as error:
            return replace(_failed(candidate, str(error)), lasting=False)
        except WorkerFailure as error:
            return _failed(candidate, str(error))
        except WorkloadError as error:
            if workload is not None and error.path == workload.source.path.absolute():
                error.path = workload.source.path
            if candidate.origin == "baseline":
                raise
            return _failed(candidate, str(error))
        # Variants are many, and seldom asked for again; host code is no part of the key.
        if candidate.origin == "baseline" and not asked:
            _remember(self._settings, arch, workload, candidate, answer)
        built = _BUILT.validate_python(answer)
        if asked:
            built = _with_extensions(built, asked, candidate)
            if candidate.language is not Language.CUDA:
                given = [unit["text"] for one in requests for unit in one["units"]]
                texts = (in_place(candidate.kernel.text, text) or text for text in given)
                built = replace(built, host_texts=tuple(texts))
        return _in_given_terms(built, candidate)

    async def _requested(self, asked: dict[str, Any], request: dict[str, Any], folder: Path) -> ExtensionBuild:
        """Build one extension that a candidate asks for; its own code is run only where torch has to build it."""
        async with self._worker() as worker:
            answer = await worker.call("build_requested", deadline=BUILD_SECONDS, **request | {"request": asked})
        if isinstance(answer, str):
            async with self._worker(folder) as worker:
                whole = request | {"request": asked, "reason": answer}
                answer = await worker.call("build_requested_fully", deadline=EXTENSION_SECONDS, **whole)
        return _EXTENSION.validate_python(answer)

    def _idle_worker(self) -> Worker | None:
        """An idle worker that may read what a new one might; those that may not have served their time."""
        while self._idle:
            worker = self._idle.pop()
            if worker.readable == self._pool.readable:
                return worker
            worker.kill()
        return None

    @asynccontextmanager
    async def _worker(self, own: Path | None = None, *, problem: bool = False) -> AsyncGenerator[Worker]:
        """A worker that runs none of a candidate's code and writes the cache of builds; or with `own`, a fresh one.

        That is for code of a candidate: all it may write is the folder `own`.
        """
        async with self._room:
            worker = self._idle_worker() if own is None else None
            if worker is None:
                folder = own or self._cache_folder
                with contextlib.suppress(OSError):
                    folder.mkdir(parents=True, exist_ok=True)
                worker = await self._pool.worker(
                    Flavour.BUILD, "build", triton=own is not None, problem=problem, write=[folder]
                )
            self._busy += 1
            try:
                yield worker
            finally:
                self._busy -= 1
                if worker.alive and own is None:
                    self._idle.append(worker)
                else:
                    worker.kill()


def arch_of(gpu: Gpu | None, settings: Settings) -> str:
    """What candidates are built for: the GPU that runs them, else the first architecture set, else sm_90."""
    if gpu is not None:
        return gpu.arch
    return settings.arch[0] if settings.arch else DEFAULT_ARCH


def _in_given_terms(built: Built, candidate: Candidate) -> Built:
    """A build whose messages name the kernel file as it was named here."""
    given, absolute = str(candidate.kernel.path), str(candidate.kernel.path.absolute())
    said = tuple(replace(d, path=given) if d.path == absolute else d for d in built.build.diagnostics)
    return replace(built, build=replace(built.build, diagnostics=said))


def _with_extensions(built: Built, extensions: list[ExtensionBuild], candidate: Candidate) -> Built:
    """A candidate's build with that of the extensions that it asks for: the one that a CUDA file is, or any number."""
    if candidate.language is Language.CUDA:
        return replace(built, build=extensions[0].build, extensions=tuple(extensions))
    taken: dict[str, int] = {}
    binaries = [apart(extension.binary, taken) for extension in extensions if extension.binary is not None]
    merged = together([extension.build for extension in extensions], binaries)
    written = [launch for unit in device_units(candidate.kernel.text) for launch in find_host_launches(unit.text)]
    launches = tuple(launch for b in binaries for kernel in b.kernels for launch in launches_of(kernel, written))
    return replace(
        built,
        build=replace(merged, seconds=merged.seconds + built.build.seconds),
        plans=(Plan(0, launches),),
        extensions=tuple(extensions),
        binaries=tuple(binaries),
    )


def _failed(candidate: Candidate, message: str) -> Built:
    diagnostic = Diagnostic(str(candidate.kernel.path), 1, 1, 1, 1, Severity.ERROR, message)
    return Built(Build(None, (diagnostic,), "none", 0.0), ())
