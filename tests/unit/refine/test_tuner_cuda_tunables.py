"""The numbers of CUDA kernels: which are found, which are tied, and that every setting is a program."""

import ast
import re
from pathlib import Path

import pytest

from kernel_lsp.device.device import device_named
from kernel_lsp.refine.language import find_tunables
from kernel_lsp.refine.tunables.space import Kind, Space
from kernel_lsp.refine.tunables.syntax import parse_cuda
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language

EXAMPLES = sorted((Path(__file__).parents[3] / "examples" / "cuda").glob("*.cu"))

AXPY = """
__global__ void axpy(const float* x, float* y, float a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = a * x[i] + y[i];
}
"""
AXPY_WORKLOAD = """
def launch(module, x, y):
    n = x.numel()
    module.axpy[(n + 255) // 256, 256](x, y, 2.0, n)
    return y
"""
ROWSUM = """
constexpr int THREADS = 256;
constexpr int WARPS = THREADS / 32;
constexpr int HIDDEN = 256;
template <int VEC>
__global__ void __launch_bounds__(THREADS) rowsum(const float* __restrict__ x, float* out, int cols) {
  __shared__ float part[WARPS];
  float s = 0.f;
  for (int i = threadIdx.x * VEC; i < cols; i += THREADS * VEC) {
    #pragma unroll
    for (int j = 0; j < VEC; ++j) s += x[blockIdx.x * HIDDEN + i + j];
  }
  for (int o = 16; o > 0; o >>= 1) s += __shfl_down_sync(0xffffffff, s, o);
  if (threadIdx.x % 32 == 0) part[threadIdx.x / 32] = s;
  __syncthreads();
  if (threadIdx.x == 0) {
    float t = 0.f;
    for (int w = 0; w < WARPS; ++w) t += part[w];
    out[blockIdx.x] = t;
  }
}
"""
ROWSUM_WORKLOAD = """
THREADS = 256

def launch(module, x):
    out = x.new_empty(x.shape[0])
    module["rowsum<4>"][x.shape[0], THREADS](x, out, x.shape[1])
    return out
"""
TREE = """
__global__ void __launch_bounds__(256) tree(const float* x, float* out, int n) {
  __shared__ float s[256];
  __shared__ int bins[256];
  int t = threadIdx.x;
  s[t] = t < n ? x[t] : 0.f;
  bins[t] = 0;
  __syncthreads();
  for (int o = 128; o > 0; o >>= 1) {
    if (t < o) s[t] += s[t + o];
    __syncthreads();
  }
  if (t == 0) out[blockIdx.x] = s[0] + bins[0];
}
"""
GEMM = """
#define BM 64
#define BN 64
#define BK 16
#define TM 4
#define TN 4
constexpr int THREADS = (BM / TM) * (BN / TN);
__global__ void gemm(const float* A, const float* B, float* C, int M, int N, int K) {
  __shared__ float As[BK][BM], Bs[BK][BN];
  for (int k0 = 0; k0 < K; k0 += BK) {
    for (int i = threadIdx.x; i < BM * BK; i += THREADS) As[i % BK][i / BK] = A[i];
    for (int i = threadIdx.x; i < BN * BK; i += THREADS) Bs[i % BK][i / BK] = B[i];
    __syncthreads();
    #pragma unroll 8
    for (int k = 0; k < BK; ++k) C[k] += As[k][threadIdx.x % BM] * Bs[k][threadIdx.x % BN];
  }
}
"""
GEMM_WORKLOAD = """
def launch(module, a, b):
    (m, k), n = a.shape, b.shape[1]
    c = a.new_empty(m, n)
    module.gemm[((n + 63) // 64, (m + 63) // 64), (256,)](a, b, c, m, n, k)
    return c
"""
EXTENSION = """
#include <torch/extension.h>
#include <algorithm>
__global__ void gelu_kernel(const float* x, float* y, int n) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += gridDim.x * blockDim.x) y[i] = x[i];
}
torch::Tensor gelu(torch::Tensor x) {
  auto y = torch::empty_like(x);
  const int n = x.numel();
  const int threads = 256;
  const int blocks = std::min((n + threads - 1) / threads, 1024);
  gelu_kernel<<<blocks, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), n);
  return y;
}
"""


