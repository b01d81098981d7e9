"""The requests beyond the protocol, each declared once: what it takes, and what it answers with."""

from dataclasses import dataclass
from typing import Any

import msgspec

from kernel_lsp.lsp.wire import (
    EvidencePage,
    JobCancelled,
    JobList,
    KernelFiles,
    MachineCode,
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
    """The job that is wanted."""

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
    """A verdict by its id or the beginning of it; the file says whose settings name the store."""

    verdict: str
    text_document: TextDocument | None = None


@dataclass(frozen=True, slots=True)
class Request:
    """One request.

    Attributes:
        method: as clients call it.
        params, result: the records that it takes and answers with.
        what: what it is for, for the documentation.
    """

    method: str
    params: type[msgspec.Struct]
    result: type[Any]
    what: str


REQUESTS = (
    Request("kernelLsp/startJob", StartJob, StartedJob, "starts a job, or joins the one that does the same"),
    Request("kernelLsp/cancelJob", OneJob, JobCancelled, "ends a job and all its processes"),
    Request("kernelLsp/jobs", Nothing, JobList, "the jobs that there are"),
    Request("kernelLsp/evidence", OneVerdict, EvidencePage, "what a verdict rests on, as a page"),
    Request("kernelLsp/status", Nothing, ServerStatus, "the state of the server"),
    Request("kernelLsp/kernels", Nothing, KernelFiles, "the kernels of the workspace and what is known of them"),
    Request("kernelLsp/variants", OneText, VariantList, "the variants of a text that were verified to be faster"),
    Request(
        "kernelLsp/variant", OneVariant, VariantTexts, "the texts of a variant; an error where it is for an older text"
    ),
    Request("kernelLsp/machineCode", OneText, MachineCode, "the machine code of a text"),
    Request("kernelLsp/opcodes", OneVariant, Opcodes, "the instructions of both sides of a verdict, by kind"),
)

JOB_PROGRESS = "kernelLsp/jobProgress"
"""The notification with a `JobRecord`, for clients that ask for it."""
