"""A search on a GPU writes that GPU's numbers into the user's files, and no other's."""

import asyncio
import re
from pathlib import Path

import pytest

from kernel_lsp.device import choice
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.target import Target, make_target
from kernel_lsp.refine.offers import Offer
from kernel_lsp.refine.proposers import find_proposers
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.text import apply_edits
from tests.unit.report.sample_verdicts import evidence, faster

KERNEL = """
__global__ void scale(const float* x, float* y, int n) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.0f * x[i];
}
"""
WORKLOAD = """
import torch

CASES = [{"n": 1000}]


def inputs(n):
    return (torch.randn(n),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[((x.numel() + 255) // 256,), (256,)](x, y, x.numel())
    return y
"""
GPUS = {
    108: Gpu(0, "NVIDIA A100-SXM4-80GB", "GPU-0", "sm_80", "580", 80 << 30),
    128: Gpu(0, "NVIDIA GeForce RTX 4090", "GPU-0", "sm_89", "580", 24 << 30),
}


@pytest.fixture
def target(tmp_path: Path) -> Target:
    (tmp_path / "scale.cu").write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    return make_target(tmp_path / "scale.cu")


@pytest.mark.parametrize("multiprocessors", GPUS)
def test_an_edit_limits_the_grid_by_the_gpu_found(
    target: Target, multiprocessors: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(choice, "find_gpus", lambda: (GPUS[multiprocessors],))
    texts = [edited(target, candidate) for candidate in proposed(target)]
    limits = [int(number) for text in texts for number in re.findall(r"min\(.*\d \* (\d+)\)", text)]
    assert limits, "no rewrite limits the grid"
    assert set(limits) == {multiprocessors}


def proposed(target: Target) -> list[Candidate]:
    """All rewrites, for the GPU that a search would use."""
    [make] = find_proposers(["rewriter"], choice.find_device(None, ()))
    [rewriter] = make(target.baseline, ["scale"], 0)
    return list(asyncio.run(rewriter.next(100)))


def edited(target: Target, candidate: Candidate) -> str:
    """The user's files, one after the other, after the edits that an editor applies once a candidate is FASTER."""
    workload = target.workload.source
    sources = {"baseline": target.source.text, "candidate": candidate.kernel.text, "workload": workload.text}
    sources |= {"candidate_launch": candidate.launch.text} if candidate.launch else {}
    paths = {"kernel_path": str(target.source.path), "workload_path": str(workload.path)}
    offer = Offer(faster(evidence=evidence(sources=sources, **paths)))
    placed = offer.place(target.source, workload)
    return "\n".join(apply_edits(one.file.text, one.edits) for one in placed)
