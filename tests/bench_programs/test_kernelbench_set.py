"""The set of candidates beside KernelBench's harness: what is compared, what is kept, what is tried again."""

import argparse
import asyncio
import json
import math
from pathlib import Path
from unittest.mock import Mock

import pytest

from kernel_lsp.judge.verdict import Outcome
from tests.bench import kernelbench_set
from tests.bench.kernelbench_set import COMPAT, HARNESS, OURS, Rows, SecondOpinions, compared, throughput
from tests.unit.bench.bench_results import comparison, result

NAME = "level_1_problem_19_sample_{}_kernel.py"


@pytest.fixture
def rows(tmp_path):
    return Rows(tmp_path / "rows.jsonl", resume=True)


def entries(*kinds: str) -> dict[str, dict[str, object]]:
    expect = {"right": ["FASTER", "SAME"], "wrong": ["WRONG"], "cheat": ["ILLEGITIMATE"]}
    return {NAME.format(n): {"kind": kind, "expect": expect[kind]} for n, kind in enumerate(kinds)}


def test_verdicts_are_counted_by_kind_and_by_who_gave_them(rows):
    results = [
        result(index=number, eager=comparison(outcome))
        for number, outcome in enumerate((Outcome.FASTER, Outcome.SAME, Outcome.ILLEGITIMATE, Outcome.WRONG))
    ]
    for number, (theirs, compat) in enumerate([(True, True), (True, False), (True, True)]):
        rows.keep({"by": HARNESS, "file": NAME.format(number), "correct": theirs, "says": ""})
        rows.keep({"by": COMPAT, "file": NAME.format(number), "correct": compat, "says": ""})
    rows.keep({"by": HARNESS, "file": NAME.format(3), "trouble": "no answer in 300 s", "says": ""})
    found = compared(results, entries("right", "wrong", "cheat", "wrong"), rows)
    assert found["verdicts"] == {
        "cheat: rejected by us": 1,
        "cheat: right by KernelBench": 1,
        "cheat: right by compat": 1,
        "right: right by KernelBench": 1,
        "right: right by compat": 1,
        "right: right by us": 1,
        "wrong: rejected by compat": 1,
        "wrong: rejected by us": 1,
        "wrong: right by KernelBench": 1,
        "wrong: right by us": 1,
    }
    assert found["compat_beside_kernelbench"] == {"compared": 3, "agree": 2}
    assert found["compat_differs"] == [f"{NAME.format(1)} (wrong): {{'KernelBench': True, 'compat': False}}"]
    assert found["cheats_that_kernelbench_passes"] == [NAME.format(2)]
    assert [said.split(":")[0] for said in found["unexpected"]] == [NAME.format(1)]
    assert found["troubles"] == {f"KernelBench: {NAME.format(3)}": "no answer in 300 s"}


def test_what_is_kept_is_there_the_next_time(rows, tmp_path):
    rows.keep({"by": OURS, "judged": 30, "seconds": 120.0, "lanes": 2, "says": ""})
    rows.keep({"by": OURS, "judged": 30, "seconds": 60.0, "lanes": 4, "says": ""})
    again = Rows(tmp_path / "rows.jsonl", resume=True)
    assert throughput(again.by(OURS)) == 7.5
    assert throughput([]) is None
    assert Rows(tmp_path / "rows.jsonl", resume=False).by(OURS) == []


def opinions(rows, tmp_path, monkeypatch, answers, until=math.inf):
    """Second opinions on three jobs on two pretended places; what each one was asked for, in order."""
    asked = argparse.Namespace(jobs=2, at_once=2, limit=300.0, root=tmp_path)
    made = SecondOpinions(asked, Mock(), rows, tmp_path, until)
    order: list[tuple[str, str]] = []

    def answer(who):
        async def give(job, _):
            order.append((who, job.key))
            return dict(answers(who, job.key, order.count((who, job.key))))

        return give

    monkeypatch.setattr(made, "_by_harness", answer(HARNESS))
    monkeypatch.setattr(made, "_by_compat", answer(COMPAT))

    async def run_lanes(queue, _gpus, _settings, attend, _say):
        while (asked := await queue.next()) is not None:
            await queue.attempt(asked, attend(Mock(gpu=None), asked))

    monkeypatch.setattr(kernelbench_set, "run_lanes", run_lanes)
    monkeypatch.setattr(kernelbench_set, "size_of", lambda problem: -problem)
    jobs = [Mock(key=str(n), text="", problem=n, sample=Mock(path=Path(NAME.format(n)))) for n in range(3)]
    asyncio.run(made.gather(Mock(jobs=jobs), ()))
    return order


def test_what_lacked_memory_is_asked_once_more(rows, tmp_path, monkeypatch):
    def answers(who, key, turn):
        if (who, key) == (HARNESS, "1"):
            return {"correct": False, "metadata": {"error": "CUDA out of memory. Tried to"}, "says": str(turn)}
        return {"correct": True, "says": ""}

    order = opinions(rows, tmp_path, monkeypatch, answers)
    assert len(order) == 7
    assert [key for _, key in order[:6]] == ["2", "2", "1", "1", "0", "0"]  # the smallest first
    assert order[-1] == (HARNESS, "1")
    assert rows.of(HARNESS)[NAME.format(1)]["says"] == "2"
    assert len(rows.of(COMPAT)) == 3


def test_only_what_is_missing_is_asked(rows, tmp_path, monkeypatch):
    rows.keep({"by": COMPAT, "file": NAME.format(0), "correct": True, "says": ""})
    order = opinions(rows, tmp_path, monkeypatch, lambda *_: {"correct": True, "says": ""})
    assert (COMPAT, "0") not in order
    assert len(order) == 5
    lines = (tmp_path / "rows.jsonl").read_text().splitlines()
    assert len({(row["by"], row["file"]) for row in map(json.loads, lines)}) == 6


def test_nothing_is_begun_after_the_end(rows, tmp_path, monkeypatch):
    assert opinions(rows, tmp_path, monkeypatch, lambda *_: {}, until=0.0) == []


def test_a_problem_is_as_large_as_what_goes_in_and_comes_out():
    mixer = Path(__file__).parents[1] / "fixtures" / "kernelbench_mixer.py"
    inputs, weights, outputs = 64 * 32 * (4 + 8), 4 * (48 * 32 + 3 * 48), 4 * (64 * 48 + 64) + 8
    assert kernelbench_set.size_of(Mock(path=mixer)) == inputs + weights + outputs
