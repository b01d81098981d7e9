from pathlib import Path

import pytest
from rewrite_support import checked, cuda_kernel, ptx, rewritten
from staged_kernels import PLAIN, PLAIN_WORKLOAD, product_workload

from kernel_lsp.refine.rewrites.copies.two_stages import rewrite
from kernel_lsp.refine.rewrites.products import register_tile

EXAMPLES = Path(__file__).parents[3] / "examples" / "cuda"
SGEMM = (EXAMPLES / "sgemm.cu").read_text()
SGEMM_WORKLOAD = (EXAMPLES / "sgemm_workload.py").read_text()

# Fills in branches and in a loop, one pitch with a spare element, a comment, all on the line of the loop's brace.
BRANCHES = """
#define T 16
__global__ void product(const float* a, const float* b, float* c, int m, int n, int k) {
    __shared__ float left[T][T + 1], right[T][T];
    int tx = threadIdx.x, ty = threadIdx.y, col = blockIdx.x * T + tx;
    float sums[2] = {0.f, 0.f};
    for (int t = 0; t < (k + T - 1) / T; ++t) { for (int i = 0; i < 2; ++i) {
            const int row = blockIdx.y * T + ty + i * 8;
            // Rows beyond the last are zero.
            if (row < m && t * T + tx < k) {
                left[ty + i * 8][tx] = __ldg(&a[row * k + t * T + tx]);
            } else {
                left[ty + i * 8][tx] = 0;
            }
            right[ty + i * 8][tx] = (col < n && t * T + ty + i * 8 < k) ? b[(t * T + ty + i * 8) * n + col] : 0.0f;
        }
        __syncthreads();
        for (int e = 0; e < T; ++e) {
            for (int i = 0; i < 2; ++i) sums[i] += left[ty + i * 8][e] * right[e][tx];
        }
        __syncthreads();
    }
    for (int i = 0; i < 2; ++i) {
        const int row = blockIdx.y * T + ty + i * 8;
        if (row < m && col < n) c[row * n + col] = sums[i];
    }
}
"""
BRANCHES_WORKLOAD = product_workload(16, 16, "(16, 8)")


def outputs_of_several(text: str, workload: str) -> str:
    """The kernel with 2 x 4 outputs a thread."""
    (wanted,) = [one for one in rewritten(register_tile.rewrite, text, workload) if one.label.startswith("2 x 4")]
    assert wanted.launch is not None
    return wanted.kernel.text


KERNELS = {
    "plain": (PLAIN, PLAIN_WORKLOAD),
    "branches": (BRANCHES, BRANCHES_WORKLOAD),
    "example": (SGEMM, SGEMM_WORKLOAD),
}


def in_stages(text: str, workload: str) -> str:
    """A kernel's text with two stages; fails where the rewrite does not apply."""
    (found,) = rewritten(rewrite, text, workload)
    return found.kernel.text


@pytest.fixture
def no_gpu(monkeypatch: pytest.MonkeyPatch):
    pytest.importorskip("torch")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


def test_results_are_right_on_the_emulator_and_nothing_is_found(tmp_path: Path, no_gpu: None):
    made = {name: (in_stages(text, workload), workload) for name, (text, workload) in KERNELS.items()}
    assert all(ptx(text).count("cp.async.ca.shared.global") >= 2 for text, _ in made.values())
    for name, report in checked(tmp_path, made).items():
        assert report.ok, (name, report.diagnostics)
        assert report.emulation is not None
        assert {finding for run in report.emulation.runs for finding in run.findings} == set()
        assert len({run.family for run in report.emulation.runs}) >= 5


