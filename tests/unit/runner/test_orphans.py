"""Nothing outlives the process that it works for, even when that is killed while everything is starting."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[3]
PARENT = """
import asyncio, sys
from kernel_lsp.runner.pool import Flavour, Pool

async def main():
    async with Pool() as pool:
        print(pool.folder, flush=True)
        pool.preload(Flavour.BUILD)
        if sys.argv[1] == "working":
            worker = await pool.worker(Flavour.BUILD, "build")
            print(worker.pid, flush=True)
        else:
            await asyncio.sleep(float(sys.argv[1]))
            print("importing", flush=True)
        await asyncio.sleep(60)

asyncio.run(main())
"""


def below(pid: int) -> set[int]:
    """The process ids of all that a process has started."""
    found: set[int] = set()
    for task in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, task.read_text().split()):
            found |= {child} | below(child)
    return found


def alive(pids: set[int]) -> set[int]:
    return {
        pid for pid in pids if Path(f"/proc/{pid}/stat").exists() and " Z " not in Path(f"/proc/{pid}/stat").read_text()
    }


@pytest.mark.parametrize(
    "moment", [*(pytest.param(moment, marks=pytest.mark.thorough) for moment in ("0.05", "0.6")), "working"]
)
def test_kill_9_of_the_parent_leaves_no_process_and_no_folder(moment):
    parent = subprocess.Popen(
        [sys.executable, "-c", PARENT, moment], cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )
    assert parent.stdout is not None
    folder = Path(parent.stdout.readline().strip())
    assert parent.stdout.readline()
    started = below(parent.pid)
    assert started
    os.kill(parent.pid, signal.SIGKILL)
    parent.wait()
    deadline = time.monotonic() + 30  # a zygote that loads a large library hears of nothing before that is done
    while time.monotonic() < deadline and (alive(started) or folder.exists()):
        time.sleep(0.05)
    assert alive(started) == set()
    assert not folder.exists()
