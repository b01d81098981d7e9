"""The records of a check as the server sends them; see `wire`."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class CheckedKernel:
    """A kernel of a checked text; `line` is that of its name, from 0."""

    name: str
    line: int


@dataclass(frozen=True, slots=True)
class CheckedFamily:
    """One check of a run.

    Attributes:
        name: what was checked, such as `inputs: plain`, one family of inputs.
        case: of the workload; null for what concerns all of them.
        status: `passed`, `failed` or `skipped`.
        detail: why it failed or was skipped.
    """

    name: str
    case: str | None
    status: str
    detail: str


@dataclass(frozen=True, slots=True)
class CheckedFinding:
    """A finding of a check.

    Attributes:
        kernel: the one that it stands in; null outside of all.
        rule: its id.
        uri: of the file that it is in.
        line: from 0.
    """

    kernel: str | None
    rule: str
    severity: str
    message: str
    uri: str
    line: int


@dataclass(frozen=True, slots=True)
class CheckedText:
    """The last check of a text.

    Attributes:
        reason: its result in a sentence; null if the text was not checked.
        older: true if the text was changed since.
        kernels: those of the text as it is.
    """

    reason: str | None
    older: bool
    kernels: tuple[CheckedKernel, ...]
    families: tuple[CheckedFamily, ...]
    findings: tuple[CheckedFinding, ...]
