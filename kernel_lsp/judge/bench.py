"""The test bench of one target: an oracle, and versions of the kernel each in a process of its own."""

import asyncio
import contextlib
import hashlib
import json
import os
import shutil
import time
import zlib
from collections.abc import Generator
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from kernel_lsp.build.emulated import emulated_archs
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu, uses
from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.roofline import Bandwidth
from kernel_lsp.judge.target import Target
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import start, to_the_end
from kernel_lsp.runner.worker import Worker
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, surroundings
from kernel_lsp.source.kernel import Language

START_SECONDS = 60.0
_LOAD_SECONDS = 120.0  # a problem is tried out on several sizes first
_LET_GO_SECONDS = 5.0
TOUCHED = "touched"
"""Family of inputs that differ from earlier ones in a few elements."""
CPU_SLACK = 4.0
"""How many times over errors are allowed where the baseline is PyTorch's own and runs on a CPU.

There PyTorch adds up in float64 (`cumprod`) or in blocks, and is several times as exact as a kernel in float32.
"""
_SPARES = 3  # one judgement takes a process, and two fresh ones to confirm a gain
_FEW_SPARES = 2  # that are left when others are made
_MORE_SPARES, _MORE_BYTES = 6, 32 << 30  # where a GPU has so much, and judging needs little: each takes a GiB


@dataclass(frozen=True, slots=True)
class Contract:
    """What the workload says its callers guarantee; see `kernel_lsp.workload.workload.Contract`."""

    contiguous: bool
    aligned: int
    mutates: tuple[str, ...]
    finite: bool


@dataclass(frozen=True, slots=True)
class Draw:
    """One set of inputs the oracle has made: `arguments` says how they lie in memory, never what they are.

    The same inputs can be put into several places of one version's memory at once, by their number `place`. Weights of
    a KernelBench problem are as its `Model` constructs them but for `changed_weights`.
    """

    key: str
    case: int
    family: str
    arguments: list[Any]
    nbytes: int
    input_bytes: int
    place: int = 0
    changed_weights: tuple[str, ...] = ()

    @property
    def may_pick(self) -> bool:
        """Whether integers among the inputs may pick what is read of the others, as of a table."""
        types = [argument["dtype"] for argument in self.arguments if isinstance(argument, dict)]
        return len(types) > 1 and any(name.startswith(("int", "uint", "bool")) for name in types)

    @property
    def slab(self) -> str:
        """Inputs of one case share their memory, unless they lie differently in it or come with other numbers."""
        return f"{self.case}/{zlib.crc32(json.dumps(self.arguments).encode()):08x}@{self.place}"


@dataclass
class Subject:
    """One version of the kernel, loaded in a worker.

    Attributes:
        name: how the oracle knows its memory.
        candidate: the version.
        built: its build.
        worker: the process.
        bound: slabs that it has made.
        recorded: what is ready to be timed: how, by slab.
        own_weights: weights of a KernelBench problem that it does not have under their names, but makes itself.
    """

    name: str
    candidate: Candidate
    built: Built
    worker: Worker
    bound: set[str] = field(default_factory=set[str])
    recorded: dict[str, object] = field(default_factory=dict[str, object])
    own_weights: tuple[str, ...] = ()

    async def call(self, method: str, /, *, deadline: float = START_SECONDS, **params: Any) -> Any:
        """Ask the worker; raises as `Worker.call`."""
        with _called_as_given(self.candidate.kernel, self.candidate.launch):
            return await self.worker.call(method, deadline=deadline, **params)


def _triton_cache(subject: Subject) -> Path:
    """The folder of Triton's cache in a version's process."""
    return subject.worker.scratch / "triton"


@contextlib.contextmanager
def _called_as_given(*files: SourceFile | None) -> Generator[None]:
    """Within it errors name files as the user does."""
    try:
        yield
    except KernelLspError as error:
        error.path = next((file.path for file in files if file and file.path.absolute() == error.path), error.path)
        raise


class UnjudgedError(RunnerError):
    """The judge could not do its own part, as for want of memory: that says nothing of any version."""


