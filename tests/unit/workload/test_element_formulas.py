"""The formula of an element-wise CUDA kernel, read off its text; anything else has none."""

from pathlib import Path

import pytest

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.workload.draft import draft_workload

HEAD = "__global__ void frobnicate(const float* x, const float* scale, const float* bias, float* y, float s, "
FLAT = HEAD + "int n) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) {{ {} }} }}"
ROWS = HEAD + "int rows, int cols) {{ int i = blockIdx.x * blockDim.x + threadIdx.x; {} }}"
COLUMN = "int r = i / cols, c = i % cols; "


def reference(text: str) -> str:
    """Return the expression of a draft's reference; empty where the draft leaves it open."""
    path = Path("kernel.cu")
    drafted = draft_workload(SourceFile(path, text), find_kernels(text, path)[0])
    _, found, rest = drafted.partition("def reference(")
    assert ("read off the kernel itself" in drafted) is bool(found)
    return rest.splitlines()[1].strip().removeprefix("return ") if found else ""


@pytest.mark.parametrize(
    ("body", "formula"),
    [
        ("y[i] = x[i] * 0.5f + bias[i];", "x * 0.5 + bias"),
        ("float v = x[i]; y[i] = v / (1.f + expf(-v));", "x / (1.0 + torch.exp(-x))"),
        ("float v = x[i] + bias[i]; y[i] = v * v;", "(x + bias) * (x + bias)"),
        ("y[i] = fmaxf(0.f, x[i]);", "torch.clamp(x, min=0.0)"),
        ("y[i] = fminf(x[i], bias[i]);", "torch.minimum(x, bias)"),
        ("y[i] = x[i] > 0.f ? x[i] : s * x[i];", "torch.where(x > 0.0, x, s * x)"),
        ("y[ i ] = (float) __ldg(&x[i]) - s;", "x - s"),
        ("y[i] = rsqrtf(fabsf(x[i]) + s);", "torch.rsqrt(torch.abs(x) + s)"),
    ],
)
def test_each_element_by_itself(body: str, formula: str) -> None:
    assert reference(FLAT.format(body)) == formula


@pytest.mark.parametrize(
    ("body", "formula"),
    [
        (COLUMN + "y[i] = x[i] * scale[c] + bias[c];", "x * scale + bias"),
        (COLUMN + "y[i] = x[i] * scale[r] + bias[c];", "x * scale[:, None] + bias"),
        ("y[i] = x[i] + bias[i % cols];", "x + bias"),
        ("int r = i / cols; int c = i - r; y[r * cols + c] = x[r * cols + c] * scale[r];", "x * scale[:, None]"),
    ],
)
def test_rows_and_columns(body: str, formula: str) -> None:
    assert reference(ROWS.format(body)) == formula


@pytest.mark.parametrize(
    "body",
    [
        "y[i] = x[i + 1];",
        "y[i] = x[n - i];",
        "y[i] += x[i];",
        "y[i] = x[i]; y[n] = 0.f;",
        "if (x[i] > 0.f) y[i] = x[i];",
        "if (i % 2 == 0) y[i] = x[i];",
        "if (i > 0) y[i] = x[i];",
        "float v = x[i]; v = v * s; y[i] = v;",
        "float v = x[i]; v++; y[i] = v;",
        "y[i] = x[i] * n;",
        "y[i] = 1 / 2 * x[i];",
        "y[i] = s;",
        "y[i] = myown(x[i]);",
        "y[i] = x[i] & 1;",
        "for (int k = 0; k < n; ++k) y[i] = x[i];",
        "__shared__ float t[32]; t[threadIdx.x] = x[i]; __syncthreads(); y[i] = t[0];",
        "y[i] = __shfl_xor_sync(~0u, x[i], 1);",
        "const float* p = x + i; y[i] = p[i];",
        "bias[i] > 0.f ? y[i] = x[i] : y[i] = s;",
        "*y = x[i];",
        "y[0] = x[0];",
        "y[i] = 0x10 * x[i];",
        "y[i] = fmaxf(s, 0.f) * x[i];",
    ],
)
def test_what_is_none_is_left_open(body: str) -> None:
    assert reference(FLAT.format(body)) == ""


def test_numbers_of_other_types_are_left_open() -> None:
    assert reference(FLAT.format("y[i] = x[i];").replace("float*", "int*")) == ""


def test_a_formula_along_a_dimension_that_is_not_the_last_is_left_open() -> None:
    swapped = ROWS.replace("int rows, int cols", "int cols, int rows").format(COLUMN + "y[i] = x[i] * scale[c];")
    assert reference(swapped) == ""


def test_a_name_that_is_known_says_what_a_kernel_should_compute() -> None:
    text = "__global__ void relu(const float* x, float* y, int n) { int i = threadIdx.x; if (i < n) y[i] = x[i]; }"
    path = Path("kernel.cu")
    drafted = draft_workload(SourceFile(path, text), find_kernels(text, path)[0])
    assert "return torch.relu(x)" in drafted
    assert "read off the kernel itself" not in drafted
