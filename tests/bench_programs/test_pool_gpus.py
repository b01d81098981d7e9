"""Benches on one GPU and on several: which runs, which candidates, and what is made of the times of their verdicts."""

import argparse
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.workload.suite import find_problems
from tests.bench import pool_gpus
from tests.bench.pool_gpus import PoolRun, chosen_samples, figures_of, runs_of, summarise, table, usual_runs
from tests.bench_programs.test_studies_of_the_judge import run

PROBLEMS = Path(__file__).parents[1] / "fixtures/kernelbench"


def made(name: str, seconds: float, *lines: tuple[str, str, str, float], **parts: Any) -> dict[str, Any]:
    found = [
        {"file": file, "verdict": verdict, "lane": lane, "at": at, "took": 1.0, "build": 0.0}
        for file, verdict, lane, at in lines
    ]
    about = {"run": name, "device": "4 x NVIDIA H200", "builds": "apart", "candidates": 4, "cut": False}
    return about | {"seconds": seconds, "verdicts": len(found), "lines": found} | parts


ONE = made("local:1", 60.0, *((name, "SAME", "a", 15.0 * at) for at, name in enumerate("wxyz", 1)))
SHARED = (("w", "SAME", "a", 10.0), ("y", "AMBIGUOUS", "b", 12.0), ("x", "SAME", "a", 20.0), ("z", "SAME", "b", 30.0))
TWO = made("local:2", 30.0, *SHARED)


def test_runs_are_named_by_pool_and_lanes() -> None:
    assert runs_of("local:4,ray:1") == (PoolRun("local", 4), PoolRun("ray", 1))
    for wrong in ("local", "slurm:2", "local:0", "ray:x"):
        with pytest.raises(argparse.ArgumentTypeError, match=wrong):
            runs_of(wrong)
    assert [run.name for run in usual_runs(4)] == ["local:4", "local:2", "local:1", "ray:1"]
    assert [run.name for run in usual_runs(1)] == ["local:1", "ray:1"]


def test_some_candidates_are_all_those_of_some_problems_and_the_same_each_time() -> None:
    problems = find_problems(PROBLEMS)
    everything, some = chosen_samples(problems, None), chosen_samples(problems, 20)
    assert 15 < len(some) <= 20
    assert some == chosen_samples(problems, 20)
    by_problem = Counter((sample.level, sample.number) for sample in everything)
    assert all(count == by_problem[of] for of, count in Counter((s.level, s.number) for s in some).items())


def test_a_rate_begins_when_all_lanes_have_and_a_tail_when_the_first_has_ended() -> None:
    found = figures_of(TWO)
    assert (found["verdicts_a_minute"], found["first_verdict_s"], found["all_lanes_started_s"]) == (8.0, 10.0, 12.0)
    assert found["verdicts_a_minute_once_started"] == pytest.approx(60 * 2 / 18, abs=0.01)
    assert (found["tail_s"], found["by_lane"]) == (10.0, [2, 2])
    assert figures_of(made("local:1", 9.0, cut=True))["verdicts_a_minute_once_started"] is None


def test_runs_are_held_to_one_lane_and_those_of_other_conditions_are_left_out() -> None:
    ray = made("ray:1", 66.0, *((line["file"], "SAME", "a", line["at"] + 6) for line in ONE["lines"]))
    found = summarise([TWO, ONE, ray, ray | {"device": "1 x NVIDIA H100"}])
    assert found["times_local:1"]["local:2"]["verdicts_a_minute"] == 2.0
    assert found["times_local:1"]["ray:1"] == {
        "verdicts_a_minute": pytest.approx(60 / 66, abs=0.001),
        "verdicts_a_minute_once_started": 1.0,
        "verdicts_a_minute_all_at_work": 1.0,
    }
    assert found["left_out_runs"] == 1
    assert found["runs"][0]["beside"] == {
        "compared": 4,
        "equal_share": 0.75,
        "other": {"y": "AMBIGUOUS, in local:1 SAME"},
    }
    assert "| local:2 | 4 | 30.0 | 8.0 |" in table(found)


def test_a_bench_is_measured_and_a_later_call_adds_to_it(tmp_path: Path) -> None:
    asked = ("tests.bench.pool_gpus", "--root", str(PROBLEMS), "--candidates", "3", "--runs", "local:1", "--no-warm-up")
    run(tmp_path, *asked)
    printed = run(tmp_path, *asked, "--builds", "cold", "--resume", "--record")
    rows = [json.loads(line) for line in (tmp_path / f"{pool_gpus.NAME}.jsonl").read_text().splitlines()]
    assert [row["builds"] for row in rows] == ["apart", "cold"]
    assert {row["verdicts"] for row in rows} == {rows[0]["candidates"]}
    assert all(line["build"] == 0 for line in rows[0]["lines"])
    assert "builds apart" in printed
    assert json.loads((tmp_path / f"{pool_gpus.NAME}.json").read_text())["figures"]["left_out_runs"] == 1
