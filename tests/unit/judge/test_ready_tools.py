"""compute-sanitizer's processes are kept ready, and replaced; what goes wrong with one has a second try."""

import asyncio
import sys
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge import sanitizer_tools
from kernel_lsp.judge.sanitizer_tools import FOUND, TOOLS, SanitizerTools
from kernel_lsp.runner.pool import Pool
from kernel_lsp.runner.turns import SessionTurns

_TOOL = """#!/bin/sh
echo "========= COMPUTE-SANITIZER"
while [ "$1" != "-I" ]; do shift; done
exec {python} "$@"
"""
_REPLAY = """
import os, sys
waits = len(sys.argv) == 1
if waits:
    print(f"ready {os.getpid()}", flush=True)
    file = sys.stdin.readline().strip()
else:
    file = sys.argv[1]
print("launches of", file, "in a process that waited" if waits else "in a new one", flush=True)
sys.exit({status} if waits else 0)
"""


@pytest.fixture
def using(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let a program of ours stand for compute-sanitizer, and make what it repeats end with a status."""

    def use(status: int = 0, replay: str = _REPLAY) -> None:
        tool, repeated = tmp_path / "compute-sanitizer", tmp_path / "replay.py"
        tool.write_text(_TOOL.format(python=sys.executable))
        tool.chmod(0o700)
        repeated.write_text(replay.replace("{status}", str(status)))
        monkeypatch.setattr(sanitizer_tools, "find_tool", lambda _: tool)
        monkeypatch.setattr(sanitizer_tools, "_REPLAY", repeated)

    return use


def with_tools(work: Callable[[Pool, SanitizerTools], Awaitable[None]]) -> None:
    async def main() -> None:
        async with Pool() as pool:
            tools = SanitizerTools(pool, SessionTurns(None))
            try:
                await work(pool, tools)
            finally:
                await tools.close()
            assert not pool._programs, "none is left over"

    asyncio.run(main())


@pytest.mark.parametrize("status", [0, FOUND])
def test_a_process_that_waits_is_used_and_replaced_when_the_judgement_is_over(
    using: Callable[..., None], status: int
) -> None:
    using(status)

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        await tools.settle()
        waiting = set(pool._programs)
        assert len(waiting) == len(TOOLS)
        assert len(pool.pids()) == len(TOOLS), "a GPU that reports them is not shared with a stranger"
        ended, said = await tools.run("memcheck", Path("/launches"), 20.0)
        assert ended == status
        assert "launches of /launches in a process that waited" in said
        assert len(pool._programs) == len(TOOLS) - 1, "a new one would slow down those that still work"
        tools.refill()
        await tools.settle()
        assert len(pool._programs & waiting) == len(TOOLS) - 1
        assert len(tools._waiting) == len(pool._programs) == len(TOOLS)

    with_tools(work)


def test_a_tool_that_nobody_made_ready_is_started(using: Callable[..., None]) -> None:
    using()

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        status, said = await tools.run("racecheck", Path("/launches"), 20.0)
        assert (status, "in a new one" in said) == (0, True)
        assert not tools._waiting, "where there is no room, none is kept"

    with_tools(work)


def test_one_that_fails_is_tried_once_more(using: Callable[..., None]) -> None:
    using(status=3)

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        status, said = await tools.run("initcheck", Path("/launches"), 20.0)
        assert (status, "in a new one" in said) == (0, True)

    with_tools(work)


def test_one_that_takes_too_long_is_not_tried_again(using: Callable[..., None]) -> None:
    using(replay=_REPLAY.replace("sys.exit(", "import time\nif waits:\n    time.sleep(3600)\nsys.exit("))

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        await tools.settle()
        status, said = await tools.run("racecheck", Path("/launches"), 0.5)
        assert (status, "in a process that waited" in said) == (None, True)

    with_tools(work)


@pytest.mark.parametrize("replay", ["", "print('ready soon')\ninput()", "import sys\nsys.exit(1)"])
def test_one_that_is_never_ready_costs_nothing_but_time(using: Callable[..., None], replay: str) -> None:
    using(replay=f"import sys\nif len(sys.argv) == 1:\n    {'; '.join(replay.splitlines()) or 'sys.exit()'}\n")

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        await tools.settle()
        assert not pool.pids()
        status, _ = await tools.run("synccheck", Path("/launches"), 20.0)
        assert status == 0

    with_tools(work)


def test_one_that_is_being_started_ends_with_its_session(
    using: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    using(replay="import time\ntime.sleep(3600)\n")
    monkeypatch.setattr(sanitizer_tools.policy, "SANITIZER_SECONDS", 3600.0)

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        while len(pool._programs) < len(TOOLS):
            await asyncio.sleep(0.01)

    with_tools(work)


def test_without_the_program_nothing_is_started(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sanitizer_tools, "find_tool", lambda _: None)

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        tools.refill()
        assert (tools.installed, tools._waiting) == (False, {})

    with_tools(work)


@pytest.mark.parametrize(
    ("cores", "free_bytes", "waits"),
    [(8, 16 << 30, True), (64, 80 << 30, True), (7, 80 << 30, False), (64, (16 << 30) - 1, False)],
)
def test_they_wait_where_that_takes_little_from_others(
    cores: int, free_bytes: int, waits: bool, using: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    using()
    monkeypatch.setattr(sanitizer_tools.os, "sched_getaffinity", lambda _: set(range(cores)))
    monkeypatch.setattr(sanitizer_tools, "free_bytes", lambda _: free_bytes)

    async def work(pool: Pool, tools: SanitizerTools) -> None:
        assert tools.may_wait(Gpu(0, "GPU", "GPU-0", "sm_90", "580", 80 << 30)) is waits

    with_tools(work)
