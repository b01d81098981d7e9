"""What the oracle keeps in memory, and what it makes again."""

from pathlib import Path
from unittest.mock import Mock

import pytest
import torch

from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers.comparison import Bounds, Distance
from kernel_lsp.runner.workers.oracle import Oracle, _Baseline
from kernel_lsp.workload.families import FAMILIES

MIXER = Path(__file__).parents[2] / "fixtures" / "kernelbench_mixer.py"
WORKLOAD = """import torch
CASES = [dict(n=12)]
def inputs(n):
    return torch.randn(n, 8, device="cuda").t(), torch.randn(1, device="cuda").expand(n), 0.5
def reference(x, bias, scale):
    return (x + bias) * scale
"""


def oracle(text: str, keep: int | None) -> Oracle:
    made = Oracle("cpu", 2.0)
    made.load(text, str(MIXER), seed=3, keep=keep)
    return made


def draw_all(made: Oracle, arguments: int) -> list[str]:
    for number, family in enumerate(FAMILIES):
        made.prepare(family, 0, family, number)
    varied = [f"normal/{argument}" for argument in range(arguments)]
    known = [key for key in varied if made.vary(key, "normal", int(key[-1]), 7)["varied"]]
    made.touch("touched", "normal", 8)
    return [*FAMILIES, *known, "touched"]


def content(made: Oracle, key: str) -> list[object]:
    """Bits, types and strides of inputs, and what is expected."""
    leaves = [
        (leaf.stride(), leaf.dtype, leaf.contiguous().view(-1).view(torch.uint8).tolist())
        if isinstance(leaf, torch.Tensor)
        else leaf
        for leaf in made._leaves(key)
    ]
    return [*leaves, *(output.tolist().__repr__() for output in made._expect(key).outputs)]


@pytest.mark.parametrize("text", [WORKLOAD, MIXER.read_text()], ids=["workload", "problem"])
def test_inputs_that_are_made_again_have_the_same_bits(text):
    lavish, thrifty = oracle(text, None), oracle(text, 0)
    keys = draw_all(lavish, 7 if "Model" in text else 3)
    assert draw_all(thrifty, 7 if "Model" in text else 3) == keys
    assert len(lavish._kept) == len(keys) > len(FAMILIES) + 2
    for key in (*keys, *reversed(keys)):
        assert content(thrifty, key) == content(lavish, key)
        assert list(thrifty._kept) == [key]


def test_nothing_is_made_twice_while_it_fits(monkeypatch):
    made = oracle(WORKLOAD, 10_000)
    keys = draw_all(made, 3)
    monkeypatch.setattr(Oracle, "_made", lambda *_: pytest.fail("made again"))
    monkeypatch.setattr(Oracle, "_reference", lambda *_: [torch.zeros(1)])
    for key in keys:
        made._expect(key)


def test_what_was_used_last_is_kept():
    made = oracle(WORKLOAD, 2 * (12 * 8 + 1) * 4 + 100)
    nbytes = [made.prepare(str(number), 0, "normal", number)["input_bytes"] for number in range(5)]
    assert list(made._kept) == ["2", "3", "4"], nbytes
    made._leaves("2")
    made._leaves("0")
    assert list(made._kept) == ["4", "2", "0"]


def test_inputs_that_cannot_be_made_again_are_refused():
    text = "import itertools\n" + WORKLOAD.replace("def inputs", "count = itertools.count()\ndef inputs")
    made = oracle(text.replace(", 0.5", " + next(count), 0.5"), 0)
    for number in range(2):
        made.prepare(str(number), 0, "normal", number)
    with pytest.raises(WorkloadError, match="other values under the same seed"):
        made._leaves("0")


def test_inputs_outlive_that_memory_was_short_when_they_were_to_go(monkeypatch):
    made = oracle(WORKLOAD, 0)
    made.prepare("0", 0, "normal", 0)
    usual = content(made, "0")
    with monkeypatch.context() as patch:
        patch.setattr(Oracle, "_prints_of", Mock(side_effect=torch.OutOfMemoryError))
        with pytest.raises(torch.OutOfMemoryError):
            made.prepare("1", 0, "normal", 1)
    made.prepare("1", 0, "normal", 1)
    assert content(made, "0") == usual


def test_a_trivial_answer_passes_whatever_is_kept():
    text = WORKLOAD.replace("(x + bias) * scale", "x.clone()")
    found = []
    for keep in (None, 0):
        made = oracle(text, keep)
        for key, number in (("normal", 1), ("other", 2)):
            made.prepare(key, 0, "normal", number)
        made._baseline["normal"] = _Baseline(
            (torch.float32,), (1.0,), (Distance(0.5, 0.2, None, 0),), (Bounds(4.0, 1.0),)
        )
        found.append(made.discriminate("normal", "other", ["float32"]))
    assert found == [["a copy of `x`"]] * 2
