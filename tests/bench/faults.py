"""Candidates that hang, crash, hoard, fork, fill and flood among good ones.  `python -m tests.bench.faults`.

200 judgements in a row, spread over the GPUs in runs of 25, each run with workers and sessions of its own: for a CUDA
kernel and a Triton one the same program, a faster and a slower one, and between them by chance all of `misfits.py`.
Every verdict must be the right one and be found again in the store. After each run no process, no file and no GPU
memory of it may be left. Then the parent of such runs is killed (`kill -9`) at some moment in the middle: after 5 s no
process and no file may be left, the store must open and hold every verdict that was reached. How
long the driver takes to free memory is told.

Options: --kills (6) parents, --runs (8), and those of `shards.py`. Rows are kept in `faults.jsonl`. Without a GPU the
same is done on the emulator, with less harm.
"""

import argparse
import asyncio
import contextlib
import os
import random
import signal
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

from kernel_lsp.config.settings import JudgeSettings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import Session
from kernel_lsp.store.store import open_store
from tests.bench import misfits, shards
from tests.bench.misfits import Misfit, Scale
from tests.bench.record import record
from tests.bench.sessions import kept, session_of, settings_below, warm_pool
from tests.bench.shards import Row, Task
from tests.exploits.judging import unread_host_code
from tests.processes import processes_below

NAME = "faults"
_UNTIMED = {"the same", "faster", "slower"}
_BURIAL_SECONDS = 5.0
_RELEASE_SECONDS = 60.0  # for a busy driver to take back the memory of processes that are gone; only told
_ID_LENGTH = 20  # what is shorter was cut off by the kill
_MEMORY_SLACK = 64 << 20  # what the driver itself may keep or return meanwhile
_LEFT = ("processes_left", "files_left", "gpu_bytes_left")


def tasks(runs: int, kills: int, *, gpu: bool, count: int | None = None) -> list[Task]:
    """One task for each run of judgements, and one for each parent to kill."""
    total = len(misfits.mixture(_scale(gpu), count, gpu=gpu))
    made: list[Task] = []
    for run in range(runs):
        numbers: list[Any] = list(range(run, total, runs))
        made.append({"id": f"run {run}", "of": count, "numbers": [*numbers, "left"]})
    return made + [{"id": f"kill {kill}", "of": count, "numbers": [kill]} for kill in range(kills)]


@asynccontextmanager
async def workplace() -> AsyncGenerator[Callable[[Task], AsyncIterator[Row]]]:
    """Doing one task at a time; nothing outlives a task."""

    async def do(task: Task) -> AsyncIterator[Row]:
        with tempfile.TemporaryDirectory(prefix="faults-", ignore_cleanup_errors=True) as folder:
            if task["id"].startswith("kill"):
                yield {"number": task["numbers"][0]} | await kill_a_parent(Path(folder), task["numbers"][0], task["of"])
                return
            before = used_memory()
            numbers = [number for number in task["numbers"] if number != "left"]
            async for number, row in judge_mixture(Path(folder), numbers, task["of"]):
                yield {"number": number} | row
            yield {"number": "left"} | await what_is_left(Path(folder), before)

    yield do


@asynccontextmanager
async def sessions(folder: Path) -> AsyncGenerator[dict[str, Session]]:
    """A session by language; what their workers write lies in `folder / "tmp"`."""
    gpu = bool(find_gpus())
    (folder / "tmp").mkdir()
    settings = settings_below(folder, JudgeSettings(families=["normal"], sanitize="off", steady_load="off"))
    usual, tempfile.tempdir = tempfile.tempdir, str(folder / "tmp")
    try:
        with unread_host_code():  # harm that reading it would refuse must be survived, too
            async with warm_pool() as pool, AsyncExitStack() as stack:
                opened: dict[str, Session] = {}
                for language in misfits.LANGUAGES:
                    path = misfits.write(folder, language, _scale(gpu))
                    opened[language] = await stack.enter_async_context(session_of(pool, path, settings))
                yield opened
    finally:
        tempfile.tempdir = usual


