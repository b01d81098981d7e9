"""A study spread over GPUs: one process for each, rows kept as they come, so that it can be stopped and taken up again.

A study is a list of tasks, each with an `id` and the `numbers` of the rows that it makes. Each GPU has a process of the
same program (or several: `--beside`), started with `--worker`; it takes one task at a time from its standard input and
writes rows to its standard output, as JSON, one a line. They are appended to `NAME.jsonl` beside the result file.
`--resume` asks only for the rows that are not there yet; `--seconds`, or an interrupt, ends a study early with what
there is.
"""

import argparse
import asyncio
import contextlib
import json
import os
import sys
import tempfile
import time
import traceback
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any, TextIO

from kernel_lsp.device.nvml import find_gpus
from tests.bench.record import RESULTS, RESULTS_VARIABLE

Task = dict[str, Any]
Row = dict[str, Any]
Workplace = Callable[[], AbstractAsyncContextManager[Callable[[Task], AsyncIterator[Row]]]]

STUDY_GPUS = "BENCH_STUDY_GPUS"
"""Environment variable of a process: UUIDs of all GPUs that its study may use, with commas."""

_LINE_LIMIT = 1 << 24
_MOST_DEATHS = 3  # of one worker, before its tasks go to the others
_FIRST_ANSWER_SECONDS = 300.0


def parser(description: str | None) -> argparse.ArgumentParser:
    """An argument parser with what all studies take."""
    made = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    made.add_argument("--gpus", type=int, default=None, help="how many GPUs to use (default: all that are visible)")
    made.add_argument("--beside", type=int, default=1, help="how many processes share each GPU; only one times at once")
    made.add_argument("--seconds", type=float, default=None, help="end after so long with what there is")
    made.add_argument("--resume", action="store_true", help="keep the rows of an earlier run and add what is missing")
    made.add_argument("--record", action="store_true", help="write a result file, see README.md")
    made.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    return made


def raw_path(name: str) -> Path:
    """Where a study's rows are kept."""
    return Path(os.environ.get(RESULTS_VARIABLE, RESULTS)) / f"{name}.jsonl"


def json_lines(path: Path) -> Iterator[Row]:
    """The objects of a file, one a line, or none where there is no file; a line cut short by a kill is left out."""
    for line in path.read_text().splitlines() if path.exists() else ():
        with contextlib.suppress(ValueError):
            yield json.loads(line)


def read_rows(path: Path) -> list[Row]:
    """The rows of a file, the last of each task and number."""
    found = {(row["task"], str(row["number"])): row for row in json_lines(path)}
    return list(found.values())


def missing(tasks: Iterable[Task], rows: Iterable[Row]) -> list[Task]:
    """The tasks with those numbers that no row has, or only one that says that it failed."""
    have = {(row["task"], str(row["number"])) for row in rows if "failed" not in row}
    left = [task | {"numbers": [n for n in task["numbers"] if (task["id"], str(n)) not in have]} for task in tasks]
    return [task for task in left if task["numbers"]]


def gather(name: str, tasks: Sequence[Task], options: argparse.Namespace) -> list[Row]:
    """Run the tasks on the GPUs and return all rows there are, those of earlier runs too if `--resume` says so."""
    path = raw_path(name)
    path.parent.mkdir(parents=True, exist_ok=True)
    if not options.resume:
        path.unlink(missing_ok=True)
    before = read_rows(path)
    left = missing(tasks, before)
    wanted = sum(len(task["numbers"]) for task in tasks)
    print(f"{name}: {wanted} rows wanted, {wanted - sum(len(t['numbers']) for t in left)} there already", flush=True)
    with path.open("a") as file:
        try:
            asyncio.run(_run_all(name, left, options, file))
        except KeyboardInterrupt:
            print(f"{name}: interrupted", flush=True)
    return read_rows(path)


