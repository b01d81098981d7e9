"""What the compiler makes of a kernel file, for each of several architectures; nothing is run on a GPU."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.build.binary import Diagnostic
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.building import DEFAULT_ARCH, Builders
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.workload.spec import find_workload


@dataclass(frozen=True, slots=True)
class ArchFacts:
    """One build: what was said of it, and what its kernels cost; no kernels where it failed."""

    arch: str
    ok: bool
    way: str
    diagnostics: tuple[Diagnostic, ...]
    kernels: tuple[KernelResources, ...]


async def compile_facts(source: SourceFile, settings: Settings, workload: Path | None = None) -> list[ArchFacts]:
    """Build a kernel file for `settings.arch`, else for the GPU here, else for sm_90.

    Raises:
        WorkloadError: its workload cannot be read.
        RunnerError: workers cannot be started.
    """
    async with open_compiler() as compiler:
        return await compiler(source, settings, workload)


@asynccontextmanager
async def open_compiler() -> AsyncGenerator[Callable[..., Awaitable[list[ArchFacts]]]]:
    """`compile_facts` for many files, or many states of one: what compiles stays warm between calls."""
    async with Pool() as pool:
        builders: dict[tuple[str, str], Builders] = {}

        async def compile_one(source: SourceFile, settings: Settings, workload: Path | None = None) -> list[ArchFacts]:
            language = language_of(source.path, source.text)
            assert language is not None, "only kernel files have facts"
            found = find_workload(source, workload)
            if found is None:
                candidate = Candidate(language, source, None, "baseline", "baseline")
            else:
                candidate = Target(language, source, find_kernels(source.text, source.path), None, found).baseline
            said = settings.model_dump_json()

            async def one(arch: str) -> ArchFacts:
                mine = builders.setdefault((said, arch), Builders(pool, settings, arch))
                built = await mine.build(found, candidate)
                mine.forget(candidate)
                return ArchFacts(arch, built.ok, built.build.way, built.build.diagnostics, resources_of(built))

            return list(await asyncio.gather(*(one(arch) for arch in _architectures(settings))))

        yield compile_one


def _architectures(settings: Settings) -> Sequence[str]:
    return settings.arch or [gpu.arch for gpu in find_gpus()[:1]] or [DEFAULT_ARCH]
