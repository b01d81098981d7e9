"""The host code of a CUDA file as C++: launches become calls, device code goes, lines stay."""

from pathlib import Path

import pytest

from kernel_lsp.source.host_view import HostViewError, host_view

ROOT = Path(__file__).parents[3]
TEXTS = [*(ROOT / "examples").rglob("*.cu"), *(ROOT / "tests/fixtures").rglob("*.cu")]


@pytest.mark.parametrize(
    ("launch", "call"),
    [
        ("k<<<1, 2>>>(a);", "(::kernel_lsp::configure(1, 2), k(a));"),
        ("k<float, (N > 3)><<<g, dim3(8, 8), n * sizeof(T), s>>>(a, f(b));",
         "(::kernel_lsp::configure(g, dim3(8, 8), n * sizeof(T), s), k<float, (N > 3)>(a, f(b)));"),
        ("if (x) ops::k<T> <<< g, b >>> (a); else j<<<1, 1>>>();",
         "if (x) (::kernel_lsp::configure( g, b ), ops::k<T>  (a)); else (::kernel_lsp::configure(1, 1), j());"),
        ("table[i]<<<1, 2>>>(a);", "(::kernel_lsp::configure(1, 2), table[i](a));"),
        ("(*kernel)<<<1, 2>>>(a);", "(::kernel_lsp::configure(1, 2), (*kernel)(a));"),
        ("if (x) (*kernel)<<<1, 2>>>(a);", "if (x) (::kernel_lsp::configure(1, 2), (*kernel)(a));"),
        ("return (*kernel)<<<1, 2>>>(a);", "return (::kernel_lsp::configure(1, 2), (*kernel)(a));"),
        ("chosen(n)<<<1, 2>>>(a);", "(::kernel_lsp::configure(1, 2), chosen(n)(a));"),
        ("plan.kernel<<<1, 2>>>(a);", "(::kernel_lsp::configure(1, 2), plan.kernel(a));"),
        ("c ? k<1><<<1, 2>>>(a) : k<2><<<3, 4>>>(a);",
         "c ? (::kernel_lsp::configure(1, 2), k<1>(a)) : (::kernel_lsp::configure(3, 4), k<2>(a));"),
        ("return k<<<1, 2>>>(a);", "return (::kernel_lsp::configure(1, 2), k(a));"),
        ("case 1: k<<<1, 2>>>(a);", "case 1: (::kernel_lsp::configure(1, 2), k(a));"),
        ("const char* s = \"k<<<1>>>(a)\"; // k<<<1>>>(a)", "const char* s = \"k<<<1>>>(a)\"; // k<<<1>>>(a)"),
    ],
)  # fmt: skip
def test_launches_become_calls(launch: str, call: str) -> None:
    assert host_view(f"void f() {{ {launch} }}") == f"void f() {{ {call} }}"


def test_only_what_host_code_names_is_kept_of_device_code() -> None:
    text = """#include <torch/extension.h>
#include <vector>
__constant__ float weights[4];
__device__ float used_by_kernels(float x) { return x * weights[0]; }
__host__ __device__ int ceil_div(int a, int b) { return (a + b - 1) / b; }
struct Op { float a; __device__ float operator()(float x) const { return used_by_kernels(x); } };
struct Alone { __device__ int f() { return threadIdx.x; } };
__global__ void never_launched(float* x) { x[0] = 1; }
template <class F> __global__ void each(float* x, int n, F f) {
  int i = threadIdx.x;
  if (i < n) x[i] = f(x[i]);
}
void run(float* x, int n) { each<<<ceil_div(n, 32), 32>>>(x, n, Op{2.0f}); }
"""
    view = host_view(text)
    for gone in ("torch/extension", "weights", "used_by_kernels", "Alone", "never_launched", "threadIdx", "x[i]"):
        assert gone not in view, gone
    for kept in ("<vector>", "return (a + b - 1) / b;", "operator()(float x) const {}", "Op{2.0f}"):
        assert kept in view, kept
    assert "(void*)&x, (void*)&n, (void*)&f" in view
    assert view.splitlines()[12].startswith("void run")


@pytest.mark.parametrize("path", TEXTS, ids=lambda path: path.name)
def test_lines_stay_and_nothing_of_cuda_is_left(path: Path) -> None:
    text = path.read_text()
    try:
        view = host_view(text)
    except HostViewError:
        assert path.name == "awkward.cu"
        return
    assert view.count("\n") == text.count("\n")
    assert "<<<" not in view


@pytest.mark.parametrize(
    "text",
    [
        "__global__ void k(int) {} void f() { k<<<1, 1>>>(2); }",
        "template <class... T> __global__ void k(T... a) {} void f() { k<<<1, 1>>>(2); }",
        "void f() { k<<<1, 1; }",
        "void f() { <<<1, 1>>>(2); }",
        "void f() { k<<<1, 1>>>; }",
        'extern "C" __global__ voire#if 0\n',
    ],
)
def test_what_cannot_be_told_apart_is_said(text: str) -> None:
    with pytest.raises(HostViewError):
        host_view(text)
