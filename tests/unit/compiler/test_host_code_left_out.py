"""Host code that does not compile with the device code alone: it is cut for a file's facts, and that is said."""

from pathlib import Path
from typing import Any

import pytest

from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda import build as building
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.cuda.host_code import host_code_left_out
from kernel_lsp.compiler.cuda.host_needs import is_hopeless
from kernel_lsp.compiler.toolchain.tools import Tool
from kernel_lsp.runner.messages.build import CacheFolder, CompileAlone
from kernel_lsp.runner.workers.compile import methods
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.slicing import device_slice, find_bases

SPEC = """#include <vector>
struct Spec { std::vector<float> own; float* data; int size; };
struct Packed {
  Packed(Spec& spec) : data(spec.data), size(spec.size) {}
  void check(const Spec& spec) const;
  __device__ float at(int i) const { return data[i]; }
  float* __restrict__ data;
  int size;
};
"""
KERNEL = """#include "spec.h"
__global__ void scale(Packed x) {
  static_assert(sizeof(Packed) == 16);
  if (threadIdx.x < x.size) x.data[threadIdx.x] = x.at(threadIdx.x) * 2;
}
"""


def _built(folder: Path, kernel: str, *, facts: bool = True, **headers: str) -> Build:
    for name, text in headers.items():
        (folder / f"{name}.h").write_text(text)
    return build_cuda(SourceFile(folder / "k.cu", kernel), "sm_90", spare_headers=facts)


def test_member_functions_of_the_host_are_left_out_and_that_is_said(tmp_path: Path) -> None:
    build = _built(tmp_path, KERNEL, spec=SPEC)
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    said = build.diagnostics[0]
    assert (Path(said.path).name, said.line, said.severity) == ("spec.h", 2, Severity.WARNING)
    assert said.message.startswith("host code was left out, which does not compile with the device code alone: ")
    judged = _built(tmp_path, KERNEL, facts=False)
    assert not any("left out" in one.message for one in judged.diagnostics)


def test_what_device_code_needs_of_what_was_cut_is_the_first_builds_error(tmp_path: Path) -> None:
    build = _built(tmp_path, KERNEL.replace("x.at(", "x.check("), spec=SPEC)
    assert build.binary is None
    assert not any('no member "check"' in one.message for one in build.diagnostics)
    assert not any("left out" in one.message for one in build.diagnostics)


def test_a_mistake_in_device_code_stays_an_error_beside_host_code_that_is_left_out(tmp_path: Path) -> None:
    build = _built(tmp_path, KERNEL.replace("x.at(", "missing("), spec=SPEC)
    errors = [one for one in build.diagnostics if one.severity is Severity.ERROR]
    assert build.binary is None
    assert [(Path(one.path).name, one.line, one.message) for one in errors] == [
        ("k.cu", 4, 'identifier "missing" is undefined')
    ]


ENDIAN = """#ifndef ENDIAN_H
#define ENDIAN_H
#include "types.h"
#ifdef ASKED_FOR
#define SWAPS 1
#else
#error "which order?"
#endif
namespace io { inline int swapped(int x) { return x; } }
#endif
"""


def test_a_header_of_which_device_code_takes_nothing_costs_it_no_facts(tmp_path: Path) -> None:
    kernel = '#include "endian.h"\n__global__ void k(real* x) { *x = 1; }\n'
    build = _built(tmp_path, kernel, endian=ENDIAN, types="typedef float real;\n")
    assert build.binary is not None, build.log
    assert any("which order?" in one.message and one.severity is Severity.WARNING for one in build.diagnostics)
    for uses in ("#ifdef SWAPS\n#endif\n", "__device__ int swaps() { return SWAPS; }\n"):
        assert _built(tmp_path, kernel + uses).binary is None


LAYOUT = """struct Base {
  Base(Spec&) {}
  virtual void shown(Spec&) {}
  int own(Spec& s) { return s.n; }
  std::function<void(int)> done;
  int (*call)(Spec&);
  typedef typename Code<sizeof(int)>::Type Type;
  Base& operator=(const Base&) = default;
  constexpr int two() { return 2; }
  constexpr std::variant<int, double> either() const { return {2}; }
  LIB_INLINE int perhaps() { return 3; }
  __device__ int here() { return 1; }
  struct Inner { int deep(Spec&) { return 1; } int x; };
};
struct Derived : public Base { Derived(Spec&) {} int y; };
__global__ void k(Derived x) {}
"""


def test_of_a_type_only_functions_are_cut_that_change_no_layout() -> None:
    text = device_slice(LAYOUT, bases=find_bases([LAYOUT])).text
    whole, cut = LAYOUT.splitlines(), text.splitlines()
    assert [number for number, (a, b) in enumerate(zip(whole, cut, strict=True), start=1) if a != b] == [4, 10, 13, 15]
    assert cut[3].strip() == ""
    assert cut[12].split() == ["struct", "Inner", "{", "int", "x;", "};"]
    assert cut[14].split() == ["struct", "Derived", ":", "public", "Base", "{", "int", "y;", "};"]


def test_a_bare_slice_keeps_what_device_code_mentions_and_operators() -> None:
    text = """struct Own { int x; };
struct Nobody { Lost x; };
constexpr bool operator<(Own a, Own b) { return a.x < b.x; }
static_assert(sizeof(Own) == 4);
static_assert(sizeof(Nobody) == 4);
using lib::Nobody;
__global__ void k(Own x) {}
"""
    cut = device_slice(text, bases=frozenset()).text.splitlines()
    assert [number for number, line in enumerate(cut, start=1) if line.strip()] == [1, 3, 4, 7]