def test_what_a_thread_forgets_to_await_is_found(tmp_path: Path, no_gpu: None):
    good = in_stages(PLAIN, PLAIN_WORKLOAD)
    broken = {
        "copies": ("        await_copies();\n", ""),
        "threads": ("        __syncthreads();\n", ""),
        "stage": ("fill(k0 + TILE, stage ^ 1)", "fill(k0 + TILE, stage)"),
        "bounds": ("row < m && to < k", "row < m"),
    }
    files: dict[str, tuple[str, str]] = {}
    for name, (right, wrong) in broken.items():
        assert good.count(right) == 1, name
        files[name] = good.replace(right, wrong), PLAIN_WORKLOAD
    reports = checked(tmp_path, files)
    assert {name for name, report in reports.items() if report.ok} == set()


def test_tiles_of_several_outputs_get_stages_too():
    text = outputs_of_several(SGEMM, SGEMM_WORKLOAD)
    made = in_stages(text, SGEMM_WORKLOAD)
    assert "copy_async(&As[stage][tile_y][ty][tx], &A[row * K + k0 + tx], row < M && k0 + tx < K);" in made
    assert "As[stage][tile_y][ty][k] * Bs[stage][k][tx][tile_x]" in made
    assert made.count("__syncthreads();") == 1
    assert "st.shared" not in ptx(made)


def test_the_text_grows_by_little():
    made = in_stages(SGEMM, SGEMM_WORKLOAD)
    assert len(made.splitlines()) <= len(SGEMM.splitlines()) + 22  # 14 of them define two functions


@pytest.mark.parametrize(
    ("old", "new"),
    [
        pytest.param("? a[(size_t)row * k + to] : 0", "? a[(size_t)row * k + to] : 1", id="filled up with ones"),
        pytest.param("? a[(size_t)row * k + to] : 0", "? 2 * a[(size_t)row * k + to] : 0", id="computed"),
        pytest.param("__shared__ float a_tile", "__shared__ double a_tile", id="another type"),
        pytest.param("a[(size_t)row * k + to]", "a[(int)a[(size_t)row * k + to]]", id="place read from memory"),
        pytest.param("float sum = 0.0f;", "float sum = 0.0f; b_tile[0][0] = 0;", id="tile used before"),
        pytest.param(
            "if (row < m && col < n) c", "sum += b_tile[0][0];\n    if (row < m && col < n) c", id="and after"
        ),
        pytest.param("float sum = 0.0f;", "float sum = 0.0f; __shared__ float other; other = 0;", id="other shared"),
        pytest.param("const float* __restrict__ a", "float* a", id="memory that may be written"),
        pytest.param("i < TILE; ++i) sum", "i < TILE; ++i) a += 1, sum", id="a pointer that walks"),
        pytest.param("i < TILE; ++i) sum", "i < TILE && to < k; ++i) sum", id="computes with the fill's own"),
        pytest.param(
            "const int from = k0 + threadIdx.y;", "if (k0 > k - TILE) break;\nconst int from = k0;", id="leaves"
        ),
        pytest.param("k0 < k;", "k0 < k + (int)threadIdx.x;", id="other steps for each thread"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str):
    assert old in PLAIN
    text = PLAIN.replace(old, new)
    if new.startswith("float* a"):
        text = text.replace("const int to =", "c[0] = 0;\n        const int to =")
    ptx(text)
    assert rewritten(rewrite, text, PLAIN_WORKLOAD) == []


def test_elements_that_a_step_leaves_keep_the_loop():
    guarded = BRANCHES.replace(" else {\n                left[ty + i * 8][tx] = 0;\n            }", "")
    assert guarded != BRANCHES
    ptx(guarded)
    assert rewritten(rewrite, guarded, BRANCHES_WORKLOAD) == []


def test_stages_that_do_not_fit_and_earlier_gpus_keep_the_loop():
    large = PLAIN.replace("TILE = 16", "TILE = 64")
    file, _ = cuda_kernel(large)
    assert rewritten(rewrite, file.text, PLAIN_WORKLOAD) == []
    assert rewritten(rewrite, PLAIN, PLAIN_WORKLOAD, "T4") == []
    assert rewritten(rewrite, PLAIN, PLAIN_WORKLOAD, "A100") != []
