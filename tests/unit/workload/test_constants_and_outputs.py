"""Inputs that are constants, and outputs that are not there."""

from pathlib import Path

import pytest
import torch

from kernel_lsp.device.shared_buffer import as_argument, constant_of
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner import messages
from kernel_lsp.runner.messages.oracle import Prepare
from kernel_lsp.runner.messages.oracle_answers import Made
from kernel_lsp.runner.workers.outputs import plain_outputs
from kernel_lsp.workload.workload import as_outputs

PATH = Path("w.py")


def test_every_kind_of_constant_reaches_another_process():
    constants = (True, 3, 2.5, "mean", None, torch.bfloat16, "bfloat16")
    asked = Prepare(key="a", case=0, family="normal", seed=1)
    made = Made(tuple(map(as_argument, constants)), 0, 0)
    answer = messages.decode_answer(asked, messages.encode(made))
    assert tuple(map(constant_of, answer.arguments)) == constants


def test_an_output_that_is_none_differs_from_one_that_is_there():
    x = torch.ones(3)
    there, missing = as_outputs(PATH, (x, None), "reference")
    assert there is x
    assert missing.numel() == 0
    shapes = [tuple(output.shape) for output in plain_outputs((x, None), "cpu", PATH)]
    assert shapes == [(3,), (0,)]
    assert [tuple(output.shape) for output in plain_outputs((None, x), "cpu", PATH)] == [(0,), (3,)]


def test_a_launch_that_returns_nothing_is_told_so():
    with pytest.raises(WorkloadError, match="NoneType"):
        plain_outputs(None, "cpu", PATH)
    with pytest.raises(WorkloadError, match="NoneType"):
        as_outputs(PATH, (None, None), "reference")


def test_outputs_have_no_history():
    x = torch.ones(3, requires_grad=True)
    (output,) = plain_outputs(x * 2, "cpu", PATH)
    assert not output.requires_grad
