"""What is read out of a model's answer, and what is refused with which words."""

import pytest

from kernel_lsp.refine.dialogue.answer import RejectedAnswer, fenced_code, read_answer, summary
from kernel_lsp.refine.dialogue.kernelbench import check_model_new
from kernel_lsp.refine.dialogue.opinion import read_opinion

GOOD = '''
import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
__global__ void twice(const float* x, float* y, int n) {}
"""
op = load_inline(name="op", cpp_sources="", cuda_sources=source, functions=["run"])


class ModelNew(nn.Module):
    def __init__(self):
        super().__init__()
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, x):
        return op.run(x)
'''


def test_reasoning_ends_at_its_last_mark_and_is_kept_apart():
    answer = read_answer("<think>first </think> no, wait\n</think>\n```python\nx = 1\n```\nIt is x now.")
    assert answer.reasoning == "first </think> no, wait"
    assert fenced_code(answer) == "x = 1\n"
    assert summary(answer) == "It is x now."


def test_reasoning_that_the_server_kept_apart_is_taken_as_it_is():
    answer = read_answer("```\nx\n```", "thought")
    assert (answer.reasoning, answer.text) == ("thought", "```\nx\n```")


def test_the_first_block_counts_and_fences_may_be_longer():
    answer = read_answer("Here:\n````cuda\na ``` b\n```\n````\nand\n```\nsecond\n```\n")
    assert fenced_code(answer) == "a ``` b\n```\n"


@pytest.mark.parametrize(
    ("said", "complete", "words"),
    [
        ("<think>still at it", False, "nothing after the reasoning"),
        ("</think>", True, "nothing after the reasoning"),
        ("no code at all", True, "no fenced code block"),
        ("```python\nx = 1", False, "ends before its code block"),
        ("```python\n\n```", True, "ends before its code block"),
    ],
)
def test_an_answer_without_code_is_refused(said, complete, words):
    with pytest.raises(RejectedAnswer, match=words):
        fenced_code(read_answer(said, complete=complete))


def test_a_model_new_that_keeps_the_rules_is_taken():
    check_model_new(GOOD, "cuda")


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("class ModelNew(nn.Module)", "class Model(nn.Module)", "does not define a class `ModelNew`"),
        ("class ModelNew(nn.Module)", "class ModelNew(Model)", "must not inherit from `Model`"),
        ("__global__ void", "void", "no CUDA kernel"),
        ("load_inline(name", "build(name", "calls no `load_inline\\(`"),
        ("return op.run(x)", "return nn.Linear(2, 2)(x)", "`nn.Linear` is not allowed"),
        ("return op.run(x)", "return torch.nn.functional.relu(x)", "`torch.nn.functional.relu` is not allowed"),
        ("return op.run(x)", "pass", "`pass` is not allowed"),
        ("        return op.run(x)", "        try:\n            return op.run(x)\n        except: return x", "`try`"),
        ("import torch\n", "import torch\nfrom torch.nn import Conv2d\n", "`torch.nn.Conv2d` is not allowed"),
        ("return op.run(x)", "return op.run(x", "not valid Python at line"),
    ],
)
def test_each_broken_rule_is_named(old, new, words):
    assert old in GOOD
    with pytest.raises(RejectedAnswer, match=words):
        check_model_new(GOOD.replace(old, new), "cuda")


def test_triton_answers_need_a_triton_kernel():
    with pytest.raises(RejectedAnswer, match="no Triton kernel"):
        check_model_new(GOOD, "triton")


def test_a_second_opinion_names_one_of_each_or_none():
    text = "**Bottleneck**: DRAM\nMethod: read once\n- Plan: keep the row in registers"
    found = read_opinion(text)
    assert found is not None
    assert (found.bottleneck, found.method, found.plan) == ("DRAM", "read once", "keep the row in registers")
    assert read_opinion(text + "\nPlan: and another one") is None
    assert read_opinion("Bottleneck: x\nMethod: y") is None
