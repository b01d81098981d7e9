"""Kernels that one thread runs alone."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.reductions.one_thread import rewrite

TOTAL = """
__global__ void normalise(const float* in, float* out, float* scale, int n) {
    float squares = 0.0f;
    float largest = in[0];
    for (int i = 0; i < n; ++i) {
        squares += in[i] * in[i];
        if (in[i] > largest) largest = in[i];
    }
    scale[0] = largest;
    for (int i = 0; i < n; ++i) out[i] = in[i] * rsqrtf(squares);
}
"""
LAUNCH = "def launch(module, x, y, s, n):\n    module.normalise[1, 1](x, y, s, n)\n"


def test_a_block_does_the_same_as_one_thread(tmp_path: Path) -> None:
    *_, one = rewritten(rewrite, TOTAL, LAUNCH)
    assert one.label == "1024 threads in place of one"
    assert one.launch
    assert "normalise[1, 1024]" in one.launch.text
    ptx(one.kernel.text)
    x = np.random.default_rng(7).standard_normal(300).astype(np.float32)
    y, scale = np.zeros_like(x), np.zeros(1, np.float32)
    host_runner(tmp_path, one.kernel.text)(1, 96, x, y, scale, len(x))
    np.testing.assert_allclose(y, x / np.sqrt((x * x).sum()), rtol=1e-5)
    assert scale[0] == x.max()


def test_wide_loads_come_first() -> None:
    first, *_ = rewritten(rewrite, TOTAL, LAUNCH)
    assert first.label == "1024 threads in place of one, 128-bit loads and stores"


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float squares = 0.0f;", "float squares = threadIdx.x;"),
        ("float squares = 0.0f;", "float squares = 0.0f; __syncthreads();"),
        ("float squares = 0.0f;", "__shared__ float squares;"),
    ],
)
def test_kernels_of_several_threads_are_left_alone(old: str, new: str) -> None:
    assert old in TOTAL
    assert rewritten(rewrite, TOTAL.replace(old, new), LAUNCH) == []


RUNNING = """
__global__ void running(const float* in, float* out, float* last, int n) {
    float sum = 1.0f;
    for (int i = 0; i < n; ++i) {
        float value = in[i];
        sum += value * value;
        out[i] = sum;
    }
    last[0] = sum;
}
"""
RUNNING_LAUNCH = "def launch(module, x, y, s, n):\n    module.running[1, 1](x, y, s, n)\n"


@pytest.mark.parametrize("length", [1, 64, 301])
def test_a_block_adds_up_in_order(tmp_path: Path, length: int) -> None:
    *_, one = rewritten(rewrite, RUNNING, RUNNING_LAUNCH)
    ptx(one.kernel.text)
    assert "if (i < n) out[i] = sum_here;" in one.kernel.text
    x = np.random.default_rng(7).standard_normal(length).astype(np.float32)
    y, last = np.zeros_like(x), np.zeros(1, np.float32)
    host_runner(tmp_path, one.kernel.text)(1, 64, x, y, last, length)
    np.testing.assert_allclose(y, 1 + np.cumsum(x * x), rtol=1e-5)
    np.testing.assert_allclose(last[0], y[-1], rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("out[i] = sum;", "out[i] = sum; sum *= 0.5f;"),  # a filter
        ("sum += value * value;", "sum += value * sum;"),
        ("sum += value * value;", "sum = value - sum;"),
        ("out[i] = sum;", "out[i / 2] = sum;"),
        ("out[i] = sum;", "out[i] = sum; last[0] += sum;"),
        ("float value = in[i];", "float value = out[i ? i - 1 : 0];"),
        ("out[i] = sum;", "out[i] = sum; if (sum > 5) break;"),
    ],
)
def test_what_each_step_makes_of_the_last_one_is_left_to_one_thread(old: str, new: str) -> None:
    assert old in RUNNING
    text = RUNNING.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, RUNNING_LAUNCH) == []


ROWS = TOTAL.replace("{\n", "{\n    in += blockIdx.x * n;\n    out += blockIdx.x * n;\n", 1).replace(
    "scale[0]", "scale[blockIdx.x]"
)


def test_each_block_of_one_thread_gets_more(tmp_path: Path) -> None:
    *_, one = rewritten(rewrite, ROWS, LAUNCH.replace("[1, 1]", "[len(s), 1]"))
    assert one.label == "256 threads in place of one a block"
    assert one.launch
    assert "normalise[len(s), 256]" in one.launch.text
    ptx(one.kernel.text)
    x = np.random.default_rng(7).standard_normal((3, 100)).astype(np.float32)
    y, scale = np.zeros_like(x), np.zeros(3, np.float32)
    host_runner(tmp_path, one.kernel.text)(3, 64, x, y, scale, 100)
    np.testing.assert_allclose(y, x / np.sqrt((x * x).sum(1, keepdims=True)), rtol=1e-5)
    np.testing.assert_array_equal(scale, x.max(1))


@pytest.mark.parametrize("launch", ["[1, 32]", "[n, 1]", "[(1, 2), 1]"])
def test_launches_of_several_threads_are_left_alone(launch: str) -> None:
    assert rewritten(rewrite, TOTAL, LAUNCH.replace("[1, 1]", launch)) == []
