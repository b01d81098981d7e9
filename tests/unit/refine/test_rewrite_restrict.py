import pytest
from rewrite_support import ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.restrict import rewrite

LAYERNORM_ROW = """
__global__ void scale_rows(float* x, float *weight, float* y, const float* bias, int cols) {
    const float* row = x + blockIdx.x * cols;
    for (int c = threadIdx.x; c < cols; c += blockDim.x) y[blockIdx.x * cols + c] = row[c] * weight[c] + bias[c];
}
"""


def test_qualifies_what_is_missing() -> None:
    (candidate,) = rewritten(rewrite, LAYERNORM_ROW)
    signature = (
        "const float* __restrict__ x, const float *__restrict__ weight, float* __restrict__ y, "
        "const float* __restrict__ bias, int cols"
    )
    assert signature in candidate.kernel.text
    assert "ld.global.nc" in ptx(candidate.kernel.text)
    assert "ld.global.nc" not in ptx(LAYERNORM_ROW)


@pytest.mark.parametrize(
    "body",
    [
        "x[i] = 1.0f;",
        "atomicAdd(&x[i], 1.0f);",
        "atomicAdd(x + i, 1.0f);",
        "x[i]++;",
        "*x = 2.0f;",
        "float* p = x; p[i] = 1.0f;",
    ],
)
def test_no_const_on_what_is_written(body: str) -> None:
    (candidate,) = rewritten(rewrite, f"__global__ void f(float* x, int i) {{ {body} }}")
    assert "(float* __restrict__ x, int i)" in candidate.kernel.text
    ptx(candidate.kernel.text)


def test_types_stay_where_they_are_repeated() -> None:
    source = """
template <typename T> __global__ void copy(T* x, T* y) { y[threadIdx.x] = x[threadIdx.x]; }
template __global__ void copy<float>(float*, float*);
"""
    (candidate,) = rewritten(rewrite, source)
    assert "copy(T* __restrict__ x, T* __restrict__ y)" in candidate.kernel.text
    ptx(candidate.kernel.text)


def test_says_nothing_when_all_is_there() -> None:
    source = "__global__ void f(const float* __restrict__ x, float* __restrict__ y) { y[0] = x[0]; }"
    assert rewritten(rewrite, source) == []
    assert rewritten(rewrite, "__global__ void f(float x) {}") == []
