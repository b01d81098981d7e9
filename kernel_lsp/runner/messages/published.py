"""Requests to a worker that judges by KernelBench's published method; see `workers.published`."""

from dataclasses import dataclass
from typing import Protocol

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.runner.messages import Request
from kernel_lsp.source.candidate import SourceFile


@dataclass(frozen=True, slots=True)
class PublishedVerdict:
    """The verdict.

    Attributes:
        compiled: the candidate's text was executed and its model made.
        correct: every trial was within the tolerance.
        passed: how many trials were.
        detail: why it is not correct; empty otherwise.
        mean_ms, reference_ms: mean time of the candidate and of the problem's model, milliseconds; None untimed.
        seconds: wall time of all that was done.
    """

    compiled: bool
    correct: bool = False
    passed: int = 0
    detail: str = ""
    mean_ms: float | None = None
    reference_ms: float | None = None
    seconds: float = 0.0


class PublishedRole(Protocol):
    """The request that this worker answers."""

    def judge(self, request: "JudgePublished", /) -> PublishedVerdict: ...


class JudgePublished(Request[PublishedRole, PublishedVerdict], frozen=True, kw_only=True):
    """Judge a candidate.

    Attributes:
        problem: text that defines `Model`, `get_inputs` and `get_init_inputs`.
        candidate: the file that defines `ModelNew`.
        extensions: those that it asks for, built.
        triton: True where it is written in Triton.
        trials: how many sets of inputs are tried.
        repeats: how many calls are timed, where the candidate is correct; 0 times none.
        precision: name of the type that all tensors are cast to.
    """

    problem: str
    candidate: SourceFile
    extensions: tuple[ExtensionBuild, ...]
    triton: bool
    trials: int
    repeats: int
    precision: str = "float32"

    def answered_by(self, role: PublishedRole) -> PublishedVerdict:
        return role.judge(self)
