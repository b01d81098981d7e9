"""Compiler facts of a kernel file for several architectures; nothing runs on a GPU."""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from kernel_lsp.compiler.builds.answers import build_files, cached_build
from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.machine_code.sass import MachineCode, disassemble, mix
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_devices
from kernel_lsp.device.device import Device
from kernel_lsp.errors import CannotJudgeError, DraftError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import base_name
from kernel_lsp.source.language import source_part
from kernel_lsp.workload.spec import WorkloadFile, find_workload, find_workloads


@dataclass(frozen=True, slots=True)
class ArchFacts:
    """One build: its diagnostics, and the resources of its kernels; no kernels where it failed.

    `assumed` lists the types that kernels without a launch were compiled for, and why others were not compiled.
    """

    arch: str
    ok: bool
    way: str
    diagnostics: tuple[Diagnostic, ...]
    kernels: tuple[KernelResources, ...]
    assumed: tuple[Assumed, ...] = ()


@dataclass(frozen=True, slots=True)
class KernelMachineCode:
    """The machine code of one kernel that the workload launches.

    Attributes:
        arch: what it was made for.
        name: as in `KernelResources.name`.
        code: its instructions and loops.
        ptx: the PTX of its image, where the compiler gave it.
        ttgir: Triton's TTGIR of its image, likewise.
    """

    arch: str
    name: str
    code: MachineCode
    ptx: str | None = None
    ttgir: str | None = None


class Compile:
    """Compiles files for all target architectures; its workers stay warm between calls, and end with the stack."""

    def __init__(self, stack: AsyncExitStack) -> None:
        self._stack = stack
        self._pool: Pool | None = None
        self._builders: dict[tuple[str, Device], Builders] = {}

    async def prepare(self, settings: Settings) -> None:
        """Have the worker started that compiles CUDA files without a workload, so that the first one need not wait."""
        (await self._opened(settings)).preload(Flavour.COMPILE)

    async def __call__(
        self, source: SourceFile, settings: Settings, workload: Path | None = None, *, alone: bool = False
    ) -> dict[str, Built]:
        """Return a build for each of `settings.arch`, else for the GPU here, else for sm_90.

        No worker starts for a build that is already in the cache (see `cached_build`).

        Args:
            source: the file.
            settings: those of its folder.
            workload: which of its workloads to use; its only one by default.
            alone: whether to use none.

        Raises:
            WorkloadError: the workload cannot be read.
            RunnerError: workers cannot be started.
        """
        found, candidate = (None, _alone(source)) if alone else as_it_stands(source, workload, settings)
        said = settings.model_dump_json()
        pool = await self._opened(settings)

        async def one(device: Device) -> Built:
            known = cached_build(settings, device, found, candidate)
            if known is not None:
                return known
            mine = self._builders.setdefault((said, device), Builders(pool, settings, device))
            built = await mine.build(found, candidate)
            mine.forget(candidate)
            return built

        devices = target_devices(settings.gpu, settings.arch)
        return dict(zip(devices, await asyncio.gather(*map(one, devices.values())), strict=True))

    async def _opened(self, settings: Settings) -> Pool:
        if self._pool is None:
            self._pool = Pool(warm_minutes=settings.runner.warm_minutes)
            await self._stack.enter_async_context(self._pool)
        return self._pool


@asynccontextmanager
async def open_builder() -> AsyncGenerator[Compile]:
    """Yield what compiles files; its workers end with the block."""
    async with AsyncExitStack() as stack:
        yield Compile(stack)


def facts_of(arch: str, built: Built) -> ArchFacts:
    """Return the facts of one build that was asked for `arch`; they name the target that it was really compiled for."""
    made = built.arch or arch
    return ArchFacts(made, built.ok, built.build.way, built.build.diagnostics, resources_of(built), built.assumed)


def joined_facts(parts: Sequence[ArchFacts]) -> ArchFacts:
    """Merge the facts of builds for one architecture, each with another workload.

    A kernel that several workloads launch appears once, with its largest block.
    """
    kernels: dict[str, KernelResources] = {}
    for one in (kernel for part in parts for kernel in part.kernels):
        before = kernels.get(one.name)
        if before is None or (one.threads or 0) > (before.threads or 0):
            kernels[one.name] = one
    said = tuple(dict.fromkeys(diagnostic for part in parts for diagnostic in part.diagnostics))
    return replace(parts[0], ok=all(part.ok for part in parts), diagnostics=said, kernels=tuple(kernels.values()))


