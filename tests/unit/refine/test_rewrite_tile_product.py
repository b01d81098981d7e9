"""Naive matrix products, in the ways that people write them."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import host_runner, ptx, rewritten

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.rewrites.products.tile_product import rewrite
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels

M, N, K = 21, 18, 35

# As in a first course: an early return, capitals.
COURSE = """
__global__ void product(float *A, float *B, float *C, int M, int N, int K) {
    int ROW = blockIdx.y * blockDim.y + threadIdx.y;
    int COL = blockIdx.x * blockDim.x + threadIdx.x;
    if (ROW >= M || COL >= N) return;
    float tmpSum = 0;
    for (int i = 0; i < K; i++) {
        tmpSum += A[ROW * K + i] * B[i * N + COL];
    }
    C[ROW * N + COL] = tmpSum;
}
"""
# A bias, the second operand transposed, pointers to rows, threads along x over the rows of the result, a last `return`.
LINEAR = """
__global__ void product(const float* x, const float* weight, float* out, const float* bias, int BT, int OC, int C) {
    int bt = blockIdx.x * blockDim.x + threadIdx.x;
    int oc = blockIdx.y * blockDim.y + threadIdx.y;
    if (bt < BT && oc < OC) {
        float val = (bias != nullptr) ? bias[oc] : 0.0f;
        const float* wrow = weight + oc * C;
        const float* row = x + bt * C;
        for (int i = 0; i < C; i++) {
            val += row[i] * wrow[i];
        }
        out[bt * OC + oc] = val;
    }
    return;
}
"""
# Both in one: the first operand transposed, fmaf, names for elements, wide indices, scaled into what was there.
SCALED = """
#define AT(i, j, ld) ((size_t)(i) * (ld) + (j))
__global__ void product(const float *p, const float *q, float *r, unsigned m, unsigned n, unsigned depth, float alpha) {
    const unsigned col = blockIdx.x * 8 + threadIdx.x;
    const unsigned row = blockIdx.y * 8 + threadIdx.y;
    if (row < m && n > col) {
        float dot = 0.f;
        for (unsigned k = 0; k < depth; ++k) {
            float left = p[AT(k, row, m)];
            const float right = q[AT(k, col, n)];
            dot = fmaf(left, right, dot);
        }
        r[AT(row, col, n)] = alpha * dot + r[AT(row, col, n)];
    }
}
""".replace(
    "const unsigned tx = threadIdx.x, col = blockIdx.x * 8 + tx;", "const unsigned col = blockIdx.x * 8 + threadIdx.x;"
)
KERNELS = {"course": COURSE, "linear": LINEAR, "scaled": SCALED}
LAUNCHES = {
    COURSE: "module.product[((n + 31) // 32, (m + 31) // 32), (32, 32)](a, b, c, m, n, k)",
    LINEAR: "module.product[(-(-m // 16), -(-n // 16)), (16, 16)](a, b, c, bias, m, n, k)",
    SCALED: "module.product[(-(-n // 8), -(-m // 8), 1), (8, 8)](a, b, c, m, n, k, 0.5)",
}


def candidates(text: str, like: str) -> list[Candidate]:
    return rewritten(rewrite, text, f"def launch(module, a, b, c, bias, m, n, k):\n    {LAUNCHES[like]}\n")


def arguments(text: str) -> tuple[list[np.ndarray | float], np.ndarray]:
    """Arguments, and the right result."""
    draw = np.random.default_rng(3)
    a, b, c = (draw.standard_normal(shape).astype(np.float32) for shape in ((M, K), (K, N), (M + 1, N)))
    bias = draw.standard_normal(N).astype(np.float32)
    if text is COURSE:
        return [a, b, c, M, N, K], a @ b
    if text is LINEAR:
        return [a, b.T.copy(), c, bias, M, N, K], a @ b + bias
    return [a.T.copy(), b, c, M, N, K, 0.5], 0.5 * (a @ b) + c[:M]


@pytest.mark.parametrize("name", KERNELS)
def test_tiles_give_the_same_product_at_every_border(tmp_path: Path, name: str) -> None:
    text = KERNELS[name]
    found = candidates(text, text)
    assert [one.label for one in found][-1] == "tiles of 16 x 16 in shared memory"
    assert "tiles of 16 x 16 in shared memory, 4 x 4 outputs per thread" in [one.label for one in found]
    ptx(found[-1].kernel.text)
    small = found[-1].kernel.text.replace("TILE = 16", "TILE = 4")  # one host thread stands for each of a block
    given, right = arguments(text)
    beyond = given[2][M:].copy() if isinstance(given[2], np.ndarray) else None
    host_runner(tmp_path, small)((-(-N // 4), -(-M // 4)), (4, 4), *given)
    result = given[2]
    assert isinstance(result, np.ndarray)
    np.testing.assert_allclose(result[:M], right, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(result[M:], beyond)


@pytest.mark.parametrize("name", KERNELS)
def test_several_elements_a_thread_give_it_too(tmp_path: Path, name: str) -> None:
    text = KERNELS[name]
    (wanted,) = [one for one in candidates(text, text) if "2 x 4" in one.label]
    ptx(wanted.kernel.text)
    given, right = arguments(text)
    small = wanted.kernel.text.replace("TILE = 16", "TILE = 4")
    host_runner(tmp_path, small)((-(-N // 16), -(-M // 8)), (4, 4), *given)
    assert isinstance(given[2], np.ndarray)
    np.testing.assert_allclose(given[2][:M], right, rtol=1e-4, atol=1e-5)


def test_other_kernels_of_the_file_with_parameters_of_the_same_names_do_not_matter() -> None:
    other = "__global__ void other(float* x, float* out) { out[blockIdx.x] = x[threadIdx.x]; __syncthreads(); }\n"
    file = SourceFile(Path("kernel.cu"), other + LINEAR)
    kernel = find_kernels(file.text, file.path)[1]
    launch = SourceFile(Path("w.py"), f"def launch(module, a, b, c, bias, m, n, k):\n    {LAUNCHES[LINEAR]}\n")
    assert len(list(rewrite(file, launch, kernel, device_named("H100")))) == 8


def test_columns_of_the_result_lie_along_x() -> None:
    *_, tiled = candidates(LINEAR, LINEAR)
    assert tiled.launch
    assert "[(-(-n // 16), -(-m // 16)), (16, 16)]" in tiled.launch.text
    text = tiled.kernel.text
    assert "int oc = blockIdx.x * TILE + threadIdx.x;" in text
    assert "weight[loaded_oc * C + first_i + threadIdx.x]" in text
    assert "weight_tile[TILE][TILE + 1];" in text
    assert "x_tile[TILE][TILE];" in text
    assert "wrow" not in text


def test_indices_stay_as_wide_as_they_were() -> None:
    *_, tiled = candidates(SCALED, SCALED)
    assert "p[(size_t)(first_k + threadIdx.y) * m + loaded_row]" in tiled.kernel.text
    assert candidates(SCALED, SCALED)[-1].launch


def test_the_text_is_no_longer_than_tiles_ask_for() -> None:
    for text in KERNELS.values():
        *_, tiled = candidates(text, text)
        assert len(tiled.kernel.text.splitlines()) <= len(text.splitlines()) + 16


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] + B[i * N + COL] + 1.0f"),
        ("A[ROW * K + i] * B[i * N + COL]", "expf(A[ROW * K + i] * B[i * N + COL])"),
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] * logf(B[i * N + COL])"),
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] / B[i * N + COL]"),
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] * B[i * N + COL] * i"),
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] * B[i * N + COL + ROW]"),
        ("A[ROW * K + i] * B[i * N + COL]", "A[ROW * K + i] * A[ROW * K + i]"),
        ("tmpSum += A", "tmpSum -= A"),
        ("tmpSum += A", "tmpSum *= A"),
        ("i = 0; i < K", "i = 1; i < K"),
        ("i < K; i++", "i < K - ROW; i++"),
        ("C[ROW * N + COL] = tmpSum;", "A[ROW * N + COL] = tmpSum;"),
        ("C[ROW * N + COL] = tmpSum;", "C[ROW * N * COL] = tmpSum;"),
        ("C[ROW * N + COL] = tmpSum;", "C[ROW * N + COL] = tmpSum + threadIdx.x;"),
        (
            "C[ROW * N + COL] = tmpSum;",
            "\n#define LANE threadIdx.x\n    C[ROW * N + COL] = tmpSum + LANE;",  # behind a name
        ),
        ("|| COL >= N", ""),
        ("|| COL >= N", "|| COL >= N || K < 3"),
        ("float tmpSum = 0;", "float tmpSum = 0; C[0] = 1; __syncthreads();"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in COURSE
    text = COURSE.replace(old, new)
    ptx(text)
    assert candidates(text, COURSE) == []


@pytest.mark.parametrize(
    ("row", "column", "grid", "block"),
    [
        ("blockIdx.x * 8 + threadIdx.x / 8", "blockIdx.y * 8 + threadIdx.x % 8", (3, 3), (64, 1)),  # a flat block
        ("blockIdx.x", "threadIdx.x", (M, 1), (32, 1)),
        ("blockIdx.y", "blockIdx.x * blockDim.x + threadIdx.x", (2, M), (16, 1)),
    ],
)
def test_rows_and_columns_may_have_other_places(
    tmp_path: Path, row: str, column: str, grid: tuple[int, int], block: tuple[int, int]
) -> None:
    text = COURSE.replace("blockIdx.y * blockDim.y + threadIdx.y", row)
    text = text.replace("blockIdx.x * blockDim.x + threadIdx.x;\n    if", f"{column};\n    if")
    *_, tiled = candidates(text, COURSE)
    ptx(tiled.kernel.text)
    draw = np.random.default_rng(9)
    a, b = draw.standard_normal((M, K)).astype(np.float32), draw.standard_normal((K, N)).astype(np.float32)
    right, found = np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    host_runner(tmp_path, text)(grid, block, a, b, right, M, N, K)
    host_runner(tmp_path, tiled.kernel.text)((2, 2), (16, 16), a, b, found, M, N, K)
    np.testing.assert_allclose(found, right, rtol=1e-5)


@pytest.mark.parametrize(
    ("row", "column"),
    [
        ("blockIdx.y * 8 + threadIdx.x / 8", "threadIdx.x"),
        ("blockIdx.x * 8 + threadIdx.x / 8", "blockIdx.x * 8 + threadIdx.x % 8"),
        ("blockIdx.x * 8 + threadIdx.x / 8", "blockIdx.y * 8 + threadIdx.x / 8"),
        ("blockIdx.x * 8 + threadIdx.x / 4", "blockIdx.y * 4 + threadIdx.x % 4"),  # rows that overlap
        ("blockIdx.x", "blockIdx.x"),
    ],
)
def test_numbers_of_one_place_are_left_alone(row: str, column: str) -> None:
    text = COURSE.replace("blockIdx.y * blockDim.y + threadIdx.y", row)
    text = text.replace("blockIdx.x * blockDim.x + threadIdx.x;\n    if", f"{column};\n    if")
    ptx(text)
    assert candidates(text, COURSE) == []


def test_a_matrix_times_itself_has_a_tile_for_rows_and_one_for_columns(tmp_path: Path) -> None:
    text = COURSE.replace("B[i * N + COL]", "A[COL * K + i]")
    *_, tiled = candidates(text, COURSE)
    ptx(tiled.kernel.text)
    assert "// Tiles of A go through" in tiled.kernel.text
    a = np.random.default_rng(8).standard_normal((M, K)).astype(np.float32)
    right, found = np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    host_runner(tmp_path, text)((3, 3), (8, 8), a, a, right, M, N, K)
    host_runner(tmp_path, tiled.kernel.text)((2, 2), (16, 16), a, a, found, M, N, K)
    np.testing.assert_allclose(found, right, rtol=1e-5)


def test_two_sums_in_one_loop_are_left_alone() -> None:
    twice = COURSE.replace("float tmpSum = 0;", "float tmpSum = 0, second = 0;").replace(
        "tmpSum += A", "second += A", 1
    )
    twice = twice.replace("    }\n    C[ROW", "        tmpSum += A[ROW * K + i] * B[i * N + COL];\n    }\n    C[ROW")
    ptx(twice)
    assert candidates(twice, COURSE) == []


@pytest.mark.parametrize(("kind", "zero"), [("unsigned char", ": 0;"), ("int", ": 0;"), ("double", ": 0.0;")])
def test_tiles_are_padded_with_zeros_of_their_type(kind: str, zero: str) -> None:
    *_, tiled = candidates(COURSE.replace("float *", f"{kind} *"), COURSE)
    ptx(tiled.kernel.text)
    assert tiled.kernel.text.count(zero) == 2


def test_sizes_that_the_launch_does_not_name_keep_the_kernel() -> None:
    launch = "def launch(module, *given):\n    module.product[8, (32, 32)](*given)\n"
    assert rewritten(rewrite, COURSE, launch) == []


@pytest.mark.parametrize(
    "summand",
    [
        "(A[ROW * K + i] - B[i * N + COL]) * (A[ROW * K + i] - B[i * N + COL])",
        "fabsf(A[ROW * K + i] - B[i * N + COL])",
        "0.5f * A[ROW * K + i] * (B[i * N + COL] + 1.0f)",
        "ROOT(fabsf(A[ROW * K + i] * B[i * N + COL]))",
    ],
)
def test_distances_go_through_tiles_like_products(tmp_path: Path, summand: str) -> None:
    text = "#define ROOT sqrtf\n" + COURSE.replace("A[ROW * K + i] * B[i * N + COL]", summand)
    *_, tiled = candidates(text, COURSE)
    ptx(tiled.kernel.text)
    draw = np.random.default_rng(3)
    a, b = draw.standard_normal((M, K)).astype(np.float32), draw.standard_normal((K, N)).astype(np.float32)
    right, found = np.zeros((M, N), np.float32), np.zeros((M, N), np.float32)
    host_runner(tmp_path, text)((3, 3), (8, 8), a, b, right, M, N, K)
    host_runner(tmp_path, tiled.kernel.text)((2, 2), (16, 16), a, b, found, M, N, K)
    np.testing.assert_allclose(found, right, rtol=1e-5)


def test_a_function_of_the_file_without_a_body_keeps_no_product_from_its_tiles() -> None:
    text = "struct Size {\n    Size() = default;\n    Size(const Size&) = delete;\n    int n;\n};\n" + COURSE
    launch = "def launch(m, a, b, c, M, N, K):\n    m.product[(-(-N // 16), -(-M // 16)), (16, 16)](a, b, c, M, N, K)\n"
    assert rewritten(rewrite, text, launch)
