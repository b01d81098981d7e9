"""Verdicts a minute of `bench kernelbench` on one GPU and on several: `python -m tests.bench.pool_gpus --root DIR`.

DIR is KernelBench's repository, which is fetched for measuring only; candidates are those of `tests/kernelbench` whose
problems are there. Each run is the command itself, on the first N GPUs, which are all that it sees: `local:N` with
`--pool local --gpus N`, `ray:N` with `--pool ray`. Every run begins alike: with empty stores, no process of an earlier
one, and a cache of its own. With `--builds apart`, the default, that is a copy of one which all candidates were built
into before by all cores, so that no run compiles; with `--builds cold` it is empty. A first call of each pool is not
counted: the machine has read the libraries from disk by then, and each GPU was used.

A run's rate is told three times: of all of it, from the moment on at which each lane has given a verdict, and from
then until the first lane has nothing more to do. Beside it stands the `paired` rate, in times that of the first run:
the lanes' seconds for the candidates that both have judged, each after the same other one. Runs that were cut, and
have judged different candidates, can be compared by it; so a few minutes give a figure.

Below the rates stands where the openings of the last run's sessions spent their time (`tests/bench/openings`), and in
which share of the time a process waited for the GPU. With `--against CHECKOUT` every run is made by the program there,
too, just before: then `paired` says how many times as many verdicts a minute this program gives.

Options: --runs (default `local:ALL,local:2,local:1,ray:1`), --candidates N at most, by whole problems taken at random
(default all), --seconds for all of it: building and warming up take a quarter at most each, and are cut; what is left
is shared out evenly to GPUs, and a run that takes longer is cut, --builds, --no-warm-up, --resume with the runs that
are kept in `pool_gpus.jsonl`, --record, after each run anew. A run that a signal or an error ends is kept too. Without
a GPU only `local:1` and `ray:1` can be asked for, which are one emulator. Ray has to be installed for `ray:N`.
"""

import argparse
import asyncio
import contextlib
import json
import math
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from pathlib import Path
from typing import NoReturn

from kernel_lsp.bench.plan import BenchJob, make_plan
from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.load import load_settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.target import make_target
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.local import run_lanes
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.workload.suite import ProblemFile, Sample, find_problems, find_samples, sample_name
from tests.bench import openings
from tests.bench.record import gpus_and_driver, record
from tests.bench.shards import Row, json_lines, raw_path

NAME = "pool_gpus"
SET = Path(__file__).parents[1] / "kernelbench/candidates"
ROOT = Path(__file__).parents[2]
START = "from kernel_lsp.cli.main import main; main()"
APART, COLD = "apart", "cold"
RATES = ("verdicts_a_minute", "verdicts_a_minute_once_started", "verdicts_a_minute_all_at_work")
_LEAST_SECONDS = 30.0  # a run is not begun with less
_SHARE = 0.25  # of the time, at most, for building, and for warming up
_LOOK_SECONDS = 0.05
_END_SECONDS = 5.0  # until a command that was interrupted is killed: `batch` waits 15 s; kept free at the end, too


@dataclass(frozen=True, slots=True)
class PoolRun:
    """`local:2`: a pool and its number of lanes."""

    pool: str
    lanes: int
    checkout: Path = ROOT

    @classmethod
    def named(cls, name: str) -> "PoolRun":
        """The run of this name.

        Raises:
            ArgumentTypeError: it is none.
        """
        pool, _, lanes = name.partition(":")
        if pool not in ("local", "ray") or not lanes.isdecimal() or int(lanes) < 1:
            raise argparse.ArgumentTypeError(f"`{name}` is no run: they are named like local:2 and ray:1")
        return cls(pool, int(lanes))

    @property
    def name(self) -> str:
        """`local:2`, and the folder of another program."""
        return f"{self.pool}:{self.lanes}{'' if self.checkout == ROOT else f' of {self.checkout.name}'}"


def runs_of(text: str) -> tuple[PoolRun, ...]:
    """The runs that a list of names asks for."""
    return tuple(map(PoolRun.named, text.split(",")))


def usual_runs(gpus: int) -> tuple[PoolRun, ...]:
    """All GPUs, two, one, and Ray's one; what takes least time first."""
    return *(PoolRun("local", lanes) for lanes in sorted({gpus, min(2, gpus), 1}, reverse=True)), PoolRun("ray", 1)


