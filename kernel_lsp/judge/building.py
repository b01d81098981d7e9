"""Build candidates for the judge in a pool of compile workers, and keep each result."""

import asyncio
import contextlib
import itertools
import shutil
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.compiler.builds.answers import store_build
from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.compiler.builds.built import Built, failed, in_given_terms, with_extensions
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.diagnostics import has_errors
from kernel_lsp.compiler.cuda.refusals import BLACKWELL, needs_blackwell
from kernel_lsp.compiler.headers.definitions import build_scripts
from kernel_lsp.compiler.headers.includers import including_files, text_before
from kernel_lsp.compiler.headers.project import include_folders
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.host.options import host_texts, unusual_options
from kernel_lsp.compiler.host.request import ExtensionRequest, cuda_file_request
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.device import Device, device_named
from kernel_lsp.errors import CannotJudgeError, RunnerError, WorkloadError
from kernel_lsp.runner.messages.build import (
    BuildCandidate,
    BuildExtension,
    BuildExtensionFully,
    BuildOwnKernels,
    CacheFolder,
    CandidateBuild,
    CompileAlone,
    PrepareHeader,
)
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start
from kernel_lsp.runner.worker import Worker, WorkerDied, WorkerTimedOut
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.cuda import find_host_functions
from kernel_lsp.source.files import cuda_part, surroundings
from kernel_lsp.source.language import source_part
from kernel_lsp.source.lift_cuda import LiftError, lifted_cuda
from kernel_lsp.workload.capture import read_capture
from kernel_lsp.workload.spec import WorkloadFile

_NUMBERS = itertools.count(1)


