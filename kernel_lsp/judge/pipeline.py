"""From a candidate to its verdict: parse, build, run, correct, legitimate, timed; the first failure decides."""

import asyncio
import hashlib
import json
import random
import shlex
import time
from collections.abc import AsyncGenerator, Callable, Generator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from statistics import median

from kernel_lsp import __version__
from kernel_lsp.build.toolchain import versions
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.lock import gpu_lock
from kernel_lsp.device.nvml import Faults, Gpu, find_gpus, free_bytes
from kernel_lsp.errors import CannotJudgeError, KernelLspError, WorkloadError
from kernel_lsp.judge import correctness, legitimacy, statistics, sustained, timing
from kernel_lsp.judge.bench import Bench, Subject
from kernel_lsp.judge.building import Builders, Built, arch_of
from kernel_lsp.judge.correctness import Failure, Findings, Yardstick
from kernel_lsp.judge.facts import opcodes
from kernel_lsp.judge.finalists import Finalists
from kernel_lsp.judge.legitimacy import Seen
from kernel_lsp.judge.likeness import same_model, same_python
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.timing import Pair, Series, TimedCase
from kernel_lsp.judge.verdict import (
    CaseTiming,
    DeviceState,
    Evidence,
    ExtensionRecord,
    Outcome,
    Stage,
    SustainedRun,
    Trace,
    Verdict,
)
from kernel_lsp.model import gate
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import both
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language
from kernel_lsp.source.modules import is_answer
from kernel_lsp.source.screening import Objection, host_objections, objections

CONFIRM_AFTER_SECONDS = 0.3
WEAK = "the workload cannot tell right from wrong"
"""How the reason begins where a trivial answer would pass for the right one."""
_RELEASE_SECONDS = 5.0


@dataclass
class Timeline:
    """Wall seconds by stage; some stages run side by side."""

    seconds: dict[str, float] = field(default_factory=dict[str, float])
    started: float = field(default_factory=time.perf_counter)

    @contextmanager
    def stage(self, name: str) -> Generator[None]:
        """Count the time of the block under `name`."""
        begun = time.perf_counter()
        try:
            yield
        finally:
            self.seconds[name] = self.seconds.get(name, 0.0) + time.perf_counter() - begun

    def finished(self) -> dict[str, float]:
        """All stages, and `total` since the start."""
        return self.seconds | {"total": time.perf_counter() - self.started}


@dataclass
class Judgement:
    """What is gathered on the way to one verdict."""

    candidate: Candidate
    known: bool = False
    timeline: Timeline = field(default_factory=Timeline)
    built: Built | None = None
    findings: Findings = field(default_factory=Findings)
    series: Series | None = None
    confirmation_blocks: int = 0
    device: DeviceState | None = None
    protections: tuple[str, ...] = ()
    seen: Seen = field(default_factory=Seen)
    traces: list[Trace] = field(default_factory=list[Trace])
    sustained: SustainedRun | None = None


@dataclass(frozen=True, slots=True)
class Remeasured:
    """What both measurements of a candidate say, with its speedup and the interval of that."""

    found: Failure
    speedup: tuple[float, tuple[float, float]]


@dataclass(frozen=True, slots=True)
class Measured:
    """The baseline, loaded and measured: what a candidate is compared with.

    `cases` says how each case is timed; empty without a GPU, or where the baseline itself is wrong. `seen` is what its
    launches do on the GPU.
    """

    bench: Bench
    baseline: Subject
    yard: Yardstick
    cases: tuple[TimedCase, ...]
    seen: Seen


