"""Processes that somebody left running."""

import contextlib
import os
from pathlib import Path


def processes_below(folder: Path) -> list[int]:
    """Processes other than this one that work in `folder` or name it in their command."""
    found: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        with contextlib.suppress(OSError):
            where = os.readlink(entry / "cwd")  # noqa: PTH115 - a folder that is gone ends in " (deleted)"
            if where.startswith(str(folder)) or os.fsencode(folder) in (entry / "cmdline").read_bytes():
                found.append(int(entry.name))
    return found
