"""Convolutions with a thread for each output, in the ways that people write them."""

from pathlib import Path

import numpy as np
import pytest
from rewrite_support import emulated, host_runner, ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.several_outputs import rewrite
from kernel_lsp.source.candidate import Candidate

IMAGES, CHANNELS, FILTERS, WIDTH, TAPS = 2, 3, 10, 9, 3
OUT = WIDTH - TAPS + 1

# A filter for each row of blocks; a condition around the work.
BY_BLOCK = """
__global__ void conv(const float* x, const float* w, float* y, int channels, int filters, int width, int taps) {
    int m = blockIdx.y;
    int out = width - taps + 1;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < out * out) {
        float sum = 0.0f;
        for (int c = 0; c < channels; c++)
            for (int p = 0; p < taps; p++)
                for (int q = 0; q < taps; q++)
                    sum += x[(c * width + i / out + p) * width + i % out + q] * w[((m * channels + c) * taps + p) * taps + q];
        y[m * out * out + i] = sum;
    }
}
"""  # noqa: E501
# Filters and images in one number; a value of the filter's own, and variables as C had them.
IN_ONE = """
__global__ void conv(const float* x, const float* w, float* y, int channels, int filters, int width, int taps) {
    const int m = blockIdx.y % filters;
    const int n = blockIdx.y / filters;
    int out = width - taps + 1, c, p, q;
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= out * out) return;
    float sum = w[m];
    for (c = 0; c < channels; c++) {
        for (p = 0; p < taps; p++)
            for (q = 0; q < taps; q++) {
                if (p == 1 && q == 1) continue;
                float value = x[((n * channels + c) * width + i / out + p) * width + i % out + q];
                float factor = w[((m * channels + c) * taps + p) * taps + q];
                sum += value * factor;
            }
    }
    sum = fmaxf(sum, 0.0f);
    y[(n * filters + m) * out * out + i] = sum;
}
"""
# The same with a name for the block's place.
NAMED = IN_ONE.replace("const int m = blockIdx.y", "int place = blockIdx.y;\n    const int m = place").replace(
    "n = blockIdx.y", "n = place"
)
LAUNCH = """
def launch(module, x, w, y, n, c, f, h, k):
    grid = -(-h // 64), f
    module.conv[grid, 64](x, w, y, c, f, h, k)
"""
LAUNCH_IN_ONE = LAUNCH.replace(", f\n", ", n * f\n")
LAUNCHES = {BY_BLOCK: LAUNCH, IN_ONE: LAUNCH_IN_ONE, NAMED: LAUNCH_IN_ONE}


def along(name: str, text: str, launch: str) -> list[Candidate]:
    """Candidates whose threads have several outputs along one number."""
    return [one for one in rewritten(rewrite, text, launch) if f"`{name}`" in one.label]


def arguments() -> list[np.ndarray | float]:
    draw = np.random.default_rng(2)
    x = draw.standard_normal((IMAGES, CHANNELS, WIDTH, WIDTH)).astype(np.float32)
    w = draw.standard_normal((FILTERS, CHANNELS, TAPS, TAPS)).astype(np.float32)
    y = np.full((IMAGES, FILTERS, OUT, OUT), 7, np.float32)
    return [x, w, y, CHANNELS, FILTERS, WIDTH, TAPS]