def chosen_samples(problems: Iterable[ProblemFile], most: int | None) -> tuple[Sample, ...]:
    """The candidates for these problems; if there are more than `most`, those of problems taken at random."""
    known = {(problem.level, problem.number) for problem in problems}
    samples = [sample for sample in find_samples(SET) if (sample.level, sample.number) in known]
    by_problem = [list(of) for _, of in groupby(samples, key=lambda sample: (sample.level, sample.number))]
    random.Random(29).shuffle(by_problem)
    taken: list[Sample] = []
    for of in by_problem:
        if most is None or len(taken) + len(of) <= most:
            taken += of
    return tuple(sorted(taken))


class Bench:
    """The calls of one program: problems, candidates, and the cache that every call begins with.

    Args:
        root: KernelBench's repository.
        scratch: a folder whose path is short, for sockets lie below it.
        samples: the candidates.
        builds: `APART` or `COLD`.
    """

    def __init__(self, root: Path, scratch: Path, samples: Sequence[Sample], builds: str) -> None:
        self.root, self._scratch, self.builds = root, scratch, builds
        self.samples = self._copied("candidates", samples)
        self._calls = 0
        self.build_seconds: float | None = None
        self.built_before = 0

    @property
    def _built(self) -> Path:
        return self._scratch / "built"

    def build(self, seconds: float) -> None:
        """Build all candidates with all cores, as the lane of a GPU does; the rest when the time is over is left."""
        paths = {"paths.cache": self._built, "paths.data": self._scratch / "unused", "runner.warm_minutes": 0.0}
        settings, _ = load_settings(self.root, overrides=paths)
        plan = make_plan(find_problems(self.root), self.samples, settings, find_gpus()[:1], versions())

        async def build_all(lane: Lane, jobs: tuple[BenchJob, ...]) -> None:
            lane.pool.allow(read={file.parent for job in jobs for file in (job.problem.path, job.sample.path)})
            workloads = {job.problem: make_target(job.problem.path).workload for job in jobs}
            building = [
                asyncio.ensure_future(lane.builders.build(workloads[job.problem], job.candidate)) for job in jobs
            ]
            done, waiting = await asyncio.wait(building, timeout=None if math.isinf(seconds) else seconds)
            for one in waiting:
                one.cancel()
            await asyncio.gather(*waiting, return_exceptions=True)
            for one in done:
                one.result()
            self.built_before = len(done)

        def fail(_: object, error: KernelLspError) -> None:
            raise SystemExit(f"the candidates could not be built: {error}")

        began = time.monotonic()
        asyncio.run(
            run_lanes(TaskQueue([plan.jobs], fail), find_gpus()[:1], settings, build_all, lambda *said: print(*said))
        )
        self.build_seconds = round(time.monotonic() - began, 1)
        built = f"{self.built_before} of {len(plan.jobs)}"
        print(f"{built} built in {self.build_seconds} s, not part of any run", flush=True)

    def warm_up(self, run: PoolRun, seconds: float) -> bool:
        """Make a call that does not count: a problem for each lane, the one with fewest candidates first.

        Return False if that pool fails.
        """
        by_problem = [list(of) for _, of in groupby(self.samples, key=lambda sample: (sample.level, sample.number))]
        few = [sample for of in sorted(by_problem, key=len)[: run.lanes] for sample in of]
        folder = self._copied(f"warm_{run.pool}", few)[0].path.parent
        row = self.call(run, seconds, folder)
        if not row["verdicts"] and not row["cut"]:
            print(f"{run.pool} gives no verdict, and is left out: {row['complaints']}", flush=True)
            return False
        print(f"warm-up, {run.name}: {row['verdicts']} verdicts in {row['seconds']} s, not counted", flush=True)
        return True

    def call(
        self, run: PoolRun, seconds: float, candidates: Path | None = None, keep: Callable[[Row], None] = lambda _: None
    ) -> Row:
        """Run the command until it ends or its time is over; return the row of the run, kept whatever ends it."""
        self._calls += 1
        folder = self._scratch / str(self._calls)
        folder.mkdir()
        if self._built.exists():
            shutil.copytree(self._built, folder / "cache", symlinks=True)
        ledger, gpus = folder / "ledger.jsonl", find_gpus()
        lanes = ("--gpus", str(run.lanes)) if gpus else ()
        given = ("--root", self.root, "--candidates", candidates or self._scratch / "candidates", "--ledger", ledger)
        asked = ("bench", "kernelbench", *map(str, given), "--no-compiled", "--pool", run.pool, *lanes)
        command = [sys.executable, "-c", START, *asked]
        log = folder / "log"
        row: Row = {
            "run": run.name,
            "device": gpus_and_driver()[0] or "emulator",
            "builds": self.builds,
            "candidates": len(self.samples),
            "lines": [],
        }
        began = time.monotonic()
        with log.open("wb") as said, log.open("rb") as complaints:
            process = subprocess.Popen(
                command,
                env=environment(folder, gpus[: run.lanes], run.checkout),
                stdout=said,
                stderr=said,
                start_new_session=True,
                cwd=run.checkout,
            )
            try:
                for line in timed_lines(ledger, process, began, seconds):
                    row["lines"].append(line)
            finally:
                row |= {
                    "cut": process.poll() is None,
                    "seconds": round(time.monotonic() - began, 1),
                    "verdicts": len(row["lines"]),
                }
                end(process)
                row |= {"code": process.returncode}
                row |= {"complaints": complaints.read().decode(errors="replace")[-2000:] if process.returncode else ""}
                row |= {"opened": openings.figures_of(openings.traces_of(folder / "data"))}
                keep(row)
        shutil.rmtree(folder, ignore_errors=True)
        return row

    def _copied(self, name: str, samples: Sequence[Sample]) -> tuple[Sample, ...]:
        folder = self._scratch / name
        folder.mkdir()
        for sample in samples:
            shutil.copy(sample.path, folder)
        return find_samples(folder)


