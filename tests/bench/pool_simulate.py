"""What saturates first in a large pool: `python -m tests.bench.pool_simulate --record`.

Real Ray and the real driver: queue, ledger, store; 200 actors on this machine, whose tasks only sleep. Their answers
are a real verdict of the emulator, padded to the 27 KB that a verdict of an H200 has. First the driver's parts alone:
ledger lines with their fsync, verdicts stored, answers read. Then through Ray, without sleep: answers that are counted
only, and answers that are kept, as a bench does. Last with tasks of 4.5 s, half to one and a half times: how long a
lane waits for its next task. Needs `TEST_RAY_SITE`, or `.venv-pool` of `.ci/run`, and some 60 MB for each actor.
Options: --actors N (default 200), --seconds S of the last part (default 60), --record.
"""

import argparse
import asyncio
import importlib
import json
import os
import random
import resource
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Generator
from contextlib import contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

from kernel_lsp.bench.records import CandidateResult, GroupedLines, Ledger, comparison_of
from kernel_lsp.config.load import load_settings
from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.pool.cluster import connected
from kernel_lsp.pool.queue import TaskQueue
from kernel_lsp.pool.ray import LaneSlot, RayPool
from kernel_lsp.store.store import Store, open_store
from tests.bench.pool_work import REST, Nap, Rested
from tests.bench.record import record
from tests.unit.pool.ray_cluster import RAY_SITE, RayCluster

NAME = "pool_simulate"
KERNEL = Path(__file__).parents[2] / "examples/triton/layernorm.py"
VERDICT_BYTES = 27_000
TASK_SECONDS = 4.5
OPENED_AT_ONCE = 8
_GROUP = 4  # tasks in one request, as candidates for one problem


class ManyLanes(RayPool):
    """A pool with many emulator lanes on one machine."""

    def __init__(self, ray: Any, settings: Settings, lanes: int) -> None:
        super().__init__(ray, settings)
        self._lanes = lanes

    def _slots(self) -> list[LaneSlot]:
        node = self._nodes()[0]
        slots = [LaneSlot(node["NodeID"], "simulated", number, self._lanes) for number in range(self._lanes)]
        return sorted(slots, key=lambda slot: slot not in self._open)

    async def open_all(self) -> None:
        """Open all lanes, some at once: each imports this program, on few cores."""
        slots = self._slots()
        for at in range(0, len(slots), OPENED_AT_ONCE):
            await asyncio.gather(*map(self._opened, slots[at : at + OPENED_AT_ONCE]))

    async def in_object_store(self, request: Nap) -> int:
        """Let one lane answer a request; return how many of its answers lie in the object store."""
        locations = importlib.import_module("ray.experimental").get_object_locations
        actor = next(iter(self._open.values())).actor
        refs = [ref async for ref in actor.attend.remote(REST.name, request.model_dump_json(), None, b"[]", False)]
        await asyncio.gather(*refs)
        return sum(bool(found["node_ids"]) for found in locations(refs).values())

    @property
    def lanes(self) -> int:
        """Return the number of open lanes."""
        return len(self._open)


