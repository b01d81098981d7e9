"""`kernel-lsp bench kernelbench` end to end without a GPU: on problems of our own, with candidates of the set."""

import json
import os
import shutil
import signal
import time

import pytest

from tests.unit.bench.kernelbench_command import PROBLEMS, Bench


@pytest.fixture
def bench(tmp_path):
    return Bench(tmp_path)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_a_run_that_is_killed_goes_on_where_it_was(bench):
    bench.take("1.12.1", "1.19.4", "1.25.1", "1.30.1")
    first = bench.start()
    end = time.monotonic() + 200
    while not bench.lines() and time.monotonic() < end:
        time.sleep(0.05)
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    kept = bench.lines()
    assert 1 <= len(kept) < 4, "it was killed while there was work left"
    with (bench.folder / "ledger.jsonl").open("a") as file:
        file.write(kept[0][:80])  # as a kill in the middle of a write leaves it
    code, said, results = bench.run()
    assert code == 0, said
    assert bench.lines()[: len(kept)] == kept
    assert len(bench.lines()) == 5
    assert {name: r["eager"]["verdict"] for name, r in results.items()} == dict.fromkeys(
        ("1.12.1", "1.19.4", "1.25.1", "1.30.1"), "UNTIMED"
    )
    assert "correct 4 (100 %)" in said
    before = bench.lines()
    assert "verdicts a minute" not in bench.run()[1]
    assert bench.lines() == before


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_kernelbench_takes_what_is_not_right(bench):
    bench.take("1.53.0", "1.53.1", "1.48.1", "1.22.1", "1.19.7")
    _, said, results = bench.run("--compat", "--html", "page.html")
    ours = {name: r["eager"]["verdict"] for name, r in results.items()}
    assert ours == {
        "1.53.0": "UNTIMED",
        "1.53.1": "WRONG",
        "1.48.1": "WRONG",
        "1.22.1": "WRONG",
        "1.19.7": "ILLEGITIMATE",
    }
    theirs = {name: r["published"]["correct"] for name, r in results.items()}
    # It never sees a minimum above 1, nor inputs that are nearly the same, nor that its comparison was replaced.
    assert theirs == {"1.53.0": True, "1.53.1": True, "1.48.1": False, "1.22.1": True, "1.19.7": True}
    assert results["1.48.1"]["published"]["trials"] == [0, 5]
    assert results["1.53.0"]["published"]["mean_ms"] is None
    assert results["1.19.7"]["cheat"] == "host code"
    assert "2 agree; 3 right only by KernelBench, 0 only here" in said
    assert "<title>" in (bench.folder / "page.html").read_text()


def test_a_problem_that_cannot_be_used_is_a_trouble_and_no_end(bench, tmp_path):
    (tmp_path / "problems/level1").mkdir(parents=True)
    shutil.copy(PROBLEMS / "level1/19_rectifier.py", tmp_path / "problems/level1")
    (tmp_path / "problems/level1/25_broken.py").write_text("class Model:\n    nothing\n")
    bench.take("1.19.4", "1.25.1")
    code, said, results = bench.run("--root", "problems", "--events", "events.jsonl")
    assert code == 3
    assert list(results) == ["1.19.4"]
    assert "not judged level 1 problem 25 sample 1" in said
    events = [json.loads(line) for line in (bench.folder / "events.jsonl").read_text().splitlines()]
    [verdict] = [one for one in events if one["event"] == "verdict"]
    assert (verdict["problem"], verdict["done"], verdict["of"]) == ("19_rectifier", 1, 2)
    [trouble] = [one for one in events if one["event"] == "trouble"]
    assert trouble["candidate"] == "level 1 problem 25 sample 1"
    assert {one["lane"] for one in events if one["event"] == "lane"} == {"emulator"}


def test_more_gpus_than_there_are_is_refused(bench):
    bench.take("1.19.4")
    process = bench.start("--gpus", "2")
    _, complaints = process.communicate(timeout=60)
    assert process.returncode == 3
    assert "2 GPUs are asked for" in complaints
