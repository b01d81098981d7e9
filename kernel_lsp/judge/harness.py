"""The harness of one target: an oracle, and versions of the kernel each in a process of its own."""

import asyncio
import contextlib
import hashlib
import itertools
import os
import secrets
import shutil
import time
import zlib
from collections.abc import Generator
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.build.binary import Binary
from kernel_lsp.build.emulated import emulated_archs
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu, uses
from kernel_lsp.device.tensors import Argument, TensorSpec
from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.measure.roofline import Bandwidth
from kernel_lsp.judge.target import Target
from kernel_lsp.runner import messages
from kernel_lsp.runner.messages import Answer, Request
from kernel_lsp.runner.messages.oracle import (
    Attach,
    Compare,
    Compared,
    Contract,
    Detach,
    Fill,
    LoadWorkload,
    Made,
    MeasureRates,
    OracleRole,
    Prepare,
    Probe,
    Touch,
    Vary,
    Workload,
)
from kernel_lsp.runner.messages.subject import Bind, Load, Published, Ready, Rest, Retire, SubjectRole, Unbind
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start, to_the_end
from kernel_lsp.runner.worker import Worker
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, surroundings
from kernel_lsp.source.kernel import Language

START_SECONDS = policy.WORKER_ANSWER_SECONDS
PLAIN, WEIGHTS, TOUCHED = "normal", "weights", "touched"
"""Families of inputs: as the workload makes them; with other weights; different from earlier ones in a few elements."""
_SLAB_ALIGNMENT = 512
_SPARES = 3  # one judgement takes a process, and two fresh ones to confirm a gain
_FEW_SPARES = 2  # that are left when others are made
_MORE_SPARES, _MORE_BYTES = 6, 32 << 30  # where a GPU has so much, and judging needs little: each takes a GiB


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs that the oracle has made: `arguments` say how they lie in memory, not what they are.

    Weights of a KernelBench problem are as its `Model` constructs them but for `changed_weights`.
    """

    key: str
    case: int
    family: str
    arguments: tuple[Argument, ...]
    nbytes: int
    input_bytes: int
    changed_weights: tuple[str, ...] = ()

    @property
    def is_plain(self) -> bool:
        """True for inputs as the workload makes them."""
        return self.family == PLAIN

    @property
    def may_pick(self) -> bool:
        """True where integers among the inputs may pick what is read of the others, as of a table."""
        tensors = [argument for argument in self.arguments if isinstance(argument, TensorSpec)]
        return len(tensors) > 1 and any(tensor.holds_integers for tensor in tensors)

    @property
    def slab(self) -> str:
        """Name of the memory for it: inputs of one case share it, unless their layout or numbers differ."""
        return f"{self.case}/{zlib.crc32(messages.encode(self.arguments)):08x}"


@dataclass
class Subject:
    """One version of the kernel, loaded in a worker.

    Attributes:
        name: how the oracle knows its memory.
        candidate: the version.
        built: its build.
        worker: the process.
        bound: slabs that it has, by the first of those that were bound together.
        recorded: how each recording was made, by its name.
        own_weights: weights of a KernelBench problem that it does not have under their names, but makes itself.
    """

    name: str
    candidate: Candidate
    built: Built
    worker: Worker
    bound: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    recorded: dict[str, object] = field(default_factory=dict[str, object])
    own_weights: tuple[str, ...] = ()

    async def ask(self, request: Request[SubjectRole, Answer], *, deadline: float = START_SECONDS) -> Answer:
        """Ask the worker; raises as `Worker.ask`."""
        with _named_as_given(self.candidate.kernel, self.candidate.launch):
            return await self.worker.ask(request, deadline=deadline)


def _triton_cache(subject: Subject) -> Path:
    """The folder of Triton's cache in a version's process."""
    return subject.worker.scratch / "triton"


@contextlib.contextmanager
def _named_as_given(*files: SourceFile | None) -> Generator[None]:
    """Within it errors name files as the user does."""
    try:
        yield
    except KernelLspError as error:
        error.path = next((file.path for file in files if file and file.path.absolute() == error.path), error.path)
        raise


class UnjudgedError(RunnerError):
    """The judge could not do its own part, as for want of memory: that says nothing of any version."""


class Harness:
    """Owns the workers that judge one target: an oracle, and each version in a process of its own.

    Open it before use; the pool kills what is left. Without a GPU (`gpu` is None) kernels run on the emulator, and
    nothing can be timed. Nor can it where `timed` is False, which spares each worker what timing needs.
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
    ) -> None:
        self._timed = timed and gpu is not None
        self.pool, self.target, self.settings, self.builders, self.gpu = pool, target, settings, builders, gpu
        self.place = "cuda" if gpu else "cpu"
        baseline = target.baseline.kernel
        self._plain = not find_kernels(baseline.text, baseline.path)
        self.slack = policy.CPU_SLACK if gpu is None and self._plain else 1.0
        self.seed = int.from_bytes(os.urandom(6), "little")
        self.salt = secrets.randbits(62)  # of checksums, the same in all processes: their sums are compared
        self._flavour = Flavour.GPU if gpu else Flavour.EMULATE
        self.workload = Workload((), (), ())
        self.draws: dict[str, Draw] = {}
        self.bandwidth: Bandwidth | None = None
        self._oracle: Worker | None = None
        self._probes: Binary | None = None
        self._spares: list[asyncio.Task[Worker]] = []
        self._subjects: dict[str, Worker] = {}
        self._numbers = itertools.count(1)

    @property
    def cases(self) -> tuple[str, ...]:
        """The workload's cases, as a person would write them."""
        return self.workload.cases

    @property
    def contract(self) -> Contract:
        """Guarantees of the workload's callers."""
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
        """
        target, made = self.target, self.pool.scratch(Flavour.BUILD)
        extensions = self.builders.extensions()
        self.pool.allow(read=[*surroundings(target.source, target.workload.source), made, extensions])
        starting = asyncio.create_task(
            self.pool.worker(
                self._flavour,
                "oracle",
                device=self.place,
                factor=self.settings.judge.factor,
                slack=self.slack,
                plain=self._plain,
            )
        )
        distance: Binary | None = None
        if self._timed:
            self._probes, distance = await asyncio.gather(self.builders.own("probes"), self.builders.own("distance"))
            if target.workload.problem:
                await self.builders.prepare_header()
        self.refill()
        self._oracle = await starting
        source = self.target.workload.source
        self.workload = await self.oracle(
            LoadWorkload(
                text=source.text,
                path=str(source.path.absolute()),
                seed=self._seed("weights"),
                distance=distance,
                probes=self._probes,
            ),
            deadline=policy.LOAD_SECONDS,
        )
        if self._timed:
            self.bandwidth = Bandwidth.measured(await self.oracle(MeasureRates()))

    async def close(self) -> None:
        """End every worker of this harness."""
        for spare in self._spares:
            spare.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await spare).kill()
        for worker in (*self._subjects.values(), *([self._oracle] if self._oracle else [])):
            worker.kill()

    async def oracle(self, request: Request[OracleRole, Answer], *, deadline: float = START_SECONDS) -> Answer:
        """Ask the oracle."""
        assert self._oracle is not None, "open the harness first"
        # The oracle serves every version: it must outlive the cancelling of any one of them.
        try:
            with _named_as_given(self.target.workload.source):
                return await to_the_end(self._oracle.ask(request, deadline=deadline))
        except WorkerFailure as error:
            raise UnjudgedError(f"a check could not be made ({type(request).__name__}): {error}") from error

    async def draw(self, case: int, family: str, number: int = 0) -> Draw:
        """Return inputs of a case: the same ones each time for the same `number`; all follow from `seed`."""
        key = f"{case}/{family}/{number}"
        if key not in self.draws:
            made = await self.oracle(Prepare(key=key, case=case, family=family, seed=self._seed(key)))
            self.draws[key] = self._drawn(key, case, family, made)
        return self.draws[key]

    async def fresh(self, like: Draw, seed: int) -> Draw:
        """Return the inputs that `Renew` draws with this seed; errors on them are held to those on `like`."""
        key = f"{like.key}/fresh"
        family = self.fresh_family(like)
        made = await self.oracle(Prepare(key=key, case=like.case, family=family, seed=seed, like=like.key))
        return self._drawn(key, like.case, family, made)

    def fresh_family(self, like: Draw) -> str:
        """Family of inputs that are drawn anew for each timed launch: with other weights too where there are any."""
        return WEIGHTS if WEIGHTS in {draw.family for draw in self.draws.values()} else like.family

    def _drawn(self, key: str, case: int, family: str, made: Made) -> Draw:
        changed = self.workload.weights if family == WEIGHTS or self.workload.renews_weights else ()
        return Draw(key, case, family, made.arguments, made.nbytes, made.input_bytes, changed)

    async def vary(self, draw: Draw, argument: int) -> tuple[Draw | None, str]:
        """Return the same inputs but for one argument, or why there are none that ask for another answer."""
        name = self.workload.arguments[argument]
        key = f"{draw.key}/{argument}"
        found = await self.oracle(Vary(key=key, base=draw.key, argument=argument, seed=self._seed(key)))
        if found.made is None or not found.matters:
            return None, found.why or "the right answer is the same whatever it holds"
        varied = self._drawn(key, draw.case, f"other `{name}`", found.made)
        changed = (*draw.changed_weights, *((name,) if name in self.workload.weights else ()))
        self.draws[key] = replace(varied, changed_weights=changed)
        return self.draws[key], ""

    async def touch(self, draw: Draw) -> Draw:
        """Return the same inputs but for fresh values in a few places, other ones each time; only the last are kept.

        Weights are among them.
        """
        key = f"{draw.key}/touched"
        made = await self.oracle(Touch(key=key, base=draw.key, seed=self._seed(f"{key}/{next(self._numbers)}")))
        return replace(self._drawn(key, draw.case, TOUCHED, made), changed_weights=self.workload.weights)

    def _seed(self, key: str) -> int:
        return int.from_bytes(hashlib.sha256(f"{self.seed}/{key}".encode()).digest()[:6], "little")

    async def enter(self, candidate: Candidate, built: Built) -> Subject:
        """Load a version into a fresh process.

        Raises:
            UnjudgedError: no process could be set up.
            WorkerFailure: the version raised when it was loaded.
            WorkerDied, WorkerTimedOut: its process did not survive that.
            WorkloadError: its `launch` does not fit.
        """
        worker = await self._take_spare()
        subject = Subject(f"{next(self._numbers)}", candidate, built, worker)
        self._subjects[subject.name] = worker
        try:
            await self._load(subject, built)
        except BaseException:
            await self.leave(subject)
            raise
        return subject

    async def _load(self, subject: Subject, built: Built) -> None:
        candidate = subject.candidate
        if self.gpu is None and (candidate.language is Language.CUDA or built.extensions):
            built = await self._emulated(candidate)
        binary, extensions = built.build.binary, built.extensions
        if self.gpu is None and any(extension.extension for extension in extensions):
            why = f"its host code is built whole, and runs on a GPU only ({extensions[0].host.reason})"
            raise CannotJudgeError(why, candidate.kernel.path, cure="Launch its kernels from `launch`.")
        cuda = candidate.language is Language.CUDA and not extensions
        kernels = find_kernels(candidate.kernel.text, candidate.kernel.path) if cuda else ()
        if candidate.language is Language.TRITON:  # what it compiles besides must reach no other version
            known, own = self.builders.triton_cache(candidate), _triton_cache(subject)
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
        """Spare versions to come the host code that Triton compiled in the baseline's process to launch it."""
        if self.gpu is not None and baseline.candidate.language is Language.TRITON:
            self.builders.keep_launchers(_triton_cache(baseline))

    async def _emulated(self, candidate: Candidate) -> Built:
        """A CUDA version as the emulator takes it; the last of the architectures is the one that it was built for."""
        *smaller, last = emulated_archs(self.builders.arch)
        for arch in smaller:
            built = await self.builders.build(self.target.workload, candidate, arch)
            if built.build.binary is not None:
                return built
        return await self.builders.build(self.target.workload, candidate, last)

    async def bind(self, subject: Subject, slabs: tuple[str, ...], draw: Draw) -> None:
        """Make memory for inputs like these in a version's process, once."""
        if subject.bound.get(slabs[0]) == slabs:
            return
        nbytes = -(-draw.nbytes // _SLAB_ALIGNMENT) * _SLAB_ALIGNMENT
        request = Bind(
            slabs=slabs, arguments=draw.arguments, nbytes=nbytes, names=self.workload.arguments, case=draw.case
        )
        handle = await subject.ask(request)
        await self.oracle(Attach(subject=subject.name, slabs=slabs, nbytes=nbytes, handle=handle))
        subject.bound[slabs[0]] = slabs
        subject.recorded.pop(slabs[0], None)
        if self.large:
            await subject.ask(Retire())

    async def fill(self, subject: Subject, draw: Draw) -> None:
        """Put inputs into a version's memory, where a launch by itself works on them."""
        if draw.slab not in subject.bound and self.large:
            for other in subject.bound.keys() - subject.recorded.keys():
                await self.unbind(subject, other)
        await self.bind(subject, (draw.slab,), draw)
        await self.oracle(Fill(subject=subject.name, slabs=(draw.slab,), key=draw.key))

    async def compare(
        self,
        subject: Subject,
        draw: Draw,
        published: Published,
        *,
        slab: str = "",
        baseline: bool = False,
        untouched: bool = True,
    ) -> Compared:
        """Have the oracle compare what a version published for inputs that lie in `slab`, or in their usual one."""
        if published.outbox is not None:
            outbox = published.outbox
            await self.oracle(Attach(subject=subject.name, slabs=("out",), nbytes=outbox.nbytes, handle=outbox))
        return await self.oracle(
            Compare(
                subject=subject.name,
                slab=slab or draw.slab,
                key=draw.key,
                outputs=published.outputs,
                baseline=baseline,
                untouched=untouched,
            )
        )

    async def unbind(self, subject: Subject, first: str) -> None:
        """Free the memory of slabs that were bound together, by the first of them, and what was recorded on it."""
        slabs = subject.bound.pop(first, ())
        if slabs:
            await self.oracle(Detach(subject=subject.name, slabs=slabs))
            await subject.ask(Unbind(slabs=slabs))
            subject.recorded.pop(first, None)

    async def rest(self, subject: Subject) -> None:
        """Free a version's inputs and outputs where they are large; `bind` makes memory for them anew."""
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

    async def recover(self, pid: int) -> None:
        """After a version's process broke: wait until the GPU has let go of it, and see that the GPU still works.

        Raises:
            RunnerError: it does not.
        """
        if self.gpu is None:
            return
        end = time.monotonic() + policy.LET_GO_SECONDS
        while uses(self.gpu, pid) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if not await self.oracle(Probe()):
            raise RunnerError("the GPU computes wrongly since the last fault", cure="Start again, or reset the GPU.")

    def refill(self) -> None:
        """Begin to set up workers for the versions to come, if few are left; not while anything is timed.

        Several together: before the next one is timed they are waited for, which takes as long for one.
        """
        if self.gpu and len(self._spares) <= _FEW_SPARES:
            plenty = self.gpu.memory_bytes > _MORE_BYTES and not self.large
            most = _MORE_SPARES if self._subjects and plenty else _SPARES
            self._spares += [start(self._start_subject()) for _ in range(most - len(self._spares))]

    async def settle(self) -> None:
        """Wait until no worker is being set up, for that takes the GPU's time too."""
        if self._spares:
            await asyncio.wait(self._spares)

    async def _take_spare(self) -> Worker:
        """A worker that is set up already, or else a new one."""
        if not self._spares:
            return await self._start_subject()
        try:
            return await self._spares.pop(0)
        except RunnerError:
            return await self._start_subject()

    async def _start_subject(self) -> Worker:
        python = self.target.language is Language.TRITON or self.target.workload.problem
        try:
            worker = await self.pool.worker(
                self._flavour,
                "subject",
                triton=python,
                processes=python,  # to compile what it meets
                device=self.place,
                probes=messages.encode(self._probes) if self._probes else b"",
                arch=self.builders.arch,
            )
            await worker.ask(Ready(), deadline=START_SECONDS)
        except RunnerError as error:
            raise UnjudgedError(f"no process for it could be set up: {error.message}") from error
        return worker
