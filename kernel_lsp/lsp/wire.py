"""The records that the server answers with and sends beyond the protocol; `requests` lists who asks for which.

`extension/src/protocol.ts` and the tables of `docs/lsp-protocol.md` are made from them: run
`python extension/scripts/protocol.py` and `python -m tests.unit.documentation.protocol_page` after a change.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, NewType, TypeVar

import msgspec

from kernel_lsp.refine.progress import Progress

if TYPE_CHECKING:  # they bring pydantic with them, for which the answer to `initialize` must not wait
    from kernel_lsp.judge.verdict import KernelResources

_Record = TypeVar("_Record")

Work = NewType("Work", str)
"""What a job does: a name in `catalog.JOBS`."""


class State(StrEnum):
    """Where a job stands."""

    WAITING = "waiting"
    RUNNING = "running"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def ended(self) -> bool:
        """Whether nothing more will happen."""
        return self in (State.DONE, State.FAILED, State.CANCELLED)


@dataclass(frozen=True, slots=True)
class JobRecord:
    """A job.

    Attributes:
        label: of a rewrite, or what a kernel for a module is written in.
        title: what is done to what, for a person.
        text: where it stands, in one line.
        doing: what it does now, a few words.
        elapsed: seconds since it was given its turn.
        progress: the search's last report; null before the first.
        verdict: id of the verdict that its result rests on.
        reason: how it ended, one sentence.
        notes: what was left out, such as why no model was asked.
        unasked: whether the server began it by itself, so that nobody is told of its end.
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
    elapsed: float
    progress: Progress | None
    verdict: str | None
    reason: str
    notes: tuple[str, ...]
    unasked: bool


@dataclass(frozen=True, slots=True)
class StartedJob(JobRecord):
    """A job, and whether it was under way already: then it was `joined`."""

    joined: bool


@dataclass(frozen=True, slots=True)
class JobCancelled:
    """Whether it was under way."""

    cancelled: bool


@dataclass(frozen=True, slots=True)
class JobList:
    """Those under way and the last 50 others, oldest first."""

    jobs: tuple[JobRecord, ...]


@dataclass(frozen=True, slots=True)
class GpuName:
    """The GPU that is timed on."""

    name: str
    arch: str


@dataclass(frozen=True, slots=True)
class ServerStatus:
    """The state of the server.

    Attributes:
        model: the language model that is served; null where none is.
        proposers: those in force.
    """

    version: str
    gpu: GpuName | None
    model: str | None
    proposers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Variant:
    """A variant that was verified to be faster.

    Attributes:
        verdict: id of the verdict that says so.
        label: what was changed.
        title: the verdict in one line.
        kernels: those that it changes.
    """

    verdict: str
    label: str
    title: str
    speedup: float
    interval: tuple[float, float]
    kernels: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class ListedVariant(Variant):
    """One of several variants; `fits` says that it is for the text as it is now."""

    fits: bool


@dataclass(frozen=True, slots=True)
class VariantList:
    """The variants of a text, best first."""

    variants: tuple[ListedVariant, ...]


@dataclass(frozen=True, slots=True)
class FileText:
    """One file as a variant would have it."""

    uri: str
    text: str


@dataclass(frozen=True, slots=True)
class VariantTexts(Variant):
    """A variant with the texts that it makes.

    Attributes:
        creates: whether its one file is not there yet.
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
    """What is known of a kernel.

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
    """What is known of a file.

    Attributes:
        workload: whether it has one that can be used.
        problem: why it has none that can be used.
        measured: how long the text takes as it is, as it was last timed.
        last: the latest verdict on a version of it.
    """

    uri: str
    language: str
    trusted: bool
    workload: bool
    problem: str | None
    measured: str | None
    last: LastVerdict | None
    kernels: tuple[KernelRow, ...]


@dataclass(frozen=True, slots=True)
class KernelFiles:
    """The files with kernels in the workspace; `complete` is false where there are more than are listed."""

    files: tuple[FileRow, ...]
    complete: bool


@dataclass(frozen=True, slots=True)
class Step:
    """One instruction.

    Attributes:
        offset: bytes from the start of its function.
        guard, opcode, operands: as nvdisasm prints them; `guard` may be empty.
        line: of the file, from 1; null where it comes from elsewhere.
        live: registers in use at it, for one thread.
        role: what it is for, where that decides how fast a kernel is.
        looped: whether it is in an innermost loop.
    """

    offset: int
    guard: str
    opcode: str
    operands: str
    line: int | None
    live: int
    role: str | None
    looped: bool


@dataclass(frozen=True, slots=True)
class KernelCode:
    """The machine code of one kernel, in order."""

    arch: str
    name: str
    instructions: tuple[Step, ...]


@dataclass(frozen=True, slots=True)
class MachineCode:
    """The machine code of a text's kernels, for the first architecture that is built for."""

    kernels: tuple[KernelCode, ...]


@dataclass(frozen=True, slots=True)
class KernelOpcodes:
    """How many instructions of each kind a kernel has on both sides; a side that has no such kernel has none."""

    name: str
    baseline: dict[str, int]
    candidate: dict[str, int]


@dataclass(frozen=True, slots=True)
class Opcodes:
    """The instructions of a verdict's kernels, compiled again for `arch`, that of the GPU that it was timed on.

    Attributes:
        section: them as a part of the evidence page, in HTML.
    """

    arch: str | None
    kernels: tuple[KernelOpcodes, ...]
    section: str


@dataclass(frozen=True, slots=True)
class VerdictEvidence:
    """What a verdict rests on.

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
    """What a verdict rests on, as a page for a webview: HTML that loads nothing and allows scripts by a nonce alone.

    Its script posts `{asks, text}` to the editor, where `asks` is `diff`, `apply`, `text` (the Markdown), `copy` (of
    `text`) or `instructions`, answered by `{html}`, an `Opcodes.section`, or by `{problem}`, why there is none.
    """

    page: str


@dataclass(frozen=True, slots=True)
class EvidenceFile(VerdictEvidence):
    """What a verdict rests on, and the file that shows it."""

    path: str


@dataclass(frozen=True, slots=True)
class FilePath:
    """A file that was written."""

    path: str


def extended(kind: type[_Record], record: Any, **more: Any) -> _Record:
    """A record of a kind that has all that `record` has, and `more`."""
    return kind(**{field.name: getattr(record, field.name) for field in fields(record)}, **more)


def as_json(record: object) -> Any:
    """A record as plain JSON."""
    return msgspec.to_builtins(record, enc_hook=lambda model: model.model_dump(mode="json"))


def from_json(given: Any, kind: type[_Record]) -> _Record:
    """The record that plain JSON says; what it has beyond that is passed over.

    Raises:
        ValueError: it is no such record; the message says where.
    """
    return msgspec.convert(given, kind)
