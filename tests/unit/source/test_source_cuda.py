from functools import partial
from pathlib import Path

import pytest

from kernel_lsp.source.cuda import find_cuda_kernels, find_host_functions
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Span
from tests.growth import growth

FIXTURES = Path(__file__).parents[2] / "fixtures" / "source"


def kernels_of(text: str) -> dict[str, Kernel]:
    return {kernel.name: kernel for kernel in find_cuda_kernels(text, Path("k.cu"))}


def the_kernel(text: str) -> Kernel:
    (kernel,) = find_cuda_kernels(text, Path("k.cu"))
    return kernel


def cut(text: str, span: Span) -> str:
    return text.encode()[span.start : span.end].decode()


@pytest.mark.parametrize(
    "prefix",
    [
        "",
        "static ",
        "inline ",
        'extern "C" ',
        "template <typename T, int N = 4>\n",
        "template <>\n",
        "template <template <typename, int> class Policy, typename... Rest> ",
        "template <int N, bool WIDE = (N > 4)> static ",
        "[[maybe_unused]] ",
        "__launch_bounds__(256, 2) ",
        "__cluster_dims__(2, 1, 1) ",
        "MY_EXPORT ",
        "MY_ATTRIBUTE(3) ",
    ],
)
def test_span_is_the_whole_definition_after_text_that_is_not_ascii(prefix: str) -> None:
    body = "{ x[0] = '}'; /* } */ }"
    definition = f"{prefix}__global__ void kernel(float* x) {body}"
    text = f"// größer ist besser: 日本語 {{\n{definition}\nint after;\n"
    kernel = the_kernel(text)
    assert cut(text, kernel.span) == definition
    assert cut(text, kernel.name_span) == kernel.name == "kernel"
    assert cut(text, kernel.body) == body
    assert [(p.type, p.name) for p in kernel.parameters] == [("float*", "x")]


@pytest.mark.parametrize(
    ("written", "type_", "name"),
    [
        ("const float* __restrict__ x", "const float* __restrict__", "x"),
        ("float4", "float4", ""),
        ("T (&y)[4]", "T (&)[4]", "y"),
        ("void (*callback)(int, float)", "void (*)(int, float)", "callback"),
        ("int n = (1, 2)", "int", "n"),
        ("int /* rows, */ n", "int", "n"),
        ("unsigned\n   long long n", "unsigned long long", "n"),
        ("const __grid_constant__ CUtensorMap map", "const __grid_constant__ CUtensorMap", "map"),
        ("std::array<int, 4> a", "std::array<int, 4>", "a"),
        ("Rest... rest", "Rest...", "rest"),
    ],
)
def test_parameter(written: str, type_: str, name: str) -> None:
    kernel = the_kernel(f"__global__ void kernel(int first, {written}) {{}}")
    assert [(p.type, p.name) for p in kernel.parameters] == [("int", "first"), (type_, name)]


def test_void_is_no_parameter() -> None:
    assert the_kernel("__global__ void kernel(void) {}").parameters == ()


def test_template_parameters_of_every_kind() -> None:
    text = "template <typename T, int N = 1 << 3, template <class, int> class P, class... R> __global__ void k(T a) {}"
    expected = ("typename T", "int N = 1 << 3", "template <class, int> class P", "class... R")
    assert the_kernel(text).template_parameters == expected


@pytest.mark.parametrize(
    "head", ["__launch_bounds__(T * (2), f(1, 2)) void", "void __launch_bounds__(T * (2), f(1, 2))"]
)
def test_launch_bounds_before_and_after_void(head: str) -> None:
    assert the_kernel(f"__global__ {head} k(int n) {{}}").launch_bounds == ("T * (2)", "f(1, 2)")


def test_names_carry_their_namespaces() -> None:
    text = """
        namespace a::b { namespace { __global__ void k1() {} } inline namespace v2 { __global__ void k2() {} } }
        namespace c { extern "C" __global__ void k3() {} }
        __global__ void k4() {}
    """
    assert list(kernels_of(text)) == ["a::b::k1", "a::b::v2::k2", "k3", "k4"]


def test_c_linkage_by_prefix_and_by_block() -> None:
    text = 'extern "C" __global__ void a() {}\nextern "C" {\n__global__ void b() {}\n}\n__global__ void c() {}'
    assert {name: kernel.extern_c for name, kernel in kernels_of(text).items()} == {"a": True, "b": True, "c": False}


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(int);",
        "template __global__ void k<float>(float*);",
        "// __global__ void k() {}",
        'const char* s = "__global__ void k() {}";',
        'const char* s = R"(__global__ void k() {})";',
        "#define K __global__ void k() {}",
        "__device__ void k() {}",
        "#define LAUNCH(T) void launch(T* x) { k<<<1, 1>>>(x); }\nLAUNCH(float)",
    ],
)
def test_what_is_no_kernel(text: str) -> None:
    assert find_cuda_kernels(text, Path("k.cu")) == ()


def test_kernels_in_both_branches_of_a_condition() -> None:
    text = "#if A\n__global__ void k(int a) { if (a) {} }\n#else\n__global__ void k(long a) {}\n#endif\n"
    kernels = find_cuda_kernels(text, Path("k.cu"))
    assert [k.parameters[0].type for k in kernels] == ["int", "long"]


