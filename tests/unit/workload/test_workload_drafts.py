"""Drafts of workloads: complete by their form, refused until somebody has agreed to them."""

import asyncio
import re
from pathlib import Path

import pytest

from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.errors import SourceError, WorkloadError
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import find_kernels, read_source
from kernel_lsp.workload.draft import draft_for, draft_workload
from kernel_lsp.workload.spec import DRAFT, find_workload, workload_path

EXAMPLES = Path(__file__).parents[3] / "examples"
KERNEL_FILES = sorted(
    path
    for pattern in ("cuda/*.cu", "triton/*.py")
    for path in EXAMPLES.glob(pattern)
    if not path.name.endswith("_workload.py")
)


def draft(text: str, name: str = "kernel.cu") -> str:
    path = Path(name)
    return draft_workload(SourceFile(path, text), find_kernels(text, path)[0])


@pytest.mark.parametrize("path", KERNEL_FILES, ids=lambda path: path.name)
def test_a_draft_is_refused_until_its_mark_is_removed(path, tmp_path):
    # Only CASES, inputs and reference decide what is a workload in the file itself, so the kernel file goes without.
    source = read_source(path)
    text = draft_workload(source, find_kernels(source.text, path)[0])
    here = tmp_path / path.name
    here.write_text(source.text.split("\nCASES =")[0])
    workload_path(here).write_text(text)
    with pytest.raises(WorkloadError, match="draft") as refused:
        find_workload(read_source(here))
    assert refused.value.line == 1
    assert "remove this line" in refused.value.fix
    workload_path(here).write_text(text.partition("\n")[2])
    found = find_workload(read_source(here))
    assert found is not None
    assert found.has_launch or path.suffix == ".py"


def test_a_signature_tells_types_sizes_and_what_is_written():
    text = draft("__global__ void k(const half* __restrict__ x, float* out, int rows, int cols, float eps) {}")
    assert 'x = torch.randn(rows, cols, device="cuda", dtype=torch.float16)' in text
    assert 'out = torch.empty(rows, cols, device="cuda", dtype=torch.float32)' in text
    assert "return x, 1e-6" in text
    assert "module.k[(rows,), (256,)](x, out, rows, cols, eps)" in text


def test_a_name_that_is_not_known_gives_no_reference_and_says_so():
    text = draft("__global__ void frobnicate(const float* x, float* y, int n) {}")
    assert "def reference" not in text
    assert "what frobnicate computes is not known" in text
    assert "reference(x), which returns" in text, "its parameters are those of `launch`"
    assert "return torch.relu(x)" in draft("__global__ void relu_kernel(const float* x, float* y, int n) {}")


def test_the_matrices_of_a_product_fit_each_other():
    text = draft("__global__ void gemm(const float* a, const float* b, float* c, int m, int n, int k) {}")
    assert "a = torch.randn(m, k," in text
    assert "b = torch.randn(k, n," in text
    assert "c = torch.empty(m, n," in text


def test_names_that_python_reserves_are_changed():
    text = draft("__global__ void relu(const float* in, float* out, int n) {}")
    assert "def reference(in_):" in text


HOST = """
typedef __nv_bfloat16 floatX;

__global__ void softmax_kernel(floatX* out, const floatX* inp, int N, int C) {
    extern __shared__ float shared[];
    out[blockIdx.x] = inp[0];
}

__global__ void gelu_rows(float* out, const float* inp, int N, int C) { out[0] = tanhf(inp[0]); }

__global__ void adam(float* p, const float* g, float* m, float* sum, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    m[i] = 0.9f * m[i] + g[i];
    p[i] -= m[i];
    atomicAdd(&sum[0], p[i]);
}

void softmax(floatX* out, const floatX* inp, int N, int C) {
    const int block_size = 128;
    const int grid_size = N;
    softmax_kernel<<<grid_size, block_size, block_size * sizeof(float)>>>(out, inp, N, C);
    gelu_rows<<<ceil_div(N * C, 64), 64>>>(out, inp, N, C);
}
"""


