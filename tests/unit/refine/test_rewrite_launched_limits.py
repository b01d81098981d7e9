"""Kernels that test no limits, as their launches have a thread for each element and no more."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import checked, host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.launched_limits import rewrite
from kernel_lsp.refine.rewrites.reductions import register_sums

PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int rows, int width, int depth) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;

    // The sum of an element.
    float sum = 0.0f;
    for (int k = 0; k < depth; k++)
        sum += a[row * depth + k] * b[k * width + col];
    c[row * width + col] = sum;
}
"""
LAUNCH = """
def launch(module, a, b, c, m, n, k):
    block = (16, 16)
    module.product[GRID, block](a, b, c, m, n, k)
"""
GRIDS = [
    "(n // 16, m // 16)",
    "((n + 15) // 16, (m + 15) // 16)",
    "(-(-n // 16), triton.cdiv(m, 16))",
    "((n + block[0] - 1) // block[0], (m + block[1] - 1) // block[1])",
]


def test_a_product_without_a_test_goes_through_tiles(tmp_path: Path) -> None:
    found = rewritten(rewrite, PRODUCT, LAUNCH.replace("GRID", GRIDS[0]))
    assert found[-1].label == "limits of the launch, tiles of 16 x 16 in shared memory"
    launch = found[0].launch
    assert launch is not None
    assert "4 x 4 outputs" in found[0].label
    draw = np.random.default_rng(1)
    a, b = draw.standard_normal((32, 20)).astype(np.float32), draw.standard_normal((20, 48)).astype(np.float32)
    right, new = np.zeros((32, 48), np.float32), np.zeros((32, 48), np.float32)
    host_runner(tmp_path, PRODUCT)((3, 2), (16, 16), a, b, right, 32, 48, 20)
    for one, grid in ((found[0], (1, 1)), (found[-1], (3, 2))):
        ptx(one.kernel.text)
        host_runner(tmp_path, one.kernel.text)(grid, (16, 16), a, b, new, 32, 48, 20)
        np.testing.assert_allclose(new, right, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("grid", GRIDS[:3])
def test_the_grid_says_what_the_limit_is(grid: str) -> None:
    *_, tiled = rewritten(rewrite, PRODUCT, LAUNCH.replace("GRID", grid))
    assert "if (row < rows && col < width)" in tiled.kernel.text
    assert tiled.launch is not None
    assert "module.product[(-(-n // 16), -(-m // 16))" in tiled.launch.text


BY_NAME = """
void run(const float* a, const float* b, float* c, int n) {
    int threads = 16;
    int blocks = (n + threads - 1) / threads;
    dim3 block(threads, threads), grid(blocks, blocks);
    product<<<grid, block>>>(a, b, c, n, n, n);
}
"""
SMOOTH = """
__global__ void smooth(const float* x, const float* w, float* y, int n, int taps) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    float sum = 0;
    for (int j = 0; j < taps; j++)
        if (i + j < n) sum += x[i + j] * w[j];
    y[i] = sum;
}
void run(const float* x, const float* w, float* y, int n, int taps) {
    int threads = 256, blocks = (n + threads - 1) / threads;
    smooth<<<blocks, threads>>>(x, w, y, n, taps);
}
"""


def test_host_code_may_name_the_sizes_of_grid_and_block() -> None:
    *_, tiled = rewritten(rewrite, PRODUCT + BY_NAME)
    assert "grid((n + 15) / 16, (n + 15) / 16)" in tiled.kernel.text
    assert len(rewritten(rewrite, SMOOTH)) == 2
    assert rewritten(rewrite, PRODUCT + BY_NAME.replace("(n + threads - 1)", "(n + threads)")) == []
    assert rewritten(rewrite, SMOOTH.replace("(n + threads - 1)", "(n + taps)")) == []


def test_sums_in_memory_come_first() -> None:
    text = PRODUCT.replace("float sum = 0.0f;", "c[row * width + col] = 0.0f;").replace(
        "sum +=", "c[row * width + col] +="
    )
    text = text.replace("    c[row * width + col] = sum;\n", "")
    labels = [one.label for one in rewritten(register_sums.rewrite, text, LAUNCH.replace("GRID", GRIDS[0]))]
    assert (
        "sums in registers, limits of the launch, tiles of 16 x 16 in shared memory, 4 x 4 outputs per thread" in labels
    )


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float sum = 0.0f;", "if (row == 0) return; float sum = 0.0f;"),  # some threads do something else
        ("int col = blockIdx.x * blockDim.x + threadIdx.x;", "int col = blockIdx.x * blockDim.x + threadIdx.x + 1;"),
        ("float sum = 0.0f;", "float sum = 0.0f; __syncthreads();"),
        ("float sum = 0.0f;", "float sum = threadIdx.z;"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in PRODUCT
    text = PRODUCT.replace(old, new)
    ptx(text)
    assert rewritten(rewrite, text, LAUNCH.replace("GRID", GRIDS[0])) == []


@pytest.mark.parametrize(
    "grid", ["(n // 8, m // 16)", "(n // 16 + 1, m // 16)", "(4, 4)", "(a.shape[0] // 16, m // 16)"]
)
def test_a_grid_of_another_size_is_left_alone(grid: str) -> None:
    assert rewritten(rewrite, PRODUCT, LAUNCH.replace("GRID", grid)) == []


TRANSPOSED = """
#define N 64
#define THREADS 16
__global__ void transpose(const float* in, float* out) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    int to = x * N + y;
    out[to] = in[y * N + x];
}
"""
HOST = """
void run(const float* in, float* out) {
    dim3 block(THREADS, THREADS);
    dim3 grid(N / THREADS, N / THREADS);
    transpose<<<grid, block>>>(in, out);
}
"""
PYTHON = """
N = 64
def launch(module, a, b):
    module.transpose[GRID, (16, 16)](a, b)
"""


@pytest.mark.parametrize("grid", ["(4, 4)", "(N // 16, N // 16)", "((N + 15) // 16, 2 * 2)"])
def test_a_constant_that_a_launch_covers_is_a_limit(grid: str) -> None:
    (one,) = rewritten(rewrite, TRANSPOSED, PYTHON.replace("GRID", grid))
    assert "if (x < N && y < N) out[x * N + y] = tile" in one.kernel.text
    assert one.launch is not None
    assert "module.transpose[(2, 2), (32, 8)]" in one.launch.text
    ptx(one.kernel.text)


def test_a_constant_is_known_in_host_code() -> None:
    (one,) = rewritten(rewrite, TRANSPOSED + HOST)
    assert "dim3 grid(2, 2)" in one.kernel.text
    assert rewritten(rewrite, TRANSPOSED + HOST.replace("N / THREADS", "N / THREADS + 1")) == []


@pytest.mark.parametrize("grid", ["(2, 4)", "(a.shape[0] // 16, 4)", "(N // 0, 4)", "(4,)"])
def test_a_launch_that_covers_no_constant_is_left_alone(grid: str) -> None:
    assert rewritten(rewrite, TRANSPOSED, PYTHON.replace("GRID", grid)) == []


BATCHED = """
__global__ void product(const float* a, const float* b, float* c, int batches, int rows, int width, int depth) {
    int batch = blockIdx.z * blockDim.z + threadIdx.z;
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (batch >= batches || row >= rows || col >= width) return;
    float sum = 0.0f;
    for (int k = 0; k < depth; k++)
        sum += a[(batch * rows + row) * depth + k] * b[(batch * depth + k) * width + col];
    c[(batch * rows + row) * width + col] = sum;
}
"""
BATCHED_WORKLOAD = """
import torch

CASES = [dict(n=2, m=19, k=37, w=21)]


def inputs(n, m, k, w):
    return torch.randn(n, m, k, device="cuda"), torch.randn(n, k, w, device="cuda")


def reference(a, b):
    return a @ b


def launch(module, a, b):
    (n, m, k), w = a.shape, b.shape[2]
    c = torch.empty(n, m, w, device="cuda")
    module.product[(-(-w // 16), -(-m // 16), n), (16, 16, 1)](a, b, c, n, m, w, k)
    return c
"""


def test_a_test_that_all_blocks_pass_keeps_no_product_from_its_tiles(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    first, *_, tiled = rewritten(rewrite, BATCHED, BATCHED_WORKLOAD)
    assert "batches" not in tiled.kernel.text.split("{", 1)[1]
    found = {"first": first, "tiled": tiled}
    files = {name: (one.kernel.text, one.launch.text if one.launch else "") for name, one in found.items()}
    for name, report in checked(tmp_path, files).items():
        assert report.ok, (name, report.diagnostics)
        assert report.emulation is not None
        assert report.emulation.runs
    alone = BATCHED.replace("batch >= batches || ", "").replace(
        "    if (row", "    if (batch >= batches) return;\n    if (row"
    )
    assert rewritten(rewrite, alone, BATCHED_WORKLOAD)[-1].label == tiled.label


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("m // 16), n), (16", "m // 16), n + 1), (16"),
        ("(16, 16, 1)", "(16, 16, 2)"),
        ("(16, 16, 1)", "(16, 16, 1)](a, b, c, 9, m, w, k)\n    module.product[(2, 2, n), (16, 16, 1)"),
    ],
)
def test_a_test_that_some_block_may_fail_stays(old: str, new: str) -> None:
    assert old in BATCHED_WORKLOAD
    assert rewritten(rewrite, BATCHED, BATCHED_WORKLOAD.replace(old, new)) == []