def environment(folder: Path, gpus: Sequence[Gpu], checkout: Path = ROOT) -> dict[str, str]:
    """The environment of a call that sees these GPUs, with folders of its own for all that is kept and for sockets."""
    (runtime := folder / "r").mkdir(mode=0o700)
    own = {"XDG_RUNTIME_DIR": str(runtime), "KERNEL_LSP_RUNNER_WARM_MINUTES": "0.5", "COLUMNS": "160"}
    own |= {f"KERNEL_LSP_PATHS_{name}": str(folder / name.lower()) for name in ("DATA", "CACHE")}
    own |= {"CUDA_VISIBLE_DEVICES": ",".join(str(gpu.index) for gpu in gpus)} if gpus else {}
    there = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    return {**there, "PYTHONPATH": os.pathsep.join([str(checkout), *filter(None, sys.path)]), **own}


def end(process: subprocess.Popen[bytes]) -> None:
    """End a process, as the user would, and if it does not listen at once."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with contextlib.suppress(subprocess.TimeoutExpired):
            if process.poll() is None:
                os.killpg(process.pid, number)
            process.wait(_END_SECONDS)


def timed_lines(ledger: Path, process: subprocess.Popen[bytes], began: float, seconds: float) -> Iterator[Row]:
    """Each result that a process writes to its ledger, with the second at which it was there, until it ends."""
    read = 0
    while True:
        running = process.poll() is None
        now = time.monotonic() - began
        text = ledger.read_bytes() if ledger.exists() else b""
        whole = text[read : text.rfind(b"\n") + 1]
        read += len(whole)
        for line in map(json.loads, whole.splitlines()):
            yield {
                "file": sample_name(line["level"], line["number"], line["index"]),
                "verdict": line["eager"]["verdict"],
                "reason": line["eager"]["reason"],
                "lane": line["where"]["gpu"] or line["where"]["lane"],
                "at": round(now, 2),
                "took": round(line["seconds"]["total"], 2),
                "build": round(line["seconds"].get("build", 0.0), 2),
            }
        if not running or now > seconds:
            return
        time.sleep(_LOOK_SECONDS)


def figures_of(row: Row) -> Row:
    """The figures of one run; None where it had too few verdicts for one.

    `first_verdict_s` is the command's start, opening the first session, and a verdict. `tail_s` is the time from the
    first lane's last verdict to the end.
    """
    lines: list[Row] = row["lines"]
    lanes: dict[str, list[float]] = {}
    for line in lines:
        lanes.setdefault(line["lane"], []).append(line["at"])
    started = max((min(at) for at in lanes.values()), default=0.0)
    idle = min((max(at) for at in lanes.values()), default=0.0)
    last = max((line["at"] for line in lines), default=0.0)
    later = sum(line["at"] > started for line in lines)
    between = sum(started < line["at"] <= idle for line in lines)
    return {
        "seconds": row["seconds"],
        "verdicts": row["verdicts"],
        "cut": row["cut"],
        "verdicts_a_minute": round(60 * row["verdicts"] / max(row["seconds"], _LOOK_SECONDS), 2),
        "verdicts_a_minute_once_started": round(60 * later / (last - started), 2) if later else None,
        "verdicts_a_minute_all_at_work": round(60 * between / (idle - started), 2) if between else None,
        "first_verdict_s": min((line["at"] for line in lines), default=None),
        "all_lanes_started_s": started if lines else None,
        "tail_s": round(last - idle, 2),
        "median_verdict_s": middle(line["took"] for line in lines),
        "median_build_s": middle(line["build"] for line in lines),
        "by_lane": sorted(map(len, lanes.values()), reverse=True),
        "outcomes": dict(Counter(line["verdict"] for line in lines).most_common()),
    }


def lane_seconds(row: Row) -> dict[tuple[str, str], float]:
    """The seconds that a lane took for each candidate, with all that comes between two verdicts, by the two files."""
    found: dict[tuple[str, str], float] = {}
    before: dict[str, Row] = {}
    for line in row["lines"]:
        if (other := before.get(line["lane"])) is not None:
            found[other["file"], line["file"]] = line["at"] - other["at"]
        before[line["lane"]] = line
    return found


def paired(row: Row, first: Row) -> Row:
    """How many times as many verdicts a minute a run gives as another, by what lanes took for the same candidates.

    A candidate counts that came after the same other one in both runs, or after another problem's in both.
    """
    here, there = (_by_file(lane_seconds(one)) for one in (row, first))
    both = sorted(here.keys() & there.keys())
    ours, theirs = (sum(seconds[file] for file in both) for seconds in (here, there))
    lanes = [int(one["run"].partition(":")[2].partition(" ")[0]) for one in (row, first)]
    times = round(lanes[0] * theirs / (lanes[1] * ours), 3) if both else None
    return {"candidates": len(both), "lane_s": [round(ours, 1), round(theirs, 1)], "times": times}


def _by_file(seconds: dict[tuple[str, str], float]) -> dict[tuple[str, str], float]:
    """The same by the file and the one before it, which has no name where it is of another problem."""
    return {
        (before if _problem(before) == _problem(file) else "", file): value for (before, file), value in seconds.items()
    }


def _problem(file: str) -> str:
    return file.partition("_sample_")[0]


def agreement(row: Row, first: Row) -> Row:
    """How the verdicts of a run compare with those of another, on what both have judged."""
    here, there = ({line["file"]: line["verdict"] for line in one["lines"]} for one in (row, first))
    both = sorted(here.keys() & there.keys())
    other = [file for file in both if here[file] != there[file]]
    return {
        "compared": len(both),
        "equal_share": round(1 - len(other) / len(both), 4) if both else None,
        "other": {file: f"{here[file]}, in {first['run']} {there[file]}" for file in other},
    }


def summarise(rows: Sequence[Row]) -> Row:
    """The figures of all runs; of several of one name the median rates count. The first run is what others are held to.

    The first is one of `local:1`, of another program if there is one. Runs of other GPUs, candidates or builds than its
    are left out.
    """
    first = next((row for row in rows if row["run"].startswith("local:1")), rows[0])
    alike = [row for row in rows if all(row[name] == first[name] for name in ("device", "candidates", "builds"))]
    found: list[Row] = [
        {"run": row["run"]} | figures_of(row) | {"beside": agreement(row, first), "paired": paired(row, first)}
        for row in alike
    ]
    names = list(dict.fromkeys(row["run"] for row in found))
    rates = {name: {rate: middle(row[rate] for row in found if row["run"] == name) for rate in RATES} for name in names}
    one = rates[first["run"]]
    return {
        "device": first["device"],
        "candidates": first["candidates"],
        "builds": first["builds"],
        "runs": found,
        f"times_{first['run']}": {
            name: {rate: over(rates[name][rate], one[rate]) for rate in RATES} for name in names if name != first["run"]
        },
        "left_out_runs": len(rows) - len(alike),
    }


def middle(values: Iterable[float | None]) -> float | None:
    """The median of what is known."""
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def over(value: float | None, other: float | None) -> float | None:
    """The ratio, where both are known."""
    return round(value / other, 3) if value and other else None


def table(figures: Row) -> str:
    """The figures as a Markdown table."""
    lines = [
        f"{figures['device']}, {figures['candidates']} candidates, builds {figures['builds']}",
        "| run | verdicts | s | a minute | once started | all at work | paired | first s | tail s | equal | by lane |",
        "| --- | --- | --- | --- | --- | --- | --- | --- | --- | --- | --- |",
    ]
    for run in figures["runs"]:
        rates = (*(run[name] for name in RATES), run["paired"]["times"])
        shown = (*rates, run["first_verdict_s"], run["tail_s"], run["beside"]["equal_share"])
        name = f"{run['run']}{' (cut)' if run['cut'] else ''}"
        lines.append(
            f"| {name} | {run['verdicts']} | {run['seconds']} | {' | '.join(map(str, shown))} | {run['by_lane']} |"
        )
    return "\n".join(lines)


def measure(bench: Bench, runs: Sequence[PoolRun], until: float, keep: Callable[[Row], None]) -> None:
    """Make all runs, as far as the time goes, and keep the row of each."""
    for number, run in enumerate(runs):
        left = until - _END_SECONDS - time.monotonic()
        if left < _LEAST_SECONDS:
            print(f"{run.name}: no time is left for it", flush=True)
            continue
        row = bench.call(run, left / run.lanes / sum(1 / later.lanes for later in runs[number:]), keep=keep)
        print(f"{run.name}: {row['verdicts']} verdicts in {row['seconds']} s {row['complaints']}", flush=True)


def stop(*_: object) -> NoReturn:
    """End as an interrupt does, so that what runs is ended and what is there is kept."""
    raise KeyboardInterrupt


def main() -> None:
    """Measure, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--runs", type=runs_of)
    parser.add_argument("--candidates", type=int)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--builds", choices=(APART, COLD), default=APART)
    parser.add_argument("--against", type=Path)
    parser.add_argument("--no-warm-up", action="store_true")
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    gpus, until = len(find_gpus()), time.monotonic() + asked.seconds
    runs: tuple[PoolRun, ...] = asked.runs or usual_runs(max(1, gpus))
    if asked.against is not None:
        runs = tuple(one for run in runs for one in (replace(run, checkout=asked.against.resolve()), run))
    if (most := max(run.lanes for run in runs)) > max(1, gpus):
        raise SystemExit(f"{most} GPUs are asked for, and this machine shows {gpus}.")
    kept = raw_path(NAME)
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not asked.resume:
        kept.unlink(missing_ok=True)
    signal.signal(signal.SIGTERM, stop)
    with tempfile.TemporaryDirectory(prefix="g", dir="/tmp", ignore_cleanup_errors=True) as folder:
        samples = chosen_samples(find_problems(asked.root), asked.candidates)
        bench = Bench(asked.root.absolute(), Path(folder), samples, asked.builds)

        def keep(row: Row) -> None:
            with kept.open("a") as file:
                file.write(json.dumps(row) + "\n")
            figures = figures_so_far(kept, bench)
            if figures and asked.record:
                record(NAME, figures)

        with contextlib.suppress(KeyboardInterrupt):
            if asked.builds == APART:
                bench.build(_SHARE * asked.seconds)
            for pool in () if asked.no_warm_up else dict.fromkeys(run.pool for run in runs):
                most = max((run for run in runs if run.pool == pool), key=lambda run: run.lanes)
                if not bench.warm_up(most, _SHARE * asked.seconds):
                    runs = tuple(run for run in runs if run.pool != pool)
            measure(bench, runs, until, keep)
    figures = figures_so_far(kept, bench)
    if not figures:
        raise SystemExit("No run gave a verdict.")
    print(f"{json.dumps(figures, indent=2)}\n\n{table(figures)}")
    if (opened := list(json_lines(kept))[-1].get("opened", {})).get("openings"):
        print(f"\n{openings.table(opened)}")
    if asked.record:
        print(record(NAME, figures))


def figures_so_far(kept: Path, bench: Bench) -> Row | None:
    """The figures of all runs that are kept; None where none gave a verdict."""
    rows = list(json_lines(kept))
    if not any(row["verdicts"] for row in rows):
        return None
    return summarise(rows) | {"build_seconds": bench.build_seconds, "built_before": bench.built_before}


if __name__ == "__main__":
    try:
        main()
    except KernelLspError as error:
        raise SystemExit(str(error)) from None
