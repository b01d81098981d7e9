"""An oracle and versions of a kernel in workers of their own, driven as the judge drives them, on the CPU."""

from collections.abc import Iterable

from kernel_lsp.runner.messages import oracle as asked_of_oracle
from kernel_lsp.runner.messages import subject as asked_of_subject
from kernel_lsp.runner.messages.oracle_answers import Compared, Made
from kernel_lsp.runner.messages.subject_answers import PublishedOutputs, Ran
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.worker import Worker

SECONDS = 60.0
KERNEL_PATH = "/home/me/scale.py"
NOTHING = "nothing"


async def bind_nothing(worker: Worker) -> None:
    """Give a worker under test the inputs `NOTHING`, of which there are none."""
    await worker.ask(asked_of_subject.Bind(buffers=(NOTHING,), arguments=(), nbytes=1), deadline=SECONDS)


async def run_on_nothing(worker: Worker, deadline: float = 30.0) -> Ran:
    return await worker.ask(asked_of_subject.Run(buffer=NOTHING), deadline=deadline)


class Trial:
    """One oracle with a workload loaded, and the versions that were entered."""

    def __init__(self, pool: Pool, oracle: Worker) -> None:
        self.pool, self.oracle = pool, oracle
        self._draws: dict[str, Made] = {}
        self._versions = 0

    @classmethod
    async def start(cls, pool: Pool, workload: str, factor: float = 2.0) -> "Trial":
        oracle = await pool.worker(Flavour.EMULATE, "oracle", device="cpu", factor=factor)
        load = asked_of_oracle.LoadWorkload(text=workload, path="/home/me/scale_workload.py")
        await oracle.ask(load, deadline=SECONDS)
        return cls(pool, oracle)

    async def enter(self, text: str) -> "Version":
        worker = await self.pool.worker(Flavour.EMULATE, "subject", device="cpu")
        await worker.ask(asked_of_subject.Load(path=KERNEL_PATH, text=text), deadline=SECONDS)
        self._versions += 1
        return Version(self, worker, f"{self._versions}")

    async def draw(self, family: str = "normal", number: int = 0) -> str:
        key = f"0/{family}/{number}"
        if key not in self._draws:
            prepare = asked_of_oracle.Prepare(key=key, case=0, family=family, seed=number)
            self._draws[key] = await self.oracle.ask(prepare, deadline=SECONDS)
        return key

    def made(self, key: str) -> Made:
        return self._draws[key]

    async def baseline(self, text: str, keys: Iterable[str]) -> list[Compared]:
        """What the oracle finds of the baseline; sets what others are measured by."""
        version = await self.enter(text)
        found = [(await version.judge(key, baseline=True))[1] for key in keys]
        await version.leave()
        return found

    def kill(self) -> None:
        self.oracle.kill()


class Version:
    """One version of the kernel in a worker of its own."""

    def __init__(self, trial: Trial, worker: Worker, name: str) -> None:
        self.trial, self.worker, self.name = trial, worker, name
        self._bound: dict[str, Made] = {}

    async def fill(self, key: str) -> str:
        buffer, made, oracle = key.rsplit("/", 1)[0], self.trial.made(key), self.trial.oracle
        known = self._bound.get(buffer)
        if known is None or known.arguments != made.arguments:
            bind = asked_of_subject.Bind(buffers=(buffer,), arguments=made.arguments, nbytes=made.nbytes)
            handle = await self.worker.ask(bind, deadline=SECONDS)
            attach = asked_of_oracle.Attach(subject=self.name, buffers=(buffer,), nbytes=made.nbytes, handle=handle)
            await oracle.ask(attach, deadline=SECONDS)
            self._bound[buffer] = made
        await oracle.ask(asked_of_oracle.Fill(subject=self.name, buffers=(buffer,), key=key), deadline=SECONDS)
        return buffer

    def forget(self) -> None:
        """Take other memory from now on."""
        self._bound.clear()

    async def compare(self, key: str, published: PublishedOutputs, *, baseline: bool = False) -> Compared:
        oracle, outbox = self.trial.oracle, published.outbox
        if outbox is not None:
            attach = asked_of_oracle.Attach(subject=self.name, buffers=("out",), nbytes=outbox.nbytes, handle=outbox)
            await oracle.ask(attach, deadline=SECONDS)
        buffer, outputs = key.rsplit("/", 1)[0], published.outputs
        compare = asked_of_oracle.Compare(subject=self.name, buffer=buffer, key=key, outputs=outputs, baseline=baseline)
        return await oracle.ask(compare, deadline=SECONDS)

    async def judge(self, key: str, *, baseline: bool = False) -> tuple[Ran, Compared]:
        """What the worker answers to a run on these inputs, and what the oracle says of it."""
        ran = await self.worker.ask(asked_of_subject.Run(buffer=await self.fill(key)), deadline=SECONDS)
        return ran, await self.compare(key, ran.published, baseline=baseline)

    async def leave(self) -> None:
        self.worker.kill()
        await self.trial.oracle.ask(asked_of_oracle.Detach(subject=self.name), deadline=SECONDS)
