"""On the GPU a profile says at which lines warps wait, and for what, or what each line costs."""

import json

import pytest
from judges import EXAMPLES, CommandLine

from kernel_lsp.check.sampled import why_not_sampled

pytestmark = pytest.mark.gpu


@pytest.mark.skipif(why_not_sampled() != "", reason=why_not_sampled())
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
    assert found["device"].startswith("NVIDIA")
    (kernel,) = found["kernels"]
    assert kernel["samples"] >= 200
    assert kernel["launches"] > 0, "the emulator has counted too"
    own = [line for line in kernel["lines"] if line["text"]]
    assert sum(line["sample_share"] for line in own) > 0.9, "the line table leads to the file"
    waiting = [line for line in own if line["waits_for"] == "global or local memory"]
    assert any(line["sample_share"] > 0.03 for line in waiting)
    assert any(load in line["text"] for line in own if line["samples"])


def test_a_line_costs_what_is_saved_without_it(kernel_lsp: CommandLine) -> None:
    process = kernel_lsp("profile", str(EXAMPLES / "cuda/rmsnorm.cu"), "--price", "--json")
    printed, said = process.communicate(timeout=120)
    assert printed, said
    found = json.loads(printed)
    assert found["not_priced"] == ""
    (kernel,) = found["kernels"]
    assert kernel["us"] > 1
    priced = {line["line"]: line for line in kernel["lines"] if line["price"] is not None}
    assert len(priced) >= 6
    assert all(line["price"] < 1 for line in priced.values())
    reading = [line for line in priced.values() if "row[i]" in line["text"]]
    assert max(line["price"] for line in reading) > 0.1, "it is limited by memory"
    assert min(line["price"] for line in priced.values()) < 0.05, "some lines hide behind others"