def test_two_heads_with_one_body_are_one_kernel() -> None:
    head = "#if A\n__global__ void k(int a)\n#else\n__global__ void k(long a)\n#endif\n{\n}"
    text = f"{head}\n__global__ void next() {{}}\n"
    kernels = kernels_of(text)
    assert list(kernels) == ["k", "next"]
    assert cut(text, kernels["k"].span) == head.removeprefix("#if A\n")


def test_kernel_made_by_a_macro_call() -> None:
    call = "DEFINE(increment, float)"
    body = "{ \\\n    x[n] += T(1); }"
    text = f"#define DEFINE(name, T) \\\n  __global__ void name##_kernel(T* x, int n) {body}\n{call}\n"
    kernel = the_kernel(text)
    assert kernel.name == "increment_kernel"
    assert kernel.macro == "DEFINE"
    assert cut(text, kernel.span) == call
    assert cut(text, kernel.name_span) == "DEFINE"
    assert cut(text, kernel.body) == ""
    assert [(p.type, p.name) for p in kernel.parameters] == [("float*", "x"), ("int", "n")]


def test_macro_that_makes_several_kernels_through_another_macro() -> None:
    text = """
#define ONE(name, T) __global__ void name##_##T(T* x) {}
#define BOTH(name) ONE(name, float) ONE(name, double)
namespace ops {
BOTH(add);
}
"""
    assert {k.name: k.macro for k in find_cuda_kernels(text, Path("k.cu"))} == {
        "ops::add_float": "BOTH",
        "ops::add_double": "BOTH",
    }


def test_macro_for_the_head_alone() -> None:
    text = "#define HEAD(name) __global__ void __launch_bounds__(64) name(float* x)\nHEAD(k) { x[0] = 2; }"
    kernel = the_kernel(text)
    assert (kernel.name, kernel.macro, kernel.launch_bounds) == ("k", "HEAD", ("64",))
    assert cut(text, kernel.body) == "{ x[0] = 2; }"


def test_macro_for_the_specifiers() -> None:
    kernel = the_kernel('#define KERNEL extern "C" __global__\nKERNEL void k(int a) {}')
    assert (kernel.name, kernel.macro, kernel.extern_c) == ("k", None, True)


def test_macro_for_the_name() -> None:
    kernel = the_kernel("#define CAT_(a, b) a##b\n#define CAT(a, b) CAT_(a, b)\n__global__ void CAT(my, _k)(int a) {}")
    assert (kernel.name, kernel.macro) == ("my_k", None)


def test_macro_that_calls_itself_ends() -> None:
    text = "#define F(x) F(x) F(x)\n#define G H\n#define H G\nF(F(1))\nG void f() {}"
    assert find_cuda_kernels(text, Path("k.cu")) == ()


def test_awkward_file() -> None:
    text = (FIXTURES / "awkward.cu").read_text()
    assert list(kernels_of(text)) == [
        "increment_float_kernel",
        "increment_int_kernel",
        "ops::detail::templated",
        "ops::detail::special",
        "c_linkage",
        "clustered",
        "pasted_kernel",
        "headed",
        "attributed",
        "gnu_style",
        "single",
        "block",
        "instantiated",
        "last",
    ]


def test_line_ends_of_windows() -> None:
    text = "// ü\r\n__global__ void k(\r\n  int a)\r\n{\r\n}\r\n"
    assert cut(text, the_kernel(text).span) == "__global__ void k(\r\n  int a)\r\n{\r\n}"


@pytest.mark.parametrize("text", ["", "\0", "{", "}", ")", "#", "__global__ void k(", '"', "template <", 'R"x('])
def test_broken_text_gives_no_kernel(text: str) -> None:
    assert find_cuda_kernels(text, Path("k.cu")) == ()


def test_eight_times_the_lines_take_eight_times_as_long() -> None:
    text = (FIXTURES / "program.cu").read_text()
    find = partial(find_cuda_kernels, path=Path("k.cu"))
    assert growth(find, text * 6, text * 48) < 24  # 64 if it grew with the square


def test_host_functions_are_those_that_only_the_host_can_call() -> None:
    text = """
    __device__ float twice(float x) { return 2 * x; }
    __global__ void kernel(float* x) { *x = twice(*x); }
    template <typename T> void any(T) {}
    void later(int);
    namespace ops { torch::Tensor run(torch::Tensor x) { kernel<<<1, 1>>>(x.data_ptr<float>()); return x; } }
    static int helper() { return 0; }
    PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &ops::run); }
    """
    assert find_host_functions(text) == ("ops::run", "helper")


@pytest.mark.parametrize("head", ["CUTLASS_GLOBAL void", "OWN_KERNEL __launch_bounds__(128, 1) void"])
def test_a_kernel_is_found_where_a_macro_of_a_header_hides_its_global(head: str) -> None:
    """As DeepGEMM's, whose `CUTLASS_GLOBAL` is CUTLASS' macro for `__global__ static`."""
    text = f"namespace gemm {{\ntemplate <int N>\n{head}\nproduct(float* x) {{ x[0] = N; }}\n}}\n"
    assert [(kernel.name, kernel.template_parameters) for kernel in find_cuda_kernels(text, Path("k.cu"))] == [
        ("gemm::product", ("int N",))
    ]
