"""Candidates judged by a Ray cluster that is broken meanwhile, beside this machine alone: `python -m tests.bench.pool`.

Three nodes on the loopback interface, one emulator each. When a quarter of the candidates is judged, one node is killed
with SIGKILL and another one joins; at half of them the driver is killed and started again. One candidate crashes its
worker whenever it runs. Then `local` judges the same candidates. Needs `TEST_RAY_SITE`, or `.venv-pool` of `.ci/run`.
Options: --candidates N (default 200), --record.
"""

import argparse
import itertools
import json
import os
import re
import signal
import subprocess
import tempfile
import time
from collections import Counter
from pathlib import Path
from typing import Any

from tests.bench.record import record
from tests.unit.pool.ray_cluster import RayCluster

NAME = "pool"
TESTS = Path(__file__).parents[1]
SET = TESTS / "kernelbench/candidates"
PROBLEMS = TESTS / "fixtures/kernelbench"
QUICK = ("12.1", "19.0", "19.4", "19.7", "20.0", "21.0", "22.1", "25.0", "25.1", "26.2", "30.1", "48.1", "53.0", "53.1")
CRASH = "*static_cast<volatile int*>(nullptr) = 1;"
Line = dict[str, Any]


def write_candidates(folder: Path, count: int) -> None:
    """Write candidates that differ in a comment at least; the last one crashes."""
    folder.mkdir()
    numbers = Counter[str]()
    for turn, taken in zip(range(count - 1), itertools.cycle(QUICK), strict=False):
        problem, _, sample = taken.partition(".")
        text = (SET / f"level_1_problem_{problem}_sample_{sample}_kernel.py").read_text()
        name = f"level_1_problem_{problem}_sample_{numbers[problem]}_kernel.py"
        numbers[problem] += 1
        (folder / name).write_text(f"{text}\n# candidate {turn}\n")
    honest = (SET / "level_1_problem_25_sample_0_kernel.py").read_text()
    crashing = honest.replace("a = a.contiguous();", CRASH)
    assert CRASH in crashing
    (folder / f"level_1_problem_25_sample_{numbers['25']}_kernel.py").write_text(crashing)


def lines(ledger: Path) -> list[Line]:
    """Return the whole lines of a ledger."""
    return [json.loads(line) for line in ledger.read_text().splitlines()] if ledger.exists() else []


def figures_of(pool: list[Line], local: list[Line], asked: int) -> dict[str, Any]:
    """Return how the verdicts of the two compare, and who judged.

    Raises:
        AssertionError: a candidate lacks a verdict.
    """
    there, here = ({line["key"]: line for line in found} for found in (pool, local))
    assert there.keys() == here.keys()
    other = [key for key in here if outcome(here[key]) != outcome(there[key])]
    return {
        "candidates": asked,
        "ledger_lines": len(pool),
        "ledger_keys": len(there),
        "other_verdicts_than_local": len(other),
        "verdicts": dict(Counter(line["eager"]["verdict"] for line in there.values()).most_common()),
        "by_lane": dict(Counter(line["where"]["lane"].partition("/")[2] for line in there.values()).most_common()),
    }


def outcome(line: Line) -> tuple[str, ...]:
    """Return the parts of a result that may not depend on where it was reached."""
    return line["verdict"], line["eager"]["verdict"], line["eager"]["stage"], str(line["cheat"]), line["build_way"]


def bench(cluster: RayCluster, pool: str, ledger: str) -> subprocess.Popen[str]:
    """Start the command on all candidates."""
    given = ("--root", str(PROBLEMS), "--candidates", "candidates", "--no-compiled", "--ledger", ledger)
    return cluster.command("bench", "kernelbench", *given, "--pool", pool)


def wait_for(ledger: Path, count: int, run: subprocess.Popen[str]) -> None:
    """Wait until a ledger has so many lines."""
    while len(lines(ledger)) < count:
        assert run.poll() is None, run.communicate()[1]
        time.sleep(0.2)


def broken_run(cluster: RayCluster, count: int) -> dict[str, Any]:
    """Judge on the cluster while it is broken; return what was done to it, and seconds."""
    ledger, there = cluster.folder / "pool.jsonl", f"ray://{cluster.address}"
    started = time.monotonic()
    first = bench(cluster, there, ledger.name)
    wait_for(ledger, count // 4, first)
    cluster.kill(1)
    killed, late = len(lines(ledger)), cluster.add()
    wait_for(ledger, count // 2, first)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    kept = lines(ledger)
    again = bench(cluster, there, ledger.name)
    complaints = again.communicate()[1]
    assert again.returncode == 0, complaints
    seconds = time.monotonic() - started
    assert lines(ledger)[: len(kept)] == kept
    return {
        "node_killed_after_lines": killed,
        "driver_killed_after_lines": len(kept),
        "late_node": late,
        "seconds": round(seconds, 1),
    }


def main() -> None:
    """Judge, print and record."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--candidates", type=int, default=200)
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch, RayCluster(Path(scratch)) as cluster:
        write_candidates(cluster.folder / "candidates", asked.candidates)
        cluster.add()
        cluster.add()
        broken = broken_run(cluster, asked.candidates)
        local = bench(cluster, "local", "local.jsonl")
        complaints = local.communicate()[1]
        assert local.returncode == 0, complaints
        pool, here = (lines(cluster.folder / f"{name}.jsonl") for name in ("pool", "local"))
    found = figures_of(pool, here, asked.candidates) | broken
    print(re.sub(r'[{}",]', "", json.dumps(found, indent=2)))
    if asked.record:
        print(record(NAME, found))


if __name__ == "__main__":
    main()
