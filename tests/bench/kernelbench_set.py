"""A set of candidates, by us and by KernelBench's own harness: `python -m tests.bench.kernelbench_set --root DIR`.

DIR is KernelBench's repository, which is fetched for measuring only. All of `tests/kernelbench` is judged by us as
`kernel-lsp bench` does it, a lane on each GPU that is visible. Then each gets two more verdicts, one of
KernelBench's harness, whose extensions are built before, and one of our own run of its published method (`--compat`).
Of these only counts whether they take it for right: KernelBench's is not asked to time anything, and several share a
GPU, those for small problems first; what ran out of memory so has another try alone.

Options: --ours-only, --jobs PROCESSES that build for KernelBench (default 8), --at-once on a GPU
(default 2), --limit SECONDS for one of KernelBench's verdicts (default 300), --seconds in all, --resume with what is
kept in `kernelbench_set.jsonl` and `kernelbench_set_ledger.jsonl`, --scratch FOLDER for what is built (default: a
temporary one), --trials of KernelBench's harness (default: as many as of its published runs), --dry-run without a GPU:
its harness is then only loaded, --record.
"""

import argparse
import asyncio
import json
import math
import tempfile
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from kernel_lsp.bench.plan import BenchJob, BenchPlan, Comparisons, make_plan
from kernel_lsp.bench.published import TRIALS, ask_published
from kernel_lsp.bench.records import CandidateResult, Ledger
from kernel_lsp.bench.run import run_bench
from kernel_lsp.bench.totals import add_up
from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.target import make_target
from kernel_lsp.pool.lane import Lane
from kernel_lsp.pool.local import LocalPool, run_lanes
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.store.store import open_store
from kernel_lsp.workload import problem as workload
from kernel_lsp.workload.suite import ProblemFile, find_problems, find_samples, sample_name
from tests.bench.kernelbench_harness import SET, ask_harness
from tests.bench.record import record
from tests.bench.shards import Row, json_lines, raw_path

NAME = "kernelbench_set"
OURS, HARNESS, COMPAT = "ours", "KernelBench", "compat"
_NO_ROOM = "out of memory"


class Rows:
    """Verdicts of others, and how long ours took, kept line by line."""

    def __init__(self, path: Path, *, resume: bool) -> None:
        self._path = path
        if not resume:
            path.unlink(missing_ok=True)
        self._rows = list(json_lines(path))

    def keep(self, row: Row) -> None:
        """Add one."""
        self._rows.append(row)
        with self._path.open("a") as file:
            file.write(json.dumps(row) + "\n")
        print(f"{row['by']}: {row.get('file', '')} {row['says']}", flush=True)

    def by(self, who: str) -> list[Row]:
        """All of one."""
        return [row for row in self._rows if row["by"] == who]

    def of(self, who: str) -> dict[str, Row]:
        """One's verdicts, by file."""
        return {row["file"]: row for row in self.by(who)}


async def judge_ours(
    plan: BenchPlan, settings: Settings, ledger: Ledger, gpus: Sequence[Gpu], rows: Rows, until: float
) -> None:
    """Our verdicts on what the ledger does not have yet."""

    def left() -> int:
        return len({job.key for job in plan.jobs} - ledger.read().keys())

    before = left()
    if not before:
        return
    begun, store = time.monotonic(), open_store(settings.paths.data)
    try:
        async with ending(until):
            await run_bench(plan, Comparisons(compiled=False), ledger, store, LocalPool(tuple(gpus), settings))
    except TimeoutError:
        print("ours: the time is over", flush=True)
    finally:
        store.close()
    seconds, lanes = time.monotonic() - begun, max(1, len(gpus))
    judged = before - left()
    rows.keep(
        {"by": OURS, "judged": judged, "seconds": seconds, "lanes": lanes, "says": f"{judged} in {seconds:.0f} s"}
    )


