"""CUDA texts rewritten to compute in float64: what is replaced, what is refused, and that the examples agree."""

import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor

from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.toolchain.emulated import STANDS_IN
from kernel_lsp.runner.workers.emulator import EmulatedModule, Emulator
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.lift import lifted
from kernel_lsp.source.lift_cuda import LiftError, lifted_cuda, lifted_name
from kernel_lsp.workload.load import load_workload

EXAMPLES = Path(__file__).parents[3] / "examples" / "cuda"
TENSOR_CORES, FULL_OF_SHARED_MEMORY = "wgmma_gemm", "triad"
AGREEING = sorted({path.stem for path in EXAMPLES.glob("*.cu")} - {TENSOR_CORES, FULL_OF_SHARED_MEMORY})


@pytest.mark.parametrize(
    ("written", "becomes"),
    [
        ("float x = 0.5f;", "double x = 0.5;"),
        ("x += 1f + 2.f + .5F + 1e-6f + 0x1p-3f;", "x += 1.0 + 2. + .5 + 1e-6 + 0x1p-3;"),
        ("int mask = 0xff; x0f = a1f;", "int mask = 0xff; x0f = a1f;"),
        ("y = __expf(fmaxf(x, -FLT_MAX)) * rsqrtf(s);", "y = exp(fmax(x, -FLT_MAX)) * rsqrt(s);"),
        ("y[i] = __float2half(__half2float(x[i]));", "y[i] = double(double(x[i]));"),
        ("const half* x; half2 h = __floats2half2_rn(a, b);", "const double* x; double2 h = make_double2(a, b);"),
        ("for (int half = 8; half > 0; half /= 2)", "for (int half = 8; half > 0; half /= 2)"),
        ("v = __shfl_xor_sync(~0u, v, 16);", "v = __shfl_xor_sync(~0u, v, 16);"),
        ("k<<<n, 64, 64 * sizeof(float)>>>(x);", "k<<<n, 64, 64 * sizeof(double)>>>(x);"),
        ("x.data_ptr<at::Half>(); y.data_ptr<float>();", "x.data_ptr<double>(); y.data_ptr<double>();"),
        (
            "x.to(torch::kHalf).scalar_type() == at::ScalarType::Float",
            "x.to(torch::kDouble).scalar_type() == at::ScalarType::Double",
        ),
        (
            'AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::ScalarType::BFloat16, x.scalar_type(), "f", [&]',
            'AT_DISPATCH_FLOATING_TYPES_AND2(at::kHalf, at::ScalarType::BFloat16, x.scalar_type(), "f", [&]',
        ),
        ('#include <float.h>\n// a float\n"float"', '#include <float.h>\n// a float\n"float"'),
    ],
)
def test_narrow_types_their_functions_and_literals_are_widened(written: str, becomes: str):
    assert lifted_cuda(written) == becomes


def test_what_is_defined_comes_first_and_lines_stay_what_they_were():
    made = lifted_cuda("__global__ void k(float4* x) {\n  *x = make_float4(__saturatef(1.5f), 0, 0, 0);\n}\n")
    defined, kept = made.split("#line 1\n")
    assert kept == "__global__ void k(lifted4* x) {\n  *x = make_lifted4(lifted_saturatef(1.5), 0, 0, 0);\n}\n"
    assert "struct alignas(16) lifted4" in defined
    assert "double lifted_saturatef(double a)" in defined
    assert lifted_name("ops::softmax<float, 256>") == "ops::softmax<double, 256>"


@pytest.mark.parametrize(
    ("text", "said", "line"),
    [
        ("\nint bits = __float_as_int(x);", "`__float_as_int` reads or makes the bits", 2),
        ('asm("ex2.approx.f32 %0, %1;" : "=f"(y) : "f"(x));', "assembly works on `.f32`", 1),
        ("\n\nusing namespace nvcuda; wmma::fragment<> a;", "`wmma` reads", 3),
        ("extern __shared__ float s[];\nk<<<n, 64, 256>>>(x);", "not computed with `sizeof`", 1),
    ],
)
def test_what_depends_on_bits_or_bytes_is_refused_with_its_line(text: str, said: str, line: int):
    with pytest.raises(LiftError, match=re.escape(said)) as caught:
        lifted_cuda(text)
    assert caught.value.line == line


def test_an_infinity_that_is_written_by_its_bits_is_a_number_like_any_other():
    assert lifted_cuda("float m = -__int_as_float(0x7f800000);") == "double m = -__int_as_float(0x7f800000);"


class _Lifted:
    """A module whose template instances are asked for by the names they had."""

    def __init__(self, module: EmulatedModule) -> None:
        self._module = module

    def __getitem__(self, name: str) -> object:
        return self._module[lifted_name(name)]

    def __getattr__(self, name: str) -> object:
        return self._module[name]


@pytest.mark.parametrize("name", AGREEING)
def test_a_lifted_example_agrees_with_its_reference_to_ten_digits(name: str):
    path, beside = EXAMPLES / f"{name}.cu", EXAMPLES / f"{name}_workload.py"
    text = lifted_cuda(path.read_text())
    instances = tuple(map(lifted_name, re.findall(r'module\["([^"]+)"\]', beside.read_text())))
    built = build_cuda(SourceFile(path, text), STANDS_IN.arch, tuple(dict.fromkeys(instances)))
    assert built.binary is not None, built.diagnostics
    kernels = find_cuda_kernels(text, path)
    types = {kernel.name: tuple(one.type for one in kernel.parameters) for kernel in kernels}
    emulator = Emulator(STANDS_IN)
    module = emulator.module(built.binary, types, {})
    with emulator.placement():
        workload = load_workload(lifted(beside.read_text()), beside)
        torch.manual_seed(0)
        made = workload.inputs(**workload.cases[0])
        leaves = [_wide(leaf) for leaf in (made if isinstance(made, tuple) else (made,))]
        expected = _outputs(workload.reference, [leaf.clone() if isinstance(leaf, Tensor) else leaf for leaf in leaves])
        assert workload.launch is not None
        emulator.begin((), leaves)
        torch.set_default_dtype(torch.float64)  # of what the launch allocates
        try:
            found = _outputs(workload.launch, [_Lifted(module), *leaves])
        finally:
            torch.set_default_dtype(torch.float)
    assert len(found) == len(expected)
    for output, truth in zip(found, expected, strict=True):
        assert (output.double() - truth.double()).abs().max() <= 1e-10
        assert output.dtype in (torch.float64, torch.int32, torch.int64)


def test_two_examples_of_sixteen_cannot_be_lifted_and_it_is_said_why():
    assert len(AGREEING) == 14
    with pytest.raises(LiftError, match=r"assembly works on `\.f32`"):
        lifted_cuda((EXAMPLES / f"{TENSOR_CORES}.cu").read_text())
    path = EXAMPLES / f"{FULL_OF_SHARED_MEMORY}.cu"
    built = build_cuda(SourceFile(path, lifted_cuda(path.read_text())), "sm_90", ())
    assert built.binary is None
    assert "too much shared data" in built.diagnostics[0].message


def _wide(leaf: object) -> object:
    return leaf.double() if isinstance(leaf, Tensor) and leaf.is_floating_point() else leaf


def _outputs(function: Callable[..., object], given: list[object]) -> list[Tensor]:
    made = function(*given)
    return [one for one in (made if isinstance(made, tuple) else (made,)) if isinstance(one, Tensor)]
