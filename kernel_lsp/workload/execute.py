"""Executing a user's text as a module, and blaming its lines for what goes wrong. For runner processes only."""

import linecache
import sys
import traceback
from pathlib import Path
from types import ModuleType

from kernel_lsp.errors import CannotJudgeError, WorkloadError


def load_module(text: str, path: Path) -> ModuleType:
    """Execute `text` as the module that would be imported from `path`.

    The text need not be what is on disk. It is entered into `linecache`, so that tracebacks and `inspect.getsource`
    (which Triton compiles from) see it under its real name and line numbers.

    Raises:
        WorkloadError: the module cannot be parsed or raises while it is executed.
    """
    name = str(path)
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    module = ModuleType(_module_name(path))
    module.__file__ = name
    folder = str(path.parent)
    if folder not in sys.path:
        sys.path.append(folder)
    sys.modules[module.__name__] = module
    with blame(path, "raised while it was imported"):
        exec(compile(text, name, "exec"), module.__dict__)
    return module


class blame:  # noqa: N801 - reads as a phrase at its call sites
    """Context in which any exception becomes a `WorkloadError` at the line of `path` that caused it.

    What this machine lacks is nobody's fault and stays a `CannotJudgeError`.
    """

    def __init__(self, path: Path, what: str) -> None:
        self._path, self._what = path, what

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
        raise WorkloadError(message, self._path, line) from error


def _module_name(path: Path) -> str:
    """The file's stem, unless it belongs to another file: `copy.py` must not become the `copy` that torch imports."""
    taken = sys.modules.get(path.stem)
    return path.stem if taken is None or getattr(taken, "__file__", None) == str(path) else f"{path.stem}_"
