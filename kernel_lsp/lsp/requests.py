"""The requests beyond the protocol, each declared once with its parameters and its result."""

from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_lsp.lsp.check_records import CheckedText
from kernel_lsp.lsp.wire import (
    EvidencePage,
    JobCancelled,
    JobList,
    KernelFiles,
    MachineCodeList,
    Opcodes,
    ServerStatus,
    StartedJob,
    VariantList,
    VariantTexts,
    Work,
)


class Nothing(msgspec.Struct, frozen=True):
    """No parameters."""


class TextDocument(msgspec.Struct, frozen=True):
    """A file, by its URI."""

    uri: str


class StartJob(msgspec.Struct, frozen=True, rename="camel"):
    """A request to start a job."""

    work: Work
    text_document: TextDocument
    kernel: str | None = None
    label: str | None = None


class OneJob(msgspec.Struct, frozen=True):
    """A job."""

    id: str


class OneText(msgspec.Struct, frozen=True, rename="camel"):
    """A text."""

    text_document: TextDocument


class OneVariant(msgspec.Struct, frozen=True, rename="camel"):
    """A verdict on a text."""

    text_document: TextDocument
    verdict: str


class OneVerdict(msgspec.Struct, frozen=True, rename="camel"):
    """A verdict by its id or a prefix of the id; the file's settings name the store."""

    verdict: str
    text_document: TextDocument | None = None


@dataclass(frozen=True, slots=True)
class RequestKind:
    """One request.

    Attributes:
        method: as clients call it.
        params, result: the records that it takes and answers with.
        what: its purpose, for the documentation.
    """

    method: str
    params: type[msgspec.Struct]
    result: type[Any]
    what: str


REQUESTS = (
    RequestKind("kernelLsp/startJob", StartJob, StartedJob, "starts a job, or joins a running one that does the same"),
    RequestKind("kernelLsp/cancelJob", OneJob, JobCancelled, "ends a job and all its processes"),
    RequestKind("kernelLsp/jobs", Nothing, JobList, "the jobs under way, and the last ended ones"),
    RequestKind("kernelLsp/evidence", OneVerdict, EvidencePage, "the evidence of a verdict, as a page"),
    RequestKind("kernelLsp/status", Nothing, ServerStatus, "the state of the server"),
    RequestKind(
        "kernelLsp/kernels", Nothing, KernelFiles, "the kernels of the workspace, with the known facts on each"
    ),
    RequestKind("kernelLsp/checks", OneText, CheckedText, "the last check of a text, by case and family of inputs"),
    RequestKind("kernelLsp/variants", OneText, VariantList, "the verified faster variants of a text"),
    RequestKind(
        "kernelLsp/variant", OneVariant, VariantTexts, "the texts of a variant; an error if it is for an older text"
    ),
    RequestKind("kernelLsp/machineCode", OneText, MachineCodeList, "the machine code of a text"),
    RequestKind(
        "kernelLsp/opcodes", OneVariant, Opcodes, "the number of instructions of both sides of a verdict, by kind"
    ),
)

JOB_PROGRESS = "kernelLsp/jobProgress"
"""The notification with a `JobRecord`, for clients that ask for it."""

STATUS_CHANGED = "kernelLsp/statusChanged"
"""The notification, without parameters, that `kernelLsp/status` has another answer now, for clients that ask for it."""
