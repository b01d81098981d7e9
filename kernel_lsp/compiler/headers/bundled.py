"""NVRTC's own headers, which it has packed (13.3 and later) and unpacks once per version. Worker processes only.

Unpacking writes 2,400 files, which takes longer than to compile a kernel, and seconds on a slow disk. So a zygote has a
process of its own do it, and a worker waits for that only where its code needs a header.
"""

import contextlib
import os
import select
import signal
from pathlib import Path
from typing import NoReturn

from cuda.bindings import nvrtc  # pyright: ignore[reportAttributeAccessIssue]

_MARK = ".nvrtc_headers_version"
_NICE = 19


class BundledHeaders:
    """The headers in one folder, which nobody uses before all of them are there.

    NVRTC writes a mark when it has written all else, and begins anew where it finds headers without one. Of several
    processes it lets one write; the others wait.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._end: int | None = None

    def unpack_beside(self) -> None:
        """Have a process of its own unpack them, if they are missing; it may outlive this one.

        Forks of this process know of it: each of them has our end of a pipe, whose other end closes with that process.
        """
        if self._end is not None or self._are_there():
            return
        with contextlib.suppress(OSError):  # a worker may read only what is there when it is confined
            self._folder.parent.mkdir(parents=True, exist_ok=True)
        self._end, theirs = os.pipe()
        if os.fork() == 0:
            self._unpack_and_end(theirs)
        os.close(theirs)

    def are_under_way(self) -> bool:
        """Return True while the other process unpacks them."""
        return self._end is not None and not select.select([self._end], [], [], 0)[0]

    def folder(self) -> Path | None:
        """Return the folder when it is filled; None if this NVRTC has no headers, or if they cannot be written."""
        if self._end is not None:
            select.select([self._end], [], [])
        elif not self._are_there():
            self._unpack()
        return self._folder if self._are_there() else None

    def _are_there(self) -> bool:
        with contextlib.suppress(OSError):
            return (self._folder / _MARK).stat().st_size > 0
        return False

    def _unpack(self) -> None:
        install = getattr(nvrtc, "nvrtcInstallBundledHeaders", None)
        if install is not None:
            with contextlib.suppress(RuntimeError):  # the bindings know the function, the library is older
                install(str(self._folder).encode(), 0)

    def _unpack_and_end(self, pipe: int) -> NoReturn:
        """Unpack them and end; nobody who waits for the end of our parent, or for its output, waits for us."""
        try:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)
            null = os.open(os.devnull, os.O_RDWR)
            for standard in range(3):
                os.dup2(null, standard)
            os.dup2(pipe, 3)
            for inherited in tuple(Path("/proc/self/fd").iterdir()):
                if int(inherited.name) > 3:
                    with contextlib.suppress(OSError):  # the listing's own is closed already
                        os.close(int(inherited.name))
            os.nice(_NICE)  # what compiles meanwhile goes first
            self._unpack()
        finally:
            os._exit(0)
