"""Running sums of an array by all of the GPU, and those that a loop carries in memory."""

import re
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten, warnings

from kernel_lsp.refine.rewrites.reductions import register_sums
from kernel_lsp.refine.rewrites.reductions.grid_scan import rewrite

# The sum is carried in memory; the first element is set ahead.
CARRIED = """
__global__ void running(const float* in, float* out, int n) {
    out[0] = in[0];
    for (int i = 1; i < n; ++i) {
        out[i] = out[i - 1] + in[i] * in[i];
    }
}
"""
IN_PLACE = """
__global__ void running(float* x, int n) {
    for (int i = 1; i < n; ++i) x[i] += x[i - 1];
}
"""
# A thread for each element adds up all elements to its own.
QUADRATIC = """
__global__ void running(const double* in, double* out, unsigned n, int skip) {
    unsigned place = blockIdx.x * blockDim.x + threadIdx.x;
    if (place >= n) return;
    double total = 1.0;
    for (unsigned j = 0; j <= place; ++j) total += 2 * in[j];
    out[skip + place] = total;
}
"""
LAUNCHES = {
    CARRIED: "module.running[1, 1](x, y, x.numel())",
    IN_PLACE: "module.running[1, 1](y, y.numel())",
    QUADRATIC: "module.running[-(-x.numel() // 256), 256](x, y, x.numel(), 0)",
}
LENGTHS = (1, 5, 64, 65, 128, 129, 200)


def workload(text: str) -> str:
    return f"def launch(module, x, y):\n    {LAUNCHES[text]}\n    return y\n"