async def judge_mixture(
    folder: Path, numbers: Iterable[int], count: int | None = None
) -> AsyncIterator[tuple[int, Row]]:
    """Judge these of the mixture one after the other, each verdict kept in a store in `folder`."""
    gpu = bool(find_gpus())
    mixed = misfits.mixture(_scale(gpu), count, gpu=gpu)
    async with sessions(folder) as opened:
        with open_store(folder / "data") as store:
            for number in numbers:
                misfit = mixed[number]
                session = opened[misfit.language]
                verdict = await session.judge(misfit.version(session.target, number), always_run=True)
                store.save_verdict(verdict.model_dump(mode="json"))
                found = store.find_verdict(verdict.id) is not None
                yield number, _row(misfit, kept(verdict), gpu=gpu) | {"id": verdict.id, "stored": found}


def _row(misfit: Misfit, verdict: Row, *, gpu: bool) -> Row:
    right = {"UNTIMED"} if misfit.good and not gpu else misfit.verdicts
    row = {key: verdict[key] for key in ("verdict", "stage", "reason", "says")}
    row |= {"what": misfit.name, "language": misfit.language, "good": misfit.good, "right": row["verdict"] in right}
    row["seconds"] = verdict["seconds"]["total"]
    wrongly = "" if row["right"] else f"NOT {' or '.join(sorted(right))}: "
    return row | {"says": f"{misfit.language}, {misfit.name}: {wrongly}{verdict['says']}"}


async def kill_a_parent(folder: Path, number: int, count: int | None) -> Row:
    """Kill a process that judges the mixture after some verdicts, and see what it leaves."""
    order = random.Random(number)
    before = used_memory()
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "tests.bench.faults", "--judge", str(folder), "--of", str(count or 0)),
        *("--first", str(number * 7)),
        stdout=asyncio.subprocess.PIPE,
    )
    assert process.stdout is not None
    reached: list[str] = []
    try:
        async with asyncio.timeout(120):
            for _ in range(2 + number % 3):
                reached.append((await process.stdout.readline()).decode().strip())  # noqa: PERF401 - it may be cut off
        await asyncio.sleep(order.uniform(0.0, 1.0))
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.kill(process.pid, signal.SIGKILL)
        said, _ = await process.communicate()
    reached = [line for line in (*reached, *said.decode().splitlines()) if len(line) == _ID_LENGTH]
    row = await what_is_left(folder, before)
    with open_store(folder / "data") as store:
        lost = [verdict for verdict in reached if store.find_verdict(verdict) is None]
        row |= {"reached": len(reached), "lost": len(lost), "store_notices": store.notices}
    return row | {"says": f"killed after {len(reached)} verdicts, {len(lost)} of them lost; {row['says']}"}


async def what_is_left(folder: Path, memory_before: int) -> Row:
    """What remains of work in `folder` after at most 5 s, how long it took to be gone, and how long for its memory."""
    started = time.monotonic()

    def held() -> int:
        return max(0, used_memory() - memory_before - _MEMORY_SLACK)

    def passed() -> float:
        return round(time.monotonic() - started, 2)

    while True:
        left = {
            "processes_left": len(processes_below(folder)),
            "files_left": sum(len(files) for _, _, files in os.walk(folder / "tmp")),
            "gpu_bytes_left": held(),
        }
        gone_after = passed()
        if not any(left.values()) or gone_after > _BURIAL_SECONDS:
            break
        await asyncio.sleep(0.05)
    while held() and passed() < _RELEASE_SECONDS:
        await asyncio.sleep(0.05)
    says = ", ".join(f"{left[name]} {name.replace('_', ' ')}" for name in _LEFT)
    times = {"gone_after_s": gone_after, "memory_free_after_s": passed()}
    return left | times | {"says": f"{says} after {gone_after:.1f} s"}


def used_memory() -> int:
    """Bytes of the first visible GPU's memory in use, as the driver says; 0 without a GPU."""
    gpu = next(iter(find_gpus()), None)
    if gpu is None:
        return 0
    import pynvml

    return int(pynvml.nvmlDeviceGetMemoryInfo(pynvml.nvmlDeviceGetHandleByUUID(gpu.uuid)).used)


def _scale(gpu: bool) -> Scale:
    return Scale() if gpu else misfits.SMALL


