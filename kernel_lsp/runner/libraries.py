"""The installed packages that a user's files import: zygotes import them too, so that later workers find them there.

A zygote runs nothing of a user's, and its forks are to use threads and the GPU: so only what is installed beside torch
is imported there, and only if importing it starts no thread and opens no GPU. Some packages take ten seconds, so what
a file's text imports is imported before its first worker starts. A zygote that this spoils ends, and another takes its
place that leaves it to each worker. Once a zygote has workers, which would end with it, a fork of it tries first.
"""

import contextlib
import importlib
import importlib.util
import os
import signal
import sys
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

_SHARED = frozenset({"numpy", "torch", "triton"})
_NEVER = "torch.testing"  # its helpers look for a GPU when they are imported, and read the command line
_DEEPEST = 3  # parts of a name: packages import what lies below
_MOST = 1000
_GPU = "/dev/nvidia"
_DRIVER = Path("/dev/nvidiactl")
_FORKED_WELL = ("jemalloc_bg_thd",)  # of the allocator that pyarrow brings, which handles forks


@dataclass(frozen=True, slots=True)
class Before:
    """The state of a process before it runs a user's file: imported modules, and the number of its threads."""

    modules: frozenset[str]
    threads: int

    @classmethod
    def now(cls) -> "Before":
        """Return the state of this process."""
        return cls(frozenset(sys.modules), _threads())

    @property
    def spoiled(self) -> bool:
        """True if this process has since begun what its forks could not go on with: threads, or use of a GPU."""
        return _threads() > self.threads or _uses_gpu()

    def imported_since(self) -> tuple[str, ...]:
        """Return the modules of installed packages imported since, in that order; none if a fork could not use them."""
        if self.spoiled:
            return ()
        names = [name for name in tuple(sys.modules) if name not in self.modules and _may_be_imported(name)]
        return tuple(name for name in names if _is_installed(_root(name)))[:_MOST]


def importable(names: Iterable[str]) -> list[str]:
    """Return those of the modules that a zygote may import."""
    return [name for name in names if _may_be_imported(name) and _is_installed(_root(name))]


def harmless(names: Sequence[str]) -> list[str]:
    """Return the modules before the first whose import opens a GPU or ends the process, as a fork of this one finds.

    A fork of a process that has opened a GPU cannot use it. All are returned where no GPU is seen.
    """
    if not names or os.environ.get("CUDA_VISIBLE_DEVICES") == "" or not _DRIVER.exists():
        return list(names)
    reading, writing = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            _import_each(names, writing)
        finally:
            os._exit(0)
    os.close(writing)
    with os.fdopen(reading, "rb") as told:
        count = len(told.read())
    with contextlib.suppress(ChildProcessError):  # who handles its signal may have been quicker
        os.waitpid(pid, 0)
    return list(names[:count])


def _import_each(names: Iterable[str], writing: int) -> None:
    """Import modules until one opens a GPU; write one byte for each that did not."""
    for name in names:
        with contextlib.suppress(Exception):  # who needs it says what is wrong with it
            importlib.import_module(name)
        if _uses_gpu():
            return
        os.write(writing, b".")


def shared(names: Iterable[str]) -> list[str]:
    """Return those of the modules that many projects use, which stay imported between sessions."""
    return [name for name in names if _root(name) in _SHARED]


def _root(name: str) -> str:
    return name.partition(".")[0]


def _may_be_imported(name: str) -> bool:
    return name.count(".") < _DEEPEST and name != _NEVER and not name.startswith(f"{_NEVER}.")


@lru_cache
def _is_installed(package: str) -> bool:
    """Return True if a package lies in this Python's own folder of packages."""
    try:
        spec = importlib.util.find_spec(package)
    except (ImportError, ValueError):  # as of a module without a spec
        return False
    places = {sysconfig.get_path(name) for name in ("purelib", "platlib")}
    return spec is not None and spec.origin is not None and any(Path(spec.origin).is_relative_to(p) for p in places)


def _threads() -> int:
    """Return the number of this process's threads, without those of libraries that start them anew after a fork."""
    names = (_name_of(task) for task in Path("/proc/self/task").iterdir())
    return sum(name not in _FORKED_WELL for name in names)


def _name_of(task: Path) -> str:
    with contextlib.suppress(OSError):  # it has just ended
        return (task / "comm").read_text().strip()
    return ""


def _uses_gpu() -> bool:
    for opened in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(OSError):  # the one that lists the folder
            if str(opened.readlink()).startswith(_GPU):
                return True
    return False