def space(text: str, workload: str | None, kernel: str, gpu: str = "H100") -> Space:
    launch = SourceFile(Path("k_workload.py"), workload) if workload is not None else None
    return find_tunables(
        Candidate(Language.CUDA, SourceFile(Path("k.cu"), text), launch, "baseline", "baseline"),
        kernel,
        device_named(gpu),
    )


def formed(found: Space, **settings: int) -> Candidate:
    candidate = found.form(settings)
    assert candidate is not None
    return candidate


def launch_text(candidate: Candidate) -> str:
    assert candidate.launch is not None
    return candidate.launch.text


def singles(found: Space) -> list[Candidate]:
    """Every candidate that differs from the baseline in one tunable."""
    formed = (found.form({t.name: choice}) for t in found.tunables for choice in t.choices if choice != t.current)
    return [candidate for candidate in formed if candidate is not None]


def test_the_grid_follows_the_block() -> None:
    candidate = formed(space(AXPY, AXPY_WORKLOAD, "axpy"), block=512)
    assert "module.axpy[(n + 511) // 512, 512](x, y, 2.0, n)" in launch_text(candidate)
    assert candidate.kernel.text == AXPY
    assert candidate.label == "block 256 -> 512"
    assert candidate.origin == "tuner"


def test_a_block_written_with_names_is_set_where_the_name_is() -> None:
    workload = """
def launch(module, x, y):
    n = x.numel()
    size = 128
    block = (size,)
    module.axpy[(-(-n // size),), block](x, y, 2.0, n)
"""
    found = space(AXPY, workload, "axpy")
    assert "    size = 64\n" in launch_text(formed(found, size=64))


def test_the_launch_follows_the_kernels_constant_of_the_same_value() -> None:
    found = space(ROWSUM, ROWSUM_WORKLOAD, "rowsum")
    candidate = formed(found, THREADS=128, VEC=8)
    assert "THREADS = 128;" in candidate.kernel.text
    assert "HIDDEN = 256;" in candidate.kernel.text
    assert "THREADS = 128\n" in launch_text(candidate)
    assert 'module["rowsum<8>"]' in launch_text(candidate)
    assert candidate.label == "THREADS 256 -> 128, VEC 4 -> 8"


def test_numbers_with_a_meaning_are_left_alone() -> None:
    assert "HIDDEN" not in {tunable.name for tunable in space(ROWSUM, ROWSUM_WORKLOAD, "rowsum").tunables}


def test_literals_in_the_kernel_that_repeat_the_block_follow_it() -> None:
    workload = "def launch(module, x, out):\n    module.tree[(4,), (256,), 0](x, out, 256)\n"
    text = formed(space(TREE, workload, "tree"), block=512).kernel.text
    assert "__launch_bounds__(512)" in text
    assert "float s[512]" in text
    assert "int o = 256; o > 0" in text
    assert "int bins[256]" in text


def test_a_thread_count_follows_the_tiles_it_is_computed_from() -> None:
    candidate = formed(space(GEMM, GEMM_WORKLOAD, "gemm"), TM=8)
    assert "#define TM 8" in candidate.kernel.text
    assert "(128,)" in launch_text(candidate)
    both = formed(space(GEMM, GEMM_WORKLOAD, "gemm"), BM=128, TM=8, TN=8)
    assert "#define BM 128\n#define BN 128" in both.kernel.text
    assert "((n + 127) // 128, (m + 127) // 128), (256,)" in launch_text(both)


def test_blocks_that_no_gpu_can_launch_are_not_formed() -> None:
    found = space(GEMM, GEMM_WORKLOAD, "gemm")
    assert found.form({"TM": 1, "TN": 1}) is None
    assert found.form({"min_blocks": 8, "TM": 2}) is None


def test_host_code_in_the_file_is_turned_there() -> None:
    candidate = formed(space(EXTENSION, None, "gelu_kernel"), threads=512, blocks=2048)
    assert "const int threads = 512;" in candidate.kernel.text
    assert "threads - 1) / threads, 2048)" in candidate.kernel.text
    assert candidate.launch is None


def test_a_fixed_grid_is_turned_only_for_a_grid_stride_loop() -> None:
    workload = "def launch(module, x, y):\n    module.axpy[1024, 256](x, y, 2.0, 4)\n"
    assert Kind.GRID not in {tunable.kind for tunable in space(AXPY, workload, "axpy").tunables}
    assert Kind.GRID in {tunable.kind for tunable in space(EXTENSION, None, "gelu_kernel").tunables}


