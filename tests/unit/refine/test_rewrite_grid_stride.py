from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.grid_stride import rewrite

CLAMPED_ADD = """
__global__ void clamped_add(const float* x, const float* y, float* z, int rows, int cols) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y;
    if (col >= cols || row >= rows) return;
    const int at = row * cols + col;
    if (x[at] < 0.0f) {
        z[at] = 0.0f;
        return;
    }
    z[at] = x[at] + y[at];
}
"""
WORKLOAD = """
def launch(module, x, y):
    z = torch.empty_like(x)
    rows, cols = x.shape
    module.clamped_add[((cols + 255) // 256, rows), (256,)](x, y, z, rows, cols)
    return z
"""


def test_caps_the_grid_of_the_workload() -> None:
    candidates = rewritten(rewrite, CLAMPED_ADD, WORKLOAD)
    assert [
        c.launch and "clamped_add[(min((cols + 255) // 256, 8 * 132), rows), (256,)]" in c.launch.text
        for c in candidates
    ] == [
        False,
        True,
        False,
    ]
    ptx(candidates[0].kernel.text)


@pytest.mark.parametrize(("gpu", "multiprocessors"), [("A100", 108), ("RTX 4090", 128), ("H100 PCIe", 114)])
def test_the_cap_is_that_of_the_device(gpu: str, multiprocessors: int) -> None:
    found = [c.launch.text for c in rewritten(rewrite, CLAMPED_ADD, WORKLOAD, gpu) if c.launch]
    assert any(f"8 * {multiprocessors})" in text for text in found)
    assert not any("132" in text for text in found)


def test_who_keeps_a_place_for_each_block_keeps_its_grid() -> None:
    """Whoever adds up `partial` reads as many places as there were blocks."""
    kernel = """
__global__ void dot(const float* a, const float* b, float* partial, int n) {
    float sum = 0.0f;
    for (int i = blockIdx.x * 256 + threadIdx.x; i < n; i += gridDim.x * 256) {
        sum = fmaf(a[i], b[i], sum);
    }
    sum = block_sum(sum);
    if (threadIdx.x == 0) {
        WRITE;
    }
}
"""
    workload = """
def launch(module, a, b, partial):
    module.dot[((a.numel() + 255) // 256,), (256,)](a, b, partial, a.numel())
"""
    assert rewritten(rewrite, kernel.replace("WRITE", "partial[blockIdx.x] = sum"), workload) == []
    assert rewritten(rewrite, kernel.replace("WRITE", "atomicAdd(&partial[blockIdx.x / 2], sum)"), workload) == []
    assert len(rewritten(rewrite, kernel.replace("WRITE", "atomicAdd(partial, sum)"), workload)) == 3


def test_caps_the_grid_of_host_code() -> None:
    source = f"""{CLAMPED_ADD}
void launch(const float* x, const float* y, float* z, int rows, int cols) {{
    int blocks = (cols + 255) / 256;
    clamped_add<<<blocks, 256>>>(x, y, z, rows, cols);
}}
"""
    texts = [c.kernel.text for c in rewritten(rewrite, source)]
    assert "int blocks = min(static_cast<long long>((cols + 255) / 256), 4 * 132LL);" in texts[0]


def test_a_grid_stride_loop_only_gets_the_cap() -> None:
    source = """
__global__ void count(const int* x, int* bins, int n) {
    int stride = gridDim.x * blockDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += stride) atomicAdd(&bins[x[i]], 1);
}
"""
    workload = "def launch(module, x):\n    module.count[(x.numel(),), (256,)](x, b, x.numel())\n"
    candidates = rewritten(rewrite, source, workload)
    assert {c.kernel.text for c in candidates} == {source}
    assert candidates[0].launch is not None
    assert "count[(min(x.numel(), 4 * 132),), (256,)]" in candidates[0].launch.text


@pytest.mark.parametrize("cols", [1, 64, 200])
def test_any_grid_is_right(tmp_path: Path, cols: int) -> None:
    candidate = rewritten(rewrite, CLAMPED_ADD, WORKLOAD)[0]
    x, y = np.random.default_rng(cols).standard_normal((2, 1, cols)).astype(np.float32)
    z = np.full_like(x, np.nan)
    host_runner(tmp_path, candidate.kernel.text)(2, 32, x, y, z, 1, cols)
    np.testing.assert_array_equal(z, np.where(x < 0, np.float32(0), x + y))


@pytest.mark.parametrize(
    "body",
    [
        "int i = blockIdx.x * blockDim.x + threadIdx.x; __shared__ float s[256]; if (i < n) s[threadIdx.x] = x[i];",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { x[i] = 1.0f; __syncthreads(); }",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; float a = 0.0f; if (i < n) a = x[i]; x[0] = a + i;",
        "int i = blockIdx.x; if (i < n) x[i] = 0.0f;",
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (x[i] < 0 && i < n) x[i] = 0.0f;",  # within what limits?
        "int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n && threadIdx.x < i) x[i] = 0.0f;",
    ],
)
def test_near_misses_are_left_alone(body: str) -> None:
    workload = "def launch(module, x):\n    module.f[(x.numel(),), (256,)](x, x.numel())\n"
    assert rewritten(rewrite, f"__global__ void f(float* x, int n) {{ {body} }}", workload) == []


@pytest.mark.parametrize(
    "work",
    [
        "if (i < n && (x[i] < 0 || x[i] > 1) && x[i] != 2) x[i] = 0;",
        "if (i < n && n > 2 && x[i] < 1) {\n        if (x[i]++ < 0) return;\n        x[i] = 3;\n    }",
        "if (i >= n || n < 2 || x[i] < 0) return;\n    x[i] = 5;",
    ],
)
def test_what_is_tested_of_an_element_is_tested_of_each(tmp_path: Path, work: str) -> None:
    text = "__global__ void f(float* x, int n) {\n    int i = blockIdx.x * blockDim.x + threadIdx.x;\n    WORK\n}\n"
    text = text.replace("WORK", work)
    workload = "def launch(module, x):\n    module.f[(x.numel(),), (256,)](x, x.numel())\n"
    found = rewritten(rewrite, text, workload)[0].kernel.text
    ptx(found)
    for n in (1, 33, 200):
        right = np.random.default_rng(n).integers(-2, 3, n).astype(np.float32)
        new = right.copy()
        host_runner(tmp_path, text)(-(-n // 32), 32, right, n)
        host_runner(tmp_path, found)(2, 32, new, n)
        np.testing.assert_array_equal(new, right)
