"""The harness of one target: an oracle, and versions of the kernel each in a process of its own."""

import asyncio
import hashlib
import itertools
import os
import secrets
import shutil
import time
from collections.abc import Callable, Coroutine
from typing import Never

from kernel_lsp import policy
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.compiler.machine_code.binary import Binary
from kernel_lsp.compiler.toolchain.emulated import emulated_devices
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu, free_bytes, uses
from kernel_lsp.errors import CannotJudgeError, RunnerError
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.errors import UnjudgedError, named_as_given, reason_of
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.measure.cost import LaunchTime
from kernel_lsp.judge.measure.roofline import Bandwidth
from kernel_lsp.judge.sanitizer_tools import SanitizerTools
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.warm_workers import WarmWorkers
from kernel_lsp.runner import messages
from kernel_lsp.runner.messages import Answer, Request
from kernel_lsp.runner.messages.oracle import (
    Attach,
    Compare,
    Detach,
    Fill,
    LoadWorkload,
    MeasureRates,
    OracleRole,
    Probe,
)
from kernel_lsp.runner.messages.oracle_answers import CallerContract, Compared, LoadedWorkload
from kernel_lsp.runner.messages.subject import Bind, Load, Ready, Rest, Retire, Unbind
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start, to_the_end
from kernel_lsp.runner.turns import SessionTurns
from kernel_lsp.runner.worker import Worker, WorkerDied, WorkerTimedOut
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels, surroundings
from kernel_lsp.source.language import source_part

_SLAB_ALIGNMENT = 512


