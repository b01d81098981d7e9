"""NVRTC builds: names, facts equal to what ptxas prints, and messages where the user can see them."""

import ctypes
import subprocess
from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.compiler.cuda import nvrtc
from kernel_lsp.compiler.cuda.nvrtc import compile_nvrtc
from kernel_lsp.compiler.machine_code.binary import Binary, KernelFacts
from kernel_lsp.compiler.machine_code.cubin import CubinError, cubin_arch, read_cubin
from kernel_lsp.compiler.ptx.ptxas import parse_ptxas_usage
from kernel_lsp.compiler.toolchain.toolkit import site_folders
from kernel_lsp.errors import RunnerError

ARCHES = ("sm_75", "sm_80", "sm_86", "sm_89", "sm_90", "sm_100", "sm_120")
KERNELS = r"""
struct Block { double d[3]; char c; };
extern "C" __global__ void plain(float* a, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) a[i] *= 2;
}
extern "C" __global__ void fixed(float* a) {
  __shared__ float s[100];
  s[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = s[99 - threadIdx.x];
}
extern "C" __global__ void dynamic(float* a) {
  extern __shared__ float d[];
  d[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = d[99 - threadIdx.x];
}
extern "C" __global__ void both(float* a, char c, Block b) {
  __shared__ float s[100];
  extern __shared__ float d[];
  s[threadIdx.x] = d[threadIdx.x] = a[threadIdx.x];
  __syncthreads();
  a[threadIdx.x] = s[99 - threadIdx.x] + d[5] + c + b.d[2];
}
extern "C" __global__ void __launch_bounds__(1024, 1) spilling(float* a, int n) {
  float r[96];
#pragma unroll
  for (int i = 0; i < 96; i++) r[i] = a[i * n + threadIdx.x];
  for (int k = 0; k < n; k++) {
#pragma unroll
    for (int i = 0; i < 96; i++) r[i] = r[i] * r[(i + 7) % 96] + k;
  }
#pragma unroll
  for (int i = 0; i < 96; i++) a[i * n + threadIdx.x] = r[i];
}
extern "C" __global__ void indexed(float* a, int n) {
  float r[64];
  for (int i = 0; i < 64; i++) r[i] = a[i];
  for (int i = 0; i < n; i++) r[(i * n) & 63] += i;
  a[0] = r[n & 63];
}
"""


def binary_of(build: Build) -> Binary:
    assert build.binary is not None, build.log
    return build.binary


def facts_of(binary: Binary, name: str) -> KernelFacts:
    return next(kernel for kernel in binary.kernels if kernel.name == name)