async def _run_all(name: str, tasks: Sequence[Task], options: argparse.Namespace, file: TextIO) -> None:
    gpus = [gpu.uuid for gpu in find_gpus()][: options.gpus] or [None]
    seats = gpus * options.beside
    queue, started = deque(tasks), time.monotonic()
    progress = {"rows": 0, "wanted": sum(len(task["numbers"]) for task in tasks)}

    def take(row: Row) -> None:
        file.write(json.dumps(row).replace(f"{Path.cwd()}/", "") + "\n")  # rows name no folder of a machine
        file.flush()
        progress["rows"] += 1
        said = row.get("failed") or row.get("says", "")
        passed = time.monotonic() - started
        print(
            f"{passed:6.1f} s {progress['rows']:4d}/{progress['wanted']} {row['task']} {row['number']}: {said}",
            flush=True,
        )

    with tempfile.TemporaryDirectory(prefix="study-", ignore_cleanup_errors=True) as folder:
        shards = [_Shard(gpu, Path(folder), queue, take) for gpu in seats[: max(1, len(tasks))]]
        try:
            async with asyncio.timeout(options.seconds):
                await asyncio.gather(*(shard.run() for shard in shards))
        except TimeoutError:
            print(f"{name}: {options.seconds:g} s are over", flush=True)
        finally:
            await asyncio.gather(*(shard.stop() for shard in shards))


class _Shard:
    """A process on one GPU, started anew when it dies; the task it died in is left, with a row that says so."""

    def __init__(self, gpu: str | None, folder: Path, queue: "deque[Task]", take: Callable[[Row], None]) -> None:
        self._gpu, self._folder, self._queue, self._take = gpu, folder, queue, take
        self._process: asyncio.subprocess.Process | None = None

    async def run(self) -> None:
        deaths = 0
        while self._queue and deaths < _MOST_DEATHS:
            task = self._queue.popleft()
            if not await self._do(task):
                deaths += 1
                await self.stop()

    async def stop(self) -> None:
        """Let the process end by itself, which it does when nothing more can come; kill it if it does not."""
        if self._process is None:
            return
        process, self._process = self._process, None
        assert process.stdin is not None
        process.stdin.close()
        try:
            async with asyncio.timeout(5):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()

    async def _start(self) -> asyncio.subprocess.Process:
        environment = os.environ | {"TMPDIR": str(self._folder)}  # for it may be killed before it has tidied up
        if self._gpu:
            study = ",".join(gpu.uuid for gpu in find_gpus())
            environment |= {"CUDA_VISIBLE_DEVICES": self._gpu, STUDY_GPUS: study}
        return await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", _program(), *_passed_on(sys.argv[1:]), "--worker"),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            env=environment,
            limit=_LINE_LIMIT,
        )

    async def _do(self, task: Task) -> bool:
        """Have one task done; False when the process did not live to its end."""
        if self._process is None:
            self._process = await self._start()
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        left = deque(task["numbers"])
        try:
            process.stdin.write(json.dumps(task).encode() + b"\n")
            await process.stdin.drain()
            while line := await _line(process.stdout):
                row = json.loads(line)
                if row.get("finished") == task["id"]:
                    return True
                self._take(row)
                if left and str(left[0]) == str(row["number"]):
                    left.popleft()
            why = "its process ended"
        except (OSError, TimeoutError) as error:
            why = f"its process gave no answer: {type(error).__name__}"
        if left:
            self._take({"task": task["id"], "number": left[0], "failed": why})
        return False


async def _line(stream: asyncio.StreamReader) -> bytes:
    async with asyncio.timeout(_FIRST_ANSWER_SECONDS):  # `wait_for` loses an interrupt that comes with a line
        return await stream.readline()


async def serve(workplace: Workplace) -> None:
    """What `--worker` runs: tasks from standard input until it closes, each one's rows to standard output."""
    out, sys.stdout = sys.stdout, sys.stderr  # what anybody prints must not get among the rows
    reader = asyncio.StreamReader(limit=_LINE_LIMIT)
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    async with workplace() as do:
        while line := await reader.readline():
            task = json.loads(line)
            left = [str(number) for number in task["numbers"]]
            try:
                async for row in do(task):
                    print(json.dumps({"task": task["id"]} | row), file=out, flush=True)
                    with contextlib.suppress(ValueError):  # one that comes with what was asked for
                        left.remove(str(row["number"]))
            except Exception as error:  # the next task may go well
                traceback.print_exc()
                failed = {"number": (left or ["end"])[0], "failed": f"{type(error).__name__}: {error}"}
                print(json.dumps({"task": task["id"]} | failed), file=out, flush=True)
            print(json.dumps({"finished": task["id"]}), file=out, flush=True)


def _program() -> str:
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    assert spec is not None, "run it as a module: python -m tests.bench.NAME"
    return spec.name


def _passed_on(arguments: Sequence[str]) -> list[str]:
    """What a worker is told of the command line: what concerns the gathering does not concern it."""
    return [argument for argument in arguments if argument not in ("--record", "--resume")]
