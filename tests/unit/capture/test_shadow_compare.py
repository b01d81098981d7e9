"""What a shadow run compares by is what the judge does, and copies of arguments share memory as those do."""

import importlib
import importlib.util
import math
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from kernel_lsp.capture.shadow import rule
from kernel_lsp.runner.workers import comparison
from kernel_lsp.runner.workers.error_bounds import table_bounds

INJECT = Path(__file__).parents[3] / "kernel_lsp/capture/inject"
DTYPES = (torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.int32, torch.bool)


def injected(name: str) -> ModuleType:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("KERNEL_LSP_SHADOW_RULE", rule())
        spec = importlib.util.spec_from_file_location(f"_injected_{name}", INJECT / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        made = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(made)
    return made


compare: Any = injected("shadow_compare")


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
def test_what_is_allowed_is_what_a_baseline_is(dtype: torch.dtype):
    assert compare.allowed_units(dtype) == table_bounds(dtype).max == table_bounds(dtype).rms


@settings(max_examples=150, deadline=None)
@given(
    st.sampled_from(DTYPES),
    st.integers(0, 2**31),
    st.sampled_from([1e-30, 1e-3, 1.0, 1e4, 1e30]),
    st.sampled_from([0.0, 1e-7, 1e-4, 1e-2, 1.0]),
    st.lists(st.sampled_from([math.inf, -math.inf, math.nan, 0.0, 1e38]), max_size=3),
)
def test_differences_are_those_of_the_judge(
    dtype: torch.dtype, seed: int, size: float, off: float, special: list[float]
):
    draw = torch.Generator().manual_seed(seed)
    expected = torch.randn(5, 7, generator=draw, dtype=torch.float64) * size
    actual = expected + off * size * torch.randn(5, 7, generator=draw, dtype=torch.float64)
    for number, value in enumerate(special):
        expected[number, 3] = value
        actual[number, 3] = value if seed % 2 else -value
    if not dtype.is_floating_point:
        expected, actual = (t.nan_to_num(0, 9, -9).clamp(-9, 9) for t in (expected, actual))
    expected, actual = expected.to(dtype), actual.to(dtype)
    bounds = table_bounds(dtype)
    judged = comparison.distance(actual, expected, comparison.scale(expected, dtype), bounds)
    found = compare.difference(actual, expected)
    assert found["wrong"] == judged.wrong
    assert found["allowed"] == bounds.max
    if found["units"] is None:
        assert not math.isfinite(judged.max)
    else:
        assert found["units"] == pytest.approx(judged.max, rel=1e-9)
    if judged.first_wrong is not None:
        assert tuple(found["index"]) == comparison.unravel(judged.first_wrong, (5, 7))
        assert (found["actual"], found["expected"]) == (judged.actual, judged.expected)


def test_other_types_and_shapes_are_wrong_and_nothing_is_equal_to_nothing():
    one = torch.ones(3)
    assert compare.difference(one.half(), one)["why"] == "is float16[3], not float32[3]"
    assert compare.difference(one[:2], one)["why"] == "is float32[2], not float32[3]"
    empty = compare.difference(one[:0], one[:0])
    assert (empty["wrong"], empty["units"]) == (0, 0.0)


def test_copies_share_memory_as_arguments_do_and_are_written_back():
    whole = torch.arange(12.0).reshape(3, 4)
    column, again = whole[:, 1], whole
    copies = compare.ArgumentCopies((whole, [column], again), {"scale": 2.0, "row": whole[1]})
    copied, (copied_column,), copied_again = copies.args
    assert copied is copied_again
    assert copied_column.stride() == column.stride()
    assert copies.kwargs["scale"] == 2.0
    copied[1, 1] = 100.0
    assert copied_column[1] == 100.0
    assert copies.kwargs["row"][1] == 100.0
    assert whole[1, 1] == 5.0
    whole.zero_()
    copies.restore()
    assert whole[1].tolist() == [4.0, 100.0, 6.0, 7.0]


def test_random_numbers_are_drawn_again():
    state = compare.Randomness()
    first = torch.rand(3)
    state.restore()
    assert torch.equal(torch.rand(3), first)


def test_steps_alternate_in_blocks_and_are_timed_from_the_second_on(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNEL_LSP_SHADOW_STEP", "none")
    module = injected("shadow_steps")
    now = 0.0
    monkeypatch.setattr(module.time, "perf_counter", lambda: now)

    def unguarded(function: Callable[..., object]) -> Callable[..., object]:
        return function

    steps: Any = module.Steps(unguarded)
    steps.look()
    sides: list[tuple[str, bool]] = []
    for _ in range(60):
        now += 0.0625
        steps.ended()
        sides.append((steps.side, steps.timing))
    assert steps.segments[0] == ("original", 2, 0.125)
    order = [side for side, _, _ in steps.segments[:8]]
    assert "".join(side[0] for side in order) == "ovvovoov"
    # After four steps to warm up and one that tells how long they are, each segment has one step that is not timed.
    assert sides[3:9] == [
        ("variant", False),
        ("original", False),
        *[("original", True)] * 2,
        *[("variant", False)],
        ("variant", True),
    ]


def test_the_first_optimizer_tells_of_steps(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNEL_LSP_SHADOW_STEP", "")
    module = injected("shadow_steps")
    monkeypatch.setattr(module, "_has_gpu", lambda: True)
    monkeypatch.setattr(module, "_wait", lambda: None)
    handles: list[Any] = []
    optimizers = importlib.import_module("torch.optim.optimizer")
    register = optimizers.register_optimizer_step_post_hook
    monkeypatch.setattr(optimizers, "register_optimizer_step_post_hook", lambda hook: handles.append(register(hook)))
    steps: Any = module.Steps(lambda function: function)
    steps.look()
    steps.look()
    weight = torch.nn.Parameter(torch.ones(2))
    weight.grad = torch.ones(2)
    first, second = (torch.optim.SGD([weight], lr=0.1) for _ in range(2))
    try:
        for _ in range(3):
            first.step()
            second.step()
    finally:
        for handle in handles:
            handle.remove()
    assert len(handles) == 1
    assert steps.count == 3


@pytest.mark.parametrize("name", ["train_step", "loop.train_step", "loop.Trainer.step"])
def test_a_function_that_is_named_tells_of_steps(name: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("KERNEL_LSP_SHADOW_STEP", name)
    module = injected("shadow_steps")
    steps: Any = module.Steps(lambda function: function)

    class Trainer:
        def step(self) -> int:
            return 7

    made: Any = ModuleType("loop")
    made.Trainer, made.train_step = Trainer, lambda: 7
    steps.look()
    assert steps.count == 0
    monkeypatch.setitem(sys.modules, "__main__" if name == "train_step" else "loop", made)
    for _ in range(2):
        steps.look()
    result = made.Trainer().step() if name.endswith(".step") else made.train_step()
    assert (result, steps.count) == (7, 1)