class SecondOpinions:
    """The verdicts of KernelBench's harness and of our run of its method."""

    def __init__(self, asked: argparse.Namespace, settings: Settings, rows: Rows, scratch: Path, until: float) -> None:
        self._asked, self._settings, self._rows, self._scratch = asked, settings, rows, scratch
        self._until = until
        self._room = asyncio.Semaphore(asked.jobs)
        self._built: dict[str, asyncio.Task[Row]] = {}
        self._alone: deque[tuple[BenchJob, str]] | None = deque()  # what is to be asked again; None while it is

    async def gather(self, plan: BenchPlan, gpus: Sequence[Gpu]) -> None:
        """All that are missing, until the time is over."""
        known = {who: self._rows.of(who) for who in (COMPAT, HARNESS)}
        sizes = {problem: size_of(problem) for problem in {job.problem for job in plan.jobs}}
        order = sorted(plan.jobs, key=lambda job: sizes[job.problem])
        missing = deque((job, who) for job in order for who in known if job.sample.path.name not in known[who])
        for job, who in missing:
            if who == HARNESS and gpus and "load_inline" in job.text:
                self._built[job.key] = asyncio.create_task(self._build(job, gpus[0]))
        try:
            await self._attend_to(missing, [*gpus] * self._asked.at_once)
            self._alone, again = None, self._alone
            await self._attend_to(again, gpus)
        finally:
            for task in self._built.values():
                task.cancel()
            await asyncio.gather(*self._built.values(), return_exceptions=True)

    async def _attend_to(self, asked: deque[tuple[BenchJob, str]] | None, gpus: Sequence[Gpu]) -> None:
        if asked:
            await run_lanes(TaskQueue(asked, self._fail), gpus, self._settings, self._attend, lambda *_: None)

    async def _attend(self, lane: Lane, asked: tuple[BenchJob, str]) -> None:
        job, who = asked
        if time.monotonic() >= self._until:
            return
        said = await (self._by_harness(job, lane.gpu) if who == HARNESS else self._by_compat(job, lane))
        if said is None:
            return
        if _NO_ROOM in json.dumps(said) and self._alone is not None:
            self._alone.append(asked)
        else:
            self._keep(asked, said)

    def _fail(self, asked: tuple[BenchJob, str], error: KernelLspError) -> None:
        self._keep(asked, {"trouble": str(error), "says": str(error)})

    def _keep(self, asked: tuple[BenchJob, str], said: Row) -> None:
        job, who = asked
        self._rows.keep({"by": who, "file": job.sample.path.name} | said)

    async def _build(self, job: BenchJob, gpu: Gpu) -> Row:
        async with self._room:
            return await self._ask(job, "build", gpu) or {}

    async def _ask(self, job: BenchJob, do: str, gpu: Gpu | None) -> Row | None:
        if (seconds := min(self._asked.limit, self._until - time.monotonic())) < 1:
            return None
        folder = self._scratch / job.sample.path.stem
        asked = (self._asked.root, do, job.problem.path, job.sample.path, folder, seconds, gpu)
        said = await asyncio.to_thread(ask_harness, *asked, trials=self._asked.trials, timed=False)
        return None if "trouble" in said and seconds < self._asked.limit else said  # it was not given its time

    async def _by_harness(self, job: BenchJob, gpu: Gpu | None) -> Row | None:
        if job.key in self._built:
            await self._built[job.key]
        said = await self._ask(job, "judge" if gpu else "dry", gpu)
        return None if said is None else said | {"says": str(said.get("correct", said.get("trouble", "loaded")))}

    async def _by_compat(self, job: BenchJob, lane: Lane) -> Row | None:
        target = make_target(job.problem.path)
        lane.pool.allow(read=[job.problem.path.parent, job.sample.path.parent])
        try:
            async with ending(self._until):
                built = await lane.builders.build(target.workload, job.candidate)
                said, trouble = await ask_published(lane.pool, lane.gpu, target, job.candidate, built, lane.settings)
        except TimeoutError:
            return None
        lane.builders.forget(job.candidate)
        row = said.model_dump(mode="json") if said else {"trouble": trouble}
        return row | {"says": str(said.correct if said else trouble)}


def ending(until: float) -> asyncio.Timeout:
    """A context that ends at a moment of the monotonic clock, which may be infinitely far."""
    return asyncio.timeout_at(until if math.isfinite(until) else None)


def size_of(problem: ProblemFile) -> float:
    """Bytes of what a problem is given, of its weights and of what it returns; infinite where shapes do not tell."""
    text = problem.path.read_text()
    loaded = workload.Problem(text, problem.path, "cpu", 0)
    footprint = loaded.footprint(dict(loaded.constants))
    return footprint.total if footprint else math.inf


