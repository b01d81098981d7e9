"""Errors on the way to a verdict that say nothing of a version, and how errors name files."""

import contextlib
from collections.abc import Generator

from kernel_lsp.errors import KernelLspError, RunnerError
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.source.candidate import SourceFile

_LITTLE_MEMORY = "this GPU has too little memory free"


class UnjudgedError(RunnerError):
    """The judge could not do its own part, as for want of memory: that says nothing of any version."""


@contextlib.contextmanager
def unattributed() -> Generator[None]:
    """Turn the failure of a worker inside the block into an UnjudgedError: no version is to blame for it."""
    try:
        yield
    except WorkerFailure as error:
        raise UnjudgedError(f"not judged: a process of the judge failed: {reason_of(error)}") from error


def reason_of(failure: Exception) -> str:
    """Return how a process of the judge failed.

    Where memory is short that is one line, for torch's own message lists every process on the GPU.
    """
    return _LITTLE_MEMORY if isinstance(failure, WorkerFailure) and failure.lacks_memory else str(failure)


@contextlib.contextmanager
def named_as_given(*files: SourceFile | None) -> Generator[None]:
    """Within it errors name files as the user does."""
    try:
        yield
    except KernelLspError as error:
        error.path = next((file.path for file in files if file and file.path.absolute() == error.path), error.path)
        raise
