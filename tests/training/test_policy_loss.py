"""The loss of reinforcement learning is the one that TRL calls `dr_grpo`, with the bounds of the paper."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.training.command import ROOT
from tests.training.test_fine_tuning import PYTHON, made
from tests.training.test_fine_tuning import pytestmark as needs_training

pytestmark = needs_training


def told(program: str, *words: object, folder: Path) -> list[float]:
    """The numbers that a program of this folder prints, run where one trains."""
    call = [PYTHON, Path(__file__).with_name(program), *words]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(call, env=environment, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return [float(word) for word in done.stdout.split()]


def test_samples_in_one_pass_teach_the_same_as_one_by_one(tmp_path):
    model = made(tmp_path / "model", "whole")
    apart, largest, *passes = told("same_passes.py", model, tmp_path / "runs", folder=tmp_path)
    assert apart < 1e-5 < 1e-3 < largest
    assert passes == [2, 1, 1], "two of one prompt fit, the third does not, and another prompt has its own"


@pytest.mark.thorough
def test_loss_and_gradients_are_those_of_trl(tmp_path):
    model = made(tmp_path / "model", "whole")
    ours, theirs, apart, largest = told("same_loss.py", model, folder=tmp_path)
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert abs(ours) > 1e-3
    assert apart < 1e-5 < 1e-3 < largest
