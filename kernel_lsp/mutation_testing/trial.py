"""Judge planted bugs: each is built and checked like a candidate, for its answers only, until one is wrong."""

import asyncio
import re
import time
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.toolchain.emulated import emulated_devices
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.device import Device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile, measure_baseline
from kernel_lsp.judge.inputs.check import check
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.mutation_testing.advice import advice_for, reason_for
from kernel_lsp.mutation_testing.record import Fate, FileStrength, Mutant
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.language import source_part
from kernel_lsp.source.mutations import Bug, Mutation, find_mutations
from kernel_lsp.workload.spec import require_reference

_UNBUILT = Built(Build(None, (), "none", 0.0), ())
_NO_KERNEL = re.compile(
    r": (?:CompilationError|CompileTimeAssertionFailure|UnsupportedLanguageConstruct|CompileError)\b"
)
_LEAST_SECONDS = 30.0
_SLOWER = 10  # times the kernel's own duration on all inputs, after which an emulated mutant is stopped


@dataclass(frozen=True, slots=True)
class _Ground:
    """A place where mutants run: a harness with the kernel measured in it."""

    harness: Harness
    profile: BaselineProfile
    seconds: float


@dataclass(frozen=True, slots=True)
class Rooms:
    """The number of mutants judged at once, on the emulator and on the GPU."""

    emulated: asyncio.Semaphore
    gpu: asyncio.Semaphore


async def measure_file(target: Target, settings: Settings, pool: Pool, gpu: Gpu | None, rooms: Rooms) -> FileStrength:
    """Plant every bug in the target's kernel file, and return which of them its workload catches.

    The emulator goes first: it finds races and stray accesses that leave the answer right, and starts in milliseconds.
    Mutants that survive run on the GPU, if there is one, on all cases.

    Raises:
        KernelLspError: the kernel does not build, or its workload does not work.
    """
    require_reference(target.workload)
    started = time.perf_counter()
    device = f"{gpu.name}, emulator" if gpu else "emulator"
    report = FileStrength(target.source.path, device)
    target_gpu = target_device(gpu, settings.arch) if gpu else await _emulated_device(target, settings, pool)
    builders = Builders(pool, settings, target_gpu)
    built = await builders.build(target.workload, target.baseline)
    if not built.ok:
        return replace(report, problem=f"the kernel does not build: {built.first_error}")
    mutations = find_mutations(target.source, target.language)
    mutants: list[Mutant] = []
    cases: dict[str, None] = {}
    weak: dict[str, None] = {}
    for place in (None, gpu) if gpu else (None,):
        try:
            async with _ground(Harness(pool, target, settings, builders, place, timed=False), built) as ground:
                if (ruling := ground.profile.findings.ruling) is not None:
                    return replace(report, problem=f"the kernel itself fails: {ruling.reason}")
                weak |= dict.fromkeys(ground.profile.weak)
                cases |= dict.fromkeys(ground.harness.cases[draw.case] for draw in ground.profile.draws)
                alive = [
                    (number, mutation)
                    for number, mutation in enumerate(mutations)
                    if not mutants or mutants[number].fate in (Fate.SURVIVED, Fate.UNKNOWN)
                ]
                tried = await asyncio.gather(*(_try(ground, built, mutation, rooms) for _, mutation in alive))
                mutants = mutants or list(tried)
                for (number, _), mutant in zip(alive, tried, strict=True):
                    if mutant.fate is not Fate.UNKNOWN or mutants[number].fate is Fate.UNKNOWN:
                        mutants[number] = replace(mutant, seconds=mutants[number].seconds + mutant.seconds)
        except CannotJudgeError as error:
            if not gpu:
                return replace(report, problem=f"it runs on a GPU only: {error.message}")
    survivors = [Bug(mutant.bug) for mutant in mutants if mutant.fate is Fate.SURVIVED]
    told = [_explained(mutant, tuple(cases)) for mutant in mutants]
    return replace(
        report,
        cases=tuple(cases),
        mutants=tuple(told),
        weak=tuple(weak),
        advice=advice_for(survivors, tuple(cases)),
        seconds=time.perf_counter() - started,
    )


async def _emulated_device(target: Target, settings: Settings, pool: Pool) -> Device:
    """Return the first device for emulation that the kernel builds for."""
    *smaller, last = emulated_devices(target_device(None, settings.arch))
    if compiler_part(target.language).compiles_at_launch:
        return next(iter(smaller), last)
    if (await Builders(pool, settings, last).build(target.workload, target.baseline)).is_modern:
        return last
    for device in smaller:
        builders = Builders(pool, settings, device)
        if (await builders.build(target.workload, target.baseline)).ok:
            return device
    return last