def compared(results: Iterable[CandidateResult], entries: Mapping[str, Row], rows: Rows) -> Row:
    """Verdicts by kind of candidate, ours beside KernelBench's and beside our run of its method."""
    counts: Counter[str] = Counter()
    others = {who: rows.of(who) for who in (HARNESS, COMPAT)}
    both: list[bool] = []
    found: dict[str, list[str]] = {"unexpected": [], "compat_differs": [], "cheats_that_kernelbench_passes": []}
    for result in results:
        name = sample_name(result.level, result.number, result.index)
        kind, expected = entries[name]["kind"], entries[name]["expect"]
        counts[f"{kind}: {'right' if result.eager.right else 'rejected'} by us"] += 1
        if result.eager.verdict.value not in expected:
            found["unexpected"].append(f"{name}: {result.eager.verdict.value}, {result.eager.reason}")
        correct = {who: known[name]["correct"] for who, known in others.items() if "correct" in known.get(name, {})}
        for who, takes_it in correct.items():
            counts[f"{kind}: {'right' if takes_it else 'rejected'} by {who}"] += 1
        if kind == "cheat" and correct.get(HARNESS):
            found["cheats_that_kernelbench_passes"].append(name)
        if len(correct) == len(others):
            both.append(correct[COMPAT] == correct[HARNESS])
            if not both[-1]:
                found["compat_differs"].append(f"{name} ({kind}): {correct}")
    troubles = {
        f"{who}: {name}": row["trouble"] for who in others for name, row in others[who].items() if "trouble" in row
    }
    return {
        "verdicts": dict(sorted(counts.items())),
        "compat_beside_kernelbench": {"compared": len(both), "agree": sum(both)},
        "troubles": troubles,
    } | found


def throughput(rows: Iterable[Row]) -> float | None:
    """Verdicts of ours in a minute, with opening sessions, on one GPU; None where none was made."""
    rows = list(rows)
    spent = sum(row["seconds"] * row["lanes"] for row in rows)
    return round(60 * sum(row["judged"] for row in rows) / spent, 2) if spent else None


async def study(asked: argparse.Namespace, scratch: Path) -> Row:
    """All of it; the figures."""
    until = time.monotonic() + asked.seconds
    gpus = find_gpus()
    settings, _ = load_settings(
        asked.root, overrides={"paths.cache": scratch / "cache", "paths.data": scratch / "data"}
    )
    plan = make_plan(find_problems(asked.root), find_samples(SET / "candidates"), settings, gpus, versions())
    kept = raw_path(f"{NAME}_ledger")
    kept.parent.mkdir(parents=True, exist_ok=True)
    if not asked.resume:
        kept.unlink(missing_ok=True)
    ledger, rows = Ledger(kept), Rows(raw_path(NAME), resume=asked.resume)
    await judge_ours(plan, settings, ledger, gpus, rows, until)
    if not asked.ours_only:
        await SecondOpinions(asked, settings, rows, scratch / "theirs", until).gather(plan, gpus)
    entries = {entry["file"]: entry for entry in json.loads((SET / "candidates.json").read_text())}
    known = ledger.read()
    results = [known[job.key] for job in plan.jobs if job.key in known]
    return {
        "candidates": len(plan.jobs),
        "verdicts_a_minute_on_one_gpu": throughput(rows.by(OURS)),
        "totals": add_up(results).model_dump(mode="json"),
    } | compared(results, entries, rows)


def main() -> None:
    """Judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--root", type=Path, required=True)
    parser.add_argument("--ours-only", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("--at-once", type=int, default=2)
    parser.add_argument("--limit", type=float, default=300.0)
    parser.add_argument("--seconds", type=float, default=math.inf)
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--trials", type=int, default=TRIALS)
    parser.add_argument("--scratch", type=Path)
    parser.add_argument("--dry-run", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    if not find_gpus() and not asked.dry_run:
        raise SystemExit("KernelBench's harness needs a GPU; --dry-run does all but that.")
    with tempfile.TemporaryDirectory(prefix="study-", ignore_cleanup_errors=True) as folder:
        figures = asyncio.run(study(asked, (asked.scratch or Path(folder)).absolute()))
    print(json.dumps(figures, indent=2))
    if asked.record:
        print(record(NAME, figures))


if __name__ == "__main__":
    try:
        main()
    except KernelLspError as error:
        raise SystemExit(str(error)) from None