class Session:
    """Judges candidates of one target. Make it with `open_session`.

    `measured` is None where there is no GPU and the baseline cannot be emulated, which `unmeasured` explains: then
    candidates are only built.
    """

    def __init__(
        self, pool: Pool, target: Target, settings: Settings, gpu: Gpu | None, builders: Builders | None = None
    ) -> None:
        self.pool, self.target, self.settings, self.gpu = pool, target, settings, gpu
        self.arch = arch_of(gpu, settings)
        self.builders = builders or Builders(pool, settings, self.arch)
        self._own_builders = builders is None
        self.baseline_built: Built | None = None
        self.bench: Bench | None = None
        self.measured: Measured | None = None
        self.finalists: Finalists | None = None
        self.unmeasured = ""
        self.faults = Faults(gpu) if gpu is not None else None
        self.rng = random.SystemRandom()
        self.quieted: tuple[gate.Quieted, ...] = ()
        self._slept = AsyncExitStack()

    async def open(self) -> None:
        """Build and measure the baseline.

        Raises:
            SourceError: the baseline does not build.
            WorkloadError: the workload does not work, or disagrees with the baseline.
        """
        target = self.target
        if self.gpu is not None:
            await self._make_room(self.gpu)
        bench = self.bench = Bench(self.pool, target, self.settings, self.builders, self.gpu)
        self.baseline_built, _ = await asyncio.gather(
            self.builders.build(target.workload, target.baseline), bench.open()
        )
        if not self.baseline_built.ok:
            raise KernelLspError(
                f"the kernel does not build as it stands: {self.baseline_built.first_error}",
                target.source.path,
                cure="Mend it first; `kernel-lsp check` shows every message.",
            )
        try:
            baseline = await bench.enter(target.baseline, self.baseline_built)
            yard = await correctness.measure_baseline(bench, baseline)
        except CannotJudgeError as error:
            if self.gpu is not None:
                raise
            self.unmeasured = error.message
            return
        cases: tuple[TimedCase, ...] = ()
        seen = Seen()
        if self.gpu is not None and yard.findings.failure is None:
            baseline, cases = await self._prepare_timing(bench, baseline, yard)
            seen = await legitimacy.observe(bench, baseline, cases)
            await bench.rest(baseline)
        self.measured = Measured(bench, baseline, yard, cases, seen)
        self.finalists = Finalists(bench, baseline, yard)
        bench.refill()

    async def _prepare_timing(
        self, bench: Bench, baseline: Subject, yard: Yardstick
    ) -> tuple[Subject, tuple[TimedCase, ...]]:
        """Choose how to time, as CUDA graphs if the baseline allows it; the subject that is ready for it."""
        await bench.settle()
        await bench.rest(baseline)
        wrong: str | None = None
        for captured in (True, False):
            try:
                async with self.timer():
                    cases = await timing.choose_cases(bench, baseline, yard, captured=captured)
                    await timing.prepare(bench, baseline, cases)
                    wrong = await timing.verify_timed_outputs(bench, baseline, cases, yard)
                if wrong is None:
                    return baseline, cases
            except timing.TimedOutputsDiffer:
                wrong = "what is timed does nothing on the GPU"
            except WorkerFailure as error:
                if not captured:
                    raise
                wrong = str(error)
            if captured:
                await bench.leave(baseline)
                baseline = await bench.enter(baseline.candidate, baseline.built)
        raise WorkloadError(f"the kernel cannot be timed as it stands: {wrong}", self.target.workload.source.path)

    async def close(self) -> None:
        """End the workers, and wake what slept for them."""
        try:
            if self.faults is not None:
                self.faults.close()
            if self.finalists is not None:
                await self.finalists.close()
            if self.bench is not None:
                await self.bench.close()
            if self._own_builders:
                self.builders.close()
        finally:
            await self._slept.aclose()

    async def _make_room(self, gpu: Gpu) -> None:
        """Have model servers sleep until the end if they leave too little memory."""
        free, wanted = free_bytes(gpu), self.settings.model.reserve // 2
        if await self._slept.enter_async_context(gate.asleep(gpu.uuid, wanted=wanted, free=free)):
            self._slept.push_async_callback(_memory_is_back, gpu, free_bytes(gpu))

    @asynccontextmanager
    async def timer(self) -> AsyncGenerator[None]:
        """Hold the GPU for timing, with every model server kept off it."""
        assert self.gpu is not None, "only a GPU is timed"
        lock = gpu_lock(self.gpu.uuid, self.settings.paths.cache / "locks")
        async with lock, gate.quiet(self.gpu.uuid) as self.quieted:
            yield

    async def judge(
        self,
        candidate: Candidate,
        on_decision: Callable[[statistics.Decision], None] | None = None,
        *,
        always_run: bool = False,
        known: bool = False,
    ) -> Verdict:
        """The verdict on one candidate.

        A candidate that is the baseline's own program under another text is SAME without being run, unless
        `always_run` asks for it, as measurements of the judge itself do. One that is `known` has been judged in full
        beside another baseline of the same workload: it is checked on plain inputs only, and a gain is not looked at
        more closely.
        """
        case = Judgement(candidate, known)
        with case.timeline.stage("parse"):
            if not self._is_candidate(candidate):
                reason = "the candidate's text holds no " + ("`ModelNew`" if self.target.workload.problem else "kernel")
                return self._verdict(case, Failure(Outcome.BUILD_FAILED, Stage.PARSE, reason))
            if found := objections(candidate, self.target.baseline, self.target.workload.source):
                return self._verdict(case, _illegitimate(found[0]))
        with case.timeline.stage("build"):
            try:
                case.built = await self.builders.build(self.target.workload, candidate)
            except CannotJudgeError as error:
                reason = f"it cannot be built on this machine: {error.message}"
                return self._verdict(case, Failure(Outcome.UNTIMED, Stage.BUILD, reason))
        if case.built.extensions:
            texts = case.built.host_texts or (candidate.kernel.text,)
            if found := host_objections(texts, self.target.baseline.kernel):
                return self._verdict(case, _illegitimate(found[0]))
        if not case.built.ok:
            return self._verdict(case, Failure(Outcome.BUILD_FAILED, Stage.BUILD, case.built.first_error))
        if not always_run and self._same_program(candidate, case.built):
            reason = "both are the same program to the machine: nothing was run"
            return self._verdict(case, Failure(Outcome.SAME, Stage.BUILD, reason))
        if self.measured is None:
            reason = f"it builds; running it needs a GPU, and this machine has none: {self.unmeasured}"
            return self._verdict(case, Failure(Outcome.UNTIMED, Stage.BUILD, reason))
        bench, yard = self.measured.bench, self.measured.yard
        if (broken := yard.findings.failure) is not None:
            reason = f"the baseline itself fails: {broken.reason}"
            return self._verdict(case, Failure(broken.outcome, broken.stage, reason, broken.mismatch))
        try:
            with case.timeline.stage("load"):
                entered = await enter(bench, candidate, case.built)
        except CannotJudgeError as error:
            return self._not_emulated(case, error)
        if isinstance(entered, Failure):
            return self._verdict(case, entered)
        case.protections = entered.worker.protections
        try:
            try:
                with case.timeline.stage("correct"):
                    case.findings = await correctness.check(bench, entered, yard, quick=known)
            except CannotJudgeError as error:
                return self._not_emulated(case, error)
            if case.findings.failure is not None:
                return self._verdict(case, case.findings.failure)
            if yard.weak:
                reason = f"{WEAK}: {yard.weak[0]}; nothing was timed"
                return self._verdict(case, Failure(Outcome.UNTIMED, Stage.CORRECT, reason))
            if self.gpu is None:
                reason = "right on the emulator; timing needs a GPU, and this machine has none"
                return self._verdict(case, Failure(Outcome.UNTIMED, Stage.CORRECT, reason))
            with case.timeline.stage("legitimate"):
                cases, theirs = self.measured.cases, self.measured.seen
                case.seen, case.traces = await legitimacy.check_launches(bench, entered, cases, theirs, case.findings)
            if case.findings.failure is not None:
                return self._verdict(case, case.findings.failure)
            try:
                return await self._time(case, self.measured, entered, on_decision)
            except WorkerFailure as error:
                if error.kind != "NotCapturableError":
                    return self._verdict(case, correctness.failure_of(error, "being timed", "of the workload"))
                return await self._time_launch_by_launch(case, self.measured, on_decision)
            except correctness.RUN_ERRORS as error:
                if not self.measured.baseline.worker.alive:
                    raise
                return self._verdict(case, correctness.failure_of(error, "being timed", "of the workload"))
            except timing.TimedOutputsDiffer:
                reason = "launches that were timed left other outputs than the launches that were checked"
                return self._verdict(case, Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, reason))
            except TimeoutError as error:
                return self._verdict(case, Failure(Outcome.AMBIGUOUS, Stage.TIMED, str(error)))
        finally:
            failure = case.findings.failure
            broken = not entered.worker.alive or (failure is not None and failure.stage is Stage.RUN)
            await bench.leave(entered)
            await bench.rest(self.measured.baseline)
            if broken:
                await bench.recover(entered.worker.pid)
            bench.refill()

    def _is_candidate(self, candidate: Candidate) -> bool:
        text, path = candidate.kernel.text, candidate.kernel.path
        return is_answer(text) if self.target.workload.problem else bool(find_kernels(text, path))

    def _not_emulated(self, case: Judgement, error: CannotJudgeError) -> Verdict:
        """The verdict where a candidate needs a GPU and there is none."""
        if self.gpu is not None:
            raise error
        line = f" (line {error.line})" if error.line else ""
        reason = f"it builds; running it needs a GPU, and this machine has none: {error.message}{line}"
        return self._verdict(case, Failure(Outcome.UNTIMED, Stage.BUILD, reason))

    def _same_program(self, candidate: Candidate, built: Built) -> bool:
        """Whether the machine would do the same: for CUDA by machine code and launches, for Python by its syntax."""
        baseline = self.target.baseline
        if self.target.workload.problem:
            return same_model(baseline.kernel.text, candidate.kernel.text)
        texts = [(baseline.launch, candidate.launch)]
        if candidate.language is Language.TRITON:
            texts.append((baseline.kernel, candidate.kernel))
        elif self.baseline_built is None or built.code is None or built.code != self.baseline_built.code:
            return False
        return all(same_python(a.text if a else "", b.text if b else "") for a, b in texts)

    async def _time(
        self,
        case: Judgement,
        measured: Measured,
        subject: Subject,
        on_decision: Callable[[statistics.Decision], None] | None,
    ) -> Verdict:
        bench, cases = measured.bench, measured.cases
        series = case.series = Series.empty(cases)
        with case.timeline.stage("settle"):
            await bench.settle()
            await bench.rest(subject)
        async with self.timer():
            with case.timeline.stage("record"):
                await timing.ready(bench, measured.baseline, cases)
                await timing.prepare(bench, subject, cases)
                if (wrong := await timing.verify_timed_outputs(bench, subject, cases, measured.yard)) is not None:
                    return self._verdict(case, Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, wrong))
            with case.timeline.stage("time"):
                pair = self._pair(measured, measured.baseline, subject)
                await pair.make_ready()
                await timing.warm_up((measured.baseline, subject), cases[-1])
                shared = timing.device_state(bench, series, self.pids(), self.quieted).shared
                decision = await timing.decide(
                    bench, pair, series, alpha=self.settings.judge.alpha, shared=shared, on_block=on_decision
                )
                case.device = timing.device_state(bench, series, self.pids(), self.quieted)
        if decision.outcome is not statistics.Outcome.PROVISIONAL_FASTER:
            return self._decided(case, decision)
        return await self._confirm(case, measured, subject, series)

    async def _confirm(self, case: Judgement, measured: Measured, subject: Subject, series: Series) -> Verdict:
        """Measure a provisionally faster candidate again, later, with both sides in fresh processes and memory."""
        bench, cases = measured.bench, measured.cases
        ended = time.perf_counter()
        reloaded: list[Subject] = []
        for version in (measured.baseline, subject):
            await bench.rest(version)
        try:
            with case.timeline.stage("reload"):
                for version in (measured.baseline, subject):
                    reloaded.append(await bench.enter(version.candidate, version.built))  # noqa: PERF401 - left below
                a, b = reloaded
            with case.timeline.stage("settle"):
                await bench.settle()
            fresh = Series.empty(cases)
            async with self.timer():
                with case.timeline.stage("record again"):
                    pair = self._pair(measured, a, b, ahead=statistics.CONFIRMATION_BLOCKS)
                    await pair.make_ready()
                with case.timeline.stage("wait"):
                    await asyncio.sleep(max(0.0, CONFIRM_AFTER_SECONDS - (time.perf_counter() - ended)))
                with case.timeline.stage("confirm"):
                    await timing.warm_up((a, b), cases[-1])
                    while len(fresh.combined) < statistics.CONFIRMATION_BLOCKS:
                        await timing.watched_block(bench, pair, fresh)
                        if fresh.discarded > 20:
                            raise TimeoutError("the GPU's clock never kept still long enough to confirm")
                    case.device = timing.device_state(bench, fresh, self.pids(), self.quieted)
                    joined = case.series = _joined(series, fresh)
                    case.confirmation_blocks = len(fresh.combined)
                remeasured = self._remeasured(measured, series, fresh, joined, shared=case.device.shared)
                # Who claims no gain has nothing to lie about; a disturbed GPU would make it look like a lie at times.
                if remeasured.speedup[1][0] > 1:
                    with case.timeline.stage("legitimate again"):
                        wrong = await self._claims_wrongly(case, measured, (a, b), pair.placed, fresh)
                    if wrong is not None:
                        return self._verdict(case, Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, wrong))
            if case.known or remeasured.found.outcome is not Outcome.FASTER:
                return self._verdict(case, remeasured.found, remeasured.speedup)
            found = await self._look_closer(case, measured, (a, b), subject, remeasured)
        finally:
            for version in reloaded:
                await bench.leave(version)
        return self._verdict(case, found, remeasured.speedup)

    async def _claims_wrongly(
        self,
        case: Judgement,
        measured: Measured,
        sides: tuple[Subject, Subject],
        placed: Sequence[TimedCase],
        fresh: Series,
    ) -> str | None:
        """Why what was just measured of the second side is not what it does, as a sentence; None if it is."""
        cases = measured.cases
        if (wrong := await timing.verify_timed_outputs(measured.bench, sides[1], placed, measured.yard)) is not None:
            return wrong
        if (wrong := await timing.seen_from_outside(*sides, max(cases, key=lambda c: c.baseline_us))) is not None:
            return wrong
        claimed = list(zip(cases, _medians(fresh), strict=True))
        if (wrong := await timing.remembers_inputs(measured.bench, *sides, claimed)) is not None:
            return wrong
        return await self._trace_timed(case, measured, *sides, fresh)

    def _remeasured(
        self, measured: Measured, series: Series, fresh: Series, joined: Series, *, shared: bool
    ) -> Remeasured:
        """What the first and the second measurement of a candidate, and both joined, say of its speed."""
        settings, cases = self.settings.judge, measured.cases
        floor, clear = timing.resolution(cases, settings.delta, shared)
        result = statistics.confirm(
            fresh.combined,
            series.combined,
            settings.delta,
            self.rng.getrandbits(32),
            settings.alpha,
            floor=floor,
            clear=clear,
        )
        low, high = result.interval.speedup.lower, result.interval.speedup.upper

        def said(outcome: Outcome, reason: str, stage: Stage = Stage.TIMED) -> Remeasured:
            return Remeasured(Failure(outcome, stage, reason), (result.speedup, (low, high)))

        if result.outcome is not statistics.Outcome.FASTER:
            reason = f"it looked faster at first; measured again it was {result.speedup:.3f}x"
            return said(Outcome[result.outcome.name], reason)
        if (why := impossible(measured, joined)) is not None:
            return said(Outcome.ILLEGITIMATE, why, Stage.LEGITIMATE)
        slower = statistics.guard(fresh.blocks, settings.delta, settings.alpha, floor)
        if slower and not settings.allow_slower_cases:
            names = "; ".join(measured.bench.cases[cases[i].draw.case] for i in slower)
            return said(Outcome.NOT_WORTH_IT, f"{result.speedup:.3f}x over all cases, but slower on {names}")
        reason = f"{result.speedup:.3f}x faster ({low:.3f} to {high:.3f}), confirmed in fresh processes"
        return said(Outcome.FASTER, reason)

    async def _look_closer(
        self,
        case: Judgement,
        measured: Measured,
        timed: tuple[Subject, Subject],
        subject: Subject,
        confirmed: Remeasured,
    ) -> Failure:
        """A confirmed gain under a steady load, and its single accesses meanwhile: those tools work mostly on the CPU.

        Where the GPU's memory is needed whole by either, one comes after the other, and `timed` are left between them.

        Returns:
            What was confirmed, or why it is no gain.
        """
        if measured.bench.large:
            await self._load_steadily(case, measured, timed)
            for version in timed:
                await measured.bench.leave(version)
            broken = await self._last_look(case, subject)
        else:
            broken, _ = await both(self._last_look(case, subject), self._load_steadily(case, measured, timed))
        if broken is not None:
            return broken
        if case.sustained is not None and case.sustained.interval[1] < 1:
            briefly, steadily = confirmed.speedup[0], case.sustained.speedup
            reason = f"{briefly:.3f}x in short runs, but {steadily:.3f}x under a steady load"
            return Failure(Outcome.NOT_WORTH_IT, Stage.TIMED, reason)
        return confirmed.found

    async def _load_steadily(self, case: Judgement, measured: Measured, timed: tuple[Subject, Subject]) -> None:
        """What a steady load makes of the gain.

        Where inputs are large the GPU may lack memory for it; then it is left out.
        """
        if self.settings.judge.steady_load != "auto":
            return
        async with self.timer():
            with case.timeline.stage("steady load"):
                longest = max(measured.cases, key=lambda c: c.baseline_us)
                try:
                    loaded, case.sustained = await sustained.measure(measured.bench, *timed, longest)
                except WorkerFailure as error:
                    if not measured.bench.large or error.kind != "OutOfMemoryError":
                        raise
                    case.findings.skipped("steady load", "too little of the GPU's memory is free for it")
                else:
                    case.findings.checks.append(loaded)

    async def _last_look(self, case: Judgement, subject: Subject) -> Failure | None:
        """What single accesses show of a candidate that would be called faster."""
        assert self.finalists is not None, "a session that times has them"
        with case.timeline.stage("sanitize"):
            return await self.finalists.examine(subject, case.findings)

    async def _trace_timed(
        self, case: Judgement, measured: Measured, a: Subject, b: Subject, fresh: Series
    ) -> str | None:
        """Look at what was timed once more, through the trace; a reason if it is not what was checked."""
        timed = [(c, us) for c, (_, us) in zip(measured.cases, _medians(fresh), strict=True)]
        seen = (measured.seen, case.seen)
        failure, records, unknown = await legitimacy.check_timed(measured.bench, a, b, timed, seen)
        legitimacy.note_timed(case.findings, failure, records, unknown)
        case.traces += records
        return failure.reason if failure else None

    async def _time_launch_by_launch(
        self, case: Judgement, measured: Measured, on_decision: Callable[[statistics.Decision], None] | None
    ) -> Verdict:
        """Time a candidate that cannot be captured; the baseline is then timed in the same way."""
        bench, built = measured.bench, case.built
        assert built is not None, "only what was built is timed"
        cases = tuple(replace(c, captured=False, mode="cold" if c.mode == "graph" else c.mode) for c in measured.cases)
        subject = await bench.enter(case.candidate, built)
        try:
            await timing.prepare(bench, measured.baseline, cases)
            return await self._time(case, replace(measured, cases=cases), subject, on_decision)
        finally:
            await bench.leave(subject)
            await timing.prepare(bench, measured.baseline, measured.cases)

    def _pair(
        self, measured: Measured, baseline: Subject, candidate: Subject, ahead: int = statistics.MIN_BLOCKS
    ) -> Pair:
        same_bits = measured.yard.deterministic and not measured.bench.nondeterministic
        rng = random.Random(self.rng.getrandbits(64))
        return Pair(measured.bench, baseline, candidate, measured.cases, rng, same_bits=same_bits, ahead=ahead)

    def pids(self) -> frozenset[int]:
        """Process ids that are ours."""
        return self.pool.pids()

    def _decided(self, case: Judgement, decision: statistics.Decision) -> Verdict:
        low, high = decision.interval.speedup.lower, decision.interval.speedup.upper
        speedup = (statistics.Interval(decision.mean, decision.mean).speedup.lower, (low, high))
        delta = self.settings.judge.delta
        words = {
            statistics.Outcome.SLOWER: f"slower: {speedup[0]:.3f}x ({low:.3f} to {high:.3f})",
            statistics.Outcome.SAME: f"no difference that matters ({low:.3f}x to {high:.3f}x)",
            statistics.Outcome.NOT_WORTH_IT: f"a gain of {delta:.0%} or more is excluded ({low:.3f}x to {high:.3f}x)",
            statistics.Outcome.AMBIGUOUS: (
                f"undecided after {decision.blocks} blocks ({low:.3f}x to {high:.3f}x); "
                f"a difference of {decision.detectable or 0:.1%} would have shown"
            ),
        }
        return self._verdict(
            case, Failure(Outcome[decision.outcome.name], Stage.TIMED, words[decision.outcome]), speedup
        )

    def _verdict(
        self, case: Judgement, found: Failure, speedup: tuple[float, tuple[float, float]] | None = None
    ) -> Verdict:
        timed = _case_timings(self.measured, case) if self.measured else ()
        settings = self.settings.judge.model_dump(mode="json", exclude={"families"})
        known = {"kernel-lsp": __version__} | versions()
        address = self._address(case.candidate, known)
        evidence = Evidence(
            created=datetime.now(UTC).isoformat(timespec="seconds"),
            baseline_digest=self.target.baseline.digest,
            candidate_digest=case.candidate.digest,
            candidate_label=case.candidate.label,
            candidate_origin=case.candidate.origin,
            kernel_path=str(self.target.source.path),
            workload_path=str(self.target.workload.source.path),
            sources=self._sources(case.candidate),
            seed=self.bench.seed if self.bench else None,
            checks=tuple(case.findings.checks),
            traces=tuple(case.traces),
            xids=self.faults.drain() if self.faults else (),
            errors=tuple(case.findings.errors),
            mismatch=found.mismatch,
            baseline_resources=resources_of(self.baseline_built) if self.baseline_built else (),
            candidate_resources=resources_of(case.built) if case.built else (),
            device=case.device,
            versions=known,
            build_way=_build_way(case.built),
            extensions=_extensions(case.built),
            build_log=case.built.build.log if case.built else "",
            settings=settings,
            discarded_blocks=case.series.discarded if case.series else 0,
            protections=case.protections,
            command=self._command(address),
            sustained=case.sustained,
            baseline_opcodes=self._opcodes(self.baseline_built, found),
            candidate_opcodes=self._opcodes(case.built, found),
        )
        return Verdict(
            id=address,
            verdict=found.outcome,
            stage=found.stage,
            reason=found.reason,
            cases=timed,
            speedup=None if speedup is None else speedup[0],
            interval=None if speedup is None else speedup[1],
            seconds=case.timeline.finished(),
            evidence=evidence,
        )

    def _opcodes(self, built: Built | None, found: Failure) -> dict[str, int]:
        """Only what is offered is taken apart: it takes a quarter of a second for each side."""
        return opcodes(built, self.settings) if built is not None and found.outcome is Outcome.FASTER else {}

    def _sources(self, candidate: Candidate) -> dict[str, str]:
        sources = {"baseline": self.target.source.text, "candidate": candidate.kernel.text}
        sources["workload"] = self.target.workload.source.text
        if candidate.launch is not None and candidate.launch.text != self.target.workload.source.text:
            sources["candidate_launch"] = candidate.launch.text
        if self.target.launch_text not in (None, self.target.workload.source.text):
            sources["baseline_launch"] = self.target.launch_text
        return sources

    def _command(self, address: str) -> str:
        """What repeats the judgement: write out the files that evidence keeps, and judge them."""
        name, folder = self.target.source.path.name, address[:8]
        files = shlex.join([f"{folder}/baseline/{name}", f"{folder}/candidate/{name}"])
        return f"kernel-lsp report {folder} --sources {folder} && kernel-lsp judge {files}"

    def _address(self, candidate: Candidate, versions: dict[str, str]) -> str:
        made_of = {
            "baseline": self.target.baseline.digest,
            "candidate": candidate.digest,
            "workload": self.target.workload.source.text,
            "settings": self.settings.judge.model_dump(mode="json"),
            "versions": versions,
            "device": self.gpu.uuid if self.gpu else self.arch,
        }
        return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