@asynccontextmanager
async def _ground(harness: Harness, built: Built) -> AsyncGenerator[_Ground]:
    try:
        await harness.open()
        started = time.perf_counter()
        subject = await harness.enter(harness.target.baseline, built)
        profile = await measure_baseline(harness, subject)
        await harness.leave(subject)
        yield _Ground(harness, profile, time.perf_counter() - started)
    finally:
        await harness.close()


async def _try(ground: _Ground, built: Built, mutation: Mutation, rooms: Rooms) -> Mutant:
    """Judge one mutation and return its result."""
    target = ground.harness.target
    text = mutation.applied_to(target.source.text)
    kernel = SourceFile(target.source.path, text)
    candidate = replace(target.baseline, kernel=kernel, label=mutation.what, origin="mutation")
    async with rooms.gpu if ground.harness.gpu else rooms.emulated:
        started = time.perf_counter()
        try:
            fate, by, reason = await _fate(ground, built, candidate)
        finally:
            ground.harness.builders.forget(candidate)
    seconds = time.perf_counter() - started
    return Mutant(mutation.bug, mutation.function, mutation.line, mutation.what, fate, by, reason, seconds)


async def _fate(ground: _Ground, baseline: Built, candidate: Candidate) -> tuple[Fate, str, str]:
    """Return the fate of a candidate, the check that caught it, and the finding."""
    harness = ground.harness
    built = _UNBUILT  # of a Python file, which compiles its kernels at launch
    if not source_part(candidate.language).python:
        built = await harness.builders.build(harness.target.workload, candidate)
        if not built.ok:
            return Fate.NOT_BUILT, "", built.first_error
        if built.code is not None and built.code == baseline.code:
            return Fate.SAME_CODE, "", ""
    try:
        findings = await _findings(ground, candidate, built)
    except (CannotJudgeError, WorkloadError) as error:
        return Fate.UNKNOWN, "", error.message
    except TimeoutError:
        return Fate.CAUGHT, "deadline", f"it does not end within {_limit(ground):.0f} s on the emulator"
    if (ruling := findings.ruling) is None:
        return await _survived(harness, baseline, candidate)
    if _NO_KERNEL.search(ruling.reason):
        return Fate.NOT_BUILT, "", ruling.reason
    if ruling.outcome is Outcome.UNTIMED:
        return Fate.UNKNOWN, "", ruling.reason
    if harness.gpu is None and ruling.outcome is Outcome.RUN_FAILED and not _seen_emulated(findings):
        return Fate.UNKNOWN, "", ruling.reason  # the bug is in a kernel: an error elsewhere says nothing
    return Fate.CAUGHT, _caught_by(findings), ruling.reason


async def _findings(ground: _Ground, candidate: Candidate, built: Built) -> Findings:
    harness = ground.harness
    async with asyncio.timeout(_limit(ground) if harness.gpu is None else None):
        try:
            subject = await harness.enter(candidate, built)
        except (CannotJudgeError, WorkloadError):
            raise
        except RUN_ERRORS as error:
            findings = Findings()
            findings.fail("load", ruling_of(error, "being loaded", "(none yet)"))
            return findings
        try:
            return await check(harness, subject, ground.profile)
        finally:
            await harness.leave(subject)
            harness.refill()


def _limit(ground: _Ground) -> float:
    return max(_LEAST_SECONDS, _SLOWER * ground.seconds)


def _seen_emulated(findings: Findings) -> str | None:
    """Return the kind of the emulator's own finding, if one ended the run."""
    found = findings.runs[-1].findings if findings.runs else ()
    return found[0].kind if found else None


def _caught_by(findings: Findings) -> str:
    if (kind := _seen_emulated(findings)) is not None:
        return f"emulator: {kind}"
    return findings.checks[-1].name if findings.checks else "load"


async def _survived(harness: Harness, baseline: Built, candidate: Candidate) -> tuple[Fate, str, str]:
    """Decide if a mutant without findings is a bug at all; code compiled at launch has to be built for that."""
    if compiler_part(candidate.language).compiles_at_launch:
        built = await harness.builders.build(harness.target.workload, candidate)
        if built.ok and built.digests == baseline.digests:
            return Fate.SAME_CODE, "", ""
    return Fate.SURVIVED, "", ""


def _explained(mutant: Mutant, cases: Sequence[str]) -> Mutant:
    return replace(mutant, reason=reason_for(Bug(mutant.bug), cases)) if mutant.fate is Fate.SURVIVED else mutant
