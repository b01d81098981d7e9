"""End a worker with all processes that it started, found by their session, which they cannot leave."""

import contextlib
import os
import signal
import time
from pathlib import Path

_PATIENCE_SECONDS = 2.0


def kill_session(leader: int) -> None:
    """Kill the process `leader`, its group and every process of its session.

    It does not wait for their end. A session that forks as fast as it is killed is pursued for two seconds.
    """
    for kill in (os.killpg, os.kill):  # by its own number too: it may not have reached setsid yet
        with contextlib.suppress(ProcessLookupError, PermissionError):
            kill(leader, signal.SIGKILL)
    told, end = {leader}, time.monotonic() + _PATIENCE_SECONDS
    while (new := members(leader) - told) and time.monotonic() < end:
        told |= new
        for pid in new:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.kill(pid, signal.SIGKILL)


def members(leader: int) -> set[int]:
    """Return the processes of a session that have not ended."""
    found: set[int] = set()
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with contextlib.suppress(OSError, ValueError):
                state, _, _, session = (entry / "stat").read_text().rpartition(")")[2].split()[:4]
                if int(session) == leader and state not in "ZX":
                    found.add(int(entry.name))
    return found
