"""Measure the processes, memory, disk and output of a worker and its children, and find excess.

Limits of Linux's own count by user, or not at all where that is root; so a zygote looks at its workers' sessions a few
times a second.
"""

import contextlib
import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.runner.sessions import members

_PAGE = os.sysconf("SC_PAGE_SIZE")
_OWN_MEMORY = (1, 2)  # fields of statm: resident pages, and those among them that are shared with files
_SHARE = re.compile(r"^Pss_Anon: +(\d+) kB", re.MULTILINE)  # pages shared by forks count once


@dataclass(frozen=True, slots=True)
class SessionUsage:
    """The number of processes, the bytes of anonymous memory, and the bytes of files in the worker's folder."""

    processes: int
    memory_bytes: int
    disk_bytes: int


def most_memory() -> int:
    """Return half of this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE // 2


def look(leader: int, scratch: Path, most_memory_bytes: int = 0) -> SessionUsage:
    """Return the current usage of a session. Takes about a tenth of a millisecond for each hundred processes.

    Only if the sum exceeds `most_memory_bytes` are pages that forks share counted once, which takes about two
    milliseconds for each process.
    """
    found = members(leader)
    memory = sum(map(_own_memory, found))
    if len(found) > 1 and memory > most_memory_bytes:
        memory = sum(map(_share_of_memory, found))
    return SessionUsage(len(found), memory, sum(_sizes(scratch)))


def excess(usage: SessionUsage, most_memory_bytes: int) -> str | None:
    """Return the limit that is exceeded, as the end of a sentence; None if none is."""
    if usage.processes > policy.MOST_PROCESSES:
        return f"it started {usage.processes} processes, more than {policy.MOST_PROCESSES}"
    if usage.memory_bytes > most_memory_bytes:
        return f"it took {usage.memory_bytes >> 20:,} MiB of memory, more than {most_memory_bytes >> 20:,}"
    if usage.disk_bytes > policy.MOST_DISK_BYTES:
        return f"it wrote {usage.disk_bytes >> 20:,} MiB of files, more than {policy.MOST_DISK_BYTES >> 20:,}"
    return None


def cap_output(log: Path) -> None:
    """Empty a log that has grown too long; later output starts at its beginning."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > policy.MOST_LOG_BYTES:
            os.truncate(log, 0)


def _own_memory(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except OSError:  # the process has ended
        return 0
    resident, shared = (int(fields[at]) for at in _OWN_MEMORY)
    return (resident - shared) * _PAGE


def _share_of_memory(process: int) -> int:
    try:
        share = _SHARE.search(Path(f"/proc/{process}/smaps_rollup").read_text())
    except OSError:  # the process has ended, or may not be read
        share = None
    return int(share[1]) << 10 if share else _own_memory(process)


def _sizes(folder: Path) -> Iterable[int]:
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - many files, quickly