class Bench:
    """Owns the workers that judge one target. Open it before use; the pool kills what is left.

    Without a GPU (`gpu` is None) kernels run on the emulator; nothing can be timed. Nor can it where `timed` is False,
    which spares each worker what timing needs.
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
        self.slack = CPU_SLACK if gpu is None and self._plain else 1.0
        self.seed = int.from_bytes(os.urandom(6), "little")
        self._flavour = Flavour.GPU if gpu else Flavour.EMULATE
        self.cases: tuple[str, ...] = ()
        self.decisive: tuple[int, ...] = ()
        self.advisory: tuple[int, ...] = ()
        self.scaled = ""
        self.weights: tuple[str, ...] = ()
        self._calls: list[dict[str, Any]] = []
        self._renews_weights = False
        self.arguments: tuple[str, ...] = ()
        self.nondeterministic = False
        self.large = False
        self.contract = Contract(False, 0, (), False)
        self.draws: dict[str, Draw] = {}
        self.bandwidth: Bandwidth | None = None
        self.l2_bytes = 0
        self._oracle: Worker | None = None
        self._probes: dict[str, Any] | None = None
        self._spares: list[asyncio.Task[Worker]] = []
        self._subjects: dict[str, Worker] = {}
        self._names = 0
        self._touches = 0

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
        own: dict[str, Any] | None = None
        if self._timed:
            self._probes, distance = await asyncio.gather(self.builders.own("probes"), self.builders.own("distance"))
            own = {"probes": self._probes, "distance": distance}
            if target.workload.problem:
                await self.builders.prepare_header()
        self.refill()
        self._oracle = await starting
        source = self.target.workload.source
        said = await self.oracle(
            "load",
            deadline=_LOAD_SECONDS,
            text=source.text,
            path=str(source.path.absolute()),
            seed=self._seed("weights"),
            own=own,
        )
        self.decisive, self.advisory = tuple(said["decisive"]), tuple(said["advisory"])
        self.scaled, self.weights, self._calls = said["why"], tuple(said["weights"]), said["calls"]
        self._renews_weights = said["renews_weights"]
        self.cases, self.arguments = tuple(said["cases"]), tuple(said["arguments"])
        self.nondeterministic, self.large = said["nondeterministic"], said["large"]
        if self._timed:
            self.bandwidth = Bandwidth(**await self.oracle("bandwidth"))
            self.l2_bytes = said["l2_bytes"]
        self.contract = Contract(**said["contract"] | {"mutates": tuple(said["contract"]["mutates"])})

    async def close(self) -> None:
        """End every worker of this bench."""
        for spare in self._spares:
            spare.cancel()
            with contextlib.suppress(asyncio.CancelledError, RunnerError, WorkerFailure):
                (await spare).kill()
        for worker in (*self._subjects.values(), *([self._oracle] if self._oracle else [])):
            worker.kill()

    async def oracle(self, method: str, /, *, deadline: float = START_SECONDS, **params: Any) -> Any:
        """Ask the oracle."""
        assert self._oracle is not None, "open the bench first"
        # The oracle serves every version: it must outlive the cancelling of any one of them.
        try:
            with _called_as_given(self.target.workload.source):
                return await to_the_end(self._oracle.call(method, deadline=deadline, **params))
        except WorkerFailure as error:
            raise UnjudgedError(f"a check could not be made ({method}): {error}") from error

    async def draw(self, case: int, family: str, number: int = 0) -> Draw:
        """Inputs of a case: the same ones each time it is asked for the same `number`; all follow from `seed`."""
        key = f"{case}/{family}/{number}"
        if key not in self.draws:
            made = await self.oracle("prepare", key=key, case=case, family=family, seed=self._seed(key))
            changed = self.weights if family == "weights" or self._renews_weights else ()
            sizes = (made["nbytes"], made["input_bytes"])
            self.draws[key] = Draw(key, case, family, made["arguments"], *sizes, changed_weights=changed)
        return self.draws[key]

    async def vary(self, draw: Draw, argument: int) -> tuple[Draw | None, bool]:
        """The same inputs but for one argument, and whether the right answer is another one with it.

        None where no other value is known: sizes, and numbers that each draw has the same.
        """
        name = self.arguments[argument]
        key, family = f"{draw.key}/{argument}", f"other `{name}`"
        found = await self.oracle("vary", key=key, base=draw.key, argument=argument, seed=self._seed(key))
        if (made := found["varied"]) is None:
            return None, False
        sizes = (made["nbytes"], made["input_bytes"])
        changed = (*draw.changed_weights, *((name,) if name in self.weights else ()))
        self.draws[key] = Draw(key, draw.case, family, made["arguments"], *sizes, changed_weights=changed)
        return self.draws[key], found["matters"]

    async def touch(self, draw: Draw) -> Draw:
        """The same inputs but for fresh values in a few places, other ones each time; only the last are kept."""
        key = f"{draw.key}/touched"
        self._touches += 1
        made = await self.oracle("touch", key=key, base=draw.key, seed=self._seed(f"{key}/{self._touches}"))
        sizes = (made["nbytes"], made["input_bytes"])
        return Draw(key, draw.case, TOUCHED, made["arguments"], *sizes, draw.place, draw.changed_weights)

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
        self._names += 1
        subject = Subject(f"{self._names}", candidate, built, worker)
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
        said = await subject.call(
            "load",
            deadline=START_SECONDS,
            path=str(candidate.kernel.path.absolute()),  # a worker lives in a folder of its own
            text=candidate.kernel.text,
            launch_path=str(candidate.launch.path.absolute()) if candidate.launch else None,
            launch_text=candidate.launch.text if candidate.launch else None,
            binary=asdict(binary) if cuda and binary else None,
            types_of={k.name: [p.type for p in k.parameters] for k in kernels},
            names_of={k.name: [p.name for p in k.parameters] for k in kernels},
            extensions=[asdict(extension) for extension in extensions],
            calls=self._calls,
            case=self.decisive[0],
        )
        subject.own_weights = tuple(said["own_weights"])

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

    async def fill(self, subject: Subject, draw: Draw) -> None:
        """Put inputs into a version's memory."""
        if draw.slab not in subject.bound:
            if self.large:
                for other in subject.bound - subject.recorded.keys():
                    await self.unbind(subject, other)
            names = list(self.arguments)
            handle = await subject.call(
                "bind", name=draw.slab, arguments=draw.arguments, nbytes=draw.nbytes, names=names, case=draw.case
            )
            await self.oracle("attach", subject=subject.name, name=draw.slab, handle=handle)
            subject.bound.add(draw.slab)
            subject.recorded.pop(draw.slab, None)
            if self.large:
                await subject.call("retire")
        await self.oracle("fill", subject=subject.name, slab=draw.slab, key=draw.key)

    async def compare(self, subject: Subject, draw: Draw, published: dict[str, Any], *, baseline: bool) -> Any:
        """Have the oracle compare what a version published for `draw`."""
        if published["outbox"] is not None:
            await self.oracle("attach", subject=subject.name, name="out", handle=published["outbox"])
        return await self.oracle(
            "compare",
            subject=subject.name,
            slab=draw.slab,
            key=draw.key,
            outputs=published["outputs"],
            baseline=baseline,
        )

    async def unbind(self, subject: Subject, slab: str) -> None:
        """Free the memory of one set of inputs, if there is any, and what was recorded on it."""
        if slab in subject.bound:
            await self.oracle("detach", subject=subject.name, slab=slab)
            await subject.call("unbind", name=slab)
            subject.bound.discard(slab)
            subject.recorded.pop(slab, None)

    async def rest(self, subject: Subject) -> None:
        """Free a version's inputs and outputs where they are large; `fill` makes memory for them anew."""
        if self.large and subject.worker.alive:
            await self.oracle("detach", subject=subject.name)
            await subject.call("rest")
            subject.bound.clear()
            subject.recorded.clear()

    async def leave(self, subject: Subject) -> None:
        """End a version's process and let go of its memory."""
        await self.oracle("detach", subject=subject.name)  # first: what is shared must outlive who looks at it
        subject.worker.kill()
        self._subjects.pop(subject.name, None)

    async def recover(self, pid: int) -> None:
        """After a version's process broke: wait until the GPU has let go of it, and see that the GPU still works.

        Raises:
            RunnerError: it does not.
        """
        if self.gpu is None:
            return
        end = time.monotonic() + _LET_GO_SECONDS
        while uses(self.gpu, pid) and time.monotonic() < end:
            await asyncio.sleep(0.05)
        if not await self.oracle("probe"):
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
                probes=self._probes,
                arch=self.builders.arch,
            )
            await worker.call("ready", deadline=START_SECONDS)
        except RunnerError as error:
            raise UnjudgedError(f"no process for it could be set up: {error.message}") from error
        return worker
