"""CUDA templates whose arguments host code knows in part: by launchers, switches, macros and concepts."""

from pathlib import Path

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.runner.messages.build import CacheFolder, CandidateBuild, CompileAlone
from kernel_lsp.runner.workers.compile import methods
from kernel_lsp.source.candidate import SourceFile

TRAITS = """#pragma once
template <int THREADS_, bool EVEN_, typename T_> struct Traits {
  static constexpr int THREADS = THREADS_;
  static constexpr bool EVEN = EVEN_;
  using T = T_;
  static_assert(THREADS % 32 == 0);
};
template <typename K> __global__ void scale(typename K::T* x, int n) {
  if (K::EVEN || threadIdx.x < n) x[threadIdx.x] *= typename K::T(K::THREADS);
}
"""
BLOCKS = """template <typename DTypeOut, int N> __global__ void k(DTypeOut* x) { *x = N; }
void host(void* x, bool causal, int kind) {
  DISPATCH_CAUSAL(causal, CAUSAL, {
    DISPATCH_KIND(kind, DTypeOut, {
      constexpr int n = CAUSAL ? 3 : 5;
      auto kernel = k<DTypeOut, n>;
      kernel<<<1, 32>>>((DTypeOut*)x);
    });
  });
}
"""
LAUNCHER = """template <int THREADS, typename input_t> void run(void* x, int n) {
  SWITCH(n % 2 == 0, EVEN, [&] {
    using Own = Traits<THREADS, EVEN,
                       input_t>;
    auto kernel = &scale<Own>;
    kernel<<<1, THREADS>>>((input_t*)x, n);
  });
}
"""


def compiled(folder: Path, name: str, text: str, *including: SourceFile) -> CandidateBuild:
    source = SourceFile(folder / name, text)
    source.path.write_text(text)
    cache = CacheFolder(folder / "cache", 1 << 20)
    asked = CompileAlone(kernel=source, arch="sm_90", options=BuildOptions(), cache=cache, including=including)
    return methods().compile_alone(asked)


def kernels(made: CandidateBuild) -> list[str]:
    assert made.build.binary is not None, made.build.log
    return [fact.name for fact in made.build.binary.kernels]


def test_names_that_a_launcher_leaves_open_get_usual_values(tmp_path: Path) -> None:
    made = compiled(tmp_path, "k.cu", f"{TRAITS}{LAUNCHER}template void run<64, float>(void*, int);\n")
    assert kernels(made) == ["scale<Traits<64, false, float>>"]
    assert [one.types for one in made.assumed] == [("EVEN=false",)]
    made = compiled(tmp_path, "k.cu", f"{TRAITS}{LAUNCHER}")
    assert kernels(made) == ["scale<Traits<256, false, float>>"]
    assert [one.types for one in made.assumed] == [("THREADS=256", "EVEN=false", "input_t=float")]


def test_switches_may_have_blocks_in_place_of_lambdas(tmp_path: Path) -> None:
    made = compiled(tmp_path, "k.cu", BLOCKS)
    assert kernels(made) == ["k<float, (false ? 3 : 5)>"]
    assert [one.types for one in made.assumed] == [("DTypeOut=float", "CAUSAL=false")]


def test_a_launch_is_no_template_argument(tmp_path: Path) -> None:
    text = """template <typename T> __global__ void k(T* x) { *x = 1; }
void host(float* x, int blocks, int threads) { k<<<blocks, threads>>>(x); }
"""
    assert kernels(compiled(tmp_path, "k.cu", text)) == ["k<float>"]


def test_macros_of_headers_tell_what_they_launch(tmp_path: Path) -> None:
    (tmp_path / "launch.h").write_text("#define LAUNCH(Kernel, Type) \\\n  Kernel<Type, 96><<<1, 96>>>(x);\n")
    text = """#include "launch.h"
struct Half { using T = float; };
template <typename P, int N> __global__ void k(typename P::T* x) { x[threadIdx.x] = N; }
void host(float* x) { LAUNCH(k, Half) }
"""
    assert kernels(compiled(tmp_path, "k.cu", text)) == ["k<Half, 96>"]


def test_a_file_that_includes_a_launcher_tells_its_instances_by_macros(tmp_path: Path) -> None:
    header = TRAITS + LAUNCHER + "#define REGISTER(N, Type) void run_##N(void* x) { run<N, Type>(x, N); }\n"
    main = SourceFile(tmp_path / "main.cu", '#include "run.cuh"\nREGISTER(128, double);\n')
    assert kernels(compiled(tmp_path, "run.cuh", header, main)) == ["scale<Traits<128, false, double>>"]


