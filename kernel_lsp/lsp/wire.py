"""The records that the server sends beyond the protocol, as results and notifications; see `requests`.

`extension/src/protocol.ts` and the tables of `docs/lsp-protocol.md` are made from them: run
`python extension/scripts/protocol.py` and `python -m tests.unit.documentation.protocol_page` after a change.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType, TypeVar

import msgspec

from kernel_lsp.refine.progress import SearchProgress

if TYPE_CHECKING:  # pydantic is slow to import, and the answer to `initialize` must not wait
    from kernel_lsp.judge.verdict import KernelResources

_Record = TypeVar("_Record")

Work = NewType("Work", str)
"""The kind of a job: a name in `catalog.JOBS`."""


class State(StrEnum):
    """The state of a job."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """True if the job has ended."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job.

    Attributes:
        label: of a rewrite, or what a kernel for a module is written in.
        title: what is done to what, for a person.
        text: its state in one line.
        doing: what it does now, a few words.
        percentage: how much of its work is done, at most 99; 0 where that is not known.
        elapsed: seconds since it was given its turn.
        progress: the search's last report; null before the first.
        verdict: id of the verdict that its result rests on.
        reason: how it ended, one sentence.
        notes: sentences on what was left out, such as why no model was asked.
        unasked: true if the server started it by itself, so that its end is not announced.
    """

    id: str
    work: Work
    uri: str
    version: int | None
    kernel: str | None
    label: str | None
    title: str
    state: State
    text: str
    doing: str
    percentage: int
    elapsed: float
    progress: SearchProgress | None
    verdict: str | None
    reason: str
    notes: tuple[str, ...]
    unasked: bool


@dataclass(frozen=True, slots=True)
class StartedJob(JobRecord):
    """A started job; `joined` is true if it was already under way."""

    joined: bool


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """The result of cancelling a job; `cancelled` is true if it was under way."""

    cancelled: bool


@dataclass(frozen=True, slots=True)
class JobList:
    """The jobs under way and the last 50 ended ones, oldest first."""

    jobs: tuple[JobRecord, ...]


@dataclass(frozen=True, slots=True)
class GpuName:
    """The GPU used for timing."""

    name: str
    arch: str


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of the server.

    Attributes:
        model: the language model that is served; null where none is.
        proposers: those in force.
        searches: true if a search can be started here: there is a GPU, or `refine.untimed` is set for a file in sight.
        trouble: why the text that came last could not be compiled, where that is not the text's fault; else null.
    """

    version: str
    gpu: GpuName | None
    model: str | None
    proposers: tuple[str, ...]
    searches: bool
    trouble: str | None


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant that was verified to be faster.

    Attributes:
        verdict: id of the verdict that confirmed it.
        label: what was changed.
        title: the verdict in one line.
        kernels: those that it changes.
        pending: true while its final checks are under way, which may take it back.
    """

    verdict: str
    label: str
    title: str
    speedup: float
    interval: tuple[float, float]
    kernels: tuple[str, ...]
    pending: bool


@dataclass(frozen=True, slots=True)
class ListedVariant(Variant):
    """One of several variants; `fits` is true if it applies to the text as it is now."""

    fits: bool


@dataclass(frozen=True, slots=True)
class VariantList:
    """The variants of a text, best first."""

    variants: tuple[ListedVariant, ...]


@dataclass(frozen=True, slots=True)
class FileText:
    """One file as a variant would change it."""

    uri: str
    text: str


@dataclass(frozen=True, slots=True)
class VariantTexts(Variant):
    """A variant with the texts that it makes.

    Attributes:
        creates: true if its only file does not exist yet.
    """

    creates: bool
    files: tuple[FileText, ...]


@dataclass(frozen=True, slots=True)
class LastVerdict:
    """The latest verdict on a file; `verdict` is its id."""

    verdict: str
    outcome: str
    label: str
    speedup: float | None


@dataclass(frozen=True, slots=True)
class KernelRow:
    """The known facts on a kernel.

    Attributes:
        line: from 0.
        facts: of its hungriest instance, from earlier builds; null where there are none.
        drift: what got worse since the baseline in the repository, a sentence each.
        best: the best variant for the text as it is.
        variants: how many there are for it.
    """

    name: str
    line: int
    facts: "KernelResources | None"
    drift: tuple[str, ...]
    best: Variant | None
    variants: int


@dataclass(frozen=True, slots=True)
class FileRow:
    """The known facts on a file.

    Attributes:
        workload: true if it has a usable one.
        problem: why its workload, or the file, cannot be used.
        measured: the time of the text as it is, from its last measurement.
        last: the latest verdict on a version of the file.
        checked: the result of the last check of the text as it is, such as `14 checks passed`; null if none is known.
        passed: whether that check found nothing wrong; null if it compared nothing.
        module: line of the name of its plain PyTorch module, from 0, for which a kernel can be generated; null without.
    """

    uri: str
    language: str
    trusted: bool
    workload: bool
    problem: str | None
    measured: str | None
    last: LastVerdict | None
    checked: str | None
    passed: bool | None
    module: int | None
    kernels: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """The files with kernels or a plain module in the workspace; `complete` is false if the list was cut off."""

    files: tuple[FileRow, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class MachineInstruction:
    """One instruction.

    Attributes:
        offset: bytes from the start of its function.
        guard, opcode, operands: as nvdisasm prints them; `guard` may be empty.
        line: of the file, from 1; null where it comes from elsewhere.
        live: registers in use at it, for one thread.
        role: its purpose, if that matters for the kernel's speed.
        looped: true if it is in an innermost loop.
        labels: names by which branches have it as their target.
    """

    offset: int
    guard: str
    opcode: str
    operands: str
    line: int | None
    live: int
    role: str | None
    looped: bool
    labels: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class IntermediateLine:
    """One line of PTX or the like; `line` is that of the file which it was made from, from 1; null if there is none."""

    text: str
    line: int | None


@dataclass(frozen=True, slots=True)
class IntermediateCode:
    """Code that a compiler made on its way to machine code; `name` is `PTX`, or `TTGIR` for Triton's own."""

    name: str
    lines: tuple[IntermediateLine, ...]


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The machine code of one kernel, in order.

    Attributes:
        intermediate: what it was made from, the shorter TTGIR before PTX; empty where the compiler keeps none.
    """

    arch: str
    name: str
    instructions: tuple[MachineInstruction, ...]
    intermediate: tuple[IntermediateCode, ...]


@dataclass(frozen=True, slots=True)
class MachineCodeList:
    """The machine code of a text's kernels, for the first target architecture."""

    kernels: tuple[KernelCode, ...]