def test_a_draft_launches_as_the_host_code_of_the_file_does():
    source = SourceFile(Path("kernel.cu"), HOST)
    text = draft_for(source)
    assert 'inp = torch.randn(N, C, device="cuda", dtype=torch.bfloat16)' in text
    assert "module.softmax_kernel[N, 128, 512](out, inp, N, C)" in text
    text = draft_for(source, "gelu_rows")
    assert "module.gelu_rows[-(-(N * C) // ( 64)), 64](out, inp, N, C)" in text
    assert 'torch.nn.functional.gelu(inp, approximate="tanh")' in text


def test_what_a_kernel_reads_and_writes_is_an_input_that_it_mutates():
    text = draft_for(SourceFile(Path("kernel.cu"), HOST), "adam")
    assert 'CONTRACT = dict(mutates=("p", "m", "sum",))' in text
    assert "def launch(module, p, g, m, sum):" in text
    assert "return p, m, sum\n" in text
    assert "torch.empty" not in text


COURSE = """
__global__ void sgemv(float* A, float* x, float* y, int M, int N) {
    float sum = 0;
    for (int i = 0; i < N; ++i) if (A[i]) sum += reinterpret_cast<float4*>(A + i)->x * x[i];
    y[blockIdx.x] = sum;
}
__global__ void scan(float* data, float* scale, float* out, int n) {
    for (int i = 0; i < n; ++i) data[i] *= scale[i];
    *reinterpret_cast<float4*>(&out[4 * threadIdx.x]) = make_float4(scale[0], 0, 0, 0);
}
"""


def test_a_pointer_that_is_only_read_is_an_input_whatever_its_type():
    text = draft_for(SourceFile(Path("kernel.cu"), COURSE.replace("reinterpret_cast<float4*>(A + i)->x", "A[i]")))
    assert "CONTRACT" not in text
    assert "def launch(module, A, x):" in text
    assert "return y\n" in text
    text = draft_for(SourceFile(Path("kernel.cu"), COURSE))
    assert 'mutates=("A",)' in text, "whatever its address is used for"
    text = draft_for(SourceFile(Path("kernel.cu"), COURSE), "scan")
    assert 'mutates=("data",)' in text
    assert "def launch(module, data, scale):" in text
    assert "return data, out\n" in text


def test_sizes_of_many_extents_stay_within_reason():
    text = draft("__global__ void k(const float* x, float* y, int B, int T, int C, int NH) {}")
    assert "dict(B=64, T=64, C=64, NH=64)" in text


def test_what_cannot_be_drafted_for_says_so():
    with pytest.raises(SourceError, match="no kernel to draft"):
        draft_for(SourceFile(Path("kernel.cu"), "int f();"))
    with pytest.raises(SourceError, match="There is no kernel sofmax"):
        draft_for(SourceFile(Path("kernel.cu"), HOST), "sofmax")


@pytest.mark.sampled(2)
@pytest.mark.parametrize("name", ["softmax", "rmsnorm"])
def test_an_agreed_draft_of_a_well_known_kernel_is_right_as_it_stands(name, tmp_path):
    kernel = EXAMPLES / "triton" / f"{name}.py"
    source = read_source(kernel)
    here = tmp_path / kernel.name
    here.write_text(source.text.split("\nCASES =")[0])
    draft_text = draft_workload(read_source(here), find_kernels(source.text, here)[0])
    assert draft_text.startswith(DRAFT)
    workload_path(here).write_text(draft_text.partition("\n")[2])
    settings = Settings.model_validate({"paths": {"data": tmp_path, "cache": tmp_path / "cache"}})
    [report] = asyncio.run(check([read_source(here)], settings))
    assert report.ok, [d.message for d in report.diagnostics]
    assert any(c.status == "passed" for c in report.checks)


KERNEL = """
import torch
import triton
import triton.language as tl


@triton.jit
def scale_kernel(x_ptr, w_ptr, y_ptr, stride, n_cols, BLOCK: tl.constexpr):
    row = tl.program_id(0)
    cols = tl.arange(0, BLOCK)
    x_ptr += row * stride
    x = tl.load(x_ptr + cols, mask=cols < n_cols)
    w = tl.load(w_ptr + cols, mask=cols < n_cols)
    tl.store(y_ptr + row * stride + cols, x * w, mask=cols < n_cols)

"""
SCALE = (
    KERNEL
    + """
def block_of(n):
    return triton.next_power_of_2(n)


def scale(x, w):
    shape = x.shape
    x = x.view(-1, shape[-1])
    rows, n = x.shape
    y = torch.empty_like(x)
    scale_kernel[(rows,)](x, w, y, x.stride(0), n, BLOCK=block_of(n))
    return y.view(*shape), n
"""
)


