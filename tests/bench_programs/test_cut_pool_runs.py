"""The figures of `tests.bench.pool_gpus`: runs that were cut are compared by what both have judged."""

import itertools
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

from tests.bench.pool_gpus import paired, summarise

ROOT = Path(__file__).parents[2]


def row(run: str, *lanes: list[tuple[str, float]], cut: bool = True) -> dict:
    """A run whose lanes took so long for candidates, one after another, from second 20 on."""
    lines = []
    for lane, judged in enumerate(lanes):
        ends = itertools.accumulate((seconds for _, seconds in judged), initial=20.0)
        for (name, seconds), at in zip(judged, list(ends)[1:], strict=True):
            line = {"file": name, "verdict": "FASTER", "reason": "", "lane": str(lane), "at": at}
            lines.append(line | {"took": seconds, "build": 0.0})
    lines.sort(key=lambda line: line["at"])
    same = {"device": "4 x H200", "builds": "apart", "candidates": 6, "code": -2, "complaints": ""}
    return {"run": run, "lines": lines, "verdicts": len(lines), "seconds": 60.0, "cut": cut} | same


SLOW, QUICK = (("a_sample_0", 9.0), ("a_sample_1", 8.0)), (("b_sample_0", 3.0), ("b_sample_1", 2.0))
ONE = row("local:1", [*SLOW, *QUICK, ("c_sample_0", 4.0)])


def test_the_paired_rate_is_of_the_same_candidates_whatever_each_run_had_the_time_for():
    two = row("local:2", [*SLOW], [("d_sample_0", 1.0), ("b_sample_0", 3.0), ("b_sample_1", 2.5)])
    found = paired(two, ONE)
    assert found == {"candidates": 3, "lane_s": [13.5, 13.0], "times": round(2 * 13 / 13.5, 3)}
    assert paired(ONE, ONE)["times"] == 1.0
    assert paired(row("local:2", [("x_sample_0", 1.0)]), ONE) == {"candidates": 0, "lane_s": [0, 0], "times": None}


def test_the_tail_does_not_count_while_all_are_at_work():
    quick = [(f"q_sample_{n}", 2.0) for n in range(5)]
    two = row("local:2", quick, [(name.replace("q", "r"), 2.0) for name, _ in quick] + [("z_sample_0", 30.0)])
    figures = summarise([ONE, two, row("local:4", [])])["runs"][1]
    assert figures["verdicts_a_minute_all_at_work"] == 60.0
    assert figures["verdicts_a_minute_once_started"] < 20
    assert figures["tail_s"] == 30.0


def test_a_run_that_is_ended_from_outside_is_kept_and_recorded(tmp_path):
    given = ("--root", "tests/fixtures/kernelbench", "--runs", "local:1", "--builds", "cold", "--no-warm-up")
    environment = {**os.environ, "BENCH_RESULTS": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", "tests.bench.pool_gpus", *given, "--record"]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL) as process:
        scratch, until = None, time.monotonic() + 120
        while scratch is None or not scratch.exists() or not scratch.read_bytes():
            assert process.poll() is None
            assert time.monotonic() < until
            time.sleep(0.1)
            scratch = scratch or next(iter(ledgers(process.pid)), None)
        process.send_signal(signal.SIGTERM)
        process.wait(60)
    [kept] = map(json.loads, (tmp_path / "pool_gpus.jsonl").read_text().splitlines())
    assert (kept["cut"], kept["verdicts"] > 0) == (True, True)
    figures = json.loads((tmp_path / "pool_gpus.json").read_text())["figures"]
    assert figures["runs"][0]["verdicts"] == kept["verdicts"]


def ledgers(pid: int) -> list[Path]:
    """The ledger of the bench that a process has started."""
    found = []
    for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split():
        words = Path(f"/proc/{child}/cmdline").read_text().split("\0")
        if "--ledger" in words:
            found.append(Path(words[words.index("--ledger") + 1]))
    return found