@pytest.mark.parametrize(("gpu", "fits"), [("A100", True), ("RTX 4090", False), ("T4", False)])
def test_no_more_resident_threads_are_asked_for_than_the_device_holds(gpu: str, fits: bool) -> None:
    found = space(AXPY, AXPY_WORKLOAD, "axpy", gpu)
    assert (found.form({"block": 256, "min_blocks": 8}) is not None) == fits
    assert found.form({"block": 256, "min_blocks": 4}) is not None


def test_launch_bounds_are_added_or_given_a_second_argument() -> None:
    assert (
        "void __launch_bounds__(128, 4) axpy("
        in formed(space(AXPY, AXPY_WORKLOAD, "axpy"), block=128, min_blocks=4).kernel.text
    )
    assert (
        "__launch_bounds__(THREADS, 2) rowsum("
        in formed(space(ROWSUM, ROWSUM_WORKLOAD, "rowsum"), min_blocks=2).kernel.text
    )


def test_unrolling_is_added_set_and_changed() -> None:
    found = space(GEMM, GEMM_WORKLOAD, "gemm")
    names = [tunable.name for tunable in found.tunables if tunable.kind is Kind.UNROLL]
    text = formed(found, **dict.fromkeys(names, 4)).kernel.text
    assert text.count("#pragma unroll 4\n    for") == 3
    assert "#pragma unroll 8" not in text
    found = space(ROWSUM, ROWSUM_WORKLOAD, "rowsum")
    names = [tunable.name for tunable in found.tunables if tunable.kind is Kind.UNROLL]
    assert "#pragma unroll 2\n    for (int w" in formed(found, **dict.fromkeys(names, 2)).kernel.text


def test_a_loop_unrolled_as_a_whole_stays_so() -> None:
    kernel = """
template <int N>
__global__ void sum(const float* x, float* y, int n) {
  float s = 0;
#pragma unroll
  for (int i = 0; i < BOUND; ++i) s += x[i];
  y[0] = s;
}
"""
    for bound, found in (("N", False), ("n", True)):
        tunables = space(kernel.replace("BOUND", bound), None, "sum").tunables
        assert any(t.name.startswith("unroll") for t in tunables) == found


def test_names_set_together_are_turned_apart() -> None:
    workload = """
def launch(module, x, out):
    THREADS, vec = 256, 4
    module["rowsum<4>"][x.shape[0], THREADS](x, out, x.shape[1])
"""
    assert "THREADS, vec = 512, 4\n" in launch_text(formed(space(ROWSUM, workload, "rowsum"), THREADS=512))


def test_another_kernel_that_shares_a_constant_is_launched_with_it() -> None:
    kernels = """
#define THREADS 256
__global__ void first(float* x) { __shared__ float s[THREADS]; s[threadIdx.x] = x[0]; x[0] = s[0]; }
__global__ void second(float* x) { __shared__ float s[THREADS]; s[threadIdx.x] = x[0]; x[0] = s[0]; }
__global__ void third(float* x) { x[threadIdx.x] = 1.f; }
"""
    workload = """
def launch(module, x):
    module.first[8, 256](x)
    module.second[1, 256](x)
    module.third[1, 256](x)
"""
    text = launch_text(formed(space(kernels, workload, "first"), THREADS=128))
    assert re.findall(r"\[\d, (\d+)\]", text) == ["128", "128", "256"]


def test_constants_with_alternatives_are_left_to_the_compiler() -> None:
    text = "#ifdef A\n#define TILE 16\n#else\n#define TILE 32\n#endif\n" + AXPY.replace("a * x[i]", "TILE * x[i]")
    assert "TILE" not in {tunable.name for tunable in space(text, AXPY_WORKLOAD, "axpy").tunables}


def test_a_template_argument_that_the_host_chooses_is_left_alone() -> None:
    workload = """
def launch(module, x):
    if x.shape[1] > 64:
        module["rowsum<4>"][x.shape[0], 256](x)
    else:
        module["rowsum<1>"][x.shape[0], 256](x)
"""
    assert "VEC" not in {tunable.name for tunable in space(ROWSUM, workload, "rowsum").tunables}


def test_text_beyond_ascii_does_not_shift_the_edits() -> None:
    candidate = formed(space("// Größe: 256 Fäden\n" + AXPY, "# Größe\n" + AXPY_WORKLOAD, "axpy"), block=64)
    assert launch_text(candidate) == "# Größe\n" + AXPY_WORKLOAD.replace("255", "63").replace("256", "64")


