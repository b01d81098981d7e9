"""One timer at a time on a GPU, across processes; a holder that dies gives its lock back."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from kernel_lsp.device.lock import gpu_lock

HOLDER = """
import asyncio, sys
from pathlib import Path
from kernel_lsp.device.lock import gpu_lock

async def main():
    async with gpu_lock("GPU-1", Path(sys.argv[1])):
        print("held", flush=True)
        await asyncio.to_thread(sys.stdin.readline)
    print("free", flush=True)

asyncio.run(main())
"""


@contextmanager
def another_process(folder: Path) -> Iterator[subprocess.Popen]:
    """A process that asks for the lock, says when it has it, and keeps it until it is told to go on."""
    environment = os.environ | {"PYTHONPATH": str(Path(__file__).parents[3])}
    command = [sys.executable, "-c", HOLDER, str(folder)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    with subprocess.Popen(command, env=environment, **pipes) as process:
        try:
            yield process
        finally:
            process.kill()


async def obtain(folder: Path, seconds: float, uuid: str = "GPU-1") -> float:
    """Seconds it took to get the lock; TimeoutError if it was not to be had."""
    started = time.monotonic()
    async with asyncio.timeout(seconds), gpu_lock(uuid, folder):
        return time.monotonic() - started


def test_a_second_process_waits_until_the_first_lets_go(tmp_path):
    with another_process(tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        with pytest.raises(TimeoutError):
            asyncio.run(obtain(tmp_path, 0.3))
        holder.stdin.write("\n")
        holder.stdin.flush()
        asyncio.run(obtain(tmp_path, 5))


def test_a_killed_holder_frees_the_lock(tmp_path):
    with another_process(tmp_path) as holder:
        assert holder.stdout.readline() == "held\n"
        holder.kill()
        holder.wait()
        assert asyncio.run(obtain(tmp_path, 5)) < 0.5


def test_another_process_waits_for_this_one(tmp_path):
    async def main(holder: subprocess.Popen) -> None:
        async with gpu_lock("GPU-1", tmp_path):
            reading = asyncio.create_task(asyncio.to_thread(holder.stdout.readline))
            await asyncio.sleep(0.5)
            assert not reading.done()
        assert await reading == "held\n"

    with another_process(tmp_path) as holder:
        asyncio.run(main(holder))


def test_tasks_of_one_process_wait_for_each_other(tmp_path):
    inside = 0

    async def hold() -> None:
        nonlocal inside
        async with gpu_lock("GPU-1", tmp_path):
            inside += 1
            assert inside == 1
            await asyncio.sleep(0.01)
            inside -= 1

    async def main() -> None:
        async with asyncio.TaskGroup() as group:
            for _ in range(4):
                group.create_task(hold())

    asyncio.run(main())
    assert inside == 0


def test_other_gpus_are_not_waited_for(tmp_path):
    async def main() -> None:
        async with gpu_lock("GPU-1", tmp_path / "made" / "on the way"):
            assert await obtain(tmp_path / "made" / "on the way", 5, "GPU-2") < 0.5

    asyncio.run(main())


def test_whatever_ends_the_work_or_the_waiting_frees_the_lock_and_its_descriptor(tmp_path):
    async def fail() -> None:
        async with gpu_lock("GPU-1", tmp_path):
            with pytest.raises(TimeoutError):
                await obtain(tmp_path, 0.1)
            raise ZeroDivisionError

    async def main() -> None:
        before = len(list(Path("/proc/self/fd").iterdir()))
        with pytest.raises(ZeroDivisionError):
            await fail()
        assert len(list(Path("/proc/self/fd").iterdir())) == before
        assert await obtain(tmp_path, 5) < 0.5

    asyncio.run(main())