def scan(folder: Path, text: str, shared: int) -> Callable[..., None]:
    """`run(length, *arguments)` for three kernels, parts of 64; the last two take the arguments from `shared` on."""
    (one,) = rewritten(rewrite, text, workload(text))
    head, *kernels = re.split(r"(?=__global__ )", one.kernel.text.replace("PART = 4096", "PART = 64"))
    first, totals, rest = [host_runner(folder, head + kernel) for kernel in kernels]

    def run(length: int, *values: np.ndarray | float) -> None:
        first(-(-length // 64), 32, *values)
        totals(1, 32, *values[shared:])
        rest(-(-length // 32), 32, *values[shared:])

    return run


def test_three_launches_add_up_the_whole_array(tmp_path: Path) -> None:
    carried, in_place, quadratic = (scan(tmp_path, text, text is not IN_PLACE) for text in LAUNCHES)
    for length in LENGTHS:
        x = np.random.default_rng(length).standard_normal(length).astype(np.float32)
        y = np.full(length + 1, 7, np.float32)
        carried(length, x, y, length)
        right = np.concatenate([x[:1], x[1:] * x[1:]]).cumsum()
        np.testing.assert_allclose(y, [*right, 7], rtol=1e-5, atol=1e-5)
        y = x.copy()
        in_place(length, y, length)
        np.testing.assert_allclose(y, x.cumsum(), rtol=1e-5, atol=1e-5)
        wide, sums = x.astype(np.float64), np.full(length + 1, 7.0)
        quadratic(length, wide, sums, length, 0)
        np.testing.assert_allclose(sums, [*(1 + (2 * wide).cumsum()), 7], rtol=1e-12)


def test_the_workload_launches_all_three() -> None:
    for text in LAUNCHES:
        (one,) = rewritten(rewrite, text, workload(text))
        assert one.launch is not None
        assert warnings(one.kernel.text, "sm_90") == ""
        assert re.findall(r"module\.(\w+)\[", one.launch.text) == [
            "running",
            "running_of_parts",
            "running_before_parts",
        ]
        assert "    return y\n" in one.launch.text


def test_launches_keep_tabs() -> None:
    (one,) = rewritten(rewrite, CARRIED, workload(CARRIED).replace("    ", "\t"))
    assert one.launch is not None
    assert "\tmodule.running_of_parts[1, 1024](y, x.numel())\n\tmodule." in one.launch.text


def test_launches_in_host_code_are_three_too() -> None:
    host = "void run(const float* a, float* b, int count) {\n    running<<<1, 1>>>(a, b, count);\n}\n"
    (one,) = rewritten(rewrite, CARRIED + host)
    assert "    running<<<(count + 4095) / 4096, 256>>>(a, b, count);\n" in one.kernel.text
    assert "    running_of_parts<<<1, 1024>>>(b, count);\n" in one.kernel.text
    assert "    running_before_parts<<<(count + 255) / 256, 256>>>(b, count);\n" in one.kernel.text
    assert rewritten(rewrite, CARRIED + host.replace("    running<<<", "    if (count > 9) running<<<")) == []
    (one,) = rewritten(rewrite, CARRIED + host.replace("<<<1, 1>>>", "<<<1, 1, 0, stream>>>"))
    assert "    running_of_parts<<<1, 1024, 0, stream>>>(b, count);\n" in one.kernel.text
    bytes_too = workload(CARRIED).replace("[1, 1]", "[1, 1, 0]").replace("module.running", 'module["running"]')
    (one,) = rewritten(rewrite, CARRIED, bytes_too)
    assert one.launch is not None
    assert '    module["running_of_parts"][1, 1024, 0](y, x.numel())\n' in one.launch.text


@pytest.mark.parametrize(
    ("text", "old", "new"),
    [
        (CARRIED, "in[i] * in[i]", "in[i] * out[i - 1]"),  # no sum
        (CARRIED, "in[i] * in[i]", "out[n - i]"),
        (CARRIED, "out[i - 1] + in", "out[i - 2] + in"),
        (CARRIED, "out[i - 1] + in", "2 * out[i - 1] + in"),
        (CARRIED, "out[0] = in[0];", "out[0] = in[0]; out[2] = in[0];"),
        (CARRIED, "out[0] = in[0];", "float first = in[0]; out[0] = first;"),
        (CARRIED, "    }\n", "    }\n    out[0] = 0.0f;\n"),
        (CARRIED, "in[i] * in[i]", "in[i + threadIdx.x]"),
        (CARRIED, "in[0];", "in[blockIdx.y];"),
        (CARRIED, "float* out", "int* out"),  # each element is rounded
        (QUADRATIC, "j <= place", "j < place"),
        (QUADRATIC, "unsigned j = 0", "unsigned j = 1"),
        (QUADRATIC, "2 * in[j]", "place * in[j]"),
        (QUADRATIC, "2 * in[j]", "2 * out[j]"),
        (QUADRATIC, "2 * in[j]", "in[blockIdx.y + j]"),
        (QUADRATIC, "[skip + place] = total", "[skip + place] = total / 2"),
        (QUADRATIC, "[skip + place] = total", "[2 * place] = total"),
    ],
)
def test_other_recurrences_are_left_alone(text: str, old: str, new: str) -> None:
    assert old in text
    assert rewritten(rewrite, text.replace(old, new), workload(text)) == []


ROWS = """
__global__ void running(const float* x, float* y, int rows, int length) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    y[row * length] = x[row * length];
    for (int j = 1; j < length; j++)
        y[row * length + j] = x[row * length + j] + y[row * length + j - 1];
}
"""


def test_sums_along_rows_are_carried_in_a_register_and_shared_out(tmp_path: Path) -> None:
    launch = "def launch(module, x, y, r, n):\n    module.running[-(-r // 32), 32](x, y, r, n)\n"
    found = rewritten(register_sums.rewrite, ROWS, launch)
    assert "sums in registers, one warp a row" in {one.label for one in found}
    assert "sum += x[row * length + j];" in found[-1].kernel.text
    x = np.random.default_rng(5).standard_normal((3, 70)).astype(np.float32)
    for one, grid, block in ((found[-1], 1, 32), (found[0], 3, 64)):
        ptx(one.kernel.text)
        y = np.zeros_like(x)
        host_runner(tmp_path, one.kernel.text)(grid, block, x, y, 3, 70)
        np.testing.assert_allclose(y, x.cumsum(1), rtol=1e-5, atol=1e-5)
