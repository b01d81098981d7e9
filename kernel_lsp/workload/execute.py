"""Executes a user's text as a module, and attributes errors to its lines. For runner processes only."""

import sys
import traceback
from pathlib import Path
from types import ModuleType
from unittest import mock

from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.workload.import_fixes import import_fix
from kernel_lsp.workload.imports import import_text


def load_module(text: str, path: Path, *, afresh: bool = False) -> ModuleType:
    """Execute `text` as the module imported from `path`, and return it; later imports of that file get it too.

    Command line options that the file reads have their defaults. A text that this process has executed is
    not executed again, unless `afresh` is set.

    Raises:
        WorkloadError: the module cannot be parsed or raises while it is executed.
    """
    with mock.patch.object(sys, "argv", [str(path)]), blame(path, "raised while it was imported", text):
        return import_text(text, path, afresh=afresh)


class blame:  # noqa: N801 - reads as a phrase at its call sites
    """A context in which any exception becomes a `WorkloadError` at the line of `path` that caused it.

    A lack of this machine remains a `CannotJudgeError`. `imported` is the text of `path` if that is imported within the
    context: the error's advice depends on it.
    """

    def __init__(self, path: Path, what: str, imported: str | None = None) -> None:
        self._path, self._what, self._imported = path, what, imported

    def __enter__(self) -> None:
        return None

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        if error is None or isinstance(error, (WorkloadError, CannotJudgeError, KeyboardInterrupt)):
            return
        frames = [f.lineno for f in traceback.extract_tb(error.__traceback__) if f.filename == str(self._path)]
        line = frames[-1] if frames else None
        if isinstance(error, SyntaxError) and error.filename == str(self._path):
            line = error.lineno
        said = str(error).strip().splitlines()
        message = f"{self._what}: {type(error).__name__}" + (f": {said[0]}" if said else "")
        begun = frames[0] if frames else None
        fix = None if self._imported is None else import_fix(error, self._imported, self._path, begun)
        raise WorkloadError(message, self._path, line, fix) from error
