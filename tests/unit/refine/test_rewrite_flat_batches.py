"""Flat launches of a batch of matrices: rows and columns get axes, and the third axis counts the matrices."""

from pathlib import Path

import pytest
from rewrite_support import checked, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.two_axes import rewrite

SCORES = """
__global__ void scores(const float* q, const float* k, float* s, int B, int H, int T, int D) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    if (idx < B * H * T * T) {
        int j = idx % T;
        int i = (idx / T) % T;
        int h = idx / (T * T) % H;
        int b = idx / (H * T * T);
        const float* mine = q + (b * H + h) * T * D + i * D;
        const float* other = k + (b * H + h) * T * D + j * D;
        float sum = 0.0f;
        for (int d = 0; d < D; d++) {
            sum += mine[d] * other[d];
        }
        s[idx] = sum;
    }
}
"""
SCORES_WORKLOAD = """
import torch

CASES = [dict(B=2, H=3, T=37, D=19)]


def inputs(B, H, T, D):
    return torch.randn(B, H, T, D, device="cuda"), torch.randn(B, H, T, D, device="cuda")


def reference(q, k):
    return q @ k.transpose(-1, -2)


def launch(module, q, k):
    B, H, T, D = q.shape
    s = torch.empty(B, H, T, T, device="cuda")
    module.scores[-(-(B * H * T * T) // 256), 256](q, k, s, B, H, T, D)
    return s
"""
POOL = """
__global__ void pool(const float* x, float* y, int planes, int height, int width) {
    int n = blockIdx.x * blockDim.x + threadIdx.x;
    if (n >= planes * height * width) return;
    int j = n % width, rest = n / width;
    int i = rest % height, plane = rest / height;
    const float* top = x + (plane * 2 * height + 2 * i) * 2 * width + 2 * j;
    y[n] = fmaxf(fmaxf(top[0], top[1]), fmaxf(top[2 * width], top[2 * width + 1]));
}
"""
POOL_WORKLOAD = """
import torch

CASES = [dict(planes=3, height=11, width=5)]


def inputs(planes, height, width):
    return torch.randn(planes, 2 * height, 2 * width, device="cuda")


def reference(x):
    return torch.nn.functional.max_pool2d(x, 2)


def launch(module, x):
    planes, height, width = x.shape[0], x.shape[1] // 2, x.shape[2] // 2
    y = torch.empty(planes, height, width, device="cuda")
    module.pool[-(-(planes * height * width) // 128), 128](x, y, planes, height, width)
    return y
"""


def test_the_matrices_of_a_batch_are_counted_by_the_third_axis(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    *tiled, plain = rewritten(rewrite, SCORES, SCORES_WORKLOAD)
    (pool,) = rewritten(rewrite, POOL, POOL_WORKLOAD)
    assert "int h = blockIdx.z % H;" in plain.kernel.text
    assert "int b = blockIdx.z / H;" in plain.kernel.text
    assert "/" not in pool.kernel.text
    assert "rest" not in pool.kernel.text
    assert pool.launch
    assert "[(-(-width // 32), -(-height // 8), planes), (32, 8)]" in pool.launch.text
    found = {"plain": plain, "pool": pool, "tiled": tiled[-1], "registers": tiled[0]}
    files = {name: (one.kernel.text, one.launch.text if one.launch else "") for name, one in found.items()}
    for name, report in checked(tmp_path, files).items():
        assert report.ok, (name, report.diagnostics)
        assert report.emulation is not None
        assert report.emulation.runs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("idx < B * H * T * T", "idx < B * H * T"),
        ("idx < B * H * T * T", "idx < D"),
        ("(idx / T) % T", "(idx / T) % D"),
        ("idx / (T * T) % H", "idx / (T * D) % H"),
        ("idx / (T * T) % H", "idx % (T * T)"),
        ("idx / (T * T) % H", "idx / (T * T) % threadIdx.x"),
        ("idx / (H * T * T)", "idx / (H * T * T + 1)"),
    ],
)
def test_batches_that_are_counted_in_another_way_are_left_alone(old: str, new: str) -> None:
    assert old in SCORES
    text = SCORES.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, SCORES_WORKLOAD) == []