async def a_verdict(settings: Settings) -> Verdict:
    """Return a verdict of the emulator on an example against itself, padded to the size of one with timings."""
    target = make_target(KERNEL)
    async with open_session(target, settings) as session:
        verdict = await session.judge(target.version(f"{target.source.text}\n# again\n", "again", "user"))
    lacking = max(0, VERDICT_BYTES - len(verdict.model_dump_json()))
    noise = random.Random(0).randbytes(lacking // 2).hex()  # which packs about as badly as numbers do
    return verdict.model_copy(update={"evidence": verdict.evidence.model_copy(update={"build_log": noise})})


def result_of(key: str, verdict: Verdict) -> CandidateResult:
    """Return a line of the ledger for a verdict."""
    return CandidateResult(
        key=key,
        level=1,
        number=1,
        problem="1_simulated",
        run="",
        index=0,
        language="triton",
        verdict=key,
        eager=comparison_of(verdict),
        compiled=None,
        compiled_trouble="",
        cheat=None,
        build_way="triton",
        seconds=verdict.seconds,
        gpu=None,
        published=None,
        published_trouble="",
    )


class Keeper:
    """Keeps answers as a bench does, and when each lane was at work."""

    def __init__(self, ledger: Ledger, store: Store) -> None:
        self._lines, self._store = GroupedLines(ledger), store
        self.kept = 0
        self.spans: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def count(self, answer: Rested) -> None:
        """Note that an answer came."""
        self.kept += 1
        self.spans[answer.lane].append((answer.began, answer.ended))

    def keep(self, answer: Rested) -> None:
        """Store and note an answer."""
        self._store.save_verdict(answer.verdict.model_dump(mode="json"))
        self._lines.append(result_of(answer.verdict.id, answer.verdict))
        self.count(answer)

    def flush(self) -> None:
        """Write the lines that wait."""
        self._lines.flush()

    def waits(self) -> list[float]:
        """Return the seconds between the end of a lane's task and the beginning of its next one, sorted."""
        spans = (sorted(found) for found in self.spans.values())
        return sorted(after[0] - before[1] for lane in spans for before, after in pairwise(lane))


def a_second(step: Callable[[int], object], count: int) -> float:
    """Return how many steps are done in a second."""
    started = time.perf_counter()
    for number in range(count):
        step(number)
    return round(count / (time.perf_counter() - started), 1)


def parts_alone(folder: Path, verdict: Verdict) -> dict[str, float]:
    """Return the rates of the driver's parts, each alone."""
    ledger = Ledger(folder / "alone.jsonl")
    answer = Rested(verdict=verdict, lane="simulated/0", began=0.0, ended=1.0).model_dump_json()
    lines = [result_of(f"line{n}", verdict) for n in range(1000)]
    with open_store(folder / "alone") as store:
        documents = [verdict.model_copy(update={"id": f"{n:020}"}).model_dump(mode="json") for n in range(500)]
        return {
            "ledger_lines_per_s": a_second(lambda n: ledger.append(result_of(f"key{n}", verdict)), 1000),
            "ledger_lines_in_tens_per_s": 10 * a_second(lambda n: ledger.append(*lines[10 * n : 10 * n + 10]), 100),
            "verdicts_stored_per_s": a_second(lambda n: store.save_verdict(documents[n]), 500),
            "answers_read_per_s": a_second(lambda _: Rested.model_validate_json(answer), 1000),
        }


async def through_ray(
    pool: ManyLanes, take: Callable[[Rested], None], requests: list[Nap], keeper: Keeper
) -> dict[str, Any]:
    """Do the requests; return rates, the driver's share of a core, and how long lanes waited."""
    failed: list[str] = []
    queue = TaskQueue(requests, lambda _, error: failed.append(str(error)), name=lambda nap: nap.keys)
    keeper.kept, keeper.spans = 0, defaultdict(list)
    began, cpu = time.monotonic(), time.process_time()
    await pool.run(REST, queue, take, lambda *_: None)
    keeper.flush()
    seconds, cpu = time.monotonic() - began, time.process_time() - cpu
    assert not failed, failed[0]
    assert keeper.kept == sum(len(nap.keys) for nap in requests)
    waits = keeper.waits()
    return {
        "answers": keeper.kept,
        "lanes_that_worked": len(keeper.spans),
        "answers_per_s": round(keeper.kept / seconds, 1),
        "driver_cpu_ms_per_answer": round(1e3 * cpu / keeper.kept, 2),
        "driver_cpu_share": round(cpu / seconds, 2),
        "wait_median_ms": round(1e3 * statistics.median(waits), 2),
        "wait_p99_ms": round(1e3 * waits[int(0.99 * len(waits))], 1),
        "wait_largest_ms": round(1e3 * waits[-1], 1),
    }


def naps(prefix: str, count: int, verdict: Path, mean: float) -> list[Nap]:
    """Return requests for so many tasks, of half to one and a half times the mean in seconds."""
    draw = random.Random(prefix)
    keys = [f"{prefix}{number}" for number in range(count)]
    groups = (tuple(keys[at : at + _GROUP]) for at in range(0, count, _GROUP))
    return [
        Nap(keys=group, seconds=tuple(mean * draw.uniform(0.5, 1.5) for _ in group), verdict=verdict)
        for group in groups
    ]


@contextmanager
def joined(cluster: RayCluster) -> Generator[Any]:
    """Connect this process to a cluster of the tests."""
    sys.path.append(str(RAY_SITE))
    os.environ.update(cluster.environment)
    with connected(f"ray://{cluster.address}") as ray:
        yield ray


def simulate(folder: Path, actors: int, seconds: float) -> dict[str, Any]:
    """Run all parts; return the figures."""
    settings = load_settings(overrides={"paths.cache": folder / "cache", "paths.data": folder / "data"})[0]
    verdict = asyncio.run(a_verdict(settings))
    file = folder / "verdict.json"
    file.write_text(verdict.model_dump_json())
    found: dict[str, Any] = {"actors": actors, "verdict_bytes": file.stat().st_size}
    found["alone"] = parts_alone(folder, verdict)
    with (
        RayCluster(folder, cpus=actors) as cluster,
        joined(cluster) as ray,
        open_store(folder / "kept") as store,
    ):
        pool, keeper = ManyLanes(ray, settings, actors), Keeper(Ledger(folder / "kept.jsonl"), store)
        started = time.monotonic()
        asyncio.run(pool.open_all())
        found |= {"lanes_opened": pool.lanes, "opening_s": round(time.monotonic() - started, 1)}
        print(json.dumps(found, indent=2), flush=True)
        asyncio.run(through_ray(pool, keeper.count, naps("warm", 2 * _GROUP * actors, file, 0.0), keeper))
        for name, take, count, mean in (
            ("counted_at_once", keeper.count, 20 * actors, 0.0),
            ("kept_at_once", keeper.keep, 20 * actors, 0.0),
            ("kept_of_tasks", keeper.keep, int(actors * seconds / TASK_SECONDS), TASK_SECONDS),
        ):
            found[name] = asyncio.run(through_ray(pool, take, naps(name, count, file, mean), keeper))
            print(name, json.dumps(found[name], indent=2), flush=True)
        request = naps("direct", _GROUP, file, 0.0)[0]
        found["answers_in_object_store"] = asyncio.run(pool.in_object_store(request))
        pool.close()
    found["driver_peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    found["ledger_keys"] = len(Ledger(folder / "kept.jsonl").read())
    return found | {"cores": os.cpu_count()}


def main() -> None:
    """Simulate, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--actors", type=int, default=200)
    parser.add_argument("--seconds", type=float, default=60.0)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        found = simulate(Path(scratch), asked.actors, asked.seconds)
    print(json.dumps(found, indent=2))
    if asked.record:
        print(record(NAME, found))


if __name__ == "__main__":
    main()
