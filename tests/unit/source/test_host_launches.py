"""Launches in C++ host code: names of instances, blocks and shared memory, as far as they can be read."""

import pytest

from kernel_lsp.source.host_launches import find_host_launches

FILE = """
constexpr int TILE = 16;
#define WIDE (TILE * 8)
template <typename T, int N> __global__ void k(T* x);
void run(float* x, int n) {
  BODY
}
"""


def launches(body: str):
    found = find_host_launches(FILE.replace("BODY", body))
    return [(launch.kernel, launch.instance, launch.block, launch.shared_bytes) for launch in found]


@pytest.mark.parametrize(
    ("body", "block"),
    [
        ("plain<<<1, 256>>>(x);", (256, 1, 1)),
        ("int threads = 128; plain<<<(n + threads - 1) / threads, threads>>>(x);", (128, 1, 1)),
        ("const int threads = TILE * TILE; plain<<<1, threads>>>(x);", (256, 1, 1)),
        ("plain<<<1, WIDE>>>(x);", (128, 1, 1)),
        ("dim3 block(TILE, TILE); plain<<<dim3(1, 2), block>>>(x);", (16, 16, 1)),
        ("dim3 block = dim3(8, 4, 2); plain<<<1, block>>>(x);", (8, 4, 2)),
        ("auto block = dim3{32u, 2u}; plain<<<1, block>>>(x);", (32, 2, 1)),
        ("plain<<<1, static_cast<int>(64)>>>(x);", (64, 1, 1)),
        ("int threads = 128; if (n < 9) threads = 64; plain<<<1, threads>>>(x);", None),
        ("int threads = 128; threads *= 2; plain<<<1, threads>>>(x);", None),
        ("int threads = n; plain<<<1, threads>>>(x);", None),
        ("plain<<<1, min(n, 256)>>>(x);", None),
        ("plain<<<1, 1 << 20 << 20 << 20>>>(x);", None),
        ("int a = b; int b = a; plain<<<1, a>>>(x);", None),
        ("plain<<<1, 256 / 0>>>(x);", None),
    ],
)
def test_blocks_are_read_where_they_are_constant(body, block):
    ((kernel, instance, found, shared),) = launches(body)
    assert (kernel, instance, found, shared) == ("plain", False, block, 0)


@pytest.mark.parametrize(
    ("body", "name", "instance"),
    [
        ("k<float, 4><<<1, 32>>>(x);", "k<float, 4>", True),
        ("ops::k<unsigned int, WIDE><<<1, 32>>>(x);", "ops::k<unsigned int, 128>", True),
        ('AT_DISPATCH_FLOATING_TYPES(t, "k", [&] { k<scalar_t, 1><<<1, 32>>>(x); });', "k<float, 1>", True),
        ("k<T, 4><<<1, 32>>>(x);", "k", False),
        ("k<scalar_t, 4><<<1, 32>>>(x);", "k", False),
    ],
)
def test_names_of_instances_have_types_and_numbers(body, name, instance):
    ((kernel, is_instance, *_),) = launches(body)
    assert (kernel, is_instance) == (name, instance)


def test_shared_memory_and_the_order_of_launches():
    body = "first<<<1, 64, 64 * sizeof(float), stream>>>(x); /* <<<2, 2>>> */ second<<<1, 32, n>>>(x);"
    assert launches(body) == [("first", False, (64, 1, 1), 256), ("second", False, (32, 1, 1), None)]


def test_a_name_is_that_of_its_own_function():
    text = "void a() { int t = 64; k<<<1, t>>>(); }\nvoid b() { int t = 128; k<<<1, t>>>(); }\n"
    assert [launch.block for launch in find_host_launches(text)] == [(64, 1, 1), (128, 1, 1)]


TEMPLATES = """
template <class T, class Rng> __global__ void k(T* out);
template <class T, class Rng>
inline void run(T* out) {
  k<T, Rng><<<4, 256>>>(out);
}
int main() {
  using data_t = std::uint64_t;
  typedef kiss::Kiss<data_t> rng_t;
  run<data_t, rng_t>(nullptr);
  run<float, kiss::Kiss<float>>(nullptr);
}
"""


def test_the_calls_of_a_host_template_tell_the_instances_that_it_launches():
    assert [launch.kernel for launch in find_host_launches(TEMPLATES)] == [
        "k<std::uint64_t, kiss::Kiss<std::uint64_t>>",
        "k<float, kiss::Kiss<float>>",
    ]
    uncalled = TEMPLATES[: TEMPLATES.index("int main")]
    assert [launch.instance for launch in find_host_launches(uncalled)] == [False]


def test_an_alias_of_the_file_or_function_is_followed():
    text = "typedef float real;\nvoid run(real* x) { using pair = two<real>; k<pair, real><<<1, 32>>>(x); }\n"
    assert [launch.kernel for launch in find_host_launches(text)] == ["k<two<float>, float>"]


@pytest.mark.parametrize("text", ["", "a << b;", "<<<", "k<<<", "k<<<1", "<<<1, 2>>>", "k<<<>>>()", "k><<<1, 1>>>()"])
def test_unfinished_code_is_no_launch_or_one_of_unknown_size(text):
    assert all(launch.block in (None, (1, 1, 1)) for launch in find_host_launches(text))


def test_a_template_called_from_a_template_has_the_arguments_of_its_callers_caller() -> None:
    text = """\
template <typename T, int N> __global__ void scan(T* x) {}
template <typename T, int N> void one(T* x) { scan<T, N><<<1, N / 2>>>(x); }
template <int N> void all(void* x) { one<char, N>(x); one<short, N>(x); }
int main() { all<64>(0); all<128>(0); }
"""
    found = [one.kernel for one in find_host_launches(text)]
    assert found == ["scan<char, 64>", "scan<char, 128>", "scan<short, 64>", "scan<short, 128>"]


def test_templates_that_call_each_other_end() -> None:
    text = """\
template <int N> __global__ void k(int* x) {}
template <int N> void one(int* x) { k<N><<<1, 32>>>(x); two<N>(x); }
template <int N> void two(int* x) { one<N>(x); }
"""
    assert [one.kernel.partition("<")[0] for one in find_host_launches(text)] == ["k"]


def test_a_grid_is_followed_through_names_but_for_those_that_are_arguments() -> None:
    text = """\
#define SIDE 32
__global__ void k(float* x, int n, int m) {}
void run(float* x, int rows, int cols) {
  int down = (rows + SIDE - 1) / SIDE;
  const int across = cols / SIDE;
  dim3 grid(across, down);
  k<<<grid, SIDE>>>(x, rows, cols);
  int blocks = measured(rows);
  k<<<blocks, SIDE>>>(x, rows, cols);
}
"""
    first, second = find_host_launches(text)
    assert first.grid == "dim3((cols / 32), ((rows + 32 - 1) / 32))"
    assert first.passed == ("x", "rows", "cols")
    assert second.grid == "blocks" or "measured" in second.grid