@dataclass(frozen=True, slots=True)
class KernelOpcodes:
    """The number of instructions of each kind of a kernel on both sides; empty for a side without the kernel."""

    name: str
    baseline: dict[str, int]
    candidate: dict[str, int]


@dataclass(frozen=True, slots=True)
class Opcodes:
    """The instruction counts of a verdict's kernels, compiled again for `arch`, the architecture it was timed on.

    Attributes:
        section: the counts as a part of the evidence page, in HTML.
    """

    arch: str | None
    kernels: tuple[KernelOpcodes, ...]
    section: str


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """The evidence of a verdict.

    Attributes:
        verdict: its id.
        name: its short id.
        label: what was changed.
        title: the verdict in one line.
        markdown: the whole of it as text.
    """

    verdict: str
    name: str
    label: str
    title: str
    markdown: str


@dataclass(frozen=True, slots=True)
class EvidencePage(VerdictEvidence):
    """The evidence of a verdict as a page for a webview: HTML that loads nothing and allows scripts only by a nonce.

    Its script posts `{asks, text}` to the editor, where `asks` is `diff`, `apply`, `text` (the Markdown), `copy` (of
    `text`) or `instructions`, answered by `{html}`, an `Opcodes.section`, or by `{problem}`, why there is none.
    """

    page: str


@dataclass(frozen=True, slots=True)
class EvidenceFile(VerdictEvidence):
    """The evidence of a verdict, and the file that shows it."""

    path: str


@dataclass(frozen=True, slots=True)
class FilePath:
    """A file that was written."""

    path: str


def extended(kind: type[_Record], record: Any, **more: Any) -> _Record:
    """Return a record of this kind with all fields of `record`, and `more`."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **more)


def as_json(record: object) -> Any:
    """Return a record as plain JSON."""
    return msgspec.to_builtins(record, enc_hook=lambda model: model.model_dump(mode="json"))


def from_json(given: Any, kind: type[_Record]) -> _Record:
    """Return the record in plain JSON; unknown members are ignored.

    Raises:
        ValueError: it is no such record; the message says where.
    """
    return msgspec.convert(given, kind)
