"""The table of compute-sanitizer's verdicts, with a stand-in for it: what hangs is ended, rows come when done."""

import json
import signal
import sys
import time
from pathlib import Path

import pytest

from tests.bench.sanitizer_table import TOOLS, complete, main, programs

HANGS, ENDS = "barrier_in_an_uneven_loop.cu", "store_past_end.cu"


@pytest.fixture
def sanitizer(tmp_path: Path) -> Path:
    """A program that has found three errors, but has a child that sleeps where a GPU would hang."""
    program = tmp_path / "sanitizer"
    program.write_text(
        f'#!/bin/sh\ncase "$*" in *{HANGS}*) sleep 1000 & echo $! >> {tmp_path}/children; wait;; esac\n'
        'echo "========= Invalid __global__ write of size 4 bytes"\necho "========= ERROR SUMMARY: 3 errors"\n'
    )
    program.chmod(0o755)
    return program


def rows(*names: str) -> list[dict]:
    return [{"program": name, "ours": [], "sanitizer": {}} for name in names]


def alive(process: int) -> bool:
    try:
        state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state != "Z"


def children(folder: Path) -> list[int]:
    return [int(line) for line in (folder / "children").read_text().split()]


def ended(processes: list[int]) -> bool:
    """Whether they are gone, a moment after they were killed: the signal is sent, not awaited."""
    deadline = time.monotonic() + 10
    while any(map(alive, processes)) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not any(map(alive, processes))


def test_a_program_that_hangs_is_ended_and_holds_up_no_other_row(sanitizer: Path, tmp_path: Path):
    done = []
    complete(rows(HANGS, ENDS), str(sanitizer), 8, 1.5, done.append)
    assert [row["program"] for row in done] == [ENDS, HANGS]
    assert {verdict["errors"] for verdict in done[0]["sanitizer"].values()} == {3}
    assert done[0]["sanitizer"]["memcheck"]["said"] == "Invalid __global__ write of size 4 bytes"
    assert done[1]["sanitizer"] == {tool: {"errors": None, "said": "not finished after 1.5 s"} for tool in TOOLS}
    assert len(children(tmp_path)) == len(TOOLS)
    assert ended(children(tmp_path))


def test_programs_that_hang_by_our_findings_come_last_and_get_less_time(sanitizer: Path, tmp_path: Path):
    done, (hangs, ends) = [], rows(HANGS, ENDS)
    complete([hangs | {"ours": ["deadlock:9"]}, ends], str(sanitizer), 1, 300, done.append, hanging=0.5)
    assert [row["program"] for row in done] == [ENDS, HANGS]
    assert {verdict["said"] for verdict in done[1]["sanitizer"].values()} == {"not finished after 0.5 s"}
    assert ended(children(tmp_path))


def test_an_interrupt_ends_what_runs_and_keeps_the_rows_that_are_complete(sanitizer: Path, tmp_path: Path):
    done = []

    def take(row: dict) -> None:
        done.append(row)
        deadline = time.monotonic() + 60
        while not ((tmp_path / "children").exists() and len(children(tmp_path)) == len(TOOLS)):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        raise KeyboardInterrupt

    started = time.monotonic()
    complete(rows(HANGS, ENDS), str(sanitizer), 8, 300, take)
    assert [row["program"] for row in done] == [ENDS]
    assert time.monotonic() - started < 120
    assert ended(children(tmp_path))


def test_rows_of_an_earlier_result_are_kept_and_only_the_others_run(
    sanitizer: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    earlier = {"program": "store_past_end_clean.cu", "sanitizer": {"memcheck": {"errors": 0, "said": "then"}}}
    (tmp_path / "earlier.json").write_text(json.dumps({"figures": {"rows": [earlier]}}))
    found = {path.name: [] for path in programs()} | {ENDS: ["out-of-bounds:6"]}
    (tmp_path / "ours.json").write_text(json.dumps(found))
    command = ["sanitizer_table", "--sanitizer", str(sanitizer), "--only", "store_past_end", "--record", "--jobs", "4"]
    command += ["--keep", str(tmp_path / "earlier.json"), "--emulated", str(tmp_path / "ours.json")]
    monkeypatch.setattr(sys, "argv", command)
    monkeypatch.setenv("BENCH_RESULTS", str(tmp_path / "results"))
    stops = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        main()
    finally:
        for number, handler in stops.items():
            signal.signal(number, handler)
    figures = json.loads((tmp_path / "results" / "sanitizer_table.json").read_text())["figures"]
    run, kept = figures["rows"]
    assert (run["program"], run["ours"], set(run["sanitizer"])) == (ENDS, ["out-of-bounds:6"], set(TOOLS))
    assert kept["sanitizer"] == earlier["sanitizer"]
    assert (figures["found_by_us"], figures["found_by_any_tool"], figures["programs_missing"]) == (1, 1, [])
    assert (figures["clean"], figures["false_by_any_tool"]) == (1, 0)
