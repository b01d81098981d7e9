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


# A convolution's output is smaller than its input: rows and columns have sums for their numbers.
FILTERED = """
__global__ void filtered(const float* x, const float* w, float* y, int images, int filters, int height, int width, int taps) {
    int idx = blockIdx.x * blockDim.x + threadIdx.x;
    int rows = height - taps + 1, columns = width - taps + 1;
    if (idx >= images * filters * rows * columns) return;
    int j = idx % columns, i = (idx / columns) % rows;
    int filter = (idx / (columns * rows)) % filters;
    int image = idx / (columns * rows * filters);
    float sum = 0.0f;
    for (int p = 0; p < taps; p++)
        for (int q = 0; q < taps; q++)
            sum += x[(image * height + i + p) * width + j + q] * w[(filter * taps + p) * taps + q];
    y[idx] = sum;
}
"""  # noqa: E501
FILTERED_WORKLOAD = """
import torch

CASES = [dict(n=2, k=3, h=11, w=37, r=3)]


def inputs(n, k, h, w, r):
    return torch.randn(n, 1, h, w, device="cuda"), torch.randn(k, 1, r, r, device="cuda")


def reference(x, f):
    return torch.nn.functional.conv2d(x, f)


def launch(module, x, f):
    (n, _, h, w), (k, _, _, r) = x.shape, f.shape
    y = torch.empty(n, k, h - r + 1, w - r + 1, device="cuda")
    module.filtered[-(-y.numel() // 128), 128](x, f, y, n, k, h, w, r)
    return y
"""


def test_a_divisor_may_be_a_sum(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    (one,) = rewritten(rewrite, FILTERED, FILTERED_WORKLOAD)
    assert "if (i >= height - taps + 1 || j >= width - taps + 1) return;" in one.kernel.text
    assert "int filter = blockIdx.z % filters;" in one.kernel.text
    assert one.launch is not None
    (report,) = checked(tmp_path, {"filtered": (one.kernel.text, one.launch.text)}).values()
    assert report.ok, report.diagnostics
    assert report.emulation is not None
    assert report.emulation.runs
    for old, new in (
        ("filters * rows * columns)", "filters * rows * width)"),
        ("/ columns) % rows", "/ width) % rows"),
    ):
        assert old in FILTERED
        assert rewritten(rewrite, FILTERED.replace(old, new), FILTERED_WORKLOAD) == []


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
