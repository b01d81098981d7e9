import re

import pytest
from rewrite_support import ptx, rewritten

from kernel_lsp.refine.rewrites.accesses.strength_reduce import rewrite

BROADCAST = """
__global__ void add_channels(const float* x, const float* bias, float* y, {n} n, int plane, int channels) {{
    {i} i = ({i})blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) {{
        y[i] = x[i] + bias[i / plane % channels];
    }}
}}
"""


def test_signed_division_becomes_unsigned() -> None:
    source = BROADCAST.format(n="int", i="int")
    (candidate,) = rewritten(rewrite, source)
    assert re.search(r"(div|rem)\.s32", ptx(source))
    assert not re.search(r"(div|rem)\.s32", ptx(candidate.kernel.text))


@pytest.mark.parametrize("wide", ["size_t", "long long", "int64_t"])
def test_bounded_thread_numbers_become_narrow(wide: str) -> None:
    source = BROADCAST.format(n="int", i=wide).replace("\n__g", "\nusing int64_t = long long;\n__g")
    (candidate,) = rewritten(rewrite, source)
    assert re.search(r"(div|rem)\.[us]64", ptx(source))
    assert not re.search(r"(div|rem)\.[us]64", ptx(candidate.kernel.text))


@pytest.mark.parametrize(
    "source",
    [
        BROADCAST.format(n="long long", i="long long"),
        BROADCAST.format(n="int", i="unsigned"),
        BROADCAST.format(n="int", i="size_t").replace("x[i]", "x[i * 4]"),
        BROADCAST.format(n="int", i="int").replace("i / plane % channels", "(i - plane) / 32"),
        "__global__ void f(float* x, int n, int w) { x[threadIdx.x] = (n - 7) / w; }",
    ],
    ids=["really wide", "unsigned already", "wide product", "may be negative", "parameter may be negative"],
)
def test_near_misses_are_left_alone(source: str) -> None:
    ptx(source)
    assert rewritten(rewrite, source) == []
