"""The ladder from a CUDA file to machine code: what is sliced, which compiler is asked, what is kept."""

from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda import build as building
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.compiler.toolchain.tools import Tool, tool
from kernel_lsp.source.candidate import SourceFile

needs_nvcc = pytest.mark.skipif(not tool("nvcc").present, reason="needs nvcc")

EXTENSION = """#include <torch/extension.h>
#include <vector>

template <int BLOCK>
__global__ void scale(const float* x, float* y, int n) {
  int i = blockIdx.x * BLOCK + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}

torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  std::vector<int> sizes(3);
  scale<256><<<(x.numel() + 255) / 256, 256>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }
"""


def source(folder: Path, text: str) -> SourceFile:
    return SourceFile(folder / "kernel.cu", text)


def without_nvcc(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(building, "tool", lambda name: Tool(name, None, None))


def test_a_torch_extension_builds_from_its_device_code(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_nvcc(monkeypatch)
    build = build_cuda(source(tmp_path, EXTENSION), "sm_90", ["scale<256>"])
    assert build.binary is not None, build.log
    assert (build.way, build.diagnostics) == ("nvrtc", ())
    assert [kernel.name for kernel in build.binary.kernels] == ["scale<256>"]


def test_an_error_in_device_code_is_not_tried_elsewhere(tmp_path: Path) -> None:
    text = EXTENSION.replace("2 * x[i]", "2 * missing[i]")
    build = build_cuda(source(tmp_path, text), "sm_90", ["scale<256>"])
    assert (build.binary, build.way) == (None, "nvrtc")
    (error,) = build.diagnostics
    assert (error.path, error.line, error.column) == (str(tmp_path / "kernel.cu"), 7, 25)


def test_headers_beside_the_file_are_found_sliced_and_blamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_nvcc(monkeypatch)
    (tmp_path / "sub").mkdir()
    (tmp_path / "common.cuh").write_text(
        '#pragma once\n#include <vector>\n#include "sub/deep.cuh"\n'
        "inline std::vector<int> host_only() { return {1}; }\n"
        "__device__ inline float twice(float x) { return deep(x) * 2; }\n"
    )
    (tmp_path / "sub" / "deep.cuh").write_text(
        "#pragma once\n__device__ inline float deep(float x) { return x + 1; }\n"
    )
    text = '#include "common.cuh"\n__global__ void k(float* a) { a[0] = twice(a[1]); }\n'
    file = source(tmp_path, text)
    assert [header.name for header in user_headers(file)] == ["common.cuh", "sub/deep.cuh"]
    build = build_cuda(file, "sm_90")
    assert build.binary is not None, build.log
    (tmp_path / "sub" / "deep.cuh").write_text(
        "#pragma once\n__device__ inline float deep(float x) { return y + 1; }\n"
    )
    (error,) = build_cuda(file, "sm_90").diagnostics
    assert (error.path, error.line, error.column) == (str(tmp_path / "sub" / "deep.cuh"), 2, 48)


def test_an_include_folder_and_a_define_from_the_settings(tmp_path: Path) -> None:
    (tmp_path / "inc").mkdir()
    (tmp_path / "inc" / "lib.cuh").write_text("#define FACTOR 3\n")
    text = "#include <lib.cuh>\n__global__ void k(int* a) { a[0] = FACTOR * TILE; }\n"
    options = BuildOptions(flags=("-DTILE=64",), include_dirs=(tmp_path / "inc",))
    assert build_cuda(source(tmp_path, text), "sm_90", options=options).binary is not None
    assert (
        build_cuda(source(tmp_path, text), "sm_90", options=BuildOptions(include_dirs=options.include_dirs)).binary
        is None
    )


def test_c_plus_plus_17_unless_said_otherwise() -> None:
    assert BuildOptions().all_flags == ("-std=c++17",)
    assert BuildOptions(("-std=c++20", "-DA")).all_flags == ("-std=c++20", "-DA")


def test_a_header_that_is_nowhere_is_an_error_at_its_include(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_nvcc(monkeypatch)
    text = '\n#include "nowhere.cuh"\n__global__ void k(int* a) { a[0] = nowhere(); }\n'
    build = build_cuda(source(tmp_path, text), "sm_90")
    assert build.binary is None
    assert (build.diagnostics[0].line, build.diagnostics[0].severity) == (2, Severity.ERROR)
    assert "nowhere.cuh" in build.diagnostics[0].message


@needs_nvcc
def test_host_code_that_device_code_leans_on_goes_to_nvcc(tmp_path: Path) -> None:
    text = """#include <cuda/std/array>
#include <bitset>
template <int N> __global__ void k(int* a) { a[0] = sizeof(std::bitset<N>); }
__global__ void plain(float* a) { __shared__ float s[64]; s[threadIdx.x] = a[0]; __syncthreads(); a[1] = s[3]; }
"""
    build = build_cuda(source(tmp_path, text), "sm_90", ["k<128>"])
    assert build.binary is not None, build.log
    assert build.way in ("nvcc-slice", "nvcc")
    assert set(build.binary.entries) == {"k<128>", "plain"}
    facts = {kernel.name: kernel for kernel in build.binary.kernels}
    assert (facts["plain"].shared_bytes, facts["plain"].spill_load_bytes) == (256, 0)
    assert build.binary.ptx is not None
    assert str(tmp_path / "kernel.cu") in build.binary.ptx


@needs_nvcc
def test_nvccs_errors_are_in_the_users_coordinates(tmp_path: Path) -> None:
    text = "#include <bitset>\n__global__ void k(int* a) {\n  a[0] = sizeof(std::bitset<3>);\n  a[1] = missing;\n}\n"
    build = build_cuda(source(tmp_path, text), "sm_90")
    assert build.binary is None
    assert build.way in ("nvcc-slice", "nvcc")
    error = build.diagnostics[-1]
    assert (error.path, error.line, error.column) == (str(tmp_path / "kernel.cu"), 4, 10)


@needs_nvcc
def test_nvcc_names_an_instance_that_cannot_be_made(tmp_path: Path) -> None:
    text = "#include <bitset>\n__global__ void k(int* a) { a[0] = sizeof(std::bitset<3>); }\n"
    build = build_cuda(source(tmp_path, text), "sm_90", ["nothing<3>"])
    assert build.binary is None
    assert any("`nothing<3>`, which a launch asks for" in d.message for d in build.diagnostics)


def counted(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    calls: list[str] = []
    compile_nvrtc = building.compile_nvrtc

    def counting(*args: object, **kwargs: object) -> Build:
        calls.append("nvrtc")
        return compile_nvrtc(*args, **kwargs)  # type: ignore[arg-type]

    monkeypatch.setattr(building, "compile_nvrtc", counting)
    return calls


def test_the_same_device_code_is_compiled_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    cache = BuildCache(tmp_path / "cache", 1 << 24)
    first = build_cuda(source(tmp_path, EXTENSION), "sm_90", ["scale<256>"], cache=cache)
    again = build_cuda(source(tmp_path, EXTENSION), "sm_90", ["scale<256>"], cache=cache)
    host_edit = EXTENSION.replace("sizes(3)", "sizes(4)")
    after_host_edit = build_cuda(source(tmp_path, host_edit), "sm_90", ["scale<256>"], cache=cache)
    assert len(calls) == 1
    assert (first.cached, again.cached, after_host_edit.cached) == (False, True, True)
    assert again.binary == first.binary


@pytest.mark.parametrize("change", ["text", "arch", "names", "options", "header", "broken header"])
def test_whatever_changes_the_machine_code_is_compiled_anew(
    change: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls = counted(monkeypatch)
    cache = BuildCache(tmp_path / "cache", 1 << 24)
    header = tmp_path / "h.cuh"
    header.write_text("#define V 1\n")
    text = '#include "h.cuh"\ntemplate <int N> __global__ void k(int* a) { a[0] = V + N; }\n'
    arguments = {"text": text, "arch": "sm_90", "names": ["k<1>"], "options": BuildOptions()}
    changed: dict[str, object] = {
        "text": text.replace("V + N", "V - N"),
        "arch": "sm_80",
        "names": ["k<1>", "k<2>"],
        "options": BuildOptions(("-DQ",)),
    }

    def build(values: dict[str, object]) -> Build:
        return build_cuda(
            source(tmp_path, str(values["text"])),
            str(values["arch"]),
            values["names"],
            values["options"],
            cache,  # type: ignore[arg-type]
        )

    assert build(arguments).binary is not None
    if change == "header":
        header.write_text("#define V 2\n")
    elif change == "broken header":
        header.write_text("#error stop\n")
    else:
        arguments[change] = changed[change]
    second = build(arguments)
    assert not second.cached
    assert len(calls) == 2
    assert (second.binary is None) == (change == "broken header")


def test_failures_are_kept_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls = counted(monkeypatch)
    cache = BuildCache(tmp_path / "cache", 1 << 24)
    text = "__global__ void k(int* a) { a[0] = missing; }\n"
    first = build_cuda(source(tmp_path, text), "sm_90", cache=cache)
    second = build_cuda(source(tmp_path, text), "sm_90", cache=cache)
    assert len(calls) == 1
    assert second.diagnostics == first.diagnostics


COMMON = """#include <cuda_runtime.h>
#include <cublas_v2.h>
#include <cublasLt.h>
typedef __nv_bfloat16 floatX;
"""
WIDENED = """#include "common.h"
__global__ void widen(const floatX* x, float* y) { y[threadIdx.x] = (float)x[threadIdx.x]; }
"""


def test_16_bit_floats_come_with_the_host_headers_that_bring_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nvcc(monkeypatch)
    (tmp_path / "common.h").write_text(COMMON)
    build = build_cuda(source(tmp_path, WIDENED), "sm_90")
    assert build.binary is not None, build.log
    alone = build_cuda(source(tmp_path, WIDENED.replace('"common.h"', "<cuda_runtime.h>")), "sm_90")
    assert alone.binary is None, "nvcc would not know the type either"


@needs_nvcc
def test_a_slice_needs_no_header_for_host_code_even_where_headers_include_one(tmp_path: Path) -> None:
    (tmp_path / "common.h").write_text(COMMON.replace("cublasLt", "cublas_that_nobody_has"))
    text = WIDENED.replace("y[thr", "std::bitset<9>* no; if (sizeof(*no) > 1) y[thr")  # which NVRTC's headers lack
    build = build_cuda(source(tmp_path, "#include <bitset>\n" + text), "sm_90")
    assert build.binary is not None, build.log
    wrong = text.replace("(float)x", "missing(x)")
    (error, *_) = build_cuda(source(tmp_path, "#include <bitset>\n" + wrong), "sm_90").diagnostics
    assert (error.path, error.line, "missing" in error.message) == (str(tmp_path / "kernel.cu"), 3, True)


def test_what_a_header_of_the_users_speaks_of_is_included_by_the_file(tmp_path: Path) -> None:
    (tmp_path / "wait.cuh").write_text(
        "__global__ void wait(int* x) {\n  __shared__ cuda::barrier<cuda::thread_scope_block> all;\n"
        "  if (threadIdx.x == 0) init(&all, blockDim.x);\n  __syncthreads();\n  all.arrive_and_wait();\n"
        "  x[0] = 1;\n}\n"
    )
    build = build_cuda(source(tmp_path, '#include <cuda/barrier>\n#include "wait.cuh"\n'), "sm_90")
    assert build.binary is not None, build.log
    assert [kernel.name for kernel in build.binary.kernels] == ["wait"]


KERNEL = "__global__ void set(float* x) { x[threadIdx.x] = 1; }\n"


def test_a_member_that_only_the_host_has_goes_with_those_that_call_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_nvcc(monkeypatch)
    text = """#include <unistd.h>
class Numbers {
  void resize(int n) { cudaMallocManaged(&data, 4 * n); }
  void grow() { resize(2 * size); }
 public:
  Numbers(int n) { resize(n); grow(); }
  ssize_t size;
  float* data;
  __host__ void copy(Numbers& other, cudaStream_t stream);
  template <typename T> __host__ inline T* as() { return (T*)data; }
  __host__ __device__ float& operator[](int at) { return data[at]; }
};
__global__ void set(Numbers x) { x[threadIdx.x] = 1; }
"""
    build = build_cuda(source(tmp_path, text), "sm_90")
    assert build.binary is not None, build.log


ONLY_NVCC = {
    "of std": "#include <vector>\nusing namespace std;\ntypedef vector<vector<float>> matrix;\n" + KERNEL,
    "of the C library": """struct Name {
  char text[8];
  int length() { return strlen(text); }
};
__global__ void set(Name x, float* y) { *y = x.text[0]; }
""",
    "a literal": 'extern "C"__global__ void set(float* x) { x[0] = 1; }\n',
    "register": "__global__ void set(float* x) { register float one = 1; x[0] = one; }\n",
    "designated": "struct P { int a, b; };\n__global__ void set(int* x) {\n  P p = {.a = 1};\n  *x = p.a;\n}\n",
    "of a header of torch's": """#include <torch/all.h>
struct Odd : std::invalid_argument { Odd() : std::invalid_argument("odd") {} };
__device__ int check(Odd*) { return 1; }
__global__ void set(int* x) { *x = check(nullptr); }
""",
    "long": """#include <cstdint>
__device__ void add(unsigned long* x) { ++*x; }
__global__ void set(uint64_t* x) { add(x); }
""",
}


@pytest.mark.sampled(4)
@needs_nvcc
@pytest.mark.parametrize("text", ONLY_NVCC.values(), ids=ONLY_NVCC)
def test_what_nvcc_accepts_is_no_error(tmp_path: Path, text: str) -> None:
    build = build_cuda(source(tmp_path, text), "sm_90")
    assert build.binary is not None, build.log


def test_an_error_that_every_compiler_would_find_is_found_by_the_first(tmp_path: Path) -> None:
    host = "#include <vector>\nvoid host() { std::vector<int> items; }\n"
    for wrong in ("x[missing] = 1;", "x[0] = = 1;", "flaot y = 1;"):
        build = build_cuda(source(tmp_path, host + KERNEL.replace("x[threadIdx.x] = 1;", wrong)), "sm_90")
        assert (build.binary, build.way) == (None, "nvrtc"), wrong
        assert build.diagnostics[0].line == 3


def test_types_that_pytorchs_headers_bring_are_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_nvcc(monkeypatch)
    text = (
        "#include <torch/extension.h>\n"
        "template <typename T> __global__ void set(const __grid_constant__ CUtensorMap map, T* x) { x[0] = T(1.0f); }\n"
        "__global__ void narrow(at::Half* x, const c10::BFloat16* y) { x[0] = float(y[0]); }\n"
    )
    build = build_cuda(source(tmp_path, text), "sm_90", ["set<at::Half>"])
    assert build.binary is not None, build.log


def test_cub_as_everybody_includes_it_needs_no_nvcc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_nvcc(monkeypatch)
    text = """#include <cub/cub.cuh>
__global__ void sum(const float* x, float* y) {
  using Reduce = cub::BlockReduce<float, 128>;
  __shared__ typename Reduce::TempStorage scratch;
  float all = Reduce(scratch).Sum(x[threadIdx.x]);
  if (threadIdx.x == 0) *y = all;
}
"""
    build = build_cuda(source(tmp_path, text), "sm_90")
    assert build.binary is not None, build.log
