"""Wrong answers that look right: unwritten memory, other types, inputs left as they were."""

import asyncio
from pathlib import Path

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage, Verdict

pytestmark = pytest.mark.skipif(bool(find_gpus()), reason="a GPU gives other verdicts")

LOGARITHM = """extern "C" __global__ void logarithm(const float* x, float* y, int* place, bool* valid, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = logf(x[i]);
        place[i] = x[i] > 0.f ? i : -1;
        valid[i] = true;
    }
}
"""
LOGARITHM_WORKLOAD = """import torch

CASES = [dict(n=1000)]
CONTRACT = dict(contiguous=True, aligned=16, finite=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    place = torch.where(x > 0, torch.arange(x.numel(), dtype=torch.int32, device=x.device), -1)
    return torch.log(x), place, torch.ones_like(x, dtype=torch.bool)


def launch(module, x):
    y = torch.empty_like(x)
    place = torch.empty(x.numel(), dtype=torch.int32, device="cuda")
    valid = torch.empty(x.numel(), dtype=torch.bool, device="cuda")
    module.logarithm[(x.numel() + 255) // 256, 256](x, y, place, valid, x.numel())
    return y, place, valid
"""
SWAP = """extern "C" __global__ void swap(float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float held = x[i];
        x[i] = y[i];
        y[i] = held;
    }
}
"""
SWAP_WORKLOAD = """import torch

CASES = [dict(n=1000)]
CONTRACT = dict(contiguous=True, aligned=16, finite=True, mutates=("x", "y"))


def inputs(n):
    return torch.randn(n, device="cuda"), torch.randn(n, device="cuda")


def reference(x, y):
    return y, x


def launch(module, x, y):
    module.swap[(x.numel() + 255) // 256, 256](x, y, x.numel())
    return x, y
"""
TWICE = """extern "C" __global__ void twice(const float* x, float* y, int step, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        y[i] = 2.f * x[i * step];
    }
}
"""
TWICE_WORKLOAD = """import torch

CASES = [dict(n=1000)]
CONTRACT = dict(aligned=4, finite=True)


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty(x.numel(), device="cuda")
    module.twice[(x.numel() + 255) // 256, 256](x, y, x.stride(0), x.numel())
    return y
"""
MASKED = """extern "C" __global__ void masked(const float* x, float* y, int size) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < size * size) {
        y[i] = i % size <= i / size ? 0.125f * x[i] : -1e9f;
    }
}
"""
MASKED_WORKLOAD = """import torch

CASES = [dict(size=32)]
CONTRACT = dict(contiguous=True, aligned=16, finite=True)


def inputs(size):
    return (torch.randn(size, size, device="cuda"),)


def reference(x):
    return (0.125 * x).masked_fill(torch.ones_like(x, dtype=torch.bool).triu(1), -1e9), x.new_empty(0)


def launch(module, x):
    y = torch.empty_like(x)
    module.masked[(x.numel() + 255) // 256, 256](x, y, x.shape[0])
    return y, x.new_empty(0)
"""


def judge(folder: Path, kernel: str, workload: str, *candidates: tuple[str, str]) -> list[Verdict]:
    """Verdicts on candidates, each a kernel and a launch."""
    path = folder / "kernel.cu"
    path.write_text(kernel)
    (folder / "kernel_workload.py").write_text(workload)

    async def run() -> list[Verdict]:
        async with open_session(make_target(path), Settings(paths=PathSettings(data=folder, cache=folder))) as session:
            versions = [session.target.version(text, "candidate", "user", launch) for text, launch in candidates]
            return [await session.judge(version, always_run=True) for version in versions]

    return asyncio.run(run())


def launch_of(workload: str, *changes: tuple[str, str]) -> str:
    """The launch of a workload, changed."""
    text = "import torch\n\n\ndef launch" + workload.split("def launch")[1]
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return text


def test_what_was_never_written_does_not_pass_for_nan_minus_one_or_true(tmp_path):
    launch = launch_of(LOGARITHM_WORKLOAD)
    left_out = [
        LOGARITHM.replace("y[i] = logf(x[i]);", "if (x[i] > 0.f) y[i] = logf(x[i]);"),
        LOGARITHM.replace("place[i] = x[i] > 0.f ? i : -1;", "if (x[i] > 0.f) place[i] = i;"),
        LOGARITHM.replace("valid[i] = true;", ""),
    ]
    right, *wrong = judge(
        tmp_path, LOGARITHM, LOGARITHM_WORKLOAD, (LOGARITHM, launch), *((text, launch) for text in left_out)
    )
    assert (right.verdict, right.stage) == (Outcome.UNTIMED, Stage.CORRECT), right.reason
    for number, verdict in enumerate(wrong):
        assert verdict.verdict is Outcome.WRONG, verdict.reason
        assert f"output {number} is wrong" in verdict.reason


@pytest.mark.thorough
def test_each_input_that_is_changed_in_place_must_be(tmp_path):
    spared = launch_of(
        SWAP_WORKLOAD, ("return x, y", "return x, held"), ("    module", "    held = x.clone()\n    module")
    )
    spared = spared.replace("module.swap", "module.copy")
    copy = (
        SWAP.replace("swap", "copy").replace("        y[i] = held;\n", "").replace("        float held = x[i];\n", "")
    )
    right, wrong = judge(tmp_path, SWAP, SWAP_WORKLOAD, (SWAP, launch_of(SWAP_WORKLOAD)), (copy, spared))
    assert (right.verdict, right.stage) == (Outcome.UNTIMED, Stage.CORRECT), right.reason
    assert wrong.verdict is Outcome.WRONG, wrong.reason
    assert "output 1" in wrong.reason


def test_an_output_is_of_the_baselines_type_on_every_layout(tmp_path):
    narrow = launch_of(TWICE_WORKLOAD, ("return y", "return y if x.stride(0) == 1 else y.half()"))
    right, wrong = judge(tmp_path, TWICE, TWICE_WORKLOAD, (TWICE, launch_of(TWICE_WORKLOAD)), (TWICE, narrow))
    assert (right.verdict, right.stage) == (Outcome.UNTIMED, Stage.CORRECT), right.reason
    assert wrong.verdict is Outcome.WRONG, wrong.reason
    assert "type float16" in wrong.reason


@pytest.mark.thorough
def test_scores_are_told_from_none_beside_a_mask_that_is_larger_by_far(tmp_path):
    launch, nothing = launch_of(MASKED_WORKLOAD), MASKED.replace("0.125f * x[i]", "0.f")
    right, wrong = judge(tmp_path, MASKED, MASKED_WORKLOAD, (MASKED, launch), (nothing, launch))
    assert (right.verdict, right.stage) == (Outcome.UNTIMED, Stage.CORRECT), right.reason
    assert wrong.verdict is Outcome.WRONG, wrong.reason
