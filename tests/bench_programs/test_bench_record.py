"""Result files of benchmark programs."""

import json
import math
from datetime import UTC, datetime
from pathlib import Path

import pytest

from tests.bench import record


def test_a_result_has_the_documented_keys(tmp_path: Path) -> None:
    path = record.record("speed", {"median_ms": 1.5}, directory=tmp_path / "new")
    result = json.loads(path.read_text())
    assert path == tmp_path / "new" / "speed.json"
    assert list(result) == ["name", "date", "device", "driver", "commit", "command", "figures"]
    assert result["figures"] == {"median_ms": 1.5}
    assert abs((datetime.now(UTC) - datetime.fromisoformat(result["date"])).total_seconds()) < 60
    assert all(result[key] for key in ("device", "driver", "commit", "command"))


def test_what_is_given_wins_over_what_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(record.COMMIT_VARIABLE, "fromenv")
    monkeypatch.setenv(record.RESULTS_VARIABLE, str(tmp_path))
    by_environment = json.loads(record.record("a", {}).read_text())
    assert by_environment["commit"] == "fromenv"
    by_argument = json.loads(record.record("b", {}, commit="given", device="1 x X", driver="1").read_text())
    assert (by_argument["commit"], by_argument["device"], by_argument["driver"]) == ("given", "1 x X", "1")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.json", "b.json"]


def test_figures_that_are_no_numbers_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError):
        record.record("broken", {"median_ms": math.nan}, directory=tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_command_can_be_typed_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.argv", ["bench.py", "--name", "two words"])
    assert record.command().endswith("--name 'two words'")


def test_the_gpus_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    lines = ["NVIDIA H200, 580.1", "NVIDIA H200, 580.1", "NVIDIA L4, 580.1"]
    monkeypatch.setattr(record, "_output", lambda *_: lines)
    assert record.gpus_and_driver() == ("2 x NVIDIA H200, 1 x NVIDIA L4", "580.1")
    monkeypatch.setattr(record, "_output", lambda *_: [])
    assert record.gpus_and_driver() == ("", "")