async def _memory_is_back(gpu: Gpu, free: int) -> None:
    """Wait until the memory of workers that were killed is free again, as it was before them."""
    until = time.monotonic() + _RELEASE_SECONDS
    while free_bytes(gpu) < free and time.monotonic() < until:
        await asyncio.sleep(0.05)


def start_pool() -> Pool:
    """Workers for sessions on the GPU that is found first, or for a machine without one."""
    gpu = next(iter(find_gpus()), None)
    return Pool(gpu.uuid if gpu else None)


@asynccontextmanager
async def open_session(
    target: Target, settings: Settings, pool: Pool | None = None, builders: Builders | None = None
) -> AsyncGenerator[Session]:
    """A session with its baseline measured; its workers end with it.

    Args:
        target: what is judged.
        settings: in force at its file.
        pool: for sessions one after another, which then import the heavy libraries once; they are on its GPU.
        builders: of that pool, for builds that are wanted before a session is open or after it.

    Raises:
        KernelLspError: the baseline or the workload cannot be used, or workers cannot be started.
    """
    gpu = next((gpu for gpu in find_gpus() if pool is None or gpu.uuid == pool.gpu), None)
    async with AsyncExitStack() as stack:
        workers = pool or await stack.enter_async_context(Pool(gpu.uuid if gpu else None))
        stack.enter_context(workers.allowing())
        session = Session(workers, target, settings, gpu, builders)
        workers.preload(Flavour.BUILD, Flavour.GPU if gpu else Flavour.EMULATE)
        try:
            await session.open()
            yield session
        finally:
            await session.close()


