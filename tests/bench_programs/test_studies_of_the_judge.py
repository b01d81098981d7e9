"""The studies that measure the judge: their tasks, their figures from rows, and what they do without a GPU."""

import json
import math
import os
import random
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.bench import aa, faults, judge_speed, misfits, placement, power, shards, specimens
from tests.bench.sessions import kept
from tests.unit.report.sample_verdicts import evidence, faster, steady

ROOT = Path(__file__).parents[2]


def run(folder: Path, *arguments: str, code: int = 0) -> str:
    environment = os.environ | {"BENCH_RESULTS": str(folder), "CUDA_VISIBLE_DEVICES": ""}
    done = subprocess.run(
        [sys.executable, "-m", *arguments], cwd=ROOT, env=environment, capture_output=True, text=True, timeout=250
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout if code == 0 else done.stderr


def judged(**parts: Any) -> dict[str, Any]:
    row = {"verdict": "SAME", "us": 10.0, "shared": False, "gpu_ms": 20.0, "seconds": {"total": 0.5}}
    return row | {"interval": [0.99, 1.01], "confirmed": False, "blocks": 8} | parts


# Rows and shards


def test_only_what_is_not_there_is_asked_for_again(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    rows = [
        {"task": "a", "number": 0},
        {"task": "a", "number": 1, "failed": "its process ended"},
        {"task": "b", "number": "left"},
    ]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"task": "a", "num')
    wanted = [{"id": "a", "numbers": [0, 1, 2]}, {"id": "b", "numbers": ["left"]}]
    assert shards.read_rows(path) == rows
    assert shards.missing(wanted, shards.read_rows(path)) == [{"id": "a", "numbers": [1, 2]}]
    with path.open("a") as file:
        file.write("\n" + json.dumps({"task": "a", "number": 1, "verdict": "SAME"}) + "\n")
    assert {"task": "a", "number": 1, "verdict": "SAME"} in shards.read_rows(path)
    assert shards.missing(wanted, shards.read_rows(path)) == [{"id": "a", "numbers": [2]}]


def test_a_study_runs_in_workers_and_is_taken_up_again(tmp_path: Path) -> None:
    small = ("tests.bench.aa", "--kinds", "elementwise", "--sizes", "12", "--regimes", "idle")
    assert "1 rows wanted, 0 there already" in run(tmp_path, *small, "--pairs", "1")
    assert "2 rows wanted, 1 there already" in run(tmp_path, *small, "--pairs", "2", "--resume")
    rows = shards.read_rows(tmp_path / "aa_idle.jsonl")
    assert [(row["number"], row["verdict"], row["stage"]) for row in rows] == [
        (0, "UNTIMED", "correct"),
        (1, "UNTIMED", "correct"),
    ]


def test_a_row_can_be_written_of_a_verdict_with_a_steady_load_and_of_one_without() -> None:
    loaded, without = (json.loads(json.dumps(kept(faster(evidence=evidence(sustained=s))))) for s in (steady(), None))
    assert loaded["steady_load"]["baseline_clock_mhz"] == 1900
    assert without["steady_load"] is None


def test_an_interrupted_study_ends_with_a_record_of_what_there_is(tmp_path: Path) -> None:
    problems = ("tests.bench.kernelbench_problems", "--root", "tests/fixtures/kernelbench", "--levels", "1", "--record")
    environment = os.environ | {"BENCH_RESULTS": str(tmp_path), "CUDA_VISIBLE_DEVICES": ""}
    command = [sys.executable, "-m", *problems]
    with subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True) as study:
        assert study.stdout is not None
        assert "0 there already" in study.stdout.readline()
        assert "UNTIMED, zeros WRONG" in study.stdout.readline()
        study.send_signal(signal.SIGINT)
        said = study.stdout.read()
    assert study.returncode == 0, said
    assert "interrupted" in said
    figures = json.loads((tmp_path / "kernelbench_problems.json").read_text())["figures"]
    assert 0 < figures["problems"] < len(list((ROOT / "tests/fixtures/kernelbench/level1").glob("*.py")))
    assert figures["zeros"] == {"WRONG": figures["judged"]}


# The kernels


@pytest.mark.parametrize("kind", specimens.KINDS)
def test_specimens_have_the_size_that_was_asked_for(kind: str) -> None:
    for exponent in range(12, 28):
        found = specimens.case(kind, 1 << exponent)
        elements = math.prod(value for name, value in found.items() if name != "k")
        assert elements == 1 << exponent
        assert kind != "gemm" or (found["m"] % 64, found["n"] % 64, found["k"] % 8) == (0, 0, 0)


@pytest.mark.parametrize("kind", specimens.KINDS)
def test_versions_of_a_specimen_differ_in_one_number(kind: str) -> None:
    base = specimens.text(kind, specimens.BASE_EXTRA).splitlines()
    for effect in power.EFFECTS:
        extra = specimens.slower_by(effect)
        assert (1000 + extra) / (1000 + specimens.BASE_EXTRA) == pytest.approx(1 + effect, abs=0.0005)
        changed = [line for line in specimens.text(kind, extra).splitlines() if line not in base]
        assert len(changed) == (effect != 0)


# A kernel against itself


def test_pairs_are_many_enough_by_default() -> None:
    made = aa.tasks(5, range(12, 28), specimens.KINDS)
    pairs = {regime: sum(len(t["numbers"]) for t in made if t["regime"] == regime) for regime in aa.REGIMES}
    assert pairs["idle"] >= 300
    assert pairs["busy"] >= 100
    assert {t["exponent"] for t in made if t["regime"] == "idle"} == set(range(12, 28))
    assert len({t["id"] for t in made}) == len(made)


def test_a_kernel_is_judged_against_itself_while_a_bench_runs_beside(tmp_path: Path) -> None:
    small = ("tests.bench.aa", "--kinds", "elementwise", "--sizes", "12", "--pairs", "1", "--regimes", "neighbour")
    assert "--gpus 1 leaves the others" in run(tmp_path, *small, code=2)
    assert "1 rows wanted" in run(tmp_path, *small, "--gpus", "1")
    assert all(row["judged_beside"] > 0 for row in shards.read_rows(tmp_path / "aa_neighbour.jsonl"))


def test_false_claims_are_counted_for_each_harness() -> None:
    def row(verdict: str, us: float, *believers: str, regime: str = "idle") -> dict[str, Any]:
        others = {name: {"faster": name in believers} for name in ("do_bench", "kernelbench")}
        return judged(verdict=verdict, us=us, regime=regime, kind="softmax", exponent=12, **others)

    rows = [
        row("SAME", 10.0, "do_bench"),
        row("FASTER", 10.0),
        row("AMBIGUOUS", 90.0, "kernelbench", "do_bench"),
        row("SAME", 90.0, regime="busy"),
        judged(us=None, regime="idle"),  # not timed
        {"task": "x", "number": 1, "failed": "its process ended"},
    ]
    figures = aa.summarise(rows)
    assert figures["pairs"] == 4
    assert figures["idle"]["false_faster"] == {"judge": 1, "do_bench": 2, "kernelbench": 1}
    assert figures["idle"]["pairs_above_50_us"] == 1
    assert figures["idle"]["false_faster_above_50_us"] == {"judge": 0, "do_bench": 1, "kernelbench": 1}
    assert figures["busy"]["false_faster"] == {"judge": 0, "do_bench": 0, "kernelbench": 0}
    assert "| all |  | 3 | 1 | 2 | 1 |" in aa.table(figures)


# Known differences


def test_power_and_coverage_are_counted_against_the_measured_truth() -> None:
    def row(effect: float, verdict: str, interval: tuple[float, float], *, confirmed: bool) -> dict[str, Any]:
        about = {"kind": "gemm", "effect": effect, "delta": 0.01}
        return judged(verdict=verdict, interval=list(interval), confirmed=confirmed, **about)

    def truth(effect: float, value: float) -> dict[str, Any]:
        return {"kind": "gemm", "effect": effect, "truth": value, "gpu_ms": 500.0, "us": 100.0}

    rows = [
        truth(-0.02, math.log(0.98) - 0.001),
        truth(-0.02, math.log(0.98) + 0.001),
        row(-0.02, "FASTER", (1.015, 1.025), confirmed=True),
        row(-0.02, "FASTER", (1.022, 1.025), confirmed=True),  # 1 / 0.98 is 1.0204
        row(-0.02, "AMBIGUOUS", (0.9, 1.1), confirmed=False),
        truth(0.02, math.log(1.02)),
        row(0.02, "SLOWER", (0.97, 0.99), confirmed=False),
        row(0.02, "NOT_WORTH_IT", (0.97, 1.005), confirmed=False),
        row(0.3, "SLOWER", (0.7, 0.8), confirmed=False),  # its truth was not measured
    ]
    figures = power.summarise(rows)
    assert figures["judgements"] == 5
    gain, loss = figures["by_effect"]["-0.02"], figures["by_effect"]["+0.02"]
    assert gain["right_share"] == pytest.approx(2 / 3, abs=1e-4)
    assert (loss["right_share"], loss["turned_down_share"]) == (0.5, 1.0)
    assert gain["kinds"]["gemm"]["true_change"] == pytest.approx(-0.02, abs=1e-5)
    assert gain["kinds"]["gemm"]["deviation_between_processes"] == pytest.approx(0.002 / math.sqrt(2), abs=1e-6)
    assert figures["coverage"]["confirmed"]["covered_share"] == 0.5
    assert figures["coverage"]["at_any_look"] == {
        "intervals": 3,
        "covered_share": 1.0,
        "median_half_width": pytest.approx(math.log(1.005 / 0.97) / 2, abs=1e-5),
    }
    assert "| -2% | all |" in power.table(figures)


def test_each_effect_of_one_and_two_percent_is_judged_a_hundred_times() -> None:
    made = power.tasks(34, 12, 6, 500.0)
    for effect in (-0.02, -0.01, 0.01, 0.02):
        numbers = [n for task in made if task["effect"] == effect for n in task["numbers"]]
        assert sum(isinstance(n, int) for n in numbers) >= 100
        assert numbers.count("truth 0") == len(power.KINDS)


# Faults


def test_the_mixture_is_two_hundred_and_mostly_good() -> None:
    mixed = misfits.mixture(misfits.Scale())
    assert len(mixed) == 200
    assert 90 <= sum(misfit.good for misfit in mixed) <= 130
    assert {misfit.language for misfit in mixed if misfit.good} == set(misfits.LANGUAGES)
    made = faults.tasks(8, 6, gpu=True)
    numbers = [n for task in made if task["id"].startswith("run") for n in task["numbers"] if n != "left"]
    assert sorted(numbers) == list(range(200))


def test_misfits_leave_good_ones_their_verdicts_and_nothing_behind(tmp_path: Path) -> None:
    """On the emulator: every kind of harm once between good versions, and the parent killed in the middle."""
    printed = run(tmp_path, "tests.bench.faults", "--of", "30", "--runs", "1", "--kills", "1")
    figures = faults.summarise(shards.read_rows(tmp_path / "faults.jsonl"))
    assert figures["failed_rows"] == [], printed
    assert figures["not_right"] == [], printed
    assert figures["judgements"] >= 30
    assert figures["good_right"] == figures["good"] >= 6
    assert figures["not_stored"] == 0
    assert (figures["runs_ended"], figures["parents_killed"]) == (1, 1)
    assert {name: figures[name] for name in ("processes_left", "files_left")} == {"processes_left": 0, "files_left": 0}
    assert (figures["verdicts_lost"], figures["stores_repaired"]) == (0, 0)


# Speed


def test_the_slowest_of_twenty_is_beyond_the_95th_percentile() -> None:
    assert judge_speed.percentile(range(1, 21), 0.95) == 19
    assert judge_speed.percentile([3.0], 0.95) == 3.0
    assert judge_speed.percentile([5.0, 1.0, 3.0], 0.5) == 3.0


def test_stages_are_summed_up_by_version() -> None:
    rows = [
        judged(file="Triton", version="a rewrite", verdict=verdict, seconds={"build": build, "total": 2 * build})
        for verdict, build in (("FASTER", 0.1), ("FASTER", 0.3), ("SAME", 0.2))
    ]
    race = {"file": "Triton", "race_s": 1.0, "entrants": 8, "singles_s": 6.0, "race_and_judgement_s": 2.0}
    figures = judge_speed.summarise([*rows, race | {"winner": "w", "winner_verdict": "FASTER", "says": ""}])
    cell = figures["verdicts"]["Triton, a rewrite"]
    assert cell["verdicts"] == {"FASTER": 2, "SAME": 1}
    assert cell["median_s"] == {"build": 0.2, "total": 0.4}
    assert cell["p95_s"] == {"build": 0.3, "total": 0.6}
    printed = judge_speed.table(figures)
    assert "| Triton, a rewrite | 2 FASTER, 1 SAME | 200 (300) | 400 (600) |" in printed
    assert "| Triton | 8 | 6.00 | 1.00 | 2.00 | w: FASTER |" in printed


@pytest.mark.parametrize("common", [0.0, 0.004])
@pytest.mark.parametrize("count", [4, 16])
def test_what_places_of_a_process_have_in_common_is_told_apart(common: float, count: int) -> None:
    """Places make 0.3 % of a time and noise 0.2 %, and what is common to a process's places is seen between them."""
    rng = random.Random(7)

    def side(us: float) -> list[float]:
        process = rng.gauss(0, common)
        places = [process + rng.gauss(0, 0.003) for _ in range(count)]
        return [us * math.exp(places[place] + rng.gauss(0, 0.002)) for place in used]

    used = [block % count for block in range(50)]
    about = {"kind": "gemm", "way": "in turn", "places": used}
    rows = [about | {"us": [side(100), side(70)], "number": n} for n in range(400)]
    found = placement.summarise([*rows, {"failed": "its process ended"}])["gemm"]["in turn"]
    assert found["pairs"] == 400
    assert found["us"] == pytest.approx(math.sqrt(100 * 70), rel=1e-3)
    assert found["noise"] == pytest.approx(0.002, rel=0.05)
    assert found["places"] == pytest.approx(0.003, rel=0.05)
    alone = math.sqrt(0.003**2 / count + 0.002**2 / 50)
    assert found["expected"] == pytest.approx(alone, rel=0.05)
    assert found["processes"] == pytest.approx(math.hypot(alone, common), rel=0.1)
    assert found["ratio"] == pytest.approx(math.sqrt(2) * math.hypot(alone, common), rel=0.1)
    assert "| gemm | in turn | 400 | 83.6" in placement.table({"gemm": {"in turn": found}})