def draft_triton(text):
    return draft_for(SourceFile(Path("kernel.py"), text))


def test_a_triton_kernel_is_called_through_the_function_that_launches_it():
    text = draft_triton(SCALE)
    assert "def inputs(rows, n):" in text
    assert 'x = torch.randn(rows, n, device="cuda", dtype=torch.float32)' in text
    assert 'w = torch.randn(n, device="cuda", dtype=torch.float32)' in text, "the kernel's mask tells its length"
    assert "return module.scale(x, w)[0]" in text, "the second is no tensor that the kernel writes"
    assert "def reference" not in text, "nothing in the file says what it computes"


TEST = """
def test_scale():
    a, b = torch.rand(3, 4), torch.rand(4)
    ours = scale(a, b)
    theirs = torch.mul(a, b)
    assert torch.allclose(theirs, ours)
"""


@pytest.mark.parametrize(
    ("said", "right"),
    [
        ("def naive_scale(x, w):\n    return x * w\n", "return naive_scale(x, w)"),
        (TEST, "return torch.mul(x, w)"),
        ("def naive_scale(x, w):\n    return x * FACTOR\n", ""),
    ],
)
def test_what_a_triton_file_compares_with_is_the_reference(said, right):
    text = draft_triton(SCALE.replace(", n\n", "\n") + "\n\n" + said)
    assert ("def reference" in text) is bool(right)
    assert right in text.partition("def reference")[2].partition("def launch")[0]
    compile(text, "draft", "exec")


def test_what_a_triton_file_does_not_tell_is_asked_for_and_not_guessed():
    host = """
def scale(x, w, mode, labels, eps, out):
    assert mode in ("a", "b")
    first = labels[0]
    scale_kernel[(x.shape[0],)](x, w, out, x.stride(0), x.shape[1], BLOCK=1024)
"""
    text = draft_triton(KERNEL + host)
    for asked in ("mode", "labels"):
        assert f"raise NotImplementedError('Say what `{asked}`" in text
    assert "1e-6" not in text, "what is never looked at is not asked for"
    assert "module.scale(x, w, mode, labels, None, out)" in text
    alone = draft_triton(KERNEL)
    assert "raise NotImplementedError('Nothing in the file launches scale_kernel: say the grid, `BLOCK`.')" in alone


def test_an_autograd_function_and_extents_of_blocks():
    host = """
class Scale(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, bias=None, eps=1e-5):
        assert x.shape[0] % 48 == 0
        y = torch.empty_like(x)
        scale_kernel[(x.shape[0],)](x, w, y, x.stride(0), x.shape[1], x.shape[1])
        return y
"""
    text = draft_triton(KERNEL + host)
    assert "return module.Scale.apply(x, w, None, eps)" in text
    assert "def launch(module, x, w, eps):" in text
    assert "dict(rows=48, w_length=16)" in text, "a multiple, and a power of two"


def test_a_draft_of_a_file_that_says_what_is_right_checks_as_it_stands(tmp_path):
    here = tmp_path / "scale.py"
    here.write_text(SCALE.replace(", n\n", "\n") + "\n\ndef naive_scale(x, w):\n    return x * w\n")
    workload_path(here).write_text(draft_for(read_source(here)).partition("\n")[2])
    settings = Settings.model_validate({"paths": {"data": tmp_path, "cache": tmp_path / "cache"}})
    [report] = asyncio.run(check([read_source(here)], settings))
    assert report.ok, [d.message for d in report.diagnostics]
    assert any(c.status == "passed" for c in report.checks)


def test_an_array_that_is_only_read_through_its_address_is_an_input() -> None:
    text = draft("__global__ void fan(float* m, float* a, int n, int t) { *(m + n * t) = *(a + n * t) / *(a + t); }")
    assert "def launch(module, a" in text
    assert "m = torch.empty(" in text
    assert "a = torch.empty(" not in text