def summarise(rows: Sequence[Row]) -> dict[str, Any]:
    """The figures of all rows."""
    judged = [row for row in rows if "right" in row]
    ends = [row for row in rows if "files_left" in row]
    kills = [row for row in ends if "reached" in row]
    good = [row for row in judged if row["good"]]
    return {
        "judgements": len(judged),
        "good": len(good),
        "good_right": sum(row["right"] for row in good),
        "bad": len(judged) - len(good),
        "bad_right": sum(row["right"] for row in judged if not row["good"]),
        "not_stored": sum(not row["stored"] for row in judged),
        "failed_rows": [f"{row['task']} {row['number']}: {row['failed']}" for row in rows if "failed" in row],
        "not_right": [f"{row['task']} {row['number']}: {row['says']}" for row in judged if not row["right"]],
        "runs_ended": len(ends) - len(kills),
        "parents_killed": len(kills),
        "verdicts_lost": sum(row["lost"] for row in kills),
        "stores_repaired": sum(bool(row["store_notices"]) for row in kills),
        "longest_burial_s": max((row["gone_after_s"] for row in ends), default=None),
        "longest_memory_s": max((row["memory_free_after_s"] for row in ends), default=None),
        "by_what": _by_what(judged),
    } | {name: sum(row[name] for row in ends) for name in _LEFT}


def _by_what(judged: Sequence[Row]) -> dict[str, dict[str, Any]]:
    found: dict[str, dict[str, Any]] = {}
    for row in sorted(judged, key=lambda row: (not row["good"], row["what"], row["language"])):
        cell = found.setdefault(f"{row['what']} ({row['language']})", {"judged": 0, "right": 0, "slowest_s": 0.0})
        cell["judged"] += 1
        cell["right"] += row["right"]
        cell["slowest_s"] = round(max(cell["slowest_s"], row["seconds"]), 2)
        cell.setdefault("verdicts", []).append(row["verdict"])
    for cell in found.values():
        cell["verdicts"] = {name: cell["verdicts"].count(name) for name in sorted(set(cell["verdicts"]))}
    return found


def table(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = ["| candidate | judged | right | verdicts | slowest, s |", "| --- | --- | --- | --- | --- |"]
    for name, cell in figures["by_what"].items():
        verdicts = ", ".join(f"{count} {verdict}" for verdict, count in cell["verdicts"].items())
        lines.append(f"| {name} | {cell['judged']} | {cell['right']} | {verdicts} | {cell['slowest_s']:.1f} |")
    lines += [
        "",
        f"{figures['good_right']} of {figures['good']} good ones and {figures['bad_right']} of {figures['bad']} others",
        f"got their right verdict; {figures['not_stored']} are not in the store.",
        f"After {figures['runs_ended']} runs and {figures['parents_killed']} kills there were left: "
        + ", ".join(f"{figures[name]} {name.replace('_', ' ')}" for name in _LEFT)
        + f"; {figures['verdicts_lost']} verdicts were lost; all was gone after {figures['longest_burial_s']} s, "
        f"and memory free after {figures['longest_memory_s']} s.",
    ]
    return "\n".join([*lines, *figures["failed_rows"], *figures["not_right"]])


async def judge_until_killed(folder: Path, first: int, count: int | None) -> None:
    """Judge the mixture from the `first` on, printing each verdict's id once it is stored."""
    gpu = bool(find_gpus())
    total = len(misfits.mixture(_scale(gpu), count, gpu=gpu))
    order = [(first + step) % total for step in range(total)]
    async for _, row in judge_mixture(folder, order, count):
        print(row["id"], flush=True)


def main() -> None:
    """Run the study, or serve as one GPU's process, or as a parent to be killed."""
    parser = shards.parser(__doc__)
    parser.add_argument("--runs", type=int, default=8)
    parser.add_argument("--kills", type=int, default=6)
    parser.add_argument("--of", type=int, default=0, help="judge so many, not 200 (at least one of each kind)")
    parser.add_argument("--judge", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--first", type=int, default=0, help=argparse.SUPPRESS)
    options = parser.parse_args()
    count = options.of or None
    if options.judge:
        asyncio.run(judge_until_killed(options.judge, options.first, count))
        return
    if options.worker:
        asyncio.run(shards.serve(workplace))
        return
    wanted = tasks(options.runs, options.kills, gpu=bool(find_gpus()), count=count)
    figures = summarise(shards.gather(NAME, wanted, options))
    print(f"\n{table(figures)}")
    if options.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    main()
