"""Doubles that only literals make, and powers that are products."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.float_arithmetic import rewrite

NORMS = """
__device__ float scaled(float value, float by) { return value * 0.5 + by / 3.0; }

__global__ void norms(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float total = 0.0, d = x[i] - 1;
    for (int j = 0; j < 4; ++j) total += pow(x[i] - x[(i + j) % n], 2);
    total += 1e-3 * powf(d, 3.0f) + pow(d, 2);
    y[i] = scaled(total > 0.25 ? total : 2., 1.0 / (1.0 + d * d));
}
"""
SINGLE = """
// Nothing here is of double precision.
__global__ void plain(float* x) {
    float start = 1.0;
    x[threadIdx.x] *= start;
}
"""


def test_floats_stay_floats_and_powers_become_products(tmp_path: Path) -> None:
    (one,) = rewritten(rewrite, NORMS)
    text = one.kernel.text
    assert "f64" in ptx(NORMS)
    assert "f64" not in ptx(text)
    assert "total += squared(x[i] - x[(i + j) % n]);" in text
    assert "1e-3f * (d * d * d) + (d * d);" in text
    assert "scaled(total > 0.25f ? total : 2.f, 1.0f / (1.0f + d * d))" in text
    assert "return value * 0.5f + by / 3.0f;" in text
    x = np.random.default_rng(3).standard_normal(37).astype(np.float32)
    near = np.stack([(x - np.roll(x, -j)).astype(np.float64) ** 2 for j in range(4)]).sum(0)
    d = x.astype(np.float64) - 1
    total = near + 1e-3 * d**3 + d**2
    y = np.zeros_like(x)
    host_runner(tmp_path, text)(2, 32, x, y, len(x))
    np.testing.assert_allclose(y, np.where(total > 0.25, total, 2) * 0.5 + 1 / (1 + d * d) / 3, rtol=1e-5)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int n) {", "int n, double by) {"),
        ("int n) {", "int n) {\n    const double wide = x[0];"),
        ("__global__", "__constant__ double total;\n__global__"),
        ("__global__", "typedef double real;\n__device__ real d;\n__global__"),
        ("int n) {", "int n, unknown_t* more) {"),
    ],
)
def test_a_kernel_with_doubles_of_its_own_is_left_alone(old: str, new: str) -> None:
    assert old in NORMS
    text = NORMS.replace("scaled(total > 0.25 ? total : 2., 1.0 / (1.0 + d * d))", "total").replace(old, new)
    assert rewritten(rewrite, text) == []


def test_only_what_is_known_changes() -> None:
    text = NORMS.replace("pow(x[i] - x[(i + j) % n], 2)", "pow(i, 2) + pow(x[i], 2.5) + other(0.1)")
    (one,) = rewritten(rewrite, text)
    assert "pow(i, 2) + pow(x[i], 2.5f) + other(0.1)" in one.kernel.text
    wide = NORMS.replace("* 0.5", "* (double)0.5")
    (one,) = rewritten(rewrite, wide)
    assert "(double)0.5" in one.kernel.text
    assert "scaled(total > 0.25f ? total : 2.f, 1.0 / " in one.kernel.text


def test_first_values_alone_are_no_reason() -> None:
    assert rewritten(rewrite, SINGLE) == []
