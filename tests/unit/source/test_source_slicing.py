from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.slicing import same_code, slice_device
from tests.growth import growth

FIXTURES = Path(__file__).parents[2] / "fixtures" / "source"
FILES = ["torch_extension.cu", "program.cu", "awkward.cu"]


def kept(text: str) -> str:
    """The slice without its blanks."""
    return " ".join(slice_device(text).split())


def assert_nothing_moved(text: str) -> None:
    before, after = text.encode(), slice_device(text).encode()
    assert len(after) == len(before)
    assert all(a == b or (b == 0x20 and a not in b"\r\n") for a, b in zip(before, after, strict=True))


PIECES = """__global__ void k(int a)|void f(float* x)|struct S|{|}|(|)|;|\n|\r\n| |=|x|,|template <typename T>
|extern "C"|namespace a|using std::min;|// ü {\n|/* } */|"}"|'{'|1'000
|\n#include <vector>\n|\n#if A\n|\n#else\n|\n#endif\n
|\n#define D(x) __global__ void x() {}\n|D(k)|\n#pragma once\n|constexpr int n = 3;|__device__|~|<|>|:|::|at::Tensor
|日本|\\\n"""


@given(st.lists(st.sampled_from(PIECES.split("|"))).map("".join) | st.text())
def test_nothing_moves_in_any_text(text: str) -> None:
    assert_nothing_moved(text)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
def test_nothing_moves_in_real_files(name: str, line_end: str) -> None:
    assert_nothing_moved((FIXTURES / name).read_text().replace("\n", line_end))


@pytest.mark.parametrize("name", FILES)
def test_kernels_of_the_slice_are_those_of_the_file(name: str) -> None:
    text = (FIXTURES / name).read_text()
    assert find_cuda_kernels(slice_device(text), Path(name)) == find_cuda_kernels(text, Path(name))


@pytest.mark.parametrize("name", FILES)
def test_a_slice_is_its_own_slice(name: str) -> None:
    once = slice_device((FIXTURES / name).read_text())
    assert slice_device(once) == once


@pytest.mark.parametrize(
    "text",
    [
        "#include <torch/extension.h>",
        '#include "torch/extension.h"',
        "#include <vector>",
        "#include <stdint.h>",
        "#include <cuda_runtime.h>",
        "#include <cudaTypedefs.h>",
        "#include <helper_cuda.h>",
        "#  include <cublas_v2.h> // for gemm",
        "#include <cub/block/block_reduce.cuh>",
        "#include <cooperative_groups.h>",
        "int main() { return 0; }",
        "void f(int* x) { k<<<1, 1>>>(x); }",
        "template <typename T> void f(T* x) { k<T><<<1, 1>>>(x); }",
        "template void f<float>(float*);",
        "void prototype(int);",
        "__host__ void f() {}",
        "static int counter = 0;",
        "const std::vector<int> sizes = {1, 2};",
        "auto f = [](int a) { return a; };",
        "const double peak = measure();",
        "using namespace std;",
        "using std::min;",
        "using at::Tensor;",
        "using Map = std::map<int, at::Tensor>;",
        "namespace py = pybind11;",
        "template __global__ void k<at::Half>(at::Half*);",
        "template <> __device__ float load(const c10::Half* x) { return *x; }",
        "struct Host { std::string name; };",
        "template <typename T> struct Host { std::vector<T> values; };",
        "template <> struct Convert<at::Half> { float x; };",
        "class Timer { public: Timer() { cudaEventCreate(&e); } ~Timer() {} cudaEvent_t e; };",
        'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("f", &f); }',
        'TORCH_LIBRARY(ops, m) { m.def("f"); }',
        "void Class::method() const { run(); }",
        "#define LAUNCHER(T) void run(T* x) { k<<<1, 1>>>(x); }\nLAUNCHER(float)",
        "void f()\n#ifdef A\n{ a(); }\n#else\n{ b(); }\n#endif",
    ],
)
def test_host_code_goes(text: str) -> None:
    rest = [line for line in slice_device(text).splitlines() if line.strip() and not line.startswith("#")]
    assert rest == []
    assert "include" not in slice_device(text)


@pytest.mark.parametrize(
    "text",
    [
        "#include <cuda_fp16.h>",
        "#include <cuda_bf16.h>",
        "#include <math_constants.h>",
        '#include "mine.cuh"',
        "#include <mylib/reduce.cuh>",
        "#include <cub/block/block_reduce.cuh>\n__global__ void k() { cub::f(); }",
        "#include <cooperative_groups.h>\nnamespace cg = cooperative_groups;",
        "#include <mma.h>\nusing namespace nvcuda::wmma;",
        "__device__ float f(float x) { return x; }",
        "__host__ __device__ int f() { return 1; }",
        "template <typename T> __device__ T f(T x) { return x; }",
        "#define DEV static __device__ __forceinline__\nDEV int f() { return 1; }",
        "CUTLASS_HOST_DEVICE int f() { return 1; }",
        "__constant__ float c[4];",
        "__global__ void k(torch::PackedTensorAccessor32<float, 2> x) {}",
        "__device__ float f(float x) { return at::native::g(x); }",
        "__device__ int counter = 0;",
        "template __global__ void k<float>(float*);",
        "constexpr int n = 4;",
        "const float eps = 1e-6f;",
        "constexpr int div_up(int a, int b) { return (a + b - 1) / b; }",
        "enum class Mode { A, B };",
        "typedef float real;",
        "using half8 = half[8];",
        "struct alignas(16) Vec { float x[4]; };",
        "template <typename T> struct Pair { T a, b; };",
        "struct Add { __device__ float operator()(float a, float b) const { return a + b; } };",
        "static_assert(sizeof(int) == 4);",
        "#define BOTH __host__ __device__\nstruct Sum { float x; BOTH float twice() { return x; } };",
        "struct Sum { float x; MY_HOST_DEVICE float twice() const { return 2 * x; } };",
        "#define K(n) __global__ void n() {}\nK(a)\nK(b);",
        "#define PI 3.14f\n#undef PI\n#pragma once",
        "struct Traits { using type = std::decay_t<int>; };\n__global__ void k(Traits::type x) {}",
        "struct Inner { std::size_t n; };\nusing Outer = Inner;\n__global__ void k(Outer x) {}",
        "const int n = f();\n__global__ void k() { int a[n]; }",
        "struct S { size_t n; };\n#define USE(x) S{x}\n__global__ void k() { USE(1); }",
    ],
)
def test_device_code_stays(text: str) -> None:
    assert slice_device(text) == text