async def enter(bench: Bench, candidate: Candidate, built: Built) -> Subject | Failure:
    """Load a version, or say why it cannot be."""
    try:
        return await bench.enter(candidate, built)
    except correctness.RUN_ERRORS as error:
        if isinstance(error, CannotJudgeError):
            raise
        return correctness.failure_of(error, "being loaded", "(none yet)")


def _illegitimate(found: Objection) -> Failure:
    reason = (
        f"line {found.line} of its host code {found.what}, which the kernel as it stands does not: a candidate may "
        "make tensors, compute sizes and launch; nothing was run"
    )
    return Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, reason)


def _build_way(built: Built | None) -> str:
    if built is None:
        return "none"
    ways = {extension.host.path for extension in built.extensions}
    return "full" if "full" in ways else "fast" if ways else built.build.way


def _extensions(built: Built | None) -> tuple[ExtensionRecord, ...]:
    return tuple(ExtensionRecord(name=e.name, **asdict(e.host)) for e in (built.extensions if built else ()))


def _medians(series: Series) -> list[tuple[float, float]]:
    return [(median(a), median(b)) for a, b in zip(series.baseline_us, series.candidate_us, strict=True)]


def _joined(first: Series, second: Series) -> Series:
    def appended(a: list[list[float]], b: list[list[float]]) -> list[list[float]]:
        return [x + y for x, y in zip(a, b, strict=True)]

    return Series(
        first.cases,
        appended(first.blocks, second.blocks),
        appended(first.baseline_us, second.baseline_us),
        appended(first.candidate_us, second.candidate_us),
        first.clocks + second.clocks,
        first.gpu_ms + second.gpu_ms,
        first.discarded + second.discarded,
        first.throttle | second.throttle,
    )