class Harness:
    """Owns the workers that judge one target: an oracle, and one process for each version.

    Open it before use; the pool ends workers that are left over. Without a GPU (`gpu` is None) kernels run on the
    emulator and nothing is timed. With `timed=False` nothing is timed either, and workers skip the set-up for timing.
    `say` receives messages for the waiting user.
    """

    def __init__(
        self,
        pool: Pool,
        target: Target,
        settings: Settings,
        builders: Builders,
        gpu: Gpu | None,
        *,
        timed: bool = True,
        say: Callable[[str], None] = lambda _: None,
    ) -> None:
        self.say, self._timed = say, timed and gpu is not None
        self.pool, self.target, self.settings, self.builders, self.gpu = pool, target, settings, builders, gpu
        self.place, self._flavour = ("cuda", Flavour.GPU) if gpu else ("cpu", Flavour.EMULATE)
        baseline = target.baseline.kernel
        self._plain = not find_kernels(baseline.text, baseline.path)
        self.slack = policy.CPU_SLACK if gpu is None and self._plain else 1.0
        self.seed = int.from_bytes(os.urandom(6), "little")
        self.salt = secrets.randbits(62)  # of checksums, the same in all processes, so that sums can be compared
        self.turns = SessionTurns(pool.turns if gpu else None)
        self.workload = LoadedWorkload((), (), ())
        self.draws: dict[str, Draw] = {}
        self.bandwidth: Bandwidth | None = None
        self.launch_time = LaunchTime(settings.judge.slow_budget_s)
        self._oracle: Worker | None = None
        self._probes: Binary | None = None
        self.warm_workers = WarmWorkers(self._start_subject, self._roomy)
        self.tools = SanitizerTools(pool, self.turns)
        self._subjects: dict[str, Worker] = {}
        self._parting: list[asyncio.Task[None]] = []
        self.numbers, self.pids = itertools.count(1), set[int]()

    @property
    def cases(self) -> tuple[str, ...]:
        """Return the workload's cases as readable text, such as `n=4096`."""
        return self.workload.cases

    @property
    def contract(self) -> CallerContract:
        """Return the guarantees that the workload's callers give."""
        return self.workload.contract

    @property
    def large(self) -> bool:
        """True where judging needs much of the GPU's memory."""
        return self.workload.large

    async def open(self) -> None:
        """Start the oracle and load the workload.

        Raises:
            WorkloadError: the workload is not one.
            RunnerError: workers cannot be started.
            NoRoomError: there is no room in memory beside other sessions.
        """
        target, workload, made = self.target, self.target.workload, self.pool.scratch(Flavour.BUILD)
        place, slack, factor, problem = self.place, self.slack, self.settings.judge.factor, workload.problem
        read = [*surroundings(target.source, workload.source), made, self.builders.extensions()]
        self.pool.allow(read, self.settings.runner.environment)
        starting = asyncio.create_task(
            self.pool.worker(
                self._flavour, "oracle", problem=problem, device=place, factor=factor, slack=slack, plain=self._plain
            )
        )
        distance: Binary | None = None
        if self._timed:
            self._probes, distance = await asyncio.gather(self.builders.own("probes"), self.builders.own("distance"))
            if problem:
                await self.builders.prepare_header()
        self.refill()
        self._oracle = await starting
        self.pids.add(self._oracle.pid)
        self.workload = await self.oracle(
            LoadWorkload(
                text=workload.source.text,
                path=str(workload.source.path.absolute()),
                seed=self.seed_of("weights"),
                beside=self.turns.others,
                distance=distance,
                probes=self._probes,
                builds=await self.builders.reference(workload, target.baseline),
                rung=self.workload.rung,
            ),
            deadline=policy.LOAD_SECONDS,
        )
        self.turns.reserve(self.workload.takes, self.workload.free)
        if self.large:
            await self.tools.close()
        if self._timed:
            async with self.turns.alone():
                self.bandwidth = Bandwidth.measured(await self.oracle(MeasureRates()))

    async def close(self) -> None:
        """End every worker of this harness."""
        if self._parting:
            await asyncio.wait(self._parting)
        await self.warm_workers.close()
        await self.tools.close()
        for worker in (*self._subjects.values(), *([self._oracle] if self._oracle else [])):
            worker.kill()
        self.turns.leave()

    async def oracle(
        self, request: Request[OracleRole, Answer], *, deadline: float = policy.WORKER_ANSWER_SECONDS
    ) -> Answer:
        """Return the oracle's answer.

        Raises:
            UnjudgedError: it failed or is gone, which says nothing of any version.
            WorkloadError: the workload does not work.
        """
        assert self._oracle is not None, "open the harness first"
        # The oracle serves every version: cancelling the judgement of one must not end it.
        try:
            with named_as_given(self.target.workload.source):
                return await to_the_end(self.turns.ask(self._oracle, request, deadline))
        except (WorkerFailure, WorkerDied, WorkerTimedOut) as error:
            if isinstance(error, WorkerFailure) and error.lost_device:
                self._oracle.kill()  # it would fail for every version from now on; a session with another one does not
            raise UnjudgedError(f"a check could not be made ({type(request).__name__}): {reason_of(error)}") from error

    @property
    def whole(self) -> bool:
        """True while the oracle's process lives; without it no candidate can be judged."""
        return self._oracle is not None and self._oracle.alive

    def seed_of(self, key: str) -> int:
        """Return the seed of what has this key."""
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{key}".encode()).digest()[:6], "little")

    async def enter(self, candidate: Candidate, built: Built) -> Subject:
        """Load a version into a fresh process, once those that were left behind are gone.

        Raises:
            UnjudgedError: no process could be set up.
            WorkerFailure: the version raised when it was loaded.
            WorkerDied, WorkerTimedOut: its process did not survive that.
            WorkloadError: its `launch` does not fit.
        """
        parting, self._parting = self._parting, []
        for each in parting:
            await asyncio.shield(each)
        worker = await self.warm_workers.take()
        name, launch_time = f"{next(self.numbers)}", self.launch_time
        subject = Subject(name, candidate, built, worker, launch_time=launch_time, turns=self.turns)
        self._subjects[subject.name] = worker
        self.pids.add(worker.pid)
        try:
            await self._load(subject, built)
        except BaseException:
            await self.leave(subject)
            raise
        return subject

    async def _load(self, subject: Subject, built: Built) -> None:
        candidate = subject.candidate
        bare = not source_part(candidate.language).python
        if self.gpu is None and (bare or built.extensions):
            built = await self._emulated(candidate, built)
        binary, extensions = built.build.binary, built.extensions
        if self.gpu is None and any(extension.extension for extension in extensions):
            why = f"its host code is built whole, and runs on a GPU only ({extensions[0].host.reason})"
            raise CannotJudgeError(why, candidate.kernel.path, fix="Launch its kernels from `launch`.")
        if self.gpu is None and (why := compiler_part(candidate.language).gpu_only):
            raise CannotJudgeError(why, candidate.kernel.path, fix="`kernel-lsp facts` compiles it without one.")
        cuda = bare and not extensions
        kernels = find_kernels(candidate.kernel.text, candidate.kernel.path) if cuda else ()
        if compiler_part(candidate.language).compiles_at_launch:  # what it compiles besides must reach no other version
            known, own = self.builders.triton_cache(candidate), subject.triton_cache
            if known.is_dir():
                await asyncio.to_thread(shutil.copytree, known, own, dirs_exist_ok=True)
        loaded = await subject.ask(
            Load(
                path=str(candidate.kernel.path.absolute()),  # a worker lives in a folder of its own
                text=candidate.kernel.text,
                launch_path=str(candidate.launch.path.absolute()) if candidate.launch else None,
                launch_text=candidate.launch.text if candidate.launch else None,
                binary=binary if cuda else None,
                types_of={k.name: tuple(p.type for p in k.parameters) for k in kernels},
                names_of={k.name: tuple(p.name for p in k.parameters) for k in kernels},
                extensions=built.extensions,
                calls=self.workload.calls,
                case=self.workload.decisive[0],
            )
        )
        subject.own_weights = loaded.own_weights

    def keep_launchers(self, baseline: Subject) -> None:
        """Keep the launchers that Triton compiled in the baseline's process, for later versions to reuse."""
        if self.gpu is not None and compiler_part(baseline.candidate.language).compiles_at_launch:
            self.builders.keep_launchers(baseline.triton_cache)

    async def _emulated(self, candidate: Candidate, built: Built) -> Built:
        """Return a CUDA version compiled for the emulator; the last architecture tried is the one it was `built` for.

        Code of Hopper or later stays as it is: built for an earlier architecture it may be other code, or none.
        """
        if built.is_modern:
            return built
        *others, own = emulated_devices(self.builders.device)
        for device in others:
            built = await self.builders.build(self.target.workload, candidate, device)
            if built.build.binary is not None:
                return built
        return await self.builders.build(self.target.workload, candidate, own)

    async def bind(self, subject: Subject, buffers: tuple[str, ...], draw: Draw) -> None:
        """Allocate memory for the inputs of a draw in a version's process, once for each set of buffers."""
        if subject.bound.get(buffers[0]) == buffers:
            return
        nbytes, names = -(-draw.nbytes // _SLAB_ALIGNMENT) * _SLAB_ALIGNMENT, self.workload.arguments
        bind = Bind(buffers=buffers, arguments=draw.arguments, nbytes=nbytes, names=names, case=draw.case)
        handle = await subject.ask(bind)
        await self.oracle(Attach(subject=subject.name, buffers=buffers, nbytes=nbytes, handle=handle))
        subject.bound[buffers[0]] = buffers
        subject.forget_recordings(buffers[0])
        if self.large:
            await subject.ask(Retire())

    async def fill(self, subject: Subject, draw: Draw) -> None:
        """Write inputs into a version's memory, in the buffer for single launches."""
        if draw.buffer not in subject.bound and self.large:
            for other in subject.bound.keys() - subject.recorded.keys():
                await self.unbind(subject, other)
        await self.bind(subject, (draw.buffer,), draw)
        await self.oracle(Fill(subject=subject.name, buffers=(draw.buffer,), key=draw.key))

    async def compare(
        self,
        subject: Subject,
        draw: Draw,
        published: PublishedOutputs,
        *,
        buffer: str = "",
        baseline: bool = False,
        untouched: bool = True,
    ) -> Compared:
        """Return the oracle's comparison of published outputs; inputs lie in `buffer`, or the draw's own one."""
        if published.outbox is not None:
            outbox = published.outbox
            await self.oracle(Attach(subject=subject.name, buffers=("out",), nbytes=outbox.nbytes, handle=outbox))
        return await self.oracle(
            Compare(
                subject=subject.name,
                buffer=buffer or draw.buffer,
                key=draw.key,
                outputs=published.outputs,
                baseline=baseline,
                untouched=untouched,
            )
        )

    async def unbind(self, subject: Subject, first: str) -> None:
        """Free the buffers that were bound together, named by the first, and the recordings made on them."""
        buffers = subject.bound.pop(first, ())
        if buffers:
            await self.oracle(Detach(subject=subject.name, buffers=buffers))
            await subject.ask(Unbind(buffers=buffers))
            subject.forget_recordings(first)

    async def rest(self, subject: Subject) -> None:
        """Free a version's inputs and outputs if they are large; `bind` allocates them again."""
        if self.large and subject.worker.alive:
            await self.oracle(Detach(subject=subject.name))
            await subject.ask(Rest())
            subject.bound.clear()
            subject.recorded.clear()

    async def leave(self, subject: Subject) -> None:
        """End a version's process and let go of its memory."""
        await self.oracle(Detach(subject=subject.name))  # first: what is shared must outlive who looks at it
        subject.worker.kill()
        self._subjects.pop(subject.name, None)

    def leave_behind(self, work: Coroutine[object, Never, None]) -> None:
        """Do what ends versions while others go on without them; the next version that enters waits for it."""
        self._parting.append(start(work))

    async def recover(self, pid: int) -> None:
        """After a version's process broke, wait until the GPU has freed it, and check that the GPU still works.

        Raises:
            RunnerError: it does not.
        """
        if self.gpu is None:
            return
        end = time.monotonic() + policy.LET_GO_SECONDS
        while uses(self.gpu, pid) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if not await self.oracle(Probe()):
            raise RunnerError("the GPU computes wrongly since the last fault", fix="Start again, or reset the GPU.")

    def refill(self) -> None:
        """Start setting up workers for later versions if few are left; not to be called while anything is timed."""
        if self.gpu:
            self.warm_workers.refill(many=bool(self._subjects) and not self.large and not self.turns.has_company)
            if self.prepares_final_checks:
                self.tools.refill()

    @property
    def prepares_final_checks(self) -> bool:
        """True where what final checks need is made ready before there is a gain to check."""
        wanted = self._timed and self.settings.judge.sanitize != "off" and not (self.large or self.turns.has_company)
        return self.gpu is not None and wanted and self.tools.may_wait(self.gpu)

    async def renew(self) -> None:
        """Replace the workers set up for later versions: newer ones have more imported."""
        await self.warm_workers.close()
        self.refill()

    async def settle(self) -> None:
        """Wait until no worker or tool is being set up, for that takes the GPU's time too."""
        await self.warm_workers.settle()
        await self.tools.settle()

    def _roomy(self) -> bool:
        """Return True while others, further sessions among them, have enough of the GPU's memory left."""
        return self.gpu is not None and free_bytes(self.gpu) >= max(policy.ROOMY_BYTES, self.gpu.memory_bytes // 2)

    async def _start_subject(self) -> Worker:
        python = compiler_part(self.target.language).compiles_at_launch or self.target.workload.problem
        try:
            worker = await self.pool.worker(
                self._flavour,
                "subject",
                triton=python,
                processes=python,  # to compile what it meets
                device=self.place,
                probes=messages.encode(self._probes) if self._probes else b"",
                emulated=messages.encode(self.builders.device),
            )
            await self.turns.ask(worker, Ready(), policy.WORKER_ANSWER_SECONDS)
        except RunnerError as error:
            raise UnjudgedError(f"no process for it could be set up: {error.message}") from error
        return worker