def test_type_that_contains_a_lost_type_goes_too() -> None:
    assert kept("struct A { std::string s; }; struct B { A a; }; __global__ void k() {}") == "__global__ void k() {}"


def test_type_that_device_code_uses_loses_its_host_members_alone() -> None:
    text = "struct P { float* x; P(const at::Tensor& t) : x(t.data<float>()) {} }; __global__ void k(P p) {}"
    assert kept(text) == "struct P { float* x; }; __global__ void k(P p) {}"


def test_a_type_with_functions_that_device_code_does_not_use_is_the_hosts() -> None:
    """What its functions call may come from a header that only the host includes."""
    text = """template <typename T> struct Same { bool is(T* a) { return false; } };
template <> struct Same<int> { bool is(int* a) { return compareData(a); } };
using SameInt = Same<int>;
struct Pair { float a; float sum() { return a; } };
__global__ void k(Pair p) {}"""
    assert kept(text) == "struct Pair { float a; float sum() { return a; } }; __global__ void k(Pair p) {}"


def test_a_using_declaration_goes_with_what_it_brings_in() -> None:
    text = "namespace ops { void run(int* x) {} __device__ int one() { return 1; } }\nusing ops::run; using ops::one;"
    assert kept(text) == "namespace ops { __device__ int one() { return 1; } } using ops::one;"


def test_conditions_inside_host_code_stay_balanced() -> None:
    text = "void f() {\n#if A\n#pragma omp parallel\n  a();\n#endif\n#define LATER 1\n}\n"
    assert slice_device(text).split() == ["#if", "A", "#endif", "#define", "LATER", "1"]


def test_host_words_in_comments_and_strings_mean_nothing() -> None:
    text = 'struct S { int a; /* std::string */ }; constexpr const char* s = "at::Tensor";'
    assert slice_device(text) == text


def test_eight_times_the_lines_take_eight_times_as_long() -> None:
    text = (FIXTURES / "torch_extension.cu").read_text()
    assert growth(slice_device, text * 5, text * 40) < 24  # 64 if it grew with the square


@pytest.mark.parametrize("name", FILES)
def test_slices_compile(name: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    nvidia = pytest.importorskip("nvidia")
    includes = [p for root in nvidia.__path__ for p in Path(root).glob("*/include")]
    source = slice_device((FIXTURES / name).read_text()).encode()
    error, program = nvrtc.nvrtcCreateProgram(source, name.encode(), 0, [], [])
    assert error == nvrtc.nvrtcResult.NVRTC_SUCCESS
    options = ["--gpu-architecture=sm_90", "--device-as-default-execution-space", f"-I{FIXTURES}"]
    encoded = [option.encode() for option in (*options, *(f"-I{path}" for path in includes))]
    (result,) = nvrtc.nvrtcCompileProgram(program, len(encoded), encoded)
    _, size = nvrtc.nvrtcGetProgramLogSize(program)
    log = bytes(size + 1)  # one byte more than needed: bytes objects of length 1 are shared, and this one is written to
    nvrtc.nvrtcGetProgramLog(program, log)
    nvrtc.nvrtcDestroyProgram(program)
    assert result == nvrtc.nvrtcResult.NVRTC_SUCCESS, log.decode()


def test_a_byte_order_mark_is_blanked() -> None:
    assert slice_device("\ufeff__global__ void k() {}\n") == "   __global__ void k() {}\n"


def test_what_looks_like_a_comment_in_a_string_is_code() -> None:
    text = '__global__ void k() { printf("// %d /* */", 1); } // said\n'
    assert same_code(text) == text.partition(" // said")[0]


def test_a_macro_with_a_definition_for_device_code_makes_device_code() -> None:
    text = (
        "#if defined(__CUDACC__)\n#define TABLE(name) static const __device__ int name[2] = {\n"
        "#else\n#define TABLE(name) static const int name[2] = {\n#endif\n#define END() };\n"
        "TABLE(powers)\n  1, 2,\nEND()\n"
    )
    assert slice_device(text) == text


def test_a_variable_of_a_type_that_another_file_has_is_the_hosts() -> None:
    assert kept("extern struct cudaGraphicsResource *vbo; __global__ void k() {}") == "__global__ void k() {}"


def test_a_type_whose_alignment_comes_first_is_a_type() -> None:
    text = "__align__(8) struct Pair { int at; float value; };\n__device__ Pair first(int x) { return {x, 1}; }\n"
    assert slice_device(text) == text
