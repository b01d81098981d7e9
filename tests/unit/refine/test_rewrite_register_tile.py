import re
from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.products.register_tile import rewrite
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels

EXAMPLES = Path(__file__).parents[3] / "examples" / "cuda"
SGEMM = (EXAMPLES / "sgemm.cu").read_text()
SGEMM_WORKLOAD = (EXAMPLES / "sgemm_workload.py").read_text()

# Sizes by macro, flat tiles, rows along y by way of names, pointers that walk along k, a scaled sum at the end.
WALKING = """
#define BS 8
__global__ void product(const float *left, const float *right, float *out, int m, int n, int k, float alpha) {
    int bx = blockIdx.x, by = blockIdx.y, tx = threadIdx.x, ty = threadIdx.y;
    __shared__ float l[BS * BS], r[BS * BS];
    int i = by * BS + ty, j = bx * BS + tx;
    const float *from_left = left + (size_t)i * k;
    float sum = 0;
    for (int t = 0; t < (k + BS - 1) / BS; ++t) {
        if (i < m && t * BS + tx < k) l[ty * BS + tx] = from_left[tx]; else l[ty * BS + tx] = 0;
        float value = 0;
        if (j < n && t * BS + ty < k) value = right[(size_t)(t * BS + ty) * n + j];
        r[ty * BS + tx] = value;
        from_left += BS;
        __syncthreads();
        for (int e = 0; e < BS; ++e)
            sum = fmaf(l[ty * BS + e], r[e * BS + tx], sum);
        __syncthreads();
    }
    if (i < m && j < n) {
        float scaled = alpha * sum;
        out[i * n + j] = scaled + out[i * n + j];
    }
}
"""
WALKING_WORKLOAD = """
def launch(module, a, b, out):
    m, k = a.shape
    n = b.shape[1]
    module.product[((n + 7) // 8, (m + 7) // 8), (8, 8)](a, b, out, m, n, k, 2.0)
    return out
"""
# A template's size, padded tiles, and rows of the result along the grid's x axis.
TURNED = """
template <int T>
__global__ void distances(const float* a, const float* b, float* out, int m, int n, int k) {
    __shared__ float tile_a[T][T + 1];
    __shared__ float tile_b[T][T + 1];
    const int first_row = blockIdx.x * T;
    const int first_col = blockIdx.y * T;
    float sum = 0.f;
    for (int k0 = 0; k0 < k; k0 += T) {
        const int at = k0 + threadIdx.x;
        const int row = first_row + threadIdx.y;
        tile_a[threadIdx.y][threadIdx.x] = row < m && at < k ? a[row * k + at] : 0.f;
        if (first_col + threadIdx.y < n && at < k) {
            tile_b[threadIdx.y][threadIdx.x] = b[(first_col + threadIdx.y) * k + at];
        } else {
            tile_b[threadIdx.y][threadIdx.x] = 0.f;
        }
        __syncthreads();
        #pragma unroll 4
        for (int e = 0; e < T; ++e) {
            float gap = tile_a[threadIdx.y][e] - tile_b[threadIdx.x][e];
            sum += gap * gap;
        }
        __syncthreads();
    }
    const int col = first_col + threadIdx.x;
    if (first_row + threadIdx.y < m && col < n) out[(first_row + threadIdx.y) * n + col] = sum;
}
"""


def tiles(candidate: Candidate) -> tuple[int, int]:
    """Tiles per block along y and x, as the kernel says."""
    down, across = (int(re.findall(rf"TILES_{axis} = (\d)", candidate.kernel.text)[0]) for axis in "YX")
    return down, across


def cdiv(a: int, b: int) -> int:
    return (a + b - 1) // b


def blocks(candidate: Candidate, tile: int, m: int, n: int) -> tuple[int, int]:
    down, across = tiles(candidate)
    return cdiv(n, tile * across), cdiv(m, tile * down)


