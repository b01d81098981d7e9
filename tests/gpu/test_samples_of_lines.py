"""On the GPU a profile says at which lines warps wait, and for what."""

import json

import pytest
from judges import EXAMPLES, CommandLine

from kernel_lsp.check.ncu import may_read_counters
from kernel_lsp.compiler.toolkit import find_tool

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(find_tool("ncu") is None, reason="there is no ncu"),
    pytest.mark.skipif(not may_read_counters(), reason="the driver keeps its counters from this user"),
]


@pytest.mark.parametrize(
    ("file", "load"),
    [("cuda/softmax.cu", "x[row + i]"), ("cuda/rmsnorm.cu", "row[i]"), ("triton/layernorm.py", "tl.load")],
)
def test_most_samples_are_at_lines_of_the_file_and_loads_are_waited_for(
    file: str, load: str, kernel_lsp: CommandLine
) -> None:
    process = kernel_lsp("profile", str(EXAMPLES / file), "--json")
    printed, said = process.communicate(timeout=120)
    assert printed, said
    found = json.loads(printed)
    assert found["not_sampled"] == ""
    assert found["sampled_on"].startswith("NVIDIA")
    (kernel,) = found["kernels"]
    assert kernel["samples"] >= 200
    assert kernel["launches"] > 0, "the emulator has counted too"
    own = [line for line in kernel["lines"] if line["text"]]
    assert sum(line["sample_share"] for line in own) > 0.9, "the line table leads to the file"
    waiting = [line for line in own if line["waits_for"] == "global or local memory"]
    assert any(line["sample_share"] > 0.03 for line in waiting)
    assert any(load in line["text"] for line in own if line["samples"])