def impossible(measured: Measured, series: Series) -> str | None:
    """Why the times cannot be: more is read from memory each second than memory can give.

    Where the cache is not flushed between launches, as much as it holds may still be there from the last one. Nothing
    is said where integers may pick what is read.
    """
    bandwidth = measured.bench.bandwidth
    if bandwidth is None:
        return None
    for timed, (_, b) in zip(series.cases, _medians(series), strict=True):
        read = timed.draw.input_bytes - (measured.bench.l2_bytes if timed.mode == "streaming" else 0)
        if timed.mode == "graph" or timed.draw.may_pick or read / (timed.baseline_us * 1e-6) > bandwidth.limit:
            continue
        if read / (b * 1e-6) > bandwidth.limit:
            return (
                f"on case {measured.bench.cases[timed.draw.case]} reading its inputs once in {b:.1f} us would take "
                f"{read / b / 1e3:,.0f} GB/s, more than this GPU's memory gives ({bandwidth.limit / 1e9:,.0f} GB/s)"
            )
    return None


def _case_timings(measured: Measured, case: Judgement) -> tuple[CaseTiming, ...]:
    series, bandwidth = case.series, measured.bench.bandwidth
    if series is None or not series.combined:
        return ()
    timings: list[CaseTiming] = []
    for index, (timed, (a, b)) in enumerate(zip(series.cases, _medians(series), strict=True)):
        tail = series.blocks[index][-case.confirmation_blocks :]
        summary = statistics.summarise(tail)
        if case.confirmation_blocks:
            half = statistics.t_quantile(0.975, summary.n - 1) * summary.deviation / summary.n**0.5
        else:
            half = statistics.half_width(summary.deviation, summary.n)
        interval = statistics.Interval(summary.mean - half, summary.mean + half).speedup
        timings.append(
            CaseTiming(
                case=measured.bench.cases[timed.draw.case],
                mode=timed.mode,
                launches=timed.launches,
                baseline_us=a,
                candidate_us=b,
                speedup=statistics.Interval(summary.mean, summary.mean).speedup.lower,
                interval=(interval.lower, interval.upper),
                bytes_moved=timed.bytes_moved,
                baseline_roofline_share=timed.roofline_share(bandwidth, a),
                roofline_share=timed.roofline_share(bandwidth, b),
                blocks=tuple(series.blocks[index]),
                confirmation_blocks=case.confirmation_blocks,
            )
        )
    return tuple(timings)
