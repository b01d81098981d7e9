"""Mutation testing: bugs are planted in a kernel one at a time, and its workload has to find them.

A mutant is judged like a candidate, for its answers only: built, run on every input of the workload, compared with the
reference. A mutant with the machine code of the kernel itself is no bug and does not count.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Sequence
from pathlib import Path

from kernel_lsp.check.dependencies import dependencies_of
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import pool_on
from kernel_lsp.judge.target import Target
from kernel_lsp.mutation_testing.record import Fate, FileStrength, Mutant, packed, unpacked
from kernel_lsp.mutation_testing.trial import Rooms, measure_file
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.store.store import Store
from kernel_lsp.workload.spec import find_workload

__all__ = ["Fate", "FileStrength", "Mutant", "measure_strength"]

_LEAST_FILES_AT_ONCE = 3
_MOST_ON_A_GPU = 8
_MUTANT_BYTES = 4 << 30
"""GPU memory that one mutant's process is taken to need: its context, the largest case and what it allocates."""


async def measure_strength(
    sources: Sequence[SourceFile],
    settings: Settings,
    on_report: Callable[[FileStrength], None] = lambda _: None,
    *,
    store: Store | None = None,
    workload: Path | None = None,
) -> list[FileStrength]:
    """Return the strength of each file's workload; `on_report` gets each result as it is done.

    Args:
        sources: kernel files.
        settings: in force for all of them.
        on_report: called with each report.
        store: where outcomes are kept and looked up; without one everything is tried again.
        workload: the workload of all files, where it is not found by its name.

    Raises:
        RunnerError: workers cannot be started.
        ConfigurationError: the setting `gpu` names none.
    """
    gpu = choose_gpu(settings.gpu)
    cores = os.cpu_count() or 1
    files = asyncio.Semaphore(max(_LEAST_FILES_AT_ONCE, cores // 2))
    rooms = Rooms(asyncio.Semaphore(cores), asyncio.Semaphore(_at_once(gpu) if gpu else 1))
    async with pool_on(gpu, settings) as pool:
        pool.preload(Flavour.BUILD, Flavour.EMULATE, *([Flavour.GPU] if gpu else []))

        async def one(source: SourceFile) -> FileStrength:
            async with files:
                report = await _measure(source, settings, pool, gpu, rooms, store, workload)
            on_report(report)
            return report

        return list(await asyncio.gather(*(one(source) for source in sources)))


def _at_once(gpu: Gpu) -> int:
    return max(1, min(_MOST_ON_A_GPU, gpu.memory_bytes // _MUTANT_BYTES))


async def _measure(
    source: SourceFile,
    settings: Settings,
    pool: Pool,
    gpu: Gpu | None,
    rooms: Rooms,
    store: Store | None,
    workload: Path | None,
) -> FileStrength:
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files are tested"
    device = gpu.name if gpu else "emulator"
    try:
        found = find_workload(source, workload, problems=settings.kernelbench.root, folders=settings.workloads)
        if found is None:
            return FileStrength(source.path, device, problem="it has no workload")
        asked = dependencies_of(source, found, settings).key(settings, target_device(gpu, settings.arch), gpu, run=True)
        key = hashlib.sha256(f"strength {asked}".encode()).hexdigest() if asked and store else None
        known = unpacked(store.find_check(key)) if store and key else None
        if known is not None:
            return _at(known, source.path)
        target = Target(language, source, find_kernels(source.text, source.path), None, found)
        report = await measure_file(target, settings, pool, gpu, rooms)
    except KernelLspError as error:
        return FileStrength(source.path, device, problem=error.message)
    if store and key and not report.problem and not report.of(Fate.UNKNOWN):
        store.save_check(key, packed(report))
    return report


def _at(known: FileStrength, path: Path) -> FileStrength:
    """Return an earlier result, for the file under its current name."""
    return FileStrength(path, known.device, known.cases, known.mutants, known.advice, remembered=True)
