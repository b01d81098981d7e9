"""Cache hints on the loads and stores of CUDA kernels: where they go, where they cannot, and that all compile."""

from pathlib import Path

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.tunables.space import Kind, Space
from kernel_lsp.refine.tunables.syntax import parse_cuda
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

GATHER = """
extern "C" __global__ void k(const float* __restrict__ x, const int *at, float* out, const float4* wide, int n) {
  const float* row = x + blockIdx.x * n;
  int i = threadIdx.x;
  float4 v = wide[i];
  out[i] = row[at[i]] * v.x + reinterpret_cast<const float2*>(x)[i].y;
}
"""


def space(text: str, kernel: str = "k") -> Space:
    base = Candidate(Language.CUDA, SourceFile(Path("k.cu"), text), None, "baseline", "baseline")
    return find_tunables(base, kernel, device_named("H100"))


def hinted(text: str, **which: int) -> str:
    found = space(text)
    choices = {one.name: one.choices for one in found.tunables}
    candidate = found.form({name: choices[name][at] for name, at in which.items()})
    assert candidate is not None
    assert not parse_cuda(candidate.kernel.text).has_error
    return candidate.kernel.text


def titles(text: str) -> list[str]:
    return [one.title for one in space(text).tunables if one.kind is Kind.CACHE]


def body(statements: str, head: str = "float* x, const float* y, int i") -> str:
    return f"__global__ void k({head}) {{ {statements} }}"


def test_loads_through_parameters_and_pointers_made_of_them_are_found() -> None:
    assert titles(GATHER) == ["loads of at", "stores of out", "loads of wide", "loads of row"]
    assert "float4 v = __ldcg(&wide[i]);" in hinted(GATHER, load_wide=2)
    assert "row[__ldcs(&at[i])] * v.x" in hinted(GATHER, load_at=1)


def test_hints_nest_and_stand_beside_each_other() -> None:
    text = hinted(GATHER, load_row=1, load_at=2, store_out=1)
    expected = "__stcs(&out[i], __ldcs(&row[__ldcg(&at[i])]) * v.x + reinterpret_cast<const float2*>(x)[i].y);"
    assert expected in text
    assert "load" not in hinted(GATHER)


def test_a_label_names_the_pointer_and_the_hint() -> None:
    found = space(GATHER)
    one = next(one for one in found.tunables if one.name == "store_out")
    candidate = found.form({"store_out": one.choices[1]})
    assert candidate is not None
    assert candidate.label == "stores of out plain -> __stcs"


@pytest.mark.parametrize(
    "statements",
    ["x[i] += 1.f;", "x[i]++;", "float* p = &x[i];", "float z = x[i] = y[i];", "{ float x[4]; x[i] = 1.f; }"],
    ids=["compound", "increment", "address", "value of an assignment", "another of that name"],
)
def test_a_pointer_whose_elements_are_used_otherwise_is_left_alone(statements: str) -> None:
    assert not [title for title in titles(body(statements)) if title.endswith(" x")]


def test_shared_arrays_volatile_data_and_types_without_hints_are_left_alone() -> None:
    assert titles(body("__shared__ float s[32]; s[i] = 1.f;", "int i")) == []
    assert titles(body("x[i] = y[i];", "volatile float* x, const Pair* y, int i")) == []
    offset = body("__shared__ float s[32]; float* mine = s + at[i]; mine[i] = 1.f;", "const int* at, int i")
    assert titles(offset) == ["loads of at"], "a pointer to shared memory"
    two = body("float z = x[i]; { const float* x = y + 1; z += x[i]; }")
    assert titles(two) == [], "two pointers of one name"


def test_values_of_a_templates_type_and_wide_casts_get_hints() -> None:
    text = "template <typename T> " + body(
        "x[i] = y[i]; reinterpret_cast<float4*>(z)[i] = {};", "T* x, const T* y, float* z, int i"
    )
    assert titles(text) == ["stores of x", "loads of y"]
    wide = body("float4 v = reinterpret_cast<const float4*>(y)[i];")
    assert "__ldcs(&reinterpret_cast<const float4*>(y)[i])" in hinted(wide, load_y=1)


def test_every_hint_compiles() -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    for which in ({}, *({one.name: at} for one in space(GATHER).tunables if one.kind is Kind.CACHE for at in (1, 2))):
        text = hinted(GATHER, **which)
        _, program = nvrtc.nvrtcCreateProgram(text.encode(), b"k.cu", 0, [], [])
        (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, text
        ptx = bytearray(nvrtc.nvrtcGetPTXSize(program)[1])
        nvrtc.nvrtcGetPTX(program, ptx)
        hints = {".cs" if at == 1 else ".cg" for at in which.values()}
        assert all(hint.encode() in ptx for hint in hints)
        nvrtc.nvrtcDestroyProgram(program)
