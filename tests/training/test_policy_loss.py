"""The loss of reinforcement learning is the one that TRL calls `dr_grpo`, with the bounds of the paper."""

import os
import subprocess
from pathlib import Path

import pytest

from tests.training.command import ROOT
from tests.training.test_fine_tuning import PYTHON, made
from tests.training.test_fine_tuning import pytestmark as needs_training

pytestmark = needs_training


@pytest.mark.thorough
def test_loss_and_gradients_are_those_of_trl(tmp_path):
    call = [PYTHON, Path(__file__).with_name("same_loss.py"), made(tmp_path / "model", "whole")]
    environment = os.environ | {"PYTHONPATH": str(ROOT), "CUDA_VISIBLE_DEVICES": "", "OMP_NUM_THREADS": "1"}
    environment |= {"TRL_EXPERIMENTAL_SILENCE": "1", "HF_HUB_OFFLINE": "1"}
    done = subprocess.run(call, env=environment, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    ours, theirs, apart, largest = map(float, done.stdout.split())
    assert ours == pytest.approx(theirs, abs=1e-6)
    assert abs(ours) > 1e-3
    assert apart < 1e-5 < 1e-3 < largest
