"""An oracle and versions of a kernel, driven as the judge drives them, on the CPU."""

from typing import Any

from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.worker import Worker

SECONDS = 60.0
KERNEL_PATH = "/home/me/scale.py"


class Trial:
    """One oracle with a workload loaded, and the versions that were entered."""

    def __init__(self, pool: Pool, oracle: Worker) -> None:
        self.pool, self._oracle = pool, oracle
        self._draws: dict[str, Any] = {}
        self._versions = 0

    @classmethod
    async def start(cls, pool: Pool, workload: str, factor: float = 2.0) -> "Trial":
        oracle = await pool.worker(Flavour.EMULATE, "oracle", device="cpu", factor=factor)
        await oracle.call("load", deadline=SECONDS, text=workload, path="/home/me/scale_workload.py")
        return cls(pool, oracle)

    async def oracle(self, method: str, **params: Any) -> Any:
        return await self._oracle.call(method, deadline=SECONDS, **params)

    async def enter(self, text: str) -> "Version":
        worker = await self.pool.worker(Flavour.EMULATE, "subject", device="cpu")
        await worker.call("load", deadline=SECONDS, path=KERNEL_PATH, text=text)
        self._versions += 1
        return Version(self, worker, f"{self._versions}")

    async def draw(self, family: str = "normal", number: int = 0, case: int = 0, seed: int | None = None) -> str:
        key = f"{case}/{family}/{number}"
        if key not in self._draws:
            seed = number if seed is None else seed
            self._draws[key] = await self.oracle("prepare", key=key, case=case, family=family, seed=seed)
        return key

    def take(self, key: str, made: dict[str, Any]) -> None:
        """Know how inputs lie that the oracle made otherwise than by `draw`."""
        self._draws[key] = made

    def arguments(self, key: str) -> dict[str, Any]:
        return self._draws[key]

    async def baseline(self, text: str, *keys: str) -> list[dict[str, Any]]:
        """What the oracle finds of the baseline; sets what others are measured by."""
        version = await self.enter(text)
        found = [(await version.judge(key, baseline=True))[1] for key in keys]
        await version.leave()
        return found

    def kill(self) -> None:
        self._oracle.kill()


class Version:
    """One version of the kernel in a worker of its own."""

    def __init__(self, trial: Trial, worker: Worker, name: str) -> None:
        self.trial, self.worker, self.name = trial, worker, name
        self._bound: dict[str, Any] = {}

    async def call(self, method: str, **params: Any) -> Any:
        return await self.worker.call(method, deadline=SECONDS, **params)

    async def fill(self, key: str) -> str:
        slab, made = key.rsplit("/", 1)[0], self.trial.arguments(key)
        if self._bound.get(slab) != made["arguments"]:
            handle = await self.call("bind", name=slab, arguments=made["arguments"], nbytes=made["nbytes"])
            await self.trial.oracle("attach", subject=self.name, name=slab, handle=handle)
            self._bound[slab] = made["arguments"]
        await self.trial.oracle("fill", subject=self.name, slab=slab, key=key)
        return slab

    def forget(self) -> None:
        """Take other memory from now on."""
        self._bound.clear()

    async def compare(self, key: str, published: dict[str, Any], *, baseline: bool = False) -> dict[str, Any]:
        if published["outbox"] is not None:
            await self.trial.oracle("attach", subject=self.name, name="out", handle=published["outbox"])
        slab, outputs = key.rsplit("/", 1)[0], published["outputs"]
        return await self.trial.oracle(
            "compare", subject=self.name, slab=slab, key=key, outputs=outputs, baseline=baseline
        )

    async def judge(self, key: str, *, baseline: bool = False) -> tuple[dict[str, Any], dict[str, Any]]:
        """What the worker published of a run on these inputs, and what the oracle says of it."""
        published = await self.call("run", name=await self.fill(key))
        return published, await self.compare(key, published, baseline=baseline)

    async def leave(self) -> None:
        self.worker.kill()
        await self.trial.oracle("detach", subject=self.name)
