"""An oracle in the test's own process, and versions of a kernel that are called there, on the CPU."""

from pathlib import Path
from typing import Any

import torch

from kernel_lsp.device.shared_buffer import make_buffer, row_major
from kernel_lsp.device.tensors import TensorSpec
from kernel_lsp.runner.messages import oracle as messages
from kernel_lsp.runner.messages.oracle_answers import Compared, Made, Varied
from kernel_lsp.runner.workers.oracle import Oracle
from kernel_lsp.workload.placement import Instead

WORKLOAD_PATH = "/home/me/scale_workload.py"


class Trial:
    """One oracle with a workload loaded, and what was made by it."""

    def __init__(self, text: str, factor: float = 2.0, *, keep: int | None = None, path: str = WORKLOAD_PATH) -> None:
        self.oracle = Oracle("cpu", factor)
        self.workload = self.oracle.load(messages.LoadWorkload(text=text, path=path, seed=3, keep=keep))
        self.made: dict[str, Made] = {}
        self._versions = 0

    def draw(self, family: str = "normal", number: int = 0, *, case: int = 0, key: str = "", like: str = "") -> str:
        key = key or f"{case}/{family}/{number}"
        request = messages.Prepare(key=key, case=case, family=family, seed=number, like=like)
        self.made[key] = self.oracle.prepare(request)
        return key

    def vary(self, base: str, argument: int, seed: int = 7) -> Varied:
        key = f"{base}/{argument}"
        found = self.oracle.vary(messages.Vary(key=key, base=base, argument=argument, seed=seed))
        if found.made is not None:
            self.made[key] = found.made
        return found

    def touch(self, base: str, seed: int = 8) -> str:
        key = f"{base}/touched"
        self.made[key] = self.oracle.touch(messages.Touch(key=key, base=base, seed=seed))
        return key

    def leaves(self, key: str) -> tuple[Any, ...]:
        return self.oracle.inputs.leaves(key)

    def baseline(self, text: str, *keys: str) -> list[Compared]:
        """What the oracle finds of the baseline; sets what others are measured by."""
        version = Version(self, text)
        return [version.judge(key, baseline=True) for key in keys]


class Version:
    """One version of the kernel and its memory."""

    def __init__(self, trial: Trial, text: str) -> None:
        self._trial, self._names = trial, {}
        exec(compile(text, "/home/me/scale.py", "exec"), self._names)
        trial._versions += 1
        self.name = str(trial._versions)
        self._buffers: dict[str, Any] = {}

    def bind(self, buffer: str, made: Made) -> Any:
        """Memory for inputs, which the oracle opens; the buffer itself."""
        if buffer not in self._buffers or self._buffers[buffer].handle.nbytes != made.nbytes:
            self._buffers[buffer] = make_buffer(made.nbytes, "cpu")
            self._attach(buffer)
        return self._buffers[buffer]

    def _attach(self, buffer: str) -> None:
        handle = self._buffers[buffer].handle
        request = messages.Attach(subject=self.name, buffers=(buffer,), nbytes=handle.nbytes, handle=handle)
        self._trial.oracle.attach(request)

    def values(self, buffer: str, made: Made) -> list[Any]:
        """The leaves that lie in a buffer."""
        at = self._buffers[buffer]
        return [at.view(leaf) if isinstance(leaf, TensorSpec) else leaf for leaf in made.arguments]

    def fill(self, *keys: str) -> None:
        for key in keys:
            self.bind("in", self._trial.made[key])
            self._trial.oracle.fill(messages.Fill(subject=self.name, buffers=("in",), key=key))

    def run(self, key: str) -> tuple[TensorSpec, ...]:
        """Call `launch` on what lies in memory and publish its outputs."""
        with Instead():
            returned = self._names["launch"](None, *self.values("in", self._trial.made[key]))
        outputs = returned if isinstance(returned, tuple) else (returned,)
        return self.publish(*outputs)

    def publish(self, *outputs: torch.Tensor) -> tuple[TensorSpec, ...]:
        specs: list[TensorSpec] = []
        at = 0
        for output in outputs:
            specs.append(row_major(output, at))
            at += -(-specs[-1].span // 512) * 512
        self._buffers["out"] = outbox = make_buffer(at, "cpu")
        self._attach("out")
        for spec, output in zip(specs, outputs, strict=True):
            outbox.view(spec).copy_(output)
        return tuple(specs)

    def compare(
        self, key: str, outputs: tuple[TensorSpec, ...], *, baseline: bool = False, untouched: bool = True
    ) -> Compared:
        request = messages.Compare(
            subject=self.name, buffer="in", key=key, outputs=outputs, baseline=baseline, untouched=untouched
        )
        return self._trial.oracle.compare(request)

    def judge(self, key: str, *, baseline: bool = False) -> Compared:
        """What the oracle says of a run on these inputs."""
        self.fill(key)
        return self.compare(key, self.run(key), baseline=baseline)


def right(compared: Compared) -> bool:
    wrong = [distance.index for distance in compared.distances if distance.index is not None]
    return not (wrong or compared.mismatch or compared.changed_inputs or compared.trampled)


def kernel(body: str, parameters: str = "x") -> str:
    return f"import torch\ndef launch(module, {parameters}):\n    return {body}\n"


MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