def operands(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    draw = np.random.default_rng(m * n * k)
    return draw.standard_normal((m, k)).astype(np.float32), draw.standard_normal((k, n)).astype(np.float32)


@pytest.mark.thorough
@pytest.mark.parametrize("which", range(6))
def test_the_example_keeps_its_bits_on_every_size(tmp_path: Path, which: int) -> None:
    # Blocks of 4 x 4 threads: one host thread stands for each.
    source = SGEMM.replace("TILE = 16", "TILE = 4")
    candidate = rewritten(rewrite, source, SGEMM_WORKLOAD)[which]
    old, new = host_runner(tmp_path, source), host_runner(tmp_path, candidate.kernel.text)
    for m, n, k in [(65, 47, 83), (1, 1, 1), (16, 64, 16), (90, 5, 33)]:
        a, b = operands(m, n, k)
        before, after = (np.full((m + 2, n), np.nan, np.float32) for _ in range(2))
        old((cdiv(n, 4), cdiv(m, 4)), (4, 4), a, b, before, m, n, k)
        new(blocks(candidate, 4, m, n), (4, 4), a, b, after, m, n, k)
        np.testing.assert_array_equal(after[:m], before[:m])
        np.testing.assert_allclose(after[:m], a @ b, rtol=1e-4, atol=1e-4)
        assert np.isnan(after[m:]).all()


@pytest.mark.parametrize("which", [0, 2, 4])
def test_names_pointers_and_flat_tiles(tmp_path: Path, which: int) -> None:
    m, n, k = 65, 47, 83
    a, b = operands(m, n, k)
    candidate = rewritten(rewrite, WALKING, WALKING_WORKLOAD)[which]
    ptx(candidate.kernel.text)
    out = np.ones((m, n), np.float32)
    host_runner(tmp_path, candidate.kernel.text)(blocks(candidate, 8, m, n), (8, 8), a, b, out, m, n, k, 2.0)
    np.testing.assert_allclose(out, 1 + 2 * (a @ b), rtol=1e-4, atol=1e-4)


def test_other_sums_of_two_tiles_and_turned_axes(tmp_path: Path) -> None:
    m, n, k = 30, 21, 19
    a, b = operands(m, n, k)
    host = "void launch(float* a, float* b, float* c, int m, int n, int k) {\n"
    host += "    dim3 grid((m + 7) / 8, (n + 7) / 8);\n    distances<8><<<grid, dim3(8, 8)>>>(a, b, c, m, n, k);\n}\n"
    candidate = rewritten(rewrite, f"{TURNED}\n{host}")[1]
    down, across = tiles(candidate)
    assert f"grid((((m + 7) / 8) + {across - 1}) / {across}, (((n + 7) / 8) + {down - 1}) / {down});" in (
        candidate.kernel.text
    )
    text = candidate.kernel.text.replace("template <int T>", "constexpr int T = 8;").partition("void launch")[0]
    out = np.zeros((m, n), np.float32)
    host_runner(tmp_path, text)(
        (cdiv(m, 8 * across), cdiv(n, 8 * down)), (8, 8), a, np.ascontiguousarray(b.T), out, m, n, k
    )
    np.testing.assert_allclose(out, ((a[:, None] - b.T[None]) ** 2).sum(-1), rtol=1e-4, atol=1e-4)


def test_the_launch_shrinks_along_both_axes() -> None:
    for candidate in rewritten(rewrite, SGEMM, SGEMM_WORKLOAD):
        down, across = tiles(candidate)
        assert candidate.launch is not None
        grid = f"grid = (-(-((n + TILE - 1) // TILE) // {across}), -(-((m + TILE - 1) // TILE) // {down}))"
        assert grid in candidate.launch.text
        assert candidate.label.split(", ")[0] == f"{down} x {across} outputs per thread"


def test_many_sums_leave_registers_for_two_blocks() -> None:
    found = rewritten(rewrite, SGEMM, SGEMM_WORKLOAD)
    bounded = [one for one in found if "__launch_bounds__(256, 2) sgemm(" in one.kernel.text]
    assert [one.label for one in bounded] == ["8 x 8 outputs per thread, two blocks a multiprocessor"]
    assert ".minnctapersm 2" in ptx(bounded[0].kernel.text)
    (plain,) = [one for one in found if one.label == "8 x 8 outputs per thread"]
    assert bounded[0].kernel.text.replace("__launch_bounds__(256, 2) ", "") == plain.kernel.text
    for threads in ("(8, 8)", "(32, 32)", "(TILE, m)"):  # two fit anyway; none would; nobody knows
        others = rewritten(rewrite, SGEMM, SGEMM_WORKLOAD.replace("(TILE, TILE)]", f"{threads}]"))
        assert "__launch_bounds__" not in "".join(one.kernel.text for one in others)


def test_fewer_loads_for_each_multiply_add() -> None:
    text = ptx(rewritten(rewrite, SGEMM, SGEMM_WORKLOAD)[0].kernel.text)
    multiplies = len(re.findall(r"fma\.rn\.f32", text))
    loads = len(re.findall(r"ld\.shared\.f32", text)) + 4 * len(re.findall(r"ld\.shared\.v4", text))
    assert multiplies == 16 * 4 * 4
    assert loads <= 16 * (4 + 4)


@pytest.mark.thorough
def test_static_shared_memory_stays_within_its_bounds() -> None:
    wide = SGEMM.replace("TILE = 16", "TILE = 32")
    found = rewritten(rewrite, wide, SGEMM_WORKLOAD)
    assert {tiles(c) for c in found} == {(4, 4), (8, 4), (2, 4), (2, 2)}
    for candidate in found:
        sizes = re.findall(r"\.shared \.align \d+ \.b8 \w+\[(\d+)\]", ptx(candidate.kernel.text))
        assert len(sizes) == 2
        assert sum(map(int, sizes)) <= 48 * 1024


def test_a_rewritten_kernel_is_left_as_it_is() -> None:
    candidate = rewritten(rewrite, SGEMM, SGEMM_WORKLOAD)[0]
    assert candidate.launch is not None
    assert rewritten(rewrite, candidate.kernel.text, candidate.launch.text) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A[row * K + k0 + tx] : 0.0f", "A[row * K + k0 + tx] : B[col]"),  # a tile of both axes
        ("(row < M && k0 + tx < K) ? A[row * K + k0 + tx] : 0.0f", "A[row * K + k0 + tx]"),  # no check at the edge
        ("C[row * N + col] = acc;", "atomicAdd(&C[row * N + col], acc);"),
        ("float acc = 0.0f;", "float acc = gridDim.x;"),
        ("float acc = 0.0f;", "float acc = 0.0f;\n    if (row >= M) return;"),
        # a test that ends the turn of a loop guards what follows it
        ("if (row < M && col < N) {", "for (int i = 0; i < 1; ++i) {\n        if (row >= M) continue;"),
        ("float acc = 0.0f;", "float pair[2] = {0.0f, 1.0f}; float& acc = pair[col % 2];"),
        ("k0 < K;", "k0 < K + row;"),  # blocks that meet at barriers unequally often
        ("if (row < M && col < N) {", "if (row < M && col < N) {\n        __syncthreads();"),
        ("acc += As[ty][k] * Bs[k][tx];", "acc += *As[ty] * Bs[k][tx];"),
        ("acc += As[ty][k] * Bs[k][tx];", "acc += As[ty][k];"),  # no product
        ("blockIdx.y * TILE + ty", "threadIdx.z"),  # nothing moves along y
        ("__shared__ float As[TILE][TILE];", "extern __shared__ float As[];"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in SGEMM
    assert rewritten(rewrite, SGEMM.replace(old, new), SGEMM_WORKLOAD) == []


def test_an_array_of_sums_starts_at_zero_for_each_tile(tmp_path: Path) -> None:
    text = SGEMM.replace("float acc = 0.0f;", "float acc[1] = {0.0f};").replace("acc +=", "acc[0] +=")
    text = text.replace("= acc;", "= acc[0];")
    found = rewritten(rewrite, text, SGEMM_WORKLOAD)[0].kernel.text
    ptx(found)
    assert "float acc[TILES_Y][TILES_X][1] = {};" in found
    draw = np.random.default_rng(5)
    a, b = draw.standard_normal((33, 20)).astype(np.float32), draw.standard_normal((20, 40)).astype(np.float32)
    right, other = np.zeros((33, 40), np.float32), np.zeros((33, 40), np.float32)
    host_runner(tmp_path, text)((3, 3), (16, 16), a, b, right, 33, 40, 20)
    host_runner(tmp_path, found)((1, 1), (16, 16), a, b, other, 33, 40, 20)
    np.testing.assert_array_equal(other, right)


def test_nothing_without_a_launch_to_change() -> None:
    assert rewritten(rewrite, SGEMM) == []
    one_axis = SGEMM_WORKLOAD.replace("grid = ((n + TILE - 1) // TILE, (m + TILE - 1) // TILE)", "grid = (n,)")
    assert rewritten(rewrite, SGEMM, one_axis) == []


def test_every_other_example_is_left_alone() -> None:
    for path in EXAMPLES.glob("*.cu"):
        if path.stem != "sgemm" and len(find_kernels(path.read_text(), path)) == 1:
            workload = path.with_name(f"{path.stem}_workload.py").read_text()
            assert rewritten(rewrite, path.read_text(), workload) == []


def test_what_a_thread_reads_of_several_tiles_comes_four_values_at_a_time() -> None:
    four, _, eight, *_ = rewritten(rewrite, SGEMM, SGEMM_WORKLOAD)
    assert "alignas(16) __shared__ float Bs[TILE][TILE][TILES_X];" in four.kernel.text
    assert "Bs[TILE][TILE][TILES_X + 4];" in eight.kernel.text, "lanes of a quarter warp read different banks"
    assert "As[TILES_Y][TILE][TILE];" in four.kernel.text, "neighbours along k are there already"
    assert "ld.shared.v4.f32" in ptx(four.kernel.text)


def test_rows_that_are_passed_on_as_pointers_keep_their_order() -> None:
    product = "acc += As[ty][k] * Bs[k][tx];"
    assert product in SGEMM
    passed = "__device__ float at(const float* row, int place) { return row[place]; }\n"
    by_row = passed + SGEMM.replace(product, "acc += As[ty][k] * at(Bs[k], tx);")
    four, *_ = rewritten(rewrite, by_row, SGEMM_WORKLOAD)
    ptx(four.kernel.text)
    assert "__shared__ float Bs[TILES_X][TILE][TILE];" in four.kernel.text
    assert "at(Bs[tile_x][k], tx)" in four.kernel.text
