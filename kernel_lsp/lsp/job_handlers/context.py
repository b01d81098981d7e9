"""The input of a job's handler in the service process: the texts, the settings, the store and the workers."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, TypedDict

from kernel_lsp.check.record import CheckStep
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.target import Target, make_target, make_targets
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.lsp.service import Emit
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import read_source
from kernel_lsp.store.store import Store


class _Where(TypedDict):
    """The arguments of `make_target` that say where workloads are, and the texts of open files."""

    texts: Mapping[Path, str]
    problems: Path | None
    folders: Sequence[Path]


class JobContext:
    """One job, as requested from `lsp.services.job`.

    Attributes:
        path: the file.
        kernel: the kernel's name, or None for all of them.
        label: of a rewrite; the language of a module's kernel; the wish that a search began with.
        texts: the open files as they are in the editor.
        settings: in force at the file.
        store: where verdicts are kept.
        pool: the workers.
        emit: sends an event to the server.
        wishes: sentences of the user's for a model; they may grow while the job runs.
    """

    def __init__(
        self, params: dict[str, Any], settings: Settings, emit: Emit, store: Store, pool: Pool, wishes: list[str]
    ) -> None:
        self.path = Path(params["path"])
        self.kernel: str | None = params["kernel"]
        self.label: str | None = params["label"]
        self.texts = {Path(path): str(text) for path, text in params["texts"].items()}
        self.settings, self.store, self.emit, self.pool = settings, store, emit, pool
        self.wishes = wishes

    @property
    def source(self) -> SourceFile:
        """Return the file as it is in the editor, else as it is on disk."""
        return SourceFile(self.path, self.texts[self.path]) if self.path in self.texts else read_source(self.path)

    def target(self) -> Target:
        """Return the kernel with the workload that a search for variants uses."""
        return make_target(self.path, self.kernel, **self._where)

    def targets(self) -> tuple[Target, ...]:
        """Return the kernel with each of its workloads, as the targets of judgements."""
        return make_targets(self.path, self.kernel, **self._where)

    @property
    def _where(self) -> _Where:
        return _Where(texts=self.texts, problems=self.settings.kernelbench.root, folders=self.settings.workloads)

    def doing(self, what: str) -> None:
        """Report the current activity to the server, in a few words."""
        self.emit({"doing": what})

    def step(self, step: CheckStep) -> None:
        """Report a step of a check to the server."""
        self.emit({"doing": step.doing, "share": step.share})

    def decided(self, verdict: Verdict) -> None:
        """Store a verdict and send it to the server."""
        self.store.save_verdict(verdict.model_dump(mode="json"))
        self.tell(verdict)

    def confirmed(self, verdict: Verdict) -> None:
        """Send the verdict on a confirmed gain to the server before its final checks; it is not stored."""
        self.emit({"confirmed": verdict.model_dump(mode="json")})
        self.doing(f"final checks of {verdict.evidence.candidate_label}")

    def tell(self, verdict: Verdict) -> None:
        """Send a verdict that is already stored to the server."""
        self.emit({"verdict": verdict.model_dump(mode="json")})