def facts_of_all(builds: Sequence[Mapping[str, Built]]) -> list[ArchFacts]:
    """Return the merged facts for each architecture; `builds` holds a mapping for each workload, with the same keys."""
    return [joined_facts([facts_of(arch, built[arch]) for built in builds]) for arch in builds[0]]


def left_by_errors(source: SourceFile, found: Sequence[ArchFacts]) -> tuple[str, ...]:
    """Return the names of a file's kernels of which builds with errors say nothing, neither figures nor why not."""
    if not any(said.severity is Severity.ERROR for one in found for said in one.diagnostics):
        return ()
    known = {base_name(kernel.name) for one in found for kernel in one.kernels}
    known |= {assumed.kernel for one in found for assumed in one.assumed}
    return tuple(kernel.name for kernel in find_kernels(source.text, source.path) if kernel.name not in known)


def workload_paths(source: SourceFile, workload: Path | None, settings: Settings) -> list[Path | None]:
    """Return the workloads to compile a file with: the given one, else all of the file's; `[None]` if it has none.

    A draft is none: what a kernel costs does not wait for its author to finish the workload.

    Raises:
        WorkloadError: one of them cannot be read.
    """
    if workload is not None or _launches_itself(source):
        return [workload]
    try:
        found = find_workloads(source, problems=settings.kernelbench.root, folders=settings.workloads)
    except DraftError:
        return [None]
    return [one.source.path for one in found] or [None]


def machine_code(built: Built, settings: Settings) -> tuple[KernelMachineCode, ...]:
    """Return the machine code of each kernel that the workload launches, in the order of the facts.

    Blocks for about 0.25 s for each image that is not in the cache, and a few milliseconds for one that is.

    Raises:
        CannotJudgeError: there is no nvdisasm that can read it.
    """
    names = {kernel.entry: kernel.name for kernel in resources_of(built)}
    found: dict[str, KernelMachineCode] = {}
    for image in built.images:
        wanted = [kernel.entry for kernel in image.kernels if kernel.entry in names]
        if wanted:
            functions = disassemble(image.cubin, build_files(settings, ".sass"), by_triton=built.build.way == "triton")
            codes = {code.function: code for code in functions}
            for entry in wanted:
                # Triton compiles a function several times, into an image each; `#2` names the second.
                code = codes[entry.partition("#")[0]]
                found[entry] = KernelMachineCode(image.arch, names[entry], code, image.ptx, image.ttgir)
    return tuple(found[entry] for entry in names if entry in found)


def opcodes(built: Built, settings: Settings) -> dict[str, int]:
    """Return the number of instructions of each kind in a build's kernels; empty if they cannot be disassembled."""
    try:
        codes = machine_code(built, settings)
    except CannotJudgeError:
        return {}
    return mix(instruction for code in codes for instruction in code.code.instructions)


def as_it_stands(
    source: SourceFile, workload: Path | None, settings: Settings
) -> tuple[WorkloadFile | None, Candidate]:
    """Return the workload of a kernel file, and the file itself as a candidate to build.

    For CUDA text in a Python file the workload is None: it has no launches, and reading it would construct its model.
    So it is where the file's own is a draft.

    Raises:
        WorkloadError: its workload cannot be read.
    """
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files have facts"
    found: WorkloadFile | None = None
    if not _launches_itself(source):
        try:
            found = find_workload(source, workload, None, settings.kernelbench.root, settings.workloads)
        except DraftError:
            if workload is not None:
                raise
    if found is None:
        return None, _alone(source)
    return found, Target(language, source, find_kernels(source.text, source.path), None, found).baseline


def compiles_alone(source: SourceFile) -> bool:
    """Return True if a file can be compiled without its workload and without running any of the user's code."""
    language = language_of(source.path, source.text)
    return language is not None and compiler_part(language).compiles_alone


def _alone(source: SourceFile) -> Candidate:
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files are compiled"
    return Candidate(language, source, None, "baseline", "baseline")


def _launches_itself(source: SourceFile) -> bool:
    language = language_of(source.path, source.text)
    return language is not None and source_part(language).launches_itself