def test_a_launch_in_two_dimensions_that_cannot_be_read_is_left_open() -> None:
    """One size says nothing of how the kernel's rows and columns are laid out."""
    kernel = "__global__ void mm(const int* a, int* c, int N) { c[blockIdx.y * N + threadIdx.x] = a[threadIdx.x]; }\n"
    host = "void run(int* a, int* c) { int blocks = count(); mm<<<blocks, threads>>>(a, c, 8); }\n"
    text = draft(kernel + host)
    assert "say the grid and the block" in text
    assert "total + block" not in text
    compile(text, "draft", "exec")


_SCALED = """
__global__ void %s(const float* x, const float* scale, const float* floor, float* y, float* sums, int rows, int cols) {
    int c = blockIdx.x * blockDim.x + threadIdx.x, r = blockIdx.y;
    if (c >= cols) return;
    %s
    y[(size_t)r * cols + c] = here;
    if (c == 0) sums[r] = here;
}
"""


@pytest.mark.parametrize(
    "body",
    [
        "float here = x[(size_t)r * cols + c] * scale[c] + floor[r];",
        "float here = x[c + cols * r] * scale[c] + floor[r];",
        "const float* row = x + r * cols;\n    float here = row[c] * scale[c] + floor[r];",
    ],
)
def test_indices_tell_what_has_one_element_for_each_column_or_row(body: str) -> None:
    text = draft_for(SourceFile(Path("scaled.cu"), _SCALED % ("scaled", body)))
    for made in ("x = torch.randn(rows, cols,", "scale = torch.randn(cols,", "floor = torch.randn(rows,"):
        assert made in text
    assert "y = torch.empty(rows, cols," in text
    assert "sums = torch.empty(rows," in text


@pytest.mark.parametrize(("second", "known"), [("bias", True), ("scale", False)])
def test_a_name_says_no_more_than_the_parameters_do(second: str, known: bool) -> None:
    kernel = f"__global__ void bias_gelu(const float* x, const float* {second}, float* y, int n) {{ y[0] = x[0]; }}"
    text = draft_for(SourceFile(Path("bias_gelu.cu"), kernel))
    assert (f"gelu(x + {second})" in text) is known
    assert ("def reference" in text) is known


FLAT = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; GUARD y[i] = x[i] + 1.0f; }"


def flat(parameters: str, guard: str) -> str:
    return draft(f"__global__ void more(const float* x, float* y{parameters}) " + FLAT.replace("GUARD", guard))


def test_what_bounds_the_index_of_a_thread_is_the_number_of_elements() -> None:
    text = flat(", int ds", "if (i < ds)")
    assert "dict(ds=7)" in text
    assert 'y = torch.empty(ds, device="cuda"' in text
    assert "return x + 1" in text


def test_where_nothing_bounds_it_blocks_are_full() -> None:
    text = flat("", "")
    assert "dict(n=256)" in text
    assert "block, total = 256, n" in text


def test_a_bound_that_is_no_parameter_is_asked_for() -> None:
    assert "more stops at COUNT, which is no parameter" in flat("", "if (i < COUNT)")


@pytest.mark.parametrize(
    ("kernel", "asked"),
    [
        ("void k(const Point* x, float* y, int n) { y[0] = x[0].z; }", "Say what `x`, Point*, is."),
        ("void k(float* y, Index_t n) { y[n] = 1; }", "Say what `n`, Index_t, is."),
        ("void k(const float* x, float* y, int w, int h) { y[threadIdx.y * w + threadIdx.x] = x[0]; }", "bounds its"),
        ("void k(const float* x, float* y, int n) { ((float4*)y)[0] = ((const float4*)x)[0]; }", "several elements"),
        ("void k(const float* x, float* y) { y[threadIdx.x * 2] = x[0]; }", "No parameter of k says"),
        (
            "void k(const float* x, float* y, int n) { int i = blockIdx.x * TPB + threadIdx.x; y[i] = x[i]; }",
            "one size",
        ),
    ],
)
def test_what_the_text_of_a_kernel_does_not_tell_is_asked_for(kernel: str, asked: str) -> None:
    assert asked in draft(f"__global__ {kernel}")


def test_a_square_transpose_and_one_of_two_extents() -> None:
    square = draft("__global__ void transpose(int m, const double* a, double* c) {}")
    assert "a = torch.randn(m, m," in square
    assert "dict(m=1024)" in square
    body = "{ if (threadIdx.x < width) out[0] = in[threadIdx.y * width + threadIdx.x]; }"
    text = draft(f"__global__ void transpose(float* out, const float* in, int width, int height) {body}")
    assert "in_ = torch.randn(height, width," in text
    assert "out = torch.empty(width, height," in text


