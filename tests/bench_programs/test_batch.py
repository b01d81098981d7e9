"""Several measurements in one go, with nothing to measure."""

import asyncio
from pathlib import Path

import pytest

from tests.bench import batch

SLOW = """import pathlib, time

def test_slow():
    pathlib.Path("{started}").touch()
    time.sleep(60)
"""


def test_programs_of_a_chain_run_one_after_the_other_with_logs_and_raw_rows(tmp_path: Path) -> None:
    chains = [batch.read_chain("pytest --version; ptx_fuzz --no-such-flag"), batch.read_chain("2: strength --help")]
    ended = asyncio.run(batch.run_all(chains, tmp_path, 60))
    assert [(one.program, one.status) for one in ended] == [
        ("pytest --version", 0),
        ("ptx_fuzz --no-such-flag", 2),
        ("strength --help", 0),
    ]
    assert {log.name for log in tmp_path.glob("*.log")} == {"0-0-pytest.log", "0-1-ptx_fuzz.log", "1-0-strength.log"}
    assert "--no-such-flag" in (tmp_path / "0-1-ptx_fuzz.log").read_text()
    assert (tmp_path / "results/kernelbench_problems.jsonl").exists()


def test_what_has_not_ended_in_time_is_interrupted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started, test = tmp_path / "started", tmp_path / "test_slow.py"
    test.write_text(SLOW.format(started=started))
    monkeypatch.setattr(batch, "find_gpus", list)
    ended = asyncio.run(batch.run_all([batch.read_chain(f"pytest -q {test}; pytest --version")], tmp_path / "out", 8))
    assert started.exists()
    assert [one.status for one in ended] == [2, None]  # pytest's own for an interrupt; the second never began
    assert "KeyboardInterrupt" in (tmp_path / "out/0-0-pytest.log").read_text()


def test_chains_have_gpus_of_their_own_as_long_as_there_are_some() -> None:
    chains = [batch.read_chain(text) for text in ("a; b --to 3:4", "2: c", "d")]
    assert chains == [batch.Chain(["a", "b --to 3:4"]), batch.Chain(["c"], 2), batch.Chain(["d"])]
    assert batch.places(chains, ["A", "B", "C", "D"]) == [["A"], ["B", "C"], ["D"]]
    assert batch.places(chains, ["A"]) == [["A"], ["A", "A"], ["A"]]
    assert batch.places(chains, []) == [[], [], []]
