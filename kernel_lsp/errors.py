"""The one family of errors for the user: what was wrong, where, and what to do."""

from dataclasses import dataclass
from pathlib import Path


@dataclass
class KernelLspError(Exception):
    """An error that the user can correct. The command line prints it as help and never as a traceback.

    Attributes:
        message: what was wrong, one sentence.
        path: the file it concerns, if any.
        line: 1-based line in `path`, if known.
        fix: what to do about it, one sentence.
    """

    message: str
    path: Path | None = None
    line: int | None = None
    fix: str | None = None

    def __str__(self) -> str:
        """Return `FILE:LINE: message. Fix.`, without the unknown parts."""
        where = "" if self.path is None else f"{self.path}:{self.line}: " if self.line else f"{self.path}: "
        return f"{where}{self.said}"

    @property
    def with_place(self) -> str:
        """Return `MESSAGE. FIX. (FILE:LINE)`, for windows, where a long path in front hides what was wrong."""
        if self.path is None:
            return self.said
        end = "" if self.said.endswith((".", "?", "!")) else "."
        return f"{self.said}{end} ({self.path}{f':{self.line}' if self.line else ''})"

    @property
    def said(self) -> str:
        """Return the message and the fix, as sentences on one line."""
        end = "" if self.message.endswith((".", "?", "!")) else "."
        return f"{self.message}{end} {self.fix}" if self.fix else self.message


class ConfigurationError(KernelLspError):
    """A setting, option or file name that cannot be used (exit code 2)."""


class WorkloadError(KernelLspError):
    """A workload that is missing a part, or whose parts do not fit each other or the kernel."""


class NotBuiltError(WorkloadError):
    """A launch asks for an instance of a template that was not built, as nobody could know of it beforehand."""


class DraftError(WorkloadError):
    """A workload that its author has not accepted yet: it says nothing, and what needs no workload goes on."""


class SourceError(KernelLspError):
    """A kernel file that cannot be read or holds nothing to work on."""


class CannotJudgeError(KernelLspError):
    """This machine lacks what the work needs, most often a GPU (exit code 3)."""


class RunnerError(KernelLspError):
    """A runner process died, hung or broke its protocol; the work it had can be given to another one."""


class NoRoomError(RunnerError):
    """A session does not fit into the GPU's memory beside those that are open; it may once these are closed."""


def as_ours(error: Exception) -> KernelLspError:
    """Return the error for any exception, where one item of many broke and the others go on.

    One of this program's own is returned as it is; of any other the text says that it was not foreseen.
    """
    if isinstance(error, KernelLspError):
        return error
    said = str(error).strip().partition("\n")[0]
    return RunnerError(f"this program broke on it: {type(error).__name__}{f': {said}' if said else ''}")