def test_the_instance_of_a_template_that_the_file_launches_tells_types() -> None:
    kernel = "template <typename T> __global__ void relu(const T* x, T* y, int n) {}\n"
    text = draft(kernel + "void run(double* x, double* y, int n) { relu<double><<<n, 1>>>(x, y, n); }")
    assert "dtype=torch.float64" in text
    assert "float32" not in text


def test_a_well_known_function_has_one_result() -> None:
    text = draft("__global__ void relu(const float* x, float* y, float* mask, int n) {}")
    assert "def reference" not in text


def test_what_follows_a_constant_of_a_triton_kernel_is_given_by_name() -> None:
    text = draft(
        "import triton\n@triton.jit\ndef k(x, B: tl.constexpr, n):\n    tl.store(x + tl.arange(0, B), n)\n", "k.py"
    )
    assert "B=..., n=n)" in text
    compile(text, "draft", "exec")


SQUARE = """\
__global__ void matrixMulSimple(const float* a, const float* b, float* c, int width) {
  int row = blockIdx.y * blockDim.y + threadIdx.y, col = blockIdx.x * blockDim.x + threadIdx.x;
  float sum = 0;
  for (int k = 0; k < width; k++) sum += a[row * width + k] * b[k * width + col];
  c[row * width + col] = sum;
}
"""


def test_matrices_of_one_size_are_square_and_the_grid_is_that_of_the_host_code() -> None:
    host = """\
const int SIDE = 16;
void run(float* a, float* b, float* c) {
  int N = 1 << 10;
  int blocks = N / SIDE;
  dim3 block(SIDE, SIDE), rest;
  dim3 threads(SIDE, SIDE);
  dim3 grid(blocks, blocks);
  matrixMulSimple<<<grid, threads>>>(a, b, c, N);
}
"""
    text = draft(SQUARE + host)
    assert "a = torch.randn(width, width," in text
    assert "return a @ b" in text
    assert "module.matrixMulSimple[(width // 16, width // 16), (16, 16)](a, b, c, width)" in text
    assert "dict(width=16),\n    dict(width=1024)," in text, "what is divided without rounding up are whole blocks"
    assert "Error" not in text


def test_a_vector_beside_a_matrix_keeps_arrays_from_being_square() -> None:
    text = draft(SQUARE.replace("b[k * width + col]", "b[k]").replace("matrixMulSimple", "frobnicate"))
    assert "torch.randn(width, width," not in text


def test_a_grid_that_depends_on_what_the_kernel_is_not_given_is_asked_for() -> None:
    host = "void run(float* a, int n, int parts) { dim3 grid(n, parts); k<<<grid, 64>>>(a, n); }"
    body = "{ int part = blockIdx.y; a[part * n + blockIdx.x] = 1; }"
    text = draft(f"__global__ void k(float* a, int n) {body}\n{host}")
    assert "raise NotImplementedError" in text.partition("def launch")[2]


def test_what_no_launch_tells_of_a_template_is_assumed_as_for_its_facts() -> None:
    head = "template <typename T, typename StrideType, int UNROLL>\n"
    kernel = "__global__ void k(const T* x, T* y, StrideType step, int n) {}\n"
    host = "template <typename T> void run(T* x, T* y, int n, int u) { k<T, long, u><<<n, 64>>>(x, y, 1, n); }"
    assert 'module["k<float, int, 4>"]' in draft(head + kernel)
    assert 'module["k<double, long, 4>"]' in draft(f"{head}{kernel}{host}\nvoid all() {{ run<double>(0, 0, 1, 2); }}")


def test_a_pointer_that_a_condition_reads_before_it_is_written_is_an_input() -> None:
    body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < n) { if (out[i] < 0) { out[i] = x[i]; } } }"
    text = draft(f"__global__ void mark(const float* x, long* out, int n) {body}")
    assert 'CONTRACT = dict(mutates=("out",))' in text
    assert "out = torch.randint(" in text


