"""What the compiler makes of a kernel file, for each of several architectures; nothing is run on a GPU."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.build.binary import Diagnostic
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.building import DEFAULT_ARCH, Builders, known_build
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
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files have facts"
    found = find_workload(source, workload)
    if found is None:
        candidate = Candidate(language, source, None, "baseline", "baseline")
    else:
        candidate = Target(language, source, find_kernels(source.text, source.path), None, found).baseline
    async with Pool() as pool:

        async def one(arch: str) -> ArchFacts:
            built = known_build(settings, arch, found, candidate)
            if built is None:
                built = await Builders(pool, settings, arch).build(found, candidate)
            return ArchFacts(arch, built.ok, built.build.way, built.build.diagnostics, resources_of(built))

        return list(await asyncio.gather(*(one(arch) for arch in _architectures(settings))))


def _architectures(settings: Settings) -> Sequence[str]:
    return settings.arch or [gpu.arch for gpu in find_gpus()[:1]] or [DEFAULT_ARCH]