class Builders:
    """Compile workers, as many as the settings allow, each for one request at a time. CUDA's stay warm between builds.

    A build that runs a candidate's code (a Triton file, another `launch`, an imported extension) gets a process of its
    own, which cannot write to the cache of builds. With `misaligned`, Triton's kernels are compiled for misaligned
    inputs too, as a judgement on a GPU runs them on such.
    """

    def __init__(self, pool: Pool, settings: Settings, device: Device, *, misaligned: bool = False) -> None:
        self._pool, self._settings, self.device = pool, settings, device
        self._misaligned = misaligned and settings.judge.wants("unaligned")
        self._number = str(next(_NUMBERS))
        self._cache_folder = settings.paths.cache / "builds"
        # Of their own: a file that needs no torch does not wait for a worker that still imports it.
        self._room, self._room_alone = (asyncio.Semaphore(settings.runner.compile_workers) for _ in range(2))
        self._busy = 0
        self._idle: list[Worker] = []
        self._results: dict[tuple[str, Device, bool], asyncio.Task[Built]] = {}
        self._first_triton: Path | None = None
        self._usual_options = frozenset[str]()

    @property
    def arch(self) -> str:
        """Return the architecture that candidates are compiled for, such as `sm_90`."""
        return self.device.arch

    async def build(self, workload: WorkloadFile | None, candidate: Candidate, device: Device | None = None) -> Built:
        """Build a candidate; the same text is built once. A failed build is a result, not an exception.

        Without a workload kernels are compiled for what the file tells and what is assumed of the rest: types of a
        Triton kernel, instances of a CUDA template (`Built.assumed`). `device` may be another than the one
        that candidates are judged on.
        """
        device = device or self.device
        key = (candidate.digest, device, workload is None)
        task = self._results.get(key)
        if task is None or task.cancelled():
            task = self._results[key] = start(self._build(workload, candidate, device))
        return await asyncio.shield(task)

    async def reference(self, workload: WorkloadFile, baseline: Candidate) -> dict[str, ExtensionBuild]:
        """Build the texts by which a captured workload of a CUDA file tells what is right; none for any other workload.

        They are the file's text when it was captured, and that in float64 where it can be rewritten. One that cannot be
        built at all is left out.
        """
        if not workload.captured or source_part(baseline.language).python:
            return {}
        capture = read_capture(workload.source.text, workload.source.path)
        texts, read, made = [capture.reference_text], self._allow(workload, baseline), dict[str, ExtensionBuild]()
        with contextlib.suppress(LiftError):
            texts.append(lifted_cuda(capture.reference_text))
        for text in texts:
            version = replace(baseline, kernel=replace(baseline.kernel, text=text))
            names = [name for name in find_host_functions(text) if name.rpartition("::")[2] == capture.called]
            request = cuda_file_request(version.kernel.path.absolute(), text, names)
            with contextlib.suppress(WorkerFailure, WorkerDied, WorkerTimedOut, CannotJudgeError):
                made[text] = await self._extension(request, version, self.arch, read)
        return made

    def forget(self, candidate: Candidate) -> None:
        """Drop a candidate's result, so that a long series of builds does not fill memory."""
        for key in [key for key in self._results if key[0] == candidate.digest]:
            del self._results[key]
        folder = self.triton_cache(candidate)
        if folder != self._first_triton:
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """End the workers that wait for the next build."""
        while self._idle:
            self._idle.pop().kill()

    async def own(self, name: str) -> Binary:
        """Build our own kernels of `device/NAME.cu`, for this architecture; others may still import torch meanwhile."""
        async with self._worker(alone=True) as worker:
            request = BuildOwnKernels(name=name, arch=self.arch, cache=self._cache())
            return await worker.ask(request, deadline=policy.BUILD_SECONDS)

    async def prepare_header(self) -> None:
        """Precompile the header that every extension on the fast path includes; after a failure they build without."""
        with contextlib.suppress(WorkerFailure, RunnerError):
            async with self._worker() as worker:
                await worker.ask(PrepareHeader(folder=self._cache_folder.absolute()), deadline=policy.BUILD_SECONDS)

    def _cache(self) -> CacheFolder:
        return CacheFolder(self._cache_folder.absolute(), self._settings.build.cache_limit)

    def _options(self, *files: SourceFile, anywhere: bool = False) -> BuildOptions:
        """Return the compiler's options for source files; see `include_folders`."""
        settings = self._settings.build
        folders = include_folders(files, settings.include_dirs, anywhere=anywhere)
        return BuildOptions(tuple(settings.options), tuple(folder.absolute() for folder in folders))

    def triton_cache(self, candidate: Candidate) -> Path:
        """Return the folder of Triton's own cache for one candidate, so that no candidate reads another's.

        The path also names these builders: others of the pool, for another architecture, may drop the same candidate.
        """
        return self._pool.scratch(Flavour.BUILD) / "triton" / self._number / candidate.digest[:32]

    def extensions(self) -> Path:
        """Return the folder of built extensions, created if missing; each candidate has a folder of its own inside."""
        folder = self._settings.paths.cache / "extensions"
        with contextlib.suppress(OSError):
            folder.mkdir(parents=True, exist_ok=True)
        return folder

    def keep_launchers(self, folder: Path) -> None:
        """Keep, for later processes, the launchers that Triton compiled in `folder` while it ran the user's own file.

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
        """Start the candidate's Triton cache as a copy of the baseline's, if that exists."""
        folder = self.triton_cache(candidate)
        if self._first_triton is None:
            self._first_triton = folder if candidate.origin == "baseline" else None
        elif self._first_triton.is_dir() and not folder.exists():
            shutil.copytree(self._first_triton, folder)

    async def _build(self, workload: WorkloadFile | None, candidate: Candidate, device: Device) -> Built:
        if compiler_part(candidate.language).compiles_at_launch:
            self._seed_triton_cache(candidate)
        read = self._allow(workload, candidate)
        started = time.monotonic()
        try:
            try:
                answer, asked = await self._answers(workload, candidate, device, read)
            except WorkerDied:  # another process may have killed it: a text that crashes the compiler does so again
                answer, asked = await self._answers(workload, candidate, device, read)
        except WorkerTimedOut:
            return failed(candidate, _endless(workload, time.monotonic() - started), lasting=False)
        except WorkerDied as error:
            return failed(candidate, str(error), lasting=False)
        except WorkerFailure as error:
            return failed(candidate, str(error))
        except WorkloadError as error:
            if workload is not None and error.path == workload.source.path.absolute():
                error.path = workload.source.path
            if candidate.origin == "baseline":
                raise
            return failed(candidate, str(error))
        if options := self._unusual_options(candidate, answer.requests):
            return replace(failed(candidate, f"it asks for the option `{options[0]}`"), host_options=options)
        if candidate.origin == "baseline":  # candidates' processes say what they like
            self._pool.foresee(answer.libraries)
        lasting = not any(one.hurried for one in answer.assumed)
        built = Built(answer.build, answer.plans, binaries=answer.binaries, assumed=answer.assumed, lasting=lasting)
        # Variants are many, and seldom asked for again; host code is no part of the key.
        if candidate.origin == "baseline" and not asked and lasting:
            store_build(self._settings, device, workload, candidate, built)
        if asked:
            built = replace(with_extensions(built, asked, candidate), host_texts=host_texts(candidate, answer.requests))
        return in_given_terms(built, candidate)

    async def _answers(
        self, workload: WorkloadFile | None, candidate: Candidate, device: Device, read: Sequence[Path]
    ) -> tuple[CandidateBuild, list[ExtensionBuild]]:
        """Return what `_answers_for` does; for Blackwell if nobody chose a GPU and the code needs its instructions."""
        first = await self._answers_for(device, workload, candidate, read)
        if not device.assumed or not needs_blackwell(_said(*first)):
            return first
        later = await self._answers_for(device_named(BLACKWELL), workload, candidate, read)
        return first if has_errors(_said(*later)) else later

    async def _answers_for(
        self, device: Device, workload: WorkloadFile | None, candidate: Candidate, read: Sequence[Path]
    ) -> tuple[CandidateBuild, list[ExtensionBuild]]:
        """Return the build of a candidate and the builds of the extensions that it asks for."""
        answer = await self._candidate(workload, candidate, device, read)
        if self._unusual_options(candidate, answer.requests):
            return answer, []
        return answer, [await self._extension(request, candidate, device.arch, read) for request in answer.requests]

    def _unusual_options(self, candidate: Candidate, requests: Sequence[ExtensionRequest]) -> tuple[str, ...]:
        """Return options for a candidate's extensions that could bring or hide code, unless a baseline has them too."""
        found = tuple(option for request in requests for option in unusual_options(request))
        if candidate.origin == "baseline":
            self._usual_options |= set(found)
        return tuple(option for option in found if option not in self._usual_options)

    def _allow(self, workload: WorkloadFile | None, candidate: Candidate) -> list[Path]:
        """Grant workers read access to the files that building a candidate may need; return these files.

        The workers of this build also get the list directly: another session that granted it may end before they start.
        """
        builds = self._cache_folder
        with contextlib.suppress(OSError):
            builds.mkdir(parents=True, exist_ok=True)
        files = (candidate.kernel, candidate.launch, workload.source if workload else None)
        part = cuda_part(candidate.kernel)
        alone = workload is None and candidate.launch is None
        include_dirs = include_folders((part,), self._settings.build.include_dirs, anywhere=alone)
        read = [*surroundings(*filter(None, files)), builds, *include_dirs]
        read += [header.path for header in user_headers(part, include_dirs)]
        read += [self._pool.scratch(Flavour.BUILD), self.extensions()]
        self._pool.allow(read, self._settings.runner.environment)
        return read

    async def _candidate(
        self, workload: WorkloadFile | None, candidate: Candidate, device: Device, read: Sequence[Path]
    ) -> CandidateBuild:
        if workload is None and candidate.launch is None and compiler_part(candidate.language).compiles_alone:
            return await self._alone(candidate, device, read)
        triton_cache = self.triton_cache(candidate)
        before, more = self._included(candidate)
        own = triton_cache if _runs_candidate(workload, candidate) else None
        async with self._worker([*read, *more], own, problem=workload is not None and workload.problem) as worker:
            request = BuildCandidate(
                language=candidate.language,
                kernel=_absolute(candidate.kernel),
                workload=_absolute(workload.source) if workload else None,
                launch=_absolute(candidate.launch) if candidate.launch else None,
                device=device,
                options=self._options(cuda_part(candidate.kernel), *((before,) if before else ())),
                cache=self._cache(),
                triton_cache=triton_cache,
                processes=self._settings.runner.compile_workers // self._busy,  # alone it has all of them
                misaligned=self._misaligned,
                before=before,
            )
            return await worker.ask(request, deadline=policy.BUILD_SECONDS)

    async def _alone(self, candidate: Candidate, device: Device, read: Sequence[Path]) -> CandidateBuild:
        """Build a file that no workload launches, in a worker that starts without torch."""
        before, more = self._included(candidate, anywhere=True)
        more += build_scripts(candidate.kernel.path)
        async with self._worker([*read, *more], alone=True) as worker:
            request = CompileAlone(
                kernel=_absolute(candidate.kernel),
                arch=device.arch,
                options=self._options(candidate.kernel, *((before,) if before else ()), anywhere=True),
                cache=self._cache(),
                including=including_files(candidate.kernel, self._settings.build.include_dirs),
                before=before,
            )
            return await worker.ask(request, deadline=policy.BUILD_SECONDS)

    def _included(self, candidate: Candidate, *, anywhere: bool = False) -> tuple[SourceFile | None, list[Path]]:
        """Return what a file that includes a candidate's has above that include, and what is read to compile it so."""
        if not compiler_part(candidate.language).includes_headers or source_part(candidate.language).python:
            return None, []
        including = including_files(candidate.kernel, self._settings.build.include_dirs)
        if not including:
            return None, []
        before = text_before(candidate.kernel, including[0])
        folders = self._options(candidate.kernel, before, anywhere=anywhere).include_dirs
        return before, [*folders, *(header.path for header in user_headers(before, folders))]

    async def _extension(
        self, request: ExtensionRequest, candidate: Candidate, arch: str, read: Sequence[Path]
    ) -> ExtensionBuild:
        """Build one extension of a candidate; the candidate's code runs only where torch itself has to build it."""
        origin, options = _absolute(candidate.kernel), self._options(cuda_part(candidate.kernel))
        async with self._worker(read) as worker:
            fast = BuildExtension(extension=request, origin=origin, arch=arch, options=options, cache=self._cache())
            answer = await worker.ask(fast, deadline=policy.BUILD_SECONDS)
        if isinstance(answer, ExtensionBuild):
            return answer
        folder = (self.extensions() / candidate.digest[:32]).absolute()
        async with self._worker(read, folder) as worker:
            full = BuildExtensionFully(
                extension=request, origin=origin, arch=arch, options=options, folder=folder, reason=answer
            )
            return await worker.ask(full, deadline=policy.EXTENSION_BUILD_SECONDS)

    def _idle_worker(self, role: str, read: Sequence[Path]) -> Worker | None:
        """Return an idle worker with read access to `read`, or None; those of the role with other access are killed."""
        for worker in [worker for worker in reversed(self._idle) if worker.role == role]:
            self._idle.remove(worker)
            if worker.allowed == self._pool.allowed.union(map(str, read)):
                return worker
            worker.kill()
        return None

    @asynccontextmanager
    async def _worker(
        self, read: Sequence[Path] = (), own: Path | None = None, *, problem: bool = False, alone: bool = False
    ) -> AsyncGenerator[Worker]:
        """Yield a worker that runs no candidate's code and may write the cache of builds, or a fresh one for `own`.

        The fresh one is for a candidate's code: it may write nothing but the folder `own`. With `alone` it is a compile
        worker.
        """
        flavour, role = (Flavour.COMPILE, "compile") if alone else (Flavour.BUILD, "build")
        async with self._room_alone if alone else self._room:
            worker = self._idle_worker(role, read) if own is None else None
            if worker is None:
                folder = own or self._cache_folder
                with contextlib.suppress(OSError):
                    folder.mkdir(parents=True, exist_ok=True)
                worker = await self._pool.worker(
                    flavour, role, triton=own is not None, problem=problem, read=read, write=[folder]
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


def _runs_candidate(workload: WorkloadFile | None, candidate: Candidate) -> bool:
    """Return True if a build runs code of the candidate."""
    if compiler_part(candidate.language).compiles_at_launch:
        return True
    if source_part(candidate.language).python and workload is not None:  # its model is constructed
        return True
    users_own = (None, workload.source.text if workload else None)
    return candidate.origin != "baseline" and (candidate.launch and candidate.launch.text) not in users_own


def _absolute(file: SourceFile) -> SourceFile:
    return replace(file, path=file.path.absolute())


def _said(answer: CandidateBuild, asked: Sequence[ExtensionBuild]) -> list[Diagnostic]:
    return [said for build in (answer.build, *(one.build for one in asked)) for said in build.diagnostics]


def _endless(workload: WorkloadFile | None, seconds: float) -> str:
    """Return what is wrong with a build that was ended after so many seconds, and what to do."""
    if workload is None:
        said = f"it was not compiled within {seconds:.0f} s"
        return f"{said}: leave out headers that no kernel needs, or move some kernels to a file of their own"
    names = "the constructor and `forward`" if workload.problem else "`inputs` and `launch`"
    return (
        f"it was not built within {seconds:.0f} s. Either the compiler is slow, or {names} in "
        f"{workload.source.path.name} do not come to an end: they are run once for each case, to see what is launched"
    )