@pytest.mark.parametrize(("define", "dtype"), [("", "float32"), ("#define WIDE\n", "float64")])
def test_a_type_that_a_missing_macro_asks_for_is_not_taken(define: str, dtype: str) -> None:
    head = f"{define}#ifdef WIDE\ntypedef double real;\n#else\ntypedef float real;\n#endif\n"
    assert f'x = torch.randn(n, device="cuda", dtype=torch.{dtype})' in draft(
        head + "__global__ void k(const real* x, real* y, int n) " + FLAT.replace("GUARD", "if (i < n)")
    )


def test_a_number_of_elements_that_the_file_fixes_is_the_only_size() -> None:
    kernel = "#define HALF 512\nconst int N = 2 * HALF;\n__global__ void k(const float* x, float* y) "
    text = draft(kernel + FLAT.replace("GUARD", "if (i < N)"))
    assert "CASES = [\n    dict(n=1024),\n]" in text
    assert "NotImplementedError" not in text


def test_sizes_that_no_index_is_compared_with_are_whole_blocks() -> None:
    body = "{ for (int k = threadIdx.x; k < K; k += 64) y[blockIdx.x] += x[blockIdx.x * K + k] * w[N]; }"
    text = draft(
        f"__global__ void __launch_bounds__(64) dots(const float* x, const float* w, float* y, int N, int K) {body}"
    )
    assert "dict(N=64, K=13)," in text, "nothing holds a thread back from the last rows"


@pytest.mark.parametrize("guard", ["if (i < n)", "if (i <= n)", "if (i > n) return;"])
def test_a_test_that_is_off_by_one_is_one_too(guard: str) -> None:
    signature = "__global__ void scale(const float* x, float* y, int n) "
    text = draft(signature + FLAT.replace("GUARD", guard))
    assert "dict(n=7)," in text, "whole blocks would hide that it goes one too far"


def test_tensors_are_large_enough_for_any_of_many_sizes() -> None:
    body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < B * T * C) y[i] = x[i] + bias[i % C]; }"
    text = draft(
        f"__global__ void shift(int B, int T, int C, int D, const float* x, const float* bias, float* y) {body}"
    )
    assert "bias = torch.randn(B, T, C, D," in text
    assert "dict(B=3, T=4, C=5, D=6),\n    dict(B=64, T=64, C=64, D=64)," in text


def test_blocks_of_many_sizes_that_cannot_be_read_are_asked_for() -> None:
    body = "{ int i = blockIdx.x * blockDim.x + threadIdx.x; y[i] = x[i / C]; }"
    call = "dim3 t(min(C, 32)); shift<<<B * C / t.x, t>>>(B, T, C, x, y);"
    host = f"void run(int B, int T, int C, float* x, float* y) {{ {call} }}"
    text = draft(f"__global__ void shift(int B, int T, int C, const float* x, float* y) {body}\n{host}")
    assert "raise NotImplementedError('The file launches shift with" in text


def test_asserted_types_and_sizes_of_a_triton_function_and_halves_are_kept() -> None:
    host = """
def scale(x, w, out):
    assert x.dtype in [torch.float16, torch.bfloat16], "only these"
    assert x.dtype == w.dtype and out.is_contiguous()
    heads, n = x.shape
    assert heads == 1
    first, second = w.chunk(2, dim=-1)
    scale_kernel[(heads,)](x, w, out, x.stride(0), n, BLOCK=1024)
"""
    text = draft_triton(KERNEL + host)
    for name in ("x", "w"):
        assert re.search(rf"{name} = torch.randn\(.*dtype=torch.float16\)", text), text
    cases = text.partition("CASES = [")[2].partition("]")[0]
    assert cases.count("heads=1,") == 2
    assert all(int(size) % 2 == 0 for size in re.findall(r"\bn=(\d+)", cases)), "each half has as many columns"


@pytest.mark.parametrize(
    ("dims", "launch"),
    [
        ("dim3 blocks(B); dim3 threads(C);", "module.copies[B, C](B, C, x, y)"),
        ("dim3 blocks(B), threads(C);", "module.copies[(B,), (256,)](B, C, x, y)"),
    ],
)
def test_blocks_of_as_many_threads_as_a_size_are_launched_so(dims: str, launch: str) -> None:
    body = "{ int c = threadIdx.x; if (c < C) y[blockIdx.x * C + c] = x[blockIdx.x * C + c]; }"
    host = f"void run(int B, int C, float* x, float* y) {{ {dims} copies<<<blocks, threads>>>(B, C, x, y); }}"
    text = draft(f"__global__ void copies(int B, int C, const float* x, float* y) {body}\n{host}")
    assert launch in text