@pytest.mark.sampled(3)
@pytest.mark.parametrize("arch", ARCHES)
def test_facts_equal_what_ptxas_prints(arch: str) -> None:
    build = compile_nvrtc(KERNELS, "/home/me/kernels.cu", arch)
    binary = binary_of(build)
    said = parse_ptxas_usage(build.log)
    assert cubin_arch(binary.cubin) == arch
    assert set(said) == {"plain", "fixed", "dynamic", "both", "spilling", "indexed"}
    for kernel in binary.kernels:
        usage = said[kernel.entry]
        assert (kernel.registers, kernel.barriers, kernel.shared_bytes, kernel.stack_bytes) == (
            usage.registers,
            usage.barriers,
            usage.shared_bytes,
            usage.stack_bytes,
        )
        assert (kernel.spill_store_bytes, kernel.spill_load_bytes) == (usage.spill_store_bytes, usage.spill_load_bytes)
    assert [facts_of(binary, name).shared_bytes for name in ("plain", "fixed", "dynamic", "both")] == [0, 400, 0, 400]
    assert facts_of(binary, "both").parameters == ((0, 8), (8, 1), (16, 32))
    assert facts_of(binary, "spilling").max_threads == (1024, 1, 1)
    assert facts_of(binary, "plain").max_threads is None
    assert (facts_of(binary, "spilling").spill_store_bytes or 0) > 0
    stacked = facts_of(binary, "indexed")
    assert (stacked.stack_bytes, stacked.spill_store_bytes) == (256, 0)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_cubins_of_the_older_toolkit_read_the_same(arch: str, tmp_path: Path) -> None:
    ptxas = next((p for f in site_folders() if (p := f / "triton/backends/nvidia/bin/ptxas").is_file()), None)
    if ptxas is None:
        pytest.skip("needs the ptxas that comes with Triton")
    ptx = binary_of(compile_nvrtc(KERNELS, "kernels.cu", arch)).ptx
    assert ptx is not None
    version = next(line for line in ptx.splitlines() if line.startswith(".version"))
    (tmp_path / "k.ptx").write_text(ptx.replace(version, ".version 8.6"))
    command = [str(ptxas), "-v", f"-arch={arch}", "k.ptx", "-o", "k.cubin"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
    cubin = (tmp_path / "k.cubin").read_bytes()
    assert cubin[8] == 7, "an image of the older ABI"
    said = parse_ptxas_usage(done.stderr)
    for kernel in read_cubin(cubin):
        usage = said[kernel.entry]
        assert (kernel.registers, kernel.barriers, kernel.shared_bytes, kernel.stack_bytes) == (
            usage.registers,
            usage.barriers,
            usage.shared_bytes,
            usage.stack_bytes,
        )
        assert kernel.parameters


def test_a_parameter_too_large_for_the_usual_record() -> None:
    source = 'struct Big { char c[20000]; };\nextern "C" __global__ void k(Big b, int* a) { a[0] = b.c[a[1]]; }'
    (kernel,) = binary_of(compile_nvrtc(source, "k.cu", "sm_90")).kernels
    assert kernel.parameters == ((0, 20000), (20000, 8))


def test_a_required_block_size_is_read() -> None:
    source = 'extern "C" __global__ void __block_size__((64, 2, 1)) k(int* a) { a[threadIdx.x] = 1; }'
    (kernel,) = binary_of(compile_nvrtc(source, "k.cu", "sm_90")).kernels
    assert kernel.required_threads == (64, 2, 1)


def test_device_functions_are_not_kernels() -> None:
    source = """
    __device__ __noinline__ float half_of(float* a, int n) {
      __shared__ float s[64];
      s[n & 63] = a[n];
      return s[3] / 2;
    }
    __device__ int fibonacci(int n) { return n < 2 ? n : fibonacci(n - 1) + fibonacci(n - 2); }
    __constant__ float table[16];
    __global__ void calls(float* a, int n) { a[0] = half_of(a, n) + table[n] + fibonacci(n); }
    """
    (kernel,) = binary_of(compile_nvrtc(source, "k.cu", "sm_90")).kernels
    assert (kernel.name, kernel.shared_bytes) == ("calls", 256)


@pytest.mark.parametrize("damage", [lambda c: c[:200], lambda c: b"", lambda c: b"\x7fELF" + bytes(60)])
def test_a_damaged_cubin_is_refused(damage: object) -> None:
    cubin = binary_of(compile_nvrtc("__global__ void k(int* a) { a[0] = 1; }", "k.cu", "sm_90")).cubin
    assert callable(damage)
    with pytest.raises(CubinError):
        read_cubin(damage(cubin))


NAMED = r"""
namespace ops {
template <class T, int N, bool B> __global__ void scale(T* a) { a[threadIdx.x] *= T(N + B); }
__global__ void shift(float* a) { a[threadIdx.x] += 1; }
}
template <int N> __global__ void unused(float* a) { a[0] = N; }
__global__ void twice(float* a) { a[0] *= 2; }
__global__ void twice(int* a) { a[0] *= 2; }
static __global__ void hidden(int* a) { a[0] = 3; }
namespace { __global__ void inner(int* a) { a[0] = 4; } }
#define MAKE(name) __global__ void name##_made(int* a) { a[0] = 5; }
MAKE(macro)
extern "C" __global__ void c_name(int* a) { a[0] = 6; }
"""


def test_every_name_a_launch_may_use_leads_to_a_symbol() -> None:
    binary = binary_of(compile_nvrtc(NAMED, "a (1)/k.cu", "sm_90", names=["ops::scale<float,4,true>", "c_name"]))
    symbols = {kernel.entry for kernel in binary.kernels}
    assert set(binary.entries) == {
        "ops::scale<float,4,true>",
        "ops::scale<float, 4, true>",
        "scale<float, 4, true>",
        "ops::shift",
        "shift",
        "twice(float*)",
        "twice(int*)",
        "hidden",
        "inner",
        "macro_made",
        "c_name",
    }
    assert set(binary.entries.values()) == symbols
    assert binary.entries["ops::scale<float,4,true>"] == binary.entries["scale<float, 4, true>"]
    assert facts_of(binary, "ops::scale<float,4,true>").entry == "_ZN3ops5scaleIfLi4ELb1EEEvPT_"


def test_two_instances_have_their_own_facts() -> None:
    source = """template <int N> __global__ void k(float* a) {
      __shared__ float s[N];
      s[threadIdx.x] = a[0];
      __syncthreads();
      a[1] = s[N - 1];
    }"""
    binary = binary_of(compile_nvrtc(source, "k.cu", "sm_80", names=["k<32>", "k<64>"]))
    assert {kernel.name: kernel.shared_bytes for kernel in binary.kernels} == {"k<32>": 128, "k<64>": 256}


HOST_STYLE = r"""#include <torch/extension.h>
#include <cuda_runtime.h>
#include <cuda_fp16.h>
#include <algorithm>
#include <cfloat>
#include <cmath>
#include <cstdint>
#include <vector>
#define M_PI 3.14159265358979323846
__global__ void k(__half* h, std::int64_t* i, uint8_t* b, float* f, size_t n) {
  f[0] = std::max(INFINITY, float(M_PI)) + std::sqrt(FLT_MAX) + NAN + HUGE_VALF;
  i[0] = INT64_MAX - INT_MAX + (LLONG_MAX < LONG_MAX);
  b[0] = UINT8_MAX;
  h[0] = __float2half(std::fabs(f[n]));
  static_assert(sizeof(int64_t) == 8 && sizeof(uintptr_t) == 8 && sizeof(uint16_t) == 2);
  static_assert(sizeof(uint) == 4 && sizeof(ushort) == 2 && sizeof(ulong) == 8);
}
"""


@pytest.mark.parametrize("arch", ["sm_80", "sm_120"])
def test_code_written_for_nvcc_compiles_without_a_word(arch: str) -> None:
    build = compile_nvrtc(HOST_STYLE, "k.cu", arch, options=["-std=c++17"])
    assert binary_of(build).entries["k"]
    assert build.diagnostics == ()


def test_the_c_plus_plus_library_and_cooperative_groups() -> None:
    source = """#include <limits>
    #include <type_traits>
    #include <cooperative_groups.h>
    __global__ void k(float* a) {
      static_assert(std::is_same_v<int32_t, int>);
      a[0] = std::numeric_limits<float>::infinity();
      cooperative_groups::this_thread_block().sync();
    }"""
    build = compile_nvrtc(source, "k.cu", "sm_90", options=["-std=c++17"])
    assert binary_of(build).entries["k"]
    assert build.diagnostics == ()


def test_an_error_is_where_the_user_made_it() -> None:
    source = "__global__ void k(int* a) {\n\t\ta[0] = undefined_thing + 1;\n  /* é */ foo();\n}\n"
    build = compile_nvrtc(source, "/home/me/k.cu", "sm_90")
    assert build.binary is None
    first, second = build.diagnostics
    assert (first.path, first.line, first.column, first.end_line, first.end_column) == ("/home/me/k.cu", 2, 10, 2, 25)
    assert (first.severity, first.message) == (Severity.ERROR, 'identifier "undefined_thing" is undefined')
    assert (second.line, second.column, second.end_column) == (3, 12, 15), "columns count bytes"
    assert "undefined_thing" in build.log


def test_an_error_in_an_instance_says_which() -> None:
    source = 'template <int N> __global__ void k(int* a) {\n  static_assert(N > 4, "too small");\n  a[0] = N;\n}\n'
    build = compile_nvrtc(source, "k.cu", "sm_90", names=["k<3>"])
    error = build.diagnostics[0]
    assert (error.line, error.column) == (2, 3)
    assert "too small" in error.message
    assert any("N=3" in d.message for d in build.diagnostics)


def test_a_kernel_that_is_not_there_is_named() -> None:
    build = compile_nvrtc("__global__ void k(int* a) { a[0] = 1; }\n", "k.cu", "sm_90", names=["scale<3>"])
    (error,) = build.diagnostics
    assert (error.path, error.line) == ("k.cu", 1)
    assert error.message.startswith("no kernel can be made for `scale<3>`, which a launch asks for: ")


def test_too_much_shared_memory_is_said_at_the_kernel() -> None:
    source = """
__global__ void greedy(float* a) {
  __shared__ float s[20000];
  s[threadIdx.x] = a[0];
  __syncthreads();
  a[1] = s[3];
}"""
    build = compile_nvrtc(source, "k.cu", "sm_90", locate=lambda name: (2, 17, 2, 23) if name == "greedy" else None)
    (error,) = build.diagnostics
    assert (error.line, error.column, error.end_column, error.code) == (2, 17, 23, "ptxas")
    assert "'greedy' uses too much shared data" in error.message


def test_warnings_come_after_errors_and_are_no_failure() -> None:
    source = "__global__ void k(int* a) {\n  int x;\n  a[0] = x;\n}\n"
    build = compile_nvrtc(source, "k.cu", "sm_90")
    assert binary_of(build)
    assert [(d.severity, d.line, d.code) for d in build.diagnostics] == [(Severity.WARNING, 3, "549-D")]


def test_a_warning_in_several_instances_of_a_template_is_said_once() -> None:
    source = "template <class T>\n__global__ void k(T* a, unsigned n) {\n  int b[1] = {n + T(1)};\n  a[0] = b[0];\n}\n"
    build = compile_nvrtc(source, "k.cu", "sm_90", names=["k<unsigned>", "k<unsigned short>", "k<unsigned char>"])
    assert build.log.count("narrowing") > 1
    assert [d.line for d in build.diagnostics if "narrowing" in d.message] == [3]


@pytest.mark.parametrize(("arch", "option"), [("sm_42", "-DA"), ("sm_90", "--no-such-option")])
def test_what_the_compiler_refuses_is_a_diagnostic(arch: str, option: str) -> None:
    build = compile_nvrtc("__global__ void k(int* a) { a[0] = 1; }", "k.cu", arch, options=[option])
    assert build.binary is None
    assert build.diagnostics[0].severity is Severity.ERROR


def test_the_register_limit_makes_spills() -> None:
    source = KERNELS.replace("__launch_bounds__(1024, 1)", "")
    free = binary_of(compile_nvrtc(source, "k.cu", "sm_90"))
    tight = binary_of(compile_nvrtc(source, "k.cu", "sm_90", options=["--maxrregcount=32"]))
    assert facts_of(tight, "spilling").registers == 32
    assert (facts_of(tight, "spilling").spill_load_bytes or 0) > (facts_of(free, "spilling").spill_load_bytes or 0)


def test_without_a_folder_for_its_own_headers_it_uses_those_of_the_wheels(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setattr(nvrtc, "unpacked_headers", lambda: tmp_path / "file")
    nvrtc.include_folders.cache_clear()
    nvrtc.own_headers.cache_clear()
    try:
        assert all(tmp_path not in folder.parents for folder in nvrtc.include_folders())
        build = compile_nvrtc(HOST_STYLE, "k.cu", "sm_90", options=["-std=c++17"])
    finally:
        nvrtc.include_folders.cache_clear()
        nvrtc.own_headers.cache_clear()
    assert binary_of(build).entries["k"]


def test_lines_of_the_source_are_in_the_ptx() -> None:
    ptx = binary_of(compile_nvrtc("\n\n__global__ void k(int* a) { a[0] = 1; }", "/home/me/k.cu", "sm_90")).ptx
    assert ptx is not None
    assert '"/home/me/k.cu"' in ptx
    assert not ptx.endswith("\0")


def test_a_single_byte_of_output_is_not_written_into_an_object_that_others_hold() -> None:
    def size_of(_: object) -> tuple[object, int]:
        return nvrtc.nvrtc.nvrtcResult.NVRTC_SUCCESS, 1

    def get(_: object, buffer: bytes) -> tuple[object]:
        ctypes.memset(buffer, ord("x"), 1)  # as NVRTC does
        return (nvrtc.nvrtc.nvrtcResult.NVRTC_SUCCESS,)

    assert nvrtc._bytes(size_of, get, None) == b"x"
    assert [bytes([byte])[0] for byte in range(256)] == list(range(256))


def test_a_missing_library_is_not_the_kernels_error_and_says_what_to_install(monkeypatch: pytest.MonkeyPatch):
    def missing():
        raise RuntimeError('Failure finding "libnvrtc.so.13"\n  and where it was looked for')

    monkeypatch.setattr(nvrtc.nvrtc, "nvrtcVersion", missing)
    with pytest.raises(RunnerError, match=r'Failure finding "libnvrtc.so.13"\. Install it again: `pip install'):
        nvrtc.nvrtc_version()
