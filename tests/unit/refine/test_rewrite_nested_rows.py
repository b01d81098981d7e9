"""Rows that nested loops walk: what they gather is combined once, behind the outermost."""

from pathlib import Path

import pytest
from rewrite_support import checked, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.parallel_rows import rewrite

CHANNELS = """
__global__ void channels(const float* x, float* y, int N, int C, int S) {
  int c = blockIdx.x * blockDim.x + threadIdx.x;
  if (c >= C) return;
  float mean = 0;
  for (int n = 0; n < N; n++)
    for (int i = 0; i < S; i++)
      mean += x[(n * C + c) * S + i];
  mean /= N * S;
  float squares = 1e-5f * N * S;
  for (int n = 0; n < N; n++) {
    // of one sample
    for (int i = 0; i < S; i++) {
      float d = x[(n * C + c) * S + i] - mean;
      squares += d * d;
    }
  }
  float scale = rsqrtf(squares / (N * S));
  for (int n = 0; n < N; n++)
    for (int i = 0; i < S; i++)
      y[(n * C + c) * S + i] = (x[(n * C + c) * S + i] - mean) * scale;
}
"""
CHANNELS_WORKLOAD = """
import torch

CASES = [dict(N=3, C=4, S=45)]


def inputs(N, C, S):
    return torch.randn(N, C, S, device="cuda")


def reference(x):
    return torch.nn.functional.batch_norm(x, None, None, training=True)


def launch(module, x):
    N, C, S = x.shape
    y = torch.empty_like(x)
    module.channels[-(-C // 64), 64](x, y, N, C, S)
    return y
"""


def test_what_nested_loops_gather_is_combined_once_behind_both(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As naive batch norms are written, with braces or without."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    found = {one.label: one for one in rewritten(rewrite, CHANNELS, CHANNELS_WORKLOAD)[:2]}
    assert list(found) == ["one warp a row", "one block a row"]
    block = found["one block a row"].kernel.text
    assert "mean += x[(n * C + c) * S + i];\n  mean = block_reduce(mean, " in block
    assert "float own_squares = 0.0f;\n  for (int n = 0; n < N; n++) {\n    // of one sample" in block
    assert "    }\n  }\n  squares += block_reduce(own_squares, " in block
    assert "(int n = 0; n < N; n++) {\n    for (int i = threadIdx.x; i < S; i += blockDim.x)\n      y[" in block
    assert "* scale;\n    __syncthreads();\n  }\n" in block, "an element may be written in two rounds"
    files = {str(at): (one.kernel.text, one.launch.text if one.launch else "") for at, one in enumerate(found.values())}
    for report in checked(tmp_path, files).values():
        assert report.ok, report.diagnostics
        assert report.emulation is not None
        assert report.emulation.runs


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("    // of one sample", "    squares += 1;"),
        ("    // of one sample", "    float before = squares;"),
        ("for (int n = 0; n < N; n++) {\n    //", "for (int n = 0; n < N && squares < 9; n++) {\n    //"),
    ],
)
def test_what_each_round_needs_is_combined_in_each(old: str, new: str) -> None:
    assert old in CHANNELS
    _, block, *_ = rewritten(rewrite, CHANNELS.replace(old, new), CHANNELS_WORKLOAD)
    ptx(block.kernel.text)
    assert "    }\n    squares += block_reduce(own_squares, " in block.kernel.text


def test_a_barrier_needs_room_beside_what_is_combined() -> None:
    text = CHANNELS.replace("mean += x[(n * C + c) * S + i];", "{ y[(n * C + c) * S + i] = 0; mean += x[i]; }")
    ptx(text)
    assert rewritten(rewrite, text, CHANNELS_WORKLOAD) == []
