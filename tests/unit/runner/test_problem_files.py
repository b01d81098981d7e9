"""Files that hold a KernelBench problem and an answer: the problem is loaded without the answer's extensions."""

from pathlib import Path

from kernel_lsp.runner.workers.problems import extensions_left_out
from kernel_lsp.workload.load import load_workload

PROBLEM = """import torch
{imported}

class Model(torch.nn.Module):
    def forward(self, x):
        return torch.relu(x)

{answer}
def get_inputs():
    return [torch.randn(4)]

def get_init_inputs():
    return []
"""
IMPORTED = """from torch.utils.cpp_extension import load_inline
module = load_inline("m", "int run();", "int run() { return 1; }", functions=["run"])"""
ANSWER = """class ModelNew(torch.nn.Module):
    def forward(self, x):
        return module.run(x)
"""


def test_the_extensions_of_an_answer_are_not_built_for_the_problem() -> None:
    text = PROBLEM.format(imported=IMPORTED, answer=ANSWER)
    with extensions_left_out(text):
        workload = load_workload(text, Path("relu.py"))
    assert workload.problem is not None


def test_a_problem_by_itself_builds_what_it_asks_for() -> None:
    with extensions_left_out(PROBLEM.format(imported=IMPORTED, answer="")) as noted:
        assert noted is None
