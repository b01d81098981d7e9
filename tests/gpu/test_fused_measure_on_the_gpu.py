"""Errors that one kernel reads of outputs are those that tensor operations read."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.gpu

ROOT = Path(__file__).parents[2]


def test_readings_are_the_same_by_either_way() -> None:
    command = [sys.executable, "-m", "tests.bench.reading_errors", "--elements", str(1 << 20)]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    figures = json.loads(ran.stdout.splitlines()[0])
    assert len(figures) == 4
    assert [f"{name}: {found['differ']}" for name, found in figures.items() if found["differ"]] == []
