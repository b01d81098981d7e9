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
    """Return the processes of a session that have not ended.

    The session is asked of the system: to read the status of every process takes over ten times as long.
    """
    processes = (int(name) for name in os.listdir("/proc") if name.isdigit())  # noqa: PTH208 - quicker than pathlib
    return {process for process in processes if _is_member(process, leader)}


def _is_member(process: int, leader: int) -> bool:
    try:
        if os.getsid(process) != leader:
            return False
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:  # it is gone
        return False
    return state not in "ZX"
