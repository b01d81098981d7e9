"""Mutation testing: bugs are planted in a kernel one at a time, and its workload has to find them.

A mutant is judged like a candidate, for its answers only: built, run on every input of the workload, compared with the
reference. A mutant with the machine code of the kernel itself is no bug and does not count.
"""

import asyncio
import hashlib
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from kernel_lsp.check.dependencies import dependencies_of
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, target_device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import pool_on
from kernel_lsp.judge.target import Target, make_targets
from kernel_lsp.mutation_testing.record import Fate, FileStrength, Mutant, packed, unpacked
from kernel_lsp.mutation_testing.trial import Rooms, measure_file
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store

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
    texts: Mapping[Path, str] | None = None,
) -> list[FileStrength]:
    """Return the strength of each workload of each file; `on_report` gets each result as it is done.

    Args:
        sources: kernel files.
        settings: in force for all of them.
        on_report: called with each report.
        store: where outcomes are kept and looked up; without one everything is tried again.
        workload: the workload of all files, where it is not found by its name.
        texts: files to be taken as they are here, not as they are on disk.

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

        async def one(source: SourceFile) -> list[FileStrength]:
            reports: list[FileStrength] = []
            for target in _targets(source, settings, gpu, workload, texts or {}):
                async with files:
                    failed = isinstance(target, FileStrength)
                    report = target if failed else await _measure(target, settings, pool, gpu, rooms, store)
                on_report(report)
                reports.append(report)
            return reports

        return [report for reports in await asyncio.gather(*map(one, sources)) for report in reports]


def _at_once(gpu: Gpu) -> int:
    return max(1, min(_MOST_ON_A_GPU, gpu.memory_bytes // _MUTANT_BYTES))


def _targets(
    source: SourceFile, settings: Settings, gpu: Gpu | None, workload: Path | None, texts: Mapping[Path, str]
) -> Sequence[Target | FileStrength]:
    """The file with each of its workloads, or why there are none."""
    known = {**texts, source.path: source.text}
    try:
        return make_targets(source.path, None, workload, known, settings.kernelbench.root, settings.workloads)
    except KernelLspError as error:
        return [FileStrength(source.path, _device(gpu), problem=error.message)]


async def _measure(
    target: Target, settings: Settings, pool: Pool, gpu: Gpu | None, rooms: Rooms, store: Store | None
) -> FileStrength:
    source, found = target.source, target.workload
    named = found.source.path
    try:
        asked = dependencies_of(source, found, settings).key(settings, target_device(gpu, settings.arch), gpu, run=True)
        key = hashlib.sha256(f"strength {asked}".encode()).hexdigest() if asked and store else None
        known = unpacked(store.find_check(key)) if store and key else None
        if known is not None:
            return replace(known, path=source.path, workload=named, remembered=True, seconds=0.0)
        report = replace(await measure_file(target, settings, pool, gpu, rooms), workload=named)
    except KernelLspError as error:
        return FileStrength(source.path, _device(gpu), problem=error.message, workload=named)
    if store and key and not report.problem and not report.of(Fate.UNKNOWN):
        store.save_check(key, packed(report))
    return report


def _device(gpu: Gpu | None) -> str:
    return gpu.name if gpu else "emulator"