def test_a_parameter_of_a_concept_is_a_type(tmp_path: Path) -> None:
    text = """template <typename T> concept Number = sizeof(T) < 16;
template <Number T> __global__ void k(T* x) { *x += T(1); }
"""
    assert kernels(compiled(tmp_path, "k.cu", text)) == ["k<float>"]


def test_a_kernel_that_launches_another_is_compiled_for_linking_and_that_is_said(tmp_path: Path) -> None:
    text = """__global__ void child(int* x) { x[threadIdx.x] = 1; }
__global__ void parent(int* x) {
  child<<<1, 32>>>(x);
}
"""
    made = compiled(tmp_path, "k.cu", text)
    assert sorted(kernels(made)) == ["child", "parent"]
    (note,) = made.build.diagnostics
    assert (note.severity, note.line) == (Severity.WARNING, 3)
    assert "-rdc=true" in note.message


def test_an_error_in_one_kernel_costs_no_other_its_facts(tmp_path: Path) -> None:
    text = """__global__ void good(int* x) { *x = 1; }
__global__ void bad(int* x) {
  *x = unknown;
}
template <typename T> __global__ void open(T* x) { *x = 1; }
__global__ void worse(int* x) { x.y = 1; }
"""
    made = compiled(tmp_path, "k.cu", text)
    assert sorted(kernels(made)) == ["good", "open<float>"]
    assert made.assumed == (Assumed("good", 1, (), True), Assumed("open", 5, ("T=float",), True))
    assert [(one.line, one.severity) for one in made.build.diagnostics] == [(3, Severity.ERROR), (6, Severity.ERROR)]
    alone = compiled(tmp_path, "k.cu", "__device__ int f() { return unknown; }\n" + text)
    assert (alone.build.binary, alone.build.diagnostics[0].line) == (None, 1)


def test_macros_of_a_build_file_are_defined_where_kernels_lack_them(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    text = """#ifdef SAFE
#error not this one
#endif
#ifndef WIDTH
#error WIDTH is not defined
#endif
__global__ void k(int* x) { *x = WIDTH; }
"""
    (tmp_path / "src").mkdir()
    made = compiled(tmp_path / "src", "k.cu", text)
    assert (made.build.binary, made.build.diagnostics[0].line) == (None, 5)
    make = tmp_path / "Makefile"
    make.write_text(
        "# -DWIDTH=1\nall:\n\tnvcc -gencode arch=compute_80,code=sm_80 -DWIDTH=2 -DSAFE\n\tnvcc -DWIDTH=$(W)\n"
    )
    assert compiled(tmp_path / "src", "k.cu", text).build.binary is None
    make.write_text(f"{make.read_text()}\tnvcc -arch=sm_90 -DWIDTH=3 -DSAFE -DOTHER\n")
    made = compiled(tmp_path / "src", "k.cu", text)
    assert kernels(made) == ["k"]
    (said,) = made.build.diagnostics
    assert (said.severity, said.message) == (Severity.WARNING, "compiled with `-DWIDTH=3` (of Makefile, line 5)")


def test_a_template_that_needs_what_stands_before_its_include_is_compiled_after_it(tmp_path: Path) -> None:
    source = SourceFile(tmp_path / "k.cuh", "template <int N> __global__ void k(int* x) { *x = LANES * N; }\n")
    source.path.write_text(source.text)
    before = SourceFile(tmp_path / "main.cu", "const int LANES = 32;\n")
    cache = CacheFolder(tmp_path / "cache", 1 << 20)
    asked = CompileAlone(kernel=source, arch="sm_90", options=BuildOptions(), cache=cache, before=before)
    assert kernels(methods().compile_alone(asked)) == ["k<4>"]


def test_macros_that_nothing_defines_are_assumed_and_remain_errors(tmp_path: Path) -> None:
    text = "__global__ void k(int* x) { __shared__ int s[_N_]; s[threadIdx.x] = BLOCK_SIZE; *x = s[0]; }\n"
    made = compiled(tmp_path, "k.cu", text)
    assert kernels(made) == ["k"]
    assert [one.message for one in made.build.diagnostics] == [
        'identifier "_N_" is undefined',
        'identifier "BLOCK_SIZE" is undefined',
        "compiled with `-D_N_=32` (assumed: nothing defines it), `-DBLOCK_SIZE=256` (assumed: nothing defines it)",
    ]
    assert compiled(tmp_path, "k.cu", text.replace("_N_", "lower")).build.binary is None
    assert compiled(tmp_path, "k.cu", text.replace("_N_", "CALL(3)")).build.binary is None
