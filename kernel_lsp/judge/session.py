"""Judge candidates of one target: the baseline is measured once, then each candidate is compared with it."""

import asyncio
import random
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Self

from kernel_lsp import policy
from kernel_lsp.config.runtime_folder import private_folder
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, target_device
from kernel_lsp.device.lock import gpu_lock
from kernel_lsp.device.nvml import Faults, Gpu, free_bytes
from kernel_lsp.errors import CannotJudgeError, KernelLspError, WorkloadError
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.context import Context, MeasuredBaseline, SessionContext
from kernel_lsp.judge.errors import UnjudgedError, unattributed
from kernel_lsp.judge.evidence import verdict_of
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile, measure_baseline
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.inputs.replay import Replays
from kernel_lsp.judge.integrity.accesses import FinalLooks
from kernel_lsp.judge.integrity.launches import observe
from kernel_lsp.judge.judgement import judge
from kernel_lsp.judge.measure.cases import CaseChoice, NothingTimed, choose_cases, prepare
from kernel_lsp.judge.measure.cost import FIX, OutOfTimeError
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.spans import seconds_by_part
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.judge.verdict import Outcome, Verdict
from kernel_lsp.model import gate
from kernel_lsp.runner.messages.subject_answers import Recorded
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import both
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.imports import foreign_imports
from kernel_lsp.source.static_check import check_python
from kernel_lsp.workload.spec import require_reference