def test_dimensions_that_a_triton_function_never_names_are_those_of_its_first_tensor() -> None:
    host = """
def scale(x, w, out):
    batch, heads, length, width = x.shape
    _, groups, _, _ = w.shape
    assert out.shape == (batch, groups, 8, width)
    scale_kernel[(batch,)](x, w, out, x.stride(0), width, BLOCK=1024)
"""
    text = draft_triton(KERNEL + host)
    assert "w = torch.randn(batch, groups, length, width," in text
    assert "out = torch.empty(batch, groups, d2, width," in text, "a shape is compared with a tuple"
    assert "d2=8" in text
    assert "length=64," in text, "a large case is as large as tensors of four dimensions may be"


def test_a_pointer_that_a_function_is_given_whole_is_an_input() -> None:
    body = "{ y[blockIdx.x] = sum_of(data); }"
    text = draft(f"__global__ void sums(float* data, float* y, int n) {body}")
    assert 'mutates=("data",' in text


def test_a_matrix_of_which_each_thread_has_a_row_is_square() -> None:
    row = "int r = blockIdx.x * blockDim.x + threadIdx.x;"
    body = f"{{ {row} if (r < n) for (int k = 0; k < n; k++) y[r] += x[r * n + k]; }}"
    assert "x = torch.randn(n, n," in draft(f"__global__ void sums(const float* x, float* y, int n) {body}")


def test_numbers_that_tell_where_others_are_read_are_asked_for() -> None:
    body = "{ for (int k = rows[blockIdx.x]; k < rows[blockIdx.x + 1]; k++) y[blockIdx.x] += x[k]; }"
    text = draft(f"__global__ void sums(const float* x, const int* rows, float* y, int n, int m) {body}")
    assert "raise NotImplementedError('Say what `rows` holds" in text


def test_blocks_of_a_constant_number_are_asked_for() -> None:
    body = "{ for (int i = threadIdx.x; i < n; i += 64) y[blockIdx.x] += x[i]; }"
    host = "const int BLOCKS = 4096; void run(float* x, float* y, int n) { sums<<<BLOCKS, 64>>>(x, y, n); }"
    text = draft(f"__global__ void sums(const float* x, float* y, int n) {body}\n{host}")
    assert "raise NotImplementedError('The file launches sums with 4096 blocks whatever the sizes" in text


def test_a_kernel_of_no_inputs_has_inputs_that_are_none() -> None:
    text = draft("__global__ void ones(float* y) { y[blockIdx.x * blockDim.x + threadIdx.x] = 1; }")
    assert "    return ()\n" in text


def test_what_follows_the_strides_of_a_tensor_in_a_launch_is_given_to_its_own_parameter() -> None:
    kernel = """\
import torch, triton
import triton.language as tl

@triton.jit
def repeat(source, in_0, in_1, out, out_0, out_1, n, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    row = tl.load(source + tl.program_id(0) * in_0 + at * in_1, mask=at < n)
    tl.store(out + tl.program_id(0) * out_0 + at * out_1, row, mask=at < n)

def run(out, source):
    rows, n = source.shape
    repeat[(rows,)](source, *source.stride(), out, *out.stride(), n, BLOCK=1024)
"""
    text = draft_triton(kernel)
    assert "out = torch.empty(" in text, "the kernel writes it, and what is not seen as written would be held to stay"
    assert "def inputs(rows, n):" in text


@pytest.mark.parametrize(("written", "right"), [("y[i] = x[i]", "return x\n"), ("y[n - 1 - i] = x[i]", "")])
def test_a_copy_is_what_its_indices_say_and_not_its_name(written: str, right: str) -> None:
    index = "int i = blockIdx.x * blockDim.x + threadIdx.x;"
    text = draft(f"__global__ void copy_kernel(const float* x, float* y, int n) {{ {index} if (i < n) {written}; }}")
    assert "clone" not in text
    assert (right in text) if right else ("def reference" not in text)
