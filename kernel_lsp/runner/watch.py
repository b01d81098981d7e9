"""What a worker and all that it started use together, and when that is too much: processes, memory, disk, output.

Limits of Linux's own count by user, or not at all where that is root; so a nursery looks at its workers' sessions a few
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
_OWN_MEMORY = (1, 2)  # fields of statm: resident pages, and those of them that are shared with files
_SHARE = re.compile(r"^Pss_Anon: +(\d+) kB", re.MULTILINE)  # what forks have in common counts once among them


@dataclass(frozen=True, slots=True)
class Usage:
    """Processes, bytes of memory that is no file's, and bytes of their folder's files."""

    processes: int
    memory_bytes: int
    disk_bytes: int


def most_memory() -> int:
    """Half of this machine's memory, in bytes."""
    return os.sysconf("SC_PHYS_PAGES") * _PAGE // 2


def look(leader: int, scratch: Path, most_memory_bytes: int = 0) -> Usage:
    """What the session of `leader` uses now. Takes a millisecond for each hundred processes of the machine.

    What forks have in common counts once if it would be more than `most_memory_bytes` otherwise: to find that out takes
    some two milliseconds for each of them.
    """
    found = members(leader)
    memory = sum(map(_own_memory, found))
    if len(found) > 1 and memory > most_memory_bytes:
        memory = sum(map(_share_of_memory, found))
    return Usage(len(found), memory, sum(_sizes(scratch)))


def excess(usage: Usage, most_memory_bytes: int) -> str | None:
    """What there is too much of, as the end of a sentence; None if nothing."""
    if usage.processes > policy.MOST_PROCESSES:
        return f"it started {usage.processes} processes, more than {policy.MOST_PROCESSES}"
    if usage.memory_bytes > most_memory_bytes:
        return f"it took {usage.memory_bytes >> 20:,} MiB of memory, more than {most_memory_bytes >> 20:,}"
    if usage.disk_bytes > policy.MOST_DISK_BYTES:
        return f"it wrote {usage.disk_bytes >> 20:,} MiB of files, more than {policy.MOST_DISK_BYTES >> 20:,}"
    return None


def cap_output(log: Path) -> None:
    """Begin a log anew that has grown too long; what is appended to it goes on from its start."""
    with contextlib.suppress(OSError):
        if log.stat().st_size > policy.MOST_LOG_BYTES:
            os.truncate(log, 0)


def _own_memory(process: int) -> int:
    try:
        fields = Path(f"/proc/{process}/statm").read_text().split()
    except OSError:  # it has ended since
        return 0
    resident, shared = (int(fields[at]) for at in _OWN_MEMORY)
    return (resident - shared) * _PAGE


def _share_of_memory(process: int) -> int:
    try:
        share = _SHARE.search(Path(f"/proc/{process}/smaps_rollup").read_text())
    except OSError:  # it has ended since, or hides
        share = None
    return int(share[1]) << 10 if share else _own_memory(process)


def _sizes(folder: Path) -> Iterable[int]:
    for place, _, files in os.walk(folder):
        for name in files:
            with contextlib.suppress(OSError):
                yield os.lstat(os.path.join(place, name)).st_blocks * 512  # noqa: PTH118 - many files, quickly
