"""Kernels that declare variables ahead, or count in loops' last statements, get the rewrites of those that do not."""

from pathlib import Path

import pytest
from rewrite_support import checked, cuda_kernel, ptx, rewritten

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.refine.rewrites.products import tile_product
from kernel_lsp.refine.rewrites.writing.plain_forms import plain_form
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

NORMS = """
__global__ void norms(const float *x, float *y, int rows, int columns) {
    int row, i;
    float sum, mean, squares;  // of a row

    row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float at;
        sum = 0.0f, squares = 0.0f;
        for (i = 0; i < columns; i++) {
            at = x[row * columns + i];
            sum += at;
            squares += at * at;
        }
        mean = sum / columns;
        for (i = 0; i < columns; i++) {
            at = x[row * columns + i] - mean;
            y[row * columns + i] = at * rsqrtf(squares / columns - mean * mean + 1e-5f);
        }
    }
}
"""
PLAIN_NORMS = """
__global__ void norms(const float *x, float *y, int rows, int columns) {
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < rows) {
        float sum = 0.0f;
        float squares = 0.0f;
        for (int i = 0; i < columns; i++) {
            float at = x[row * columns + i];
            sum += at;
            squares += at * at;
        }
        float mean = sum / columns;
        for (int i = 0; i < columns; i++) {
            float at = x[row * columns + i] - mean;
            y[row * columns + i] = at * rsqrtf(squares / columns - mean * mean + 1e-5f);
        }
    }
}
"""
NORMS_WORKLOAD = """
import torch

CASES = [dict(rows=5, columns=67), dict(rows=33, columns=7)]


def inputs(rows, columns):
    return torch.randn(rows, columns, device="cuda")


def reference(x):
    return torch.nn.functional.layer_norm(x, x.shape[1:])


def launch(module, x):
    y = torch.empty_like(x)
    module.norms[-(-x.shape[0] // 32), 32](x, y, *x.shape)
    return y
"""
COUNTS = """
__global__ void counts(const int *values, int *bins, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    int step = blockDim.x * gridDim.x;
    while (i < n) {
        int bin = values[i];
        atomicAdd(&bins[bin], 1);
        i += step;  // of the whole grid
    }
}
"""
PLAIN_COUNTS = """
__global__ void counts(const int *values, int *bins, int n) {
    int step = blockDim.x * gridDim.x;
    for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += step) {
        int bin = values[i];
        atomicAdd(&bins[bin], 1);
    }
}
"""
COUNTS_WORKLOAD = """
import torch

CASES = [dict(n=1003)]


def inputs(n):
    return torch.randint(0, 50, (n,), device="cuda", dtype=torch.int32)


def reference(values):
    return torch.bincount(values, minlength=50).to(torch.int32)


def launch(module, values):
    bins = torch.zeros(50, device="cuda", dtype=torch.int32)
    module.counts[2, 128](values, bins, values.numel())
    return bins
"""
PRODUCT = """
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    int row = blockIdx.y * blockDim.y + threadIdx.y;
    int col = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < m && col < n) {
        float sum = 0.0f;
        for (int i = 0; i < k; i ++) sum += a[row * k + i] * b[i * n + col];
        c[row * n + col] = sum;
    }
}
void run(const float* a, const float* b, float* c, int m, int n, int k) {
    dim3 block(16, 16), grid((n + 15) / 16, (m + 15) / 16);
    product<<<grid, block>>>(a, b, c, m, n, k);
}
"""


def plain(text: str) -> str | None:
    found = plain_form(*cuda_kernel(text))
    return found.file.text if found is not None else None


@pytest.mark.parametrize(("old", "new"), [(NORMS, PLAIN_NORMS), (COUNTS, PLAIN_COUNTS)])
def test_values_and_steps_stand_where_people_put_them_today(old: str, new: str) -> None:
    assert plain(old) == new
    assert plain(new) is None
    ptx(new)


def proposed(text: str, workload: str) -> dict[str, Candidate]:
    file, kernel = cuda_kernel(text)
    base = Candidate(Language.CUDA, file, SourceFile(Path("workload.py"), workload), "", "")
    return {one.origin: one for one in find_rewrites(base, kernel, device_named("H100"))}


def test_rewrites_of_today_apply_and_their_results_are_right(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    made = {
        "norms": proposed(NORMS, NORMS_WORKLOAD)["rewrite:parallel_rows"],
        "counts": proposed(COUNTS, COUNTS_WORKLOAD)["rewrite:shared_bins"],
    }
    files = {name: (one.kernel.text, one.launch.text if one.launch else "") for name, one in made.items()}
    for name, report in checked(tmp_path, files).items():
        assert report.ok, (name, report.diagnostics)
        assert report.emulation is not None
        assert report.emulation.runs


def test_a_rewrite_that_applies_keeps_the_kernels_own_form() -> None:
    assert "float sum, mean, squares;" in proposed(NORMS, NORMS_WORKLOAD)["rewrite:restrict"].kernel.text


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("mean = sum / columns;", "if (columns > 1) mean = sum / columns;"),  # another value lives on
        ("mean = sum / columns;", "mean = mean + sum / columns;"),
        ("mean = sum / columns;", "mean = sum / columns; scale(&mean);"),
        ("float sum, mean, squares;", "volatile float sum, mean, squares;"),
    ],
)
def test_variables_whose_values_may_come_from_elsewhere_stay(old: str, new: str) -> None:
    found = plain(NORMS.replace(old, new))
    assert found is not None
    assert "float mean = " not in found


def test_a_variable_that_outlives_its_block_stays() -> None:
    found = plain(NORMS.replace("        }\n    }\n}", "        }\n    }\n    y[0] = sum;\n}"))
    assert found is not None
    assert "float sum, squares;  // of a row" in found


def test_variables_that_a_macro_may_name_stay() -> None:
    found = plain("#define MINE (x[row * columns + i])\n" + NORMS)
    assert found is not None
    assert "int row, i;" in found


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int bin = values[i];", "int bin = values[i]; if (bin < 0) continue;"),  # would not count up
        ("int bin = values[i];", "int bin = values[i]; if (bin < 0) i += step;"),
        ("int step =", "int first = i, step ="),
        ("i += step;", "i -= step;"),
        ("    }\n}", "    }\n    bins[0] = i;\n}"),
        ("int i = blockIdx", "#define VALUE values[i]\n    int i = blockIdx"),
    ],
)
def test_loops_that_count_in_another_way_stay(old: str, new: str) -> None:
    assert old in COUNTS
    assert plain(COUNTS.replace(old, new)) is None


def test_a_blank_ahead_of_an_increment_keeps_no_product_from_its_tiles() -> None:
    assert rewritten(tile_product.rewrite, PRODUCT)


def test_arrays_that_are_parameters_are_pointers() -> None:
    arrays = NORMS.replace("const float *x, float *y", "const float x[], float y[64]")
    found = plain_form(*cuda_kernel(arrays))
    assert found is not None
    assert found.file.text == PLAIN_NORMS.replace("const float *x, float *y", "const float* x, float* y")
    assert [one.type for one in found.kernel.parameters[:2]] == ["const float *", "float *"]
    assert found.kernel.body == cuda_kernel(found.file.text)[1].body


@pytest.mark.parametrize("parameter", ["const float x[2][4]", "const float (*x)[4]", "const float* x[2]"])
def test_arrays_of_arrays_stay_as_they_are(parameter: str) -> None:
    assert plain_form(*cuda_kernel(PLAIN_NORMS.replace("const float *x", parameter))) is None
