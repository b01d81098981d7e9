"""Triton examples as captures: what is right in float64 is what their authors' references say."""

import inspect
import types
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernel_lsp.capture.inject import describe
from kernel_lsp.runner.workers import captured as oracle
from kernel_lsp.workload.capture import Capture, CapturedCase
from kernel_lsp.workload.captured import CapturedFunction
from kernel_lsp.workload.execute import load_module
from kernel_lsp.workload.load import load_workload
from kernel_lsp.workload.spec import workload_path
from tests.sampling import params

EXAMPLES = Path(__file__).parents[3] / "examples" / "triton"
CASES = {
    "attention": {"batch": 1, "heads": 2, "seq_len": 77, "dim": 32},
    "cross_entropy": {"tokens": 3, "vocab": 2501},
    "layernorm": {"tokens": 3, "hidden": 500},
    "matmul": {"m": 40, "n": 37, "k": 33},
    "rmsnorm": {"rows": 3, "cols": 781},
    "rotary": {"batch": 2, "seq_len": 5, "q_heads": 4, "k_heads": 2, "dim": 64},
    "softmax": {"rows": 3, "cols": 781},
    "swiglu": {"tokens": 3, "hidden": 1461},
}


@pytest.mark.parametrize("name", params(list(CASES), ["rmsnorm"], str))  # the others are `thorough`
def test_a_captured_example_is_held_to_what_its_reference_says(name: str):
    path = EXAMPLES / f"{name}.py"
    beside = workload_path(path) if workload_path(path).is_file() else path
    workload = load_workload(beside.read_text(), beside)
    module = load_module(path.read_text(), path)
    seen: list[tuple[str, dict[str, object]]] = []

    def watched(function: str) -> types.FunctionType:
        def call(*args: object, **kwargs: object) -> None:
            bound = inspect.signature(getattr(module, function)).bind(*args, **kwargs)
            bound.apply_defaults()
            seen.append((function, dict(bound.arguments)))

        return call

    names = [name for name, value in vars(module).items() if isinstance(value, types.FunctionType) and name[0] != "_"]
    names = [name for name in names if name not in ("inputs", "reference", "launch")]
    capture = Capture("train.py", str(path), "", (), path.read_text(), (), 1)
    function = CapturedFunction(capture, path)
    oracle.place(function, "cpu", {})
    with function.running():
        torch.manual_seed(0)
        made = workload.inputs(**CASES[name])
        leaves = list(made) if isinstance(made, tuple) else [made]
        if workload.launch is None:
            watched(names[0])(*leaves)
        else:
            workload.launch(types.SimpleNamespace(**{one: watched(one) for one in names}), *leaves)
        ((called, arguments),) = seen
        described = describe.describe_arguments(arguments)
        function.capture = Capture(
            "train.py",
            str(path),
            called,
            (),
            path.read_text(),
            (CapturedCase(described, tuple(workload.contract.mutates), 1, 1, 0.0),),
            1,
        )
        wide = [leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf for leaf in leaves]
        found = function.on("float64", {"case": 0}, list(arguments.values()))
        truth = workload.reference(*wide)
    expected = [one for one in (truth if isinstance(truth, tuple) else (truth,)) if isinstance(one, Tensor)]
    assert len(found) == len(expected)
    for output, right in zip(found, expected, strict=True):
        assert isinstance(output, Tensor)
        assert output.dtype is torch.float64
        # Triton hands a Python float to a kernel as float32; the examples' own errors are 1e-3 of 16 bits, or 1e-6.
        assert (output - right).abs().max() <= 1e-8 * right.abs().max()