@pytest.mark.parametrize(
    ("text", "workload", "kernel"),
    [
        (AXPY, AXPY_WORKLOAD, "axpy"),
        (ROWSUM, ROWSUM_WORKLOAD, "rowsum"),
        (GEMM, GEMM_WORKLOAD, "gemm"),
        (EXTENSION, None, "gelu_kernel"),
    ],
)
def test_every_candidate_parses(text: str, workload: str | None, kernel: str) -> None:
    candidates = singles(space(text, workload, kernel))
    assert len(candidates) > 8
    for candidate in candidates:
        assert not parse_cuda(candidate.kernel.text).has_error
        if candidate.launch is not None:
            ast.parse(candidate.launch.text)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_has_a_block_to_turn(path: Path) -> None:
    text, beside = path.read_text(), path.with_name(f"{path.stem}_workload.py")
    kernels = re.findall(r"(\w+)\(", re.sub(r"__launch_bounds__\([^)]*\)", "", text[text.index("__global__") :]))
    found = space(text, beside.read_text(), kernels[0])
    assert Kind.BLOCK in {tunable.kind for tunable in found.tunables}
    broken = parse_cuda(text).has_error
    for candidate in singles(found):
        assert parse_cuda(candidate.kernel.text).has_error <= broken
        ast.parse(launch_text(candidate))


@pytest.mark.sampled(3)
@pytest.mark.parametrize(
    ("text", "workload", "kernel", "name"),
    [
        (AXPY, AXPY_WORKLOAD, "axpy", "axpy"),
        (ROWSUM, ROWSUM_WORKLOAD, "rowsum", "rowsum<4>"),
        (GEMM, GEMM_WORKLOAD, "gemm", "gemm"),
    ],
)
def test_candidates_compile(text: str, workload: str, kernel: str, name: str) -> None:
    nvrtc = pytest.importorskip("cuda.bindings.nvrtc")
    found = space(text, workload, kernel)
    steps = [(t, t.choices.index(t.current) + step) for t in found.tunables for step in (-1, 1)]
    near = [found.form({t.name: t.choices[at]}) for t, at in steps if 0 <= at < len(t.choices)]
    for candidate in [found.base, *(candidate for candidate in near if candidate is not None)]:
        _, program = nvrtc.nvrtcCreateProgram(candidate.kernel.text.encode(), b"k.cu", 0, [], [])
        nvrtc.nvrtcAddNameExpression(program, name.encode())
        (status,) = nvrtc.nvrtcCompileProgram(program, 1, [b"--gpu-architecture=sm_90"])
        log = bytearray(nvrtc.nvrtcGetProgramLogSize(program)[1])
        nvrtc.nvrtcGetProgramLog(program, log)
        assert status == nvrtc.nvrtcResult.NVRTC_SUCCESS, (candidate.label, log.decode())
        nvrtc.nvrtcDestroyProgram(program)


def test_a_grid_divisor_follows_each_of_its_factors() -> None:
    text = """
namespace ops {
enum { ROWS_PER_BLOCK = 4 };
template <typename T, int BLOCK = 128>
__global__ void fill(T* x, int n) {
  int i = blockIdx.x * BLOCK * ROWS_PER_BLOCK + threadIdx.x;
  if (i < n) x[i] = 0;
}
}  // namespace ops
void run(float* x, int n) {
  ops::fill<float, 256><<<dim3((n + 1023) / 1024), dim3(256)>>>(x, n);
}
"""
    new = formed(space(text, None, "ops::fill"), BLOCK=128, ROWS_PER_BLOCK=2).kernel.text
    assert "enum { ROWS_PER_BLOCK = 2 };" in new
    assert "ops::fill<float, 128><<<dim3((n + 255) / 256), dim3(128)>>>(x, n);" in new


def test_names_in_the_workload_reach_a_formatted_template_argument() -> None:
    workload = """
WIDTH = 4

def launch(module, x, out):
    kernel = module[f"rowsum<{WIDTH}>"]
    kernel[(x.shape[0],), (256,)](x, out, x.shape[1])
"""
    candidate = formed(space(ROWSUM, workload, "rowsum"), VEC=8, THREADS=512)
    assert "WIDTH = 8\n" in launch_text(candidate)
    assert "(512,)" in launch_text(candidate)