class Session:
    """Judges candidates of one target. Make it with `open_session`.

    `measured` is None where there is no GPU and the baseline cannot be emulated, which `unmeasured` explains: then
    candidates are only built.
    """

    def __init__(
        self,
        pool: Pool,
        target: Target,
        settings: Settings,
        gpu: Gpu | None,
        builders: Builders | None = None,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self._say = say
        self.pool, self.target, self.settings, self.gpu = pool, target, settings, gpu
        self.device = target_device(gpu, settings.arch)
        self.builders = builders or Builders(pool, settings, self.device, misaligned=gpu is not None)
        self._own_builders = builders is None
        self.baseline_built: Built | None = None
        self.harness: Harness | None = None
        self.measured: MeasuredBaseline | None = None
        self.unmeasured = ""
        self.faults = Faults(gpu) if gpu is not None else None
        self._slept = AsyncExitStack()
        self._traced_from: int | None = time.monotonic_ns()  # the first verdict's trace shows the opening, too
        self._opening: dict[str, float] = {}

    @property
    def whole(self) -> bool:
        """Return True while it can judge."""
        return self.harness is not None and self.harness.whole

    async def open(self) -> None:
        """Build and measure the baseline; beside other sessions of the pool, as `runner.turns` says.

        Raises:
            NoRoomError: there is no room in the GPU's memory beside other sessions.
            KernelLspError: the baseline does not build.
            WorkloadError: the workload does not work, or disagrees with the baseline.
        """
        target = self.target
        self.pool.foresee(foreign_imports(target.source, target.workload.source))
        self.pool.preload(Flavour.BUILD, Flavour.GPU if self.gpu else Flavour.EMULATE)
        if self.gpu is not None:
            await self._make_room(self.gpu)
        harness = self.harness = Harness(self.pool, target, self.settings, self.builders, self.gpu, say=self._say)
        harness.turns.enter()
        libraries = self.pool.libraries
        with self.pool.spans.span("build the baseline, load the workload"):
            self.baseline_built, *_ = await asyncio.gather(
                self.builders.build(target.workload, target.baseline),
                harness.open(),
                # It reads the file's neighbours, and keeps what it found in them for the check of each candidate.
                asyncio.to_thread(check_python, target.baseline, target.baseline, target.workload.source),
            )
        if self.pool.libraries != libraries:
            await harness.renew()
        if not self.baseline_built.ok:
            raise KernelLspError(
                f"the kernel does not build as it stands: {self.baseline_built.first_error}",
                target.source.path,
                fix="Fix it first; `kernel-lsp check` shows every message.",
            )
        try:
            measuring = self.pool.spans.span("measure the baseline")
            with harness.launch_time.measuring(), harness.turns.opening(), measuring:
                self.measured = await self._measure(harness, self.baseline_built)
        except CannotJudgeError as error:
            if self.gpu is not None:
                raise
            self.unmeasured = error.message
            return
        self._opening = self._parts(harness)
        harness.refill()
        if self.measured.looks is not None and harness.prepares_final_checks:
            self.measured.looks.prepare()

    def _parts(self, harness: Harness) -> dict[str, float]:
        """Return the seconds of the opening by part, with those in which it waited for its turn on the GPU."""
        assert self._traced_from is not None, "nothing is judged yet"
        found = seconds_by_part(self.pool.spans, self._traced_from, harness.pids)
        return {"wait for its turn": round(harness.turns.waited_s, 4), **found}

    async def _measure(self, harness: Harness, built: Built) -> MeasuredBaseline:
        """Measure the baseline; if one launch takes too long for timing, no cases are chosen."""
        entering = harness.enter(self.target.baseline, built)
        if self.gpu is None or harness.large:  # there memory has no room for both at once
            baseline = await entering
        else:  # the oracle would load its own code when the first outputs wait for it
            baseline, _ = await both(entering, drawing.rehearse_reference(harness))
        launch_time = harness.launch_time
        try:
            profile = await measure_baseline(harness, baseline)
        except OutOfTimeError as error:
            why = f"it cannot be judged in the time for it: {launch_time.slowest(harness.cases)}"
            raise CannotJudgeError(why, self.target.source.path, fix=FIX) from error
        if self.gpu is None:
            return MeasuredBaseline(harness, baseline, profile, other_sizes=OtherSizesCheck(harness, baseline))
        if profile.findings.ruling is not None or not launch_time.affords_case():
            return MeasuredBaseline(harness, baseline, profile)
        try:
            baseline, chosen, recorded = await self._prepare_timing(harness, baseline, profile)
            seen = await observe(harness, baseline, chosen.timed)
        except OutOfTimeError:
            return MeasuredBaseline(harness, baseline, profile)
        await harness.rest(baseline)
        looks = FinalLooks(harness, baseline, profile, chosen.timed)
        return MeasuredBaseline(harness, baseline, profile, chosen.timed, chosen.untimed, recorded, seen, looks)

    async def _prepare_timing(
        self, harness: Harness, baseline: Subject, profile: BaselineProfile
    ) -> tuple[Subject, CaseChoice, tuple[Recorded, ...]]:
        """Choose how to time, as CUDA graphs if the baseline allows it; return also the process ready for timing.

        Raises:
            WorkloadError: the baseline cannot be timed in any way.
        """
        await harness.settle()
        await harness.rest(baseline)
        wrong = ""
        for captured in (True, False):
            try:
                async with self.timer():
                    chosen = await choose_cases(harness, baseline, profile, captured=captured)
                    recorded = await prepare(harness, baseline, chosen.timed)
                    ruling = await Replays(harness, baseline, profile, random.SystemRandom()).on_new_inputs(
                        chosen.timed
                    )
                if ruling is None:
                    return baseline, chosen, tuple(recorded)
                wrong = ruling.reason
            except (NothingTimed, WorkerFailure) as error:
                if isinstance(error, WorkerFailure) and not captured:
                    raise
                wrong = str(error)
            if captured:
                await harness.leave(baseline)
                baseline = await harness.enter(baseline.candidate, baseline.built)
        raise WorkloadError(f"the kernel cannot be timed as it stands: {wrong}", self.target.workload.source.path)

    async def close(self) -> None:
        """End the workers, and wake the model servers that were put to sleep for them."""
        try:
            if self.faults is not None:
                self.faults.close()
            if self.measured is not None and self.measured.looks is not None:
                await self.measured.looks.close()
            if self.harness is not None:
                await self.harness.close()
            if self._own_builders:
                self.builders.close()
        finally:
            await self._slept.aclose()

    async def _make_room(self, gpu: Gpu) -> None:
        """Put model servers to sleep until the session ends, if they leave too little memory."""
        free, wanted = free_bytes(gpu), self.settings.model.reserve // 2
        if await self._slept.enter_async_context(gate.asleep(gpu.uuid, wanted=wanted, free=free)):
            self._slept.push_async_callback(_memory_is_back, gpu, free_bytes(gpu))

    @asynccontextmanager
    async def timer(self) -> AsyncGenerator[tuple[gate.Quieted, ...]]:
        """Hold the GPU for timing, with other sessions and every model server kept off it; yield these servers."""
        assert self.gpu is not None, "only a GPU is timed"
        assert self.harness is not None, "open the session first"
        async with AsyncExitStack() as held:
            with self.pool.spans.span("wait for the GPU's lock"):
                await held.enter_async_context(gpu_lock(self.gpu.uuid, private_folder("locks")))
                await held.enter_async_context(self.harness.turns.alone())
                quieted = await held.enter_async_context(gate.quiet(self.gpu.uuid))
            yield quieted

    async def judge(
        self,
        candidate: Candidate,
        on_decision: Callable[[Decision], None] | None = None,
        *,
        always_run: bool = False,
        known: bool = False,
        on_confirmed: Callable[[Verdict], None] | None = None,
    ) -> Verdict:
        """Return the verdict on one candidate.

        A candidate that is the baseline's own program under another text is SAME without being run, unless `always_run`
        is set, as for measurements of the judge itself. One that is `known` was judged in full beside another baseline
        of the same workload: it is checked on plain inputs only, and a gain gets no final checks. One whose process
        ends without a message is judged once more: another process may have killed it.

        `on_confirmed` is called with the verdict on a confirmed gain before its final checks, which may take it back:
        the verdict returned has the same id, and its evidence says that it was shown before.

        Raises:
            UnjudgedError: something broke that says nothing of the candidate; another session may judge it.
        """
        assert self.harness is not None, "open the session first"
        for last in (False, True):
            context = Context(self._shared(), candidate, known, always_run, on_decision, self._timeline())
            if on_confirmed is not None:
                context.on_confirmed = partial(_show_early, context, on_confirmed)
            with unattributed(), self.harness.launch_time.judgement():
                ruling = await judge(context)
            if not ruling.died or last:
                break
        if ruling.outcome is Outcome.UNTIMED and not self.whole:
            raise UnjudgedError(ruling.reason)
        return verdict_of(context, ruling, self.faults)

    def _timeline(self) -> Timeline:
        began, self._traced_from, opening, self._opening = self._traced_from, None, self._opening, {}
        return Timeline(self.pool.spans, time.monotonic_ns() if began is None else began, opening)

    def _shared(self) -> SessionContext:
        assert self.baseline_built is not None, "open the session first"
        return SessionContext(
            self.target,
            self.settings,
            self.gpu,
            self.builders,
            self.baseline_built,
            self.measured,
            self.unmeasured,
            self.timer,
            self.pool.pids,
        )


def _show_early(context: Context, show: Callable[[Verdict], None], ruling: Ruling) -> None:
    """Show the verdict on a gain whose final checks are still to come."""
    show(verdict_of(context, replace(ruling, reason=f"{ruling.reason}; its final checks are under way"), None))


async def _memory_is_back(gpu: Gpu, free: int) -> None:
    """Wait until the memory of killed workers is free again."""
    until = time.monotonic() + policy.LET_GO_SECONDS
    while free_bytes(gpu) < free and time.monotonic() < until:
        await asyncio.sleep(0.05)


def pool_on(gpu: Gpu | None, settings: Settings, cores: frozenset[int] = frozenset()) -> Pool:
    """Return a pool of workers on this GPU, or on the emulator if it is None; the caller closes the pool.

    Those that use the GPU stay on `cores`, if there are any.
    """
    return Pool(gpu.uuid if gpu else None, warm_minutes=settings.runner.warm_minutes, cores=cores)


def start_pool(settings: Settings) -> Pool:
    """Return a pool of workers on the GPU that the settings choose, or without one if the machine has none.

    Raises:
        ConfigurationError: the setting `gpu` names none.
    """
    return pool_on(choose_gpu(settings.gpu), settings)


class Pools:
    """A pool of workers for several sessions, started on first use; after `end` the next use starts another."""

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._pool: Pool | None = None

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.end()

    def now(self) -> Pool:
        """Return the pool, started if necessary.

        Raises:
            ConfigurationError: the setting `gpu` names none.
        """
        self._pool = self._pool or start_pool(self._settings)
        return self._pool

    async def end(self) -> None:
        """End the pool."""
        pool, self._pool = self._pool, None
        if pool is not None:
            await pool.close()


@asynccontextmanager
async def open_session(
    target: Target,
    settings: Settings,
    pool: Pool | None = None,
    builders: Builders | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> AsyncGenerator[Session]:
    """Open a session with its baseline measured; its workers end with the session.

    Args:
        target: the kernel and its workload.
        settings: in force at its file.
        pool: for sessions one after another, which then import the heavy libraries once; they are on its GPU.
        builders: of that pool, for builds that are wanted before a session is open or after it.
        say: called with early messages for the waiting user, such as that the baseline is slow.

    Raises:
        KernelLspError: the baseline or the workload cannot be used, or workers cannot be started.
    """
    require_reference(target.workload)
    gpu = choose_gpu(pool.gpu if pool else settings.gpu) if pool is None or pool.gpu else None
    async with AsyncExitStack() as stack:
        workers = pool
        if workers is None:
            workers = await stack.enter_async_context(pool_on(gpu, settings))
        stack.enter_context(workers.allowing())
        session = Session(workers, target, settings, gpu, builders, say)
        try:
            await session.open()
            yield session
        finally:
            await session.close()
