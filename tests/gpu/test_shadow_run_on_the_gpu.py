"""A program on a GPU with a good and a subtly wrong variant: the wrong one is named, steps are timed with either."""

import re
import sys
from pathlib import Path

import pytest
from judges import CommandLine

from tests.bench.captured_gain import KERNEL
from tests.unit.capture.shadow_programs import BACKWARD, KERNELS, PROGRAM, RAGGED, changed

pytestmark = pytest.mark.gpu

LAUNCH = "    row_sums_kernel["
ROWS = KERNEL.replace("WARPS", "4").replace(LAUNCH, f"    for _ in range(REPEATED):\n    {LAUNCH}")
STEPS = """import torch
from rows import row_sums

torch.manual_seed(0)
weight = torch.nn.Parameter(torch.randn(4096, 4096, device="cuda"))
optimizer = torch.optim.SGD([weight], lr=1e-3)
for _ in range(2400):  # 51 at most are a segment, and four of these a block
    for _ in range(8):
        sums = row_sums(weight.detach())
    (weight * sums[:, None]).mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


def shadow(kernel_lsp: CommandLine, *options: str) -> tuple[int, str, str]:
    """Exit code and output of a shadow run of the program `train.py`."""
    process = kernel_lsp("capture", "--with", "variant.py", *options, "--", sys.executable, "train.py", COLUMNS="400")
    printed, said = process.communicate(timeout=240)
    return process.returncode, printed, said


@pytest.mark.parametrize(
    ("text", "code", "wanted"),
    [
        (KERNELS, 0, "agrees with ops.py in all"),
        (changed(RAGGED), 4, "Wrong: call 2 of add, output 0, element [40]: "),
        (changed(BACKWARD), 4, "Wrong: call 1 of scale_backward, output 0, element ["),
    ],
    ids=["identical", "ragged rows", "backward"],
)
def test_live_data_tell_a_wrong_variant(
    kernel_lsp: CommandLine, tmp_path: Path, text: str, code: int, wanted: str
) -> None:
    for name, written in (("ops.py", KERNELS), ("train.py", PROGRAM), ("variant.py", text)):
        (tmp_path / name).write_text(written)
    ended, printed, said = shadow(kernel_lsp, "--of", "ops.py")
    assert ended == code, said
    assert wanted in said
    assert printed.startswith("True")


def test_steps_are_timed_with_an_interval(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    """The original launches its kernel thrice where once is enough."""
    (tmp_path / "rows.py").write_text(ROWS.replace("REPEATED", "3"))
    (tmp_path / "variant.py").write_text(ROWS.replace("REPEATED", "1"))
    (tmp_path / "train.py").write_text(STEPS)
    ended, _, said = shadow(kernel_lsp, "--of", "rows.py")
    assert ended == 0, said
    found = re.search(r"Step time: ([\d.]+)x as fast \(95 % CI ([\d.]+)-([\d.]+)\)", said)
    assert found, said
    speedup, low, high = map(float, found.groups())
    assert 1.05 < low <= speedup <= high