@pytest.mark.parametrize("text", LAUNCHES, ids=["block", "in_one", "named"])
def test_several_outputs_a_thread_are_the_same(tmp_path: Path, text: str) -> None:
    images = 1 if text == BY_BLOCK else IMAGES
    right = arguments()
    host_runner(tmp_path, text)((1, images * FILTERS), (64, 1), *right)
    found = along("m", text, LAUNCHES[text])
    assert [one.label for one in found] == ["8 outputs a thread along `m`", "4 outputs a thread along `m`"]
    for one, outputs in zip(found, (8, 4), strict=True):
        ptx(one.kernel.text)
        given = arguments()
        host_runner(tmp_path, one.kernel.text)((1, images * -(-FILTERS // outputs)), (64, 1), *given)
        for new, old in zip(given, right, strict=True):
            np.testing.assert_array_equal(new, old)


def test_the_launch_has_fewer_blocks_along_the_axis() -> None:
    for text, launched in ((BY_BLOCK, "grid = -(-h // 64), -(-f // 8)"), (IN_ONE, "-(-h // 64), n * (-(-f // 8))")):
        found = rewritten(rewrite, text, LAUNCHES[text])[0].launch
        assert found is not None
        assert launched in found.text.replace("(-(-h // 64), -(-f // 8))", "-(-h // 64), -(-f // 8)")


def test_a_name_for_a_place_that_nothing_needs_goes() -> None:
    assert all("place" not in one.kernel.text for one in along("m", NAMED, LAUNCH_IN_ONE))
    assert along("m", NAMED.replace("float sum = w[m]", "float sum = place"), LAUNCH_IN_ONE) == []


def test_only_what_depends_on_the_number_is_repeated() -> None:
    text = rewritten(rewrite, IN_ONE, LAUNCH_IN_ONE)[1].kernel.text
    assert "float value = x[" in text.split("#pragma")[0]
    inner = text.split("#pragma unroll")[1]
    assert "const int m = min(first_m + output, filters - 1);" in inner
    assert "sum[output] += value * factor;" in inner
    assert "if (m < filters) {" in text.split("#pragma unroll")[2]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("int m = blockIdx.y;", "int m = blockIdx.y + 1;"),
        ("float sum = 0.0f;", "float sum = blockIdx.y;"),  # the block's number elsewhere
        ("float sum = 0.0f;", "float sum = 0.0f; y[m] = 1;"),
        ("x[(c * width", "x[m + (c * width"),  # nothing is shared
        ("w[((m * channels", "w[((channels"),  # no input of its own
        ("c < channels", "c < channels - m"),  # loops of other lengths
        ("x[(c", "y[(c"),  # what other threads write
        ("y[m * out * out + i] = sum;", "for (int k = 0; k < 3; k++) sum += 1; y[m * out * out + i] = sum;"),
        ("y[m * out * out + i] = sum;", "if (sum < 0) return; y[m * out * out + i] = sum;"),
        ("y[m * out * out + i] = sum;", "out++; y[m * out * out + i] = sum;"),
    ],
)
def test_near_misses_are_left_alone(old: str, new: str) -> None:
    assert old in BY_BLOCK
    text = BY_BLOCK.replace(old, new)
    ptx(text)
    assert along("m", text, LAUNCH) == []


@pytest.mark.parametrize("grid", ["-(-h // 64), f + 1", "-(-h // 64), 10", "-(-h // 64), w.shape[0]"])
def test_a_number_of_outputs_that_no_argument_says_is_left_alone(grid: str) -> None:
    assert along("m", BY_BLOCK, LAUNCH.replace("-(-h // 64), f", grid)) == []
    assert along("m", IN_ONE, LAUNCH_IN_ONE.replace("-(-h // 64), n * f", grid)) == []


# A filter of any size over one image; the border is tested in the loop.
FILTER = """
__global__ void blur(const float* image, const float* filter, float* out, int height, int width, int taps) {
    int x = blockIdx.x * blockDim.x + threadIdx.x;
    int y = blockIdx.y * blockDim.y + threadIdx.y;
    float sum = 0.0f;
    if (x >= width || y >= height) return;
    for (int i = 0; i < taps; i++)
        for (int j = 0; j < taps; j++) {
            int row = y + i - taps / 2, column = x + j - taps / 2;
            if (row >= 0 && row < height && column >= 0 && column < width)
                sum += image[row * width + column] * filter[i * taps + j];
        }
    out[y * width + x] = sum;
}
"""
FILTER_LAUNCH = """
def launch(module, image, filter, out, h, w, taps):
    module.blur[(-(-w // 8), -(-h // 8)), (8, 8)](image, filter, out, h, w, taps)
"""
# The centre that is nearest to a point; what belongs to the point is loaded ahead of the loop.
NEAREST = """
__global__ void nearest(const float* points, const float* centres, int* found, unsigned n, unsigned k) {
    const unsigned id = blockIdx.x * blockDim.x + threadIdx.x;
    if (id < n) {
        const float* point = points + 2 * id;
        float x = point[0], least = 1e30f;
        float y = point[1];
        int best = -1;
        for (unsigned c = 0; c < k; ++c) {
            float dx = x - centres[2 * c];
            float dy = y - centres[2 * c + 1];
            float far = dx * dx + dy * dy;
            if (far < least) {
                least = far;
                best = c;
            }
        }
        found[id] = best;
    }
}
"""
NEAREST_LAUNCH = "def launch(module, p, c, f, n, k):\n    module.nearest[(n + 63) // 64, 64](p, c, f, n, k)\n"


@pytest.mark.parametrize("name", ["x", "y"])
def test_threads_take_each_others_outputs_of_a_filter(tmp_path: Path, name: str) -> None:
    draw = np.random.default_rng(4)
    image, taps = draw.standard_normal((27, 35)).astype(np.float32), draw.standard_normal((3, 3)).astype(np.float32)
    right, new = np.zeros((27, 35), np.float32), np.zeros((27, 35), np.float32)
    host_runner(tmp_path, FILTER)((5, 4), (8, 8), image, taps, right, 27, 35, 3)
    found = along(name, FILTER, FILTER_LAUNCH)[1]
    ptx(found.kernel.text)
    grid = (2, 4) if name == "x" else (5, 1)
    host_runner(tmp_path, found.kernel.text)(grid, (8, 8), image, taps, new, 27, 35, 3)
    np.testing.assert_array_equal(new, right)
    assert found.launch is not None
    assert ("[(-(-(-(-w // 8)) // 4), -(-h // 8))" if name == "x" else "-(-(-(-h // 8)) // 4))") in found.launch.text


def test_a_weight_is_loaded_once_for_all_outputs() -> None:
    text = along("y", FILTER, FILTER_LAUNCH)[0].kernel.text
    ahead, *inner = text.split("#pragma unroll")
    assert "const float filter_value = filter[i * taps + j];" in ahead
    assert all("filter[" not in part for part in inner)
    assert "if (x >= width || first_y >= height) return;" in ahead


def test_values_of_a_point_are_held_for_each(tmp_path: Path) -> None:
    draw = np.random.default_rng(6)
    points, centres = draw.standard_normal((150, 2)).astype(np.float32), draw.standard_normal((9, 2)).astype(np.float32)
    right, new = np.zeros(150, np.int32), np.zeros(150, np.int32)
    host_runner(tmp_path, NEAREST)(3, 64, points, centres, right, 150, 9)
    found = along("id", NEAREST, NEAREST_LAUNCH)[0].kernel.text
    ptx(found)
    host_runner(tmp_path, found)(1, 64, points, centres, new, 150, 9)
    np.testing.assert_array_equal(new, right)
    assert "const float* point[OUTPUTS];\n        float x[OUTPUTS], least[OUTPUTS], y[OUTPUTS];\n" in found
    assert "x[output] = point[output][0];" in found
    together = NEAREST.replace("float x = point[0], least", "float x = point[0], half = n / 2, least")
    assert along("id", together, NEAREST_LAUNCH) == []


# Each point's nearest other one, and how many lie near; a turn ends where a point would meet itself.
OTHERS = """
__global__ void others(const float* points, float* found, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    float x = points[2 * i], y = points[2 * i + 1], least = 1e30f;
    int near = 0;
    for (int j = 0; j < n; j++) {
        if (i == j) continue;
        float dx = x - points[2 * j], dy = y - points[2 * j + 1];
        float far = dx * dx + dy * dy;
        if (far < least) least = far;
        for (int k = 1; k < 9; k++) {
            if (far * k > 1.0f) break;
            near++;
        }
    }
    found[i] = least + near;
}
"""
OTHERS_LAUNCH = "def launch(module, p, f, n):\n    module.others[(n + 63) // 64, 64](p, f, n)\n"


@pytest.mark.parametrize("n", [1, 3, 150])
def test_a_turn_may_end_early_for_each_output(tmp_path: Path, n: int) -> None:
    points = np.random.default_rng(7).standard_normal((n, 2)).astype(np.float32)
    right, new = np.zeros(n, np.float32), np.zeros(n, np.float32)
    host_runner(tmp_path, OTHERS)(-(-n // 64), 64, points, right, n)
    for one, outputs in zip(along("i", OTHERS, OTHERS_LAUNCH), (8, 4), strict=True):
        ptx(one.kernel.text)
        host_runner(tmp_path, one.kernel.text)(-(-n // 64 // outputs), 64, points, new, n)
        np.testing.assert_array_equal(new, right)
        assert "if (i == j) continue;" in one.kernel.text.split("#pragma unroll")[1]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("if (i == j) continue;", "if (i == j) break;"),
        ("if (i == j) continue;", "if (i == j) return;"),
        (
            "            near++;\n        }\n",
            "            near++;\n        }\n        if (n > 99) break;\n",
        ),  # work that follows
    ],
)
def test_a_turn_that_ends_otherwise_is_left_alone(old: str, new: str) -> None:
    assert old in OTHERS
    ptx(OTHERS.replace(old, new))
    assert along("i", OTHERS.replace(old, new), OTHERS_LAUNCH) == []


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float sum = 0.0f;", "float sum = image[x];"),  # a load ahead of the test
        ("float sum = 0.0f;", "float sum = 0.0f; out[0] = 1;"),
        ("float sum = 0.0f;", "float sum = threadIdx.y;"),
        ("int row = y + i", "if (taps == y) break; int row = y + i"),
        ("* filter[i * taps + j]", ""),  # nothing is shared
        ("x >= width || y >= height", "x >= width || y >= height || y == taps"),
        ("y >= height", "y >= height - threadIdx.x"),
    ],
)
def test_near_misses_of_threads_are_left_alone(old: str, new: str) -> None:
    assert old in FILTER
    text = FILTER.replace(old, new)
    ptx(text)
    found = along("y", text, FILTER_LAUNCH)
    assert found == []


def test_a_load_under_a_condition_of_its_own_stays_there() -> None:
    text = FILTER.replace("if (row >= 0", "if (i < taps - 1) if (row >= 0")
    (found, _) = along("y", text, FILTER_LAUNCH)
    assert "filter_value" not in found.kernel.text


def test_rows_of_threads_are_left_to_teams() -> None:
    text = """
    __global__ void rows(const float* a, const float* x, float* y, int n, int k) {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i < n) {
            float sum = 0;
            for (int j = 0; j < k; j++) sum += a[i * k + j] * x[j];
            y[i] = sum;
        }
    }
    """
    launch = "def launch(m, a, x, y, n, k):\n    m.rows[-(-n // 64), 64](a, x, y, n, k)\n"
    assert rewritten(rewrite, text, launch) == []
    columns = text.replace("a[i * k + j]", "a[j * n + i]")
    assert len(rewritten(rewrite, columns, launch)) == 2


def test_products_are_left_to_tiles() -> None:
    text = FILTER.replace("for (int j = 0; j < taps; j++) {", "{").replace(
        "if (row >= 0 && row < height && column >= 0 && column < width)", ""
    )
    text = text.replace("int row = y + i - taps / 2, column = x + j - taps / 2;", "")
    text = text.replace(
        "image[row * width + column] * filter[i * taps + j]", "image[y * taps + i] * filter[i * width + x]"
    )
    ptx(text)
    assert rewritten(rewrite, text, FILTER_LAUNCH) == []


# The nearest of several centres: a sum within the loop over what a thread compares.
ASSIGN = """
__global__ void assign(const float* points, const float* centres, int* label, int n, int k, int dimensions) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {
        float smallest = 1e30f;
        int best = 0;
        for (int c = 0; c < k; c++) {
            float bias = centres[c];
            float distance = 0.0f;
            for (int d = 0; d < dimensions; d++) {
                float difference = points[d * n + i] - centres[c * dimensions + d];
                distance += difference * difference;
            }
            distance = sqrtf(distance) + bias;
            if (distance < smallest) {
                smallest = distance;
                best = c;
            }
        }
        label[i] = best;
    }
}
"""
ASSIGN_LAUNCH = """
def launch(module, points, centres, label, n, k, d):
    module.assign[-(-n // 64), 64](points, centres, label, n, k, d)
"""


def test_sums_within_the_loop_share_what_they_load_too() -> None:
    text = rewritten(rewrite, ASSIGN, ASSIGN_LAUNCH)[0].kernel.text
    body = text.partition("for (int c = 0; c < k; c++) {\n")[2]
    lines = [line.strip() for line in body.split("\n")]
    assert lines[:4] == [
        "float bias = centres[c];",
        "float distance[OUTPUTS] = {};",
        "for (int d = 0; d < dimensions; d++) {",
        "const float centres_value = centres[c * dimensions + d];",
    ]
    assert "float difference = points[d * n + i] - centres_value;" in lines
    assert "distance[output] = sqrtf(distance[output]) + bias;" in lines
    assert "if (i < n) label[i] = best[output];" in lines


@pytest.mark.parametrize(
    ("index", "n", "k", "dimensions"), [("d * n + i", 137, 5, 3), ("i * dimensions + d", 1030, 4, 2)]
)
def test_the_nearest_stays_the_nearest(index: str, n: int, k: int, dimensions: int) -> None:
    draw = np.random.default_rng(n)
    given = draw.random(n * dimensions, np.float32), draw.random(k * dimensions, np.float32), np.full(n, -1, np.int32)
    naive = ASSIGN.replace("d * n + i", index)
    (first, second) = rewritten(rewrite, naive, ASSIGN_LAUNCH)
    *_, right = emulated(naive, (-(-n // 64), 1), (64, 1), *given, n, k, dimensions)
    for made, outputs in ((first, 8), (second, 4)):
        *_, got = emulated(made.kernel.text, (-(-n // (64 * outputs)), 1), (64, 1), *given, n, k, dimensions)
        np.testing.assert_array_equal(got, right)


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("float distance = 0.0f;", "float distance; distance = 0.0f;"),  # no first value to give to each
        ("float distance = 0.0f;", "auto distance = 0.0f;"),
        ("d < dimensions", "d < dimensions + i"),
        ("float bias = centres[c];", "float bias = centres[c]; n -= 1;"),
        ("points[d * n + i]", "points[(c * n + i) * dimensions + d]"),  # rows that nobody reads again
    ],
)
def test_near_misses_of_the_nearest_are_left_alone(old: str, new: str) -> None:
    assert old in ASSIGN
    made = rewritten(rewrite, ASSIGN.replace(old, new), ASSIGN_LAUNCH)
    assert all("centres_value" not in one.kernel.text for one in made)


def test_an_element_that_two_parts_load_has_one_name_at_most() -> None:
    twice = ASSIGN.replace("sqrtf(distance) + bias;", "distance + bias * points[c * n + i] * centres[c * dimensions];")
    twice = twice.replace("float distance = 0.0f;", "float distance = points[i] * centres[c * dimensions];")
    for one in rewritten(rewrite, twice, ASSIGN_LAUNCH):
        ptx(one.kernel.text)