def test_a_build_that_was_made_without_host_code_says_so_even_where_its_lines_have_other_errors() -> None:
    def failed(message: str) -> Build:
        return Build(None, (Diagnostic("k.cu", 7, 1, 7, 2, Severity.ERROR, message),), "nvrtc", 0.0)

    (said,) = host_code_left_out(failed("first"), failed("second"), stand_ins=False)
    assert (said.severity, said.line, said.message.endswith(": first")) == (Severity.WARNING, 7, True)


def test_other_rules_of_cutting_make_another_build(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    source = SourceFile(tmp_path / "k.cu", "__global__ void k(int* x) { *x = 1; }\n")
    cache = BuildCache(tmp_path / "cache", 1 << 20)
    builds = [build_cuda(source, "sm_90", cache=cache, spare_headers=True) for _ in range(2)]
    monkeypatch.setattr(building, "cutting_rules", lambda *_: "others")
    builds.append(build_cuda(source, "sm_90", cache=cache, spare_headers=True))
    assert [build.cached for build in builds] == [False, True, False]


ACCESSORS = """#include <torch/extension.h>
struct Rays {
  Rays(torch::Tensor own);
  torch::PackedTensorAccessor32<float, 3, torch::RestrictPtrTraits> own;
  at::PackedTensorAccessor64<int, 1> counts;
};
static_assert(sizeof(torch::PackedTensorAccessor32<float, 3, torch::RestrictPtrTraits>) == 8 + 3 * 2 * 4);
__global__ void k(Rays rays) {
  auto row = rays.own[blockIdx.x][blockIdx.y];
  if (threadIdx.x < row.size(0)) row[threadIdx.x] += rays.counts[0] + *rays.own[0].data() + rays.own.stride(1);
}
"""


def test_pytorchs_accessors_have_stand_ins_and_that_is_said(tmp_path: Path) -> None:
    build = _built(tmp_path, ACCESSORS)
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    assert "stand-ins took the place of PyTorch's accessors and checks" in build.diagnostics[0].message


def test_pytorchs_checks_hold_in_constants_and_nowhere_else_in_device_code(tmp_path: Path) -> None:
    header = """struct Spec { std::vector<float> own; };
struct Bits { int n; Bits(Spec&); };
constexpr int half_of(int n) { TORCH_CHECK(n % 2 == 0, "odd"); return n / 2; }
"""
    kernel = '#include "bits.h"\n__global__ void k(int* x, Bits b) { constexpr int n = half_of(8); *x = n; }\n'
    build = _built(tmp_path, kernel, bits=header)
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    assert _built(tmp_path, kernel.replace("half_of(8)", "half_of(7)")).binary is None
    assert _built(tmp_path, kernel.replace("constexpr int n = half_of(8)", "int n = half_of(*x)")).binary is None


def test_parts_of_cub_that_only_host_code_calls_are_left_out(tmp_path: Path) -> None:
    parts = ("device/device_scan", "util_allocator", "block/block_reduce")
    header = "".join(f"#include <cub/{part}.cuh>\n" for part in parts)
    kernel = """#include "sums.h"
__global__ void k(float* x) {
  using Sum = cub::BlockReduce<float, 128>;
  __shared__ Sum::TempStorage own;
  *x = Sum(own).Sum(x[threadIdx.x]);
}
"""
    build = _built(tmp_path, kernel, sums=header)
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    assert build.diagnostics[0].severity is Severity.WARNING


def test_macros_of_build_files_that_conditions_ask_for_are_tried_before_nvcc_on_the_whole_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways = tmp_path / "ways"

    def compile_nvcc(*_: Any, way: str, **__: Any) -> Build:
        with ways.open("a") as file:
            file.write(f"{way}\n")
        failed = Diagnostic(str(tmp_path / "k.cu"), 2, 1, 2, 2, Severity.ERROR, "name must be a namespace")
        return Build(None, (failed,), way, 0.0)

    monkeypatch.setattr(building, "tool", lambda _: Tool("nvcc", "13", Path("nvcc")))
    monkeypatch.setattr(building, "compile_nvcc", compile_nvcc)
    (tmp_path / "LICENSE").touch()
    (tmp_path / "gpu_extension.py").write_text("FLAGS = ['-DWITH_GPU']\n")
    (tmp_path / "ops.h").write_text(
        "#if defined(WITH_GPU)\nnamespace lib { template <typename T> __device__ T one() { return T(1); } }\n#endif\n"
    )
    text = '#include "ops.h"\nusing lib::one;\n__global__ void k(float* x) { *x = one<float>(); }\n'
    source = SourceFile(tmp_path / "k.cu", text)
    request = CompileAlone(
        kernel=source, arch="sm_90", options=BuildOptions(), cache=CacheFolder(tmp_path / "c", 1 << 20)
    )
    made = methods().compile_alone(request)
    assert made.build.binary is not None, made.build.log
    (said,) = made.build.diagnostics
    assert said.message == "compiled with `-DWITH_GPU` (of gpu_extension.py, line 1)"
    assert "nvcc\n" not in ways.read_text().splitlines(keepends=True)


def test_what_no_template_argument_changes_is_told_from_what_one_may(tmp_path: Path) -> None:
    texts = {"k.cu": "using lib::one;\ntemplate <typename T> __global__ void k(T* x) { x->y = 1; }\n"}

    def failed(path: str, line: int, way: str = "nvcc") -> Build:
        return Build(None, (Diagnostic(path, line, 1, line, 2, Severity.ERROR, "wrong"),), way, 0.0)

    assert is_hopeless(failed("k.cu", 1), texts)
    assert is_hopeless(failed("/usr/include/of_a_library.h", 9), texts)
    assert not is_hopeless(failed("k.cu", 2), texts)
    assert not is_hopeless(failed("k.cu", 1, "nvcc-slice"), texts)
