"""Headers of a project whose include folders nobody has named."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.build import build_cuda, build_included
from kernel_lsp.compiler.headers.definitions import definitions
from kernel_lsp.compiler.headers.includers import including_files, text_before
from kernel_lsp.compiler.headers.project import include_folders
from kernel_lsp.compiler.headers.user import sliced_headers, user_headers
from kernel_lsp.compiler.toolchain.tools import tool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.slicing import slice_device


def _file(path: Path, text: str) -> SourceFile:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return SourceFile(path, text)


def test_the_folder_of_a_header_that_is_found_nowhere_is_guessed(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").touch()
    kernel = _file(
        tmp_path / "csrc/gpu/scale.cu", '#include "lib/factor.h"\n__global__ void k(int* x) { *x *= FACTOR; }\n'
    )
    _file(tmp_path / "include/lib/factor.h", "#include <deep.h>\n")
    _file(tmp_path / "third_party/other/include/deep.h", "#define FACTOR 3\n")
    assert build_cuda(kernel, "sm_90").binary is None
    folders = include_folders((kernel,), ())
    assert folders == (tmp_path / "include", tmp_path / "third_party/other/include")
    build = build_cuda(kernel, "sm_90", options=BuildOptions(include_dirs=folders))
    assert build.binary is not None, build.log


@pytest.mark.parametrize("place", ["third-party/cutlass/include", "csrc/cutlass/include", "tools/util/include"])
def test_headers_are_found_where_projects_keep_a_librarys(place: str, tmp_path: Path) -> None:
    """As DeepGEMM and FlashAttention have CUTLASS, and CUTLASS its own utilities."""
    (tmp_path / "LICENSE").touch()
    _file(tmp_path / "a/setup.py", "")  # of one part
    kernel = _file(tmp_path / "a/b/k.cu", '#include "cutlass/arch.h"\n')
    _file(tmp_path / place / "cutlass/arch.h", "")
    assert include_folders((kernel,), ()) == (tmp_path / place,)


def test_the_folders_around_a_file_are_listed_once_for_all_of_its_headers(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    listed: list[tuple[Path, str]] = []
    glob = Path.glob

    def noted(folder: Path, pattern: str) -> Iterator[Path]:
        listed.append((folder, pattern))
        return iter(sorted(glob(folder, pattern)))

    monkeypatch.setattr(Path, "glob", noted)
    _file(tmp_path / "LICENSE", "")
    text = "".join(f'#include "nowhere_{number}.h"\n' for number in range(20))
    assert include_folders((_file(tmp_path / "src/k.cu", text),), ()) == ()
    assert len(listed) == len(set(listed)) > 0


def test_no_folder_is_guessed_where_two_headers_differ_or_lie_outside_of_the_project(tmp_path: Path) -> None:
    kernel = _file(tmp_path / "mine/k.cu", '#include "other.h"\n#include "two.h"\n#include <cuda_fp16.h>\n')
    (tmp_path / "mine/pyproject.toml").touch()
    _file(tmp_path / "other.h", "")
    _file(tmp_path / "mine/a/two.h", "#define A\n")
    _file(tmp_path / "mine/b/two.h", "#define B\n")
    assert include_folders((kernel,), ()) == ()
    _file(tmp_path / "mine/b/two.h", "#define A\n")
    assert include_folders((kernel,), ()) == (tmp_path / "mine/a",)
    named = tmp_path / "named"
    _file(named / "two.h", "")
    assert include_folders((kernel,), (named,)) == (named,), "a folder that the user has named comes first"


def test_a_header_of_the_system_is_no_neighbours(tmp_path: Path) -> None:
    """As HeCBench's `kmeans` ships a `getopt.h`, and its `page-rank` means the system's."""
    kernel = _file(tmp_path / "src/rank/k.cu", "#include <getopt.h>\n#include <stdio.h>\n")
    _file(tmp_path / "src/means/getopt.h", "")
    _file(tmp_path / "src/means/stdio.h", "")
    (tmp_path / "LICENSE").touch()
    assert include_folders((kernel,), ()) == ()
    quoted = _file(kernel.path, '#include "getopt.h"\n')
    assert include_folders((quoted,), ()) == (tmp_path / "src/means",)


def test_a_part_with_a_licence_of_its_own_takes_headers_from_the_rest_of_its_project(tmp_path: Path) -> None:
    kernel = _file(tmp_path / "src/layernorm/k.cu", '#include "reduce.cuh"\n')
    _file(tmp_path / "src/rmsnorm/reduce.cuh", "")
    (tmp_path / "src/layernorm/LICENSE").touch()
    assert include_folders((kernel,), ()) == (), "nothing says that the folders above are of this project"
    (tmp_path / ".git").mkdir()
    assert include_folders((kernel,), ()) == (tmp_path / "src/rmsnorm",)


def test_host_code_is_cut_from_headers_in_angle_brackets_beside_the_file(tmp_path: Path) -> None:
    """The compilers search the file's folder for these too."""
    kernel = _file(tmp_path / "k.cu", "#include <ops.cuh>\n__global__ void k(int* x) { *x = N; }\n")
    _file(tmp_path / "ops.cuh", '#define N 2\ninline void stop() { throw std::logic_error("stop"); }\n')
    (header,) = sliced_headers(user_headers(kernel), slice_device(kernel.text))
    assert "throw" not in header.text
    build = build_cuda(kernel, "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def test_a_part_is_compiled_within_the_braces_that_its_program_has_open(tmp_path: Path) -> None:
    part = _file(tmp_path / "part.cu", "__global__ void k(Node* x) { x->key = 1; }\n")
    _file(
        tmp_path / "main.cu",
        '#ifdef __cplusplus\nextern "C" {\n#endif\nstruct Node { int key; };\n#include "part.cu"\n'
        "#ifdef __cplusplus\n}\n#endif\n",
    )
    build = build_included(part, text_before(part, including_files(part)[0]), "sm_90")
    assert build.binary is not None, build.log


def test_concepts_are_compiled_as_the_standard_that_has_them(tmp_path: Path) -> None:
    text = (
        "#include <bit>\n#include <concepts>\n"
        "template <typename T> concept Small = sizeof(T) <= 4;\n"
        "template <Small T> __device__ T twice(T x) { return x + x; }\n"
        "__global__ void k(float* x) { *x = twice(*x); }\n"
    )
    build = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    old = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90", options=BuildOptions(("-std=c++17",)))
    assert old.binary is None, "a standard that the user has named is taken"


def test_words_that_nvcc_knows_through_host_headers_are_known_without_them(tmp_path: Path) -> None:
    text = (
        "#include <cuda_runtime.h>\n#include <vector>\n"
        "template <typename T> __device__ void wait() {\n"
        "    if constexpr (std::is_same_v<T, float>) cudaGridDependencySynchronize();\n}\n"
        "struct Cell { __extension__ union { int whole; struct { short low, high; } parts; }; };\n"
        "#if CUDA_VERSION < 12000\n#error older than any that has this\n#endif\n"
        "__device__ __inline__ int processor() {\n"
        '    int found; __asm__ __volatile__("mov.u32 %0, %%smid;" : "=r"(found)); return found;\n}\n'
        "__global__ void k(Cell* x) { wait<float>(); x->whole += processor();\n"
        "    cudaTriggerProgrammaticLaunchCompletion(); }\n"
    )
    build = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


OF_PYTORCH = """#include <ATen/ATen.h>
#include <ATen/cuda/DeviceUtils.cuh>
#include <cmath>
template <typename T> __device__ T all(T x) {
  for (int lanes = 16; lanes > 0; lanes /= 2) x = std::max(x, WARP_SHFL_XOR(x, lanes));
  return x;
}
template <typename T> C10_LAUNCH_BOUNDS_1(256) __global__ void k(T* x, int n) {
  at::acc_type<T, true> most = at::numeric_limits<at::opmath_type<T>>::lowest();
  CUDA_KERNEL_LOOP(i, n) { most = std::fmax(most, std::exp(float(x[i]))); }
  gpuAtomicAdd((float*)x, std::numeric_limits<float>::infinity() - all(most));
}
"""
OWN = """#define CUDA_KERNEL_LOOP(i, n) for (int i = 0; i < n; i++)
template <typename T> __device__ T WARP_SHFL_XOR(T x, int lanes) { return __shfl_xor_sync(~0u, x, lanes); }
template <typename T> __device__ T all"""


def test_what_pytorchs_headers_have_for_device_code_is_known_without_them(tmp_path: Path) -> None:
    build = build_cuda(SourceFile(tmp_path / "k.cu", OF_PYTORCH), "sm_90", ["k<float>", "k<at::Half>"])
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    sums = OF_PYTORCH.replace("gpuAtomicAdd((float*)x, std::", "gpuAtomicAdd(x, T(std::").replace(
        "all(most));", "all(most)));"
    )
    build = build_cuda(SourceFile(tmp_path / "k.cu", sums), "sm_90", ["k<at::Half>", "k<at::BFloat16>"])
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
    own = OF_PYTORCH.replace("template <typename T> __device__ T all", OWN)
    own = own.replace("C10_LAUNCH_BOUNDS_1(256)", "").replace("gpuAtomicAdd", "atomicAdd")
    build = build_cuda(SourceFile(tmp_path / "k.cu", own), "sm_90", ["k<float>"])
    assert (build.way, build.binary is not None, build.diagnostics) == ("nvrtc", True, ()), build.log


SPARED = """#include "generated/version.h"
#include "near.h"
#include <bitset>
__global__ void k(float* x) { x[threadIdx.x] = sizeof(std::bitset<9>) > 1 ? 1.0f : near(2); }
"""


@pytest.mark.parametrize("way", ["nvrtc", "nvcc-slice"])
def test_device_code_is_compiled_without_headers_that_are_nowhere(tmp_path: Path, way: str) -> None:
    if way == "nvcc-slice" and tool("nvcc").path is None:
        pytest.skip("no nvcc")
    text = SPARED if way == "nvcc-slice" else SPARED.replace("sizeof(std::bitset<9>) > 1", "true")
    file = _file(tmp_path / "k.cu", text)
    _file(tmp_path / "near.h", "#include <reader/INIReader.h>\n__device__ float near(float x) { return x; }\n")
    assert build_cuda(file, "sm_90").binary is None
    build = build_cuda(file, "sm_90", spare_headers=True)
    assert (build.way, build.binary is not None) == (way, True), build.log
    assert {(Path(said.path).name, said.line, said.severity) for said in build.diagnostics} == {
        ("k.cu", 1, Severity.WARNING),
        ("near.h", 1, Severity.WARNING),
    }
    assert "`generated/version.h`" in build.diagnostics[0].message
    wrong = _file(tmp_path / "k.cu", text.replace("near(2)", "generated()"))
    assert build_cuda(wrong, "sm_90", spare_headers=True).binary is None


def test_headers_that_are_nowhere_are_named_where_device_code_does_not_compile_without_them(tmp_path: Path) -> None:
    text = "#include <library/half.h>\n__global__ void k(const float* x, library::half_t* y) { *y = *x; }\n"
    build = build_cuda(_file(tmp_path / "k.cu", text), "sm_90", spare_headers=True)
    assert build.binary is None
    first = build.diagnostics[0]
    assert (first.line, first.severity) == (1, Severity.WARNING)
    assert "no header `library/half.h` here: its absence may be why this does not compile" in first.message
    assert Severity.ERROR in {said.severity for said in build.diagnostics}


needs_nvcc = pytest.mark.skipif(tool("nvcc").path is None, reason="no nvcc")


@needs_nvcc
def test_nvcc_gets_headers_without_host_code_wherever_they_lie(tmp_path: Path) -> None:
    _file(tmp_path / "include/lib/base.h", '#include <cublas_of_nobody.h>\n#include "../lib/deep.h"\n')
    _file(tmp_path / "include/lib/deep.h", "#include <nccl_of_nobody.h>\n#define TWO 2\n")
    _file(tmp_path / "src/near.h", "#include <mpi_of_nobody.h>\n__device__ int near() { return TWO; }\n")
    text = (
        "#include <bitset>\n#include <lib/base.h>\n"
        '#include "../near.h"\n__global__ void k(int* x) { x[0] = near() + sizeof(std::bitset<9>); }\n'
    )
    options = BuildOptions((), (tmp_path / "include",))
    build = build_cuda(_file(tmp_path / "src/gpu/k.cu", text), "sm_90", options=options)
    assert (build.way, build.binary is not None) == ("nvcc-slice", True), build.log


@needs_nvcc
def test_a_library_that_is_not_installed_hides_no_error_of_the_device_code(tmp_path: Path) -> None:
    text = "#include <cublas_of_nobody.h>\nint helper() { return 1; }\n__global__ void k(int* x) { x[0] = helper(); }\n"
    build = build_cuda(_file(tmp_path / "k.cu", text), "sm_90")
    assert build.binary is None
    assert [said.line for said in build.diagnostics if said.severity is Severity.ERROR] == [3, 1]


def test_a_header_that_is_included_by_two_names_is_read_once(tmp_path: Path) -> None:
    _file(tmp_path / "lib/base.cuh", "#pragma once\n__device__ int one() { return 1; }\n")
    _file(tmp_path / "lib/more.cuh", '#pragma once\n#include "base.cuh"\n')
    text = '#include "lib/base.cuh"\n#include "lib/more.cuh"\n__global__ void k(int* x) { x[0] = one(); }\n'
    build = build_cuda(_file(tmp_path / "k.cu", text), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def test_of_a_build_that_lacks_a_header_only_that_is_told(tmp_path: Path) -> None:
    path = tmp_path / "k.cu"
    text = (
        "#include <curand_kernel.h>\n#include <nowhere.h>\n__global__ void k(curandState *s) { s->x = nowhere(1); }\n"
    )
    path.write_text(text)
    build = build_cuda(SourceFile(path, text), "sm_90", spare_headers=True)
    assert build.binary is None
    assert [(d.severity, d.line) for d in build.diagnostics if d.severity is not Severity.ERROR] == []
    assert not any("compiled without" in d.message for d in build.diagnostics)


def test_a_header_of_the_system_is_not_said_to_be_absent(tmp_path: Path) -> None:
    kernel = _file(tmp_path / "k.cu", "#include <dirent.h>\n#include <no.h>\n__global__ void k(int* x) { *x = 1; }\n")
    build = build_cuda(kernel, "sm_90", spare_headers=True)
    assert build.binary is not None, build.log
    assert [one.line for one in build.diagnostics] == [2]


def test_a_header_of_cudas_in_quotes_is_no_neighbours_of_the_same_name(tmp_path: Path) -> None:
    """Its folder would stand for CUDA's own header wherever that is included."""
    (tmp_path / "LICENSE").touch()
    _file(tmp_path / "util/cuda_runtime.h", "#error not this one\n")
    kernel = _file(tmp_path / "k.cu", '#include "cuda_runtime.h"\n__global__ void k(int* x) { *x = 1; }\n')
    assert include_folders((kernel,), ()) == ()


def test_a_header_may_be_called_as_one_of_the_systems_and_lie_above_the_working_directory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """NVRTC knows headers by their names, and follows `..` in them from the working directory, up to a crash."""
    _file(tmp_path / "common.h", "#pragma once\n#define ONE 1\n")
    _file(tmp_path / "util/math.h", '#pragma once\n#include "../common.h"\nconstexpr int two() { return ONE + 1; }\n')
    _file(tmp_path / "util/more.h", '#include "math.h"\n#include "../common.h"\n')
    kernel = _file(
        tmp_path / "a/b/k.cu",
        '#include <math.h>\n#include "../../util/more.h"\n#include "../../common.h"\n'
        "__global__ void k(float* x) { *x = sqrtf(*x) + two() * ONE; }\n",
    )
    monkeypatch.chdir("/")
    build = build_cuda(kernel, "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def test_what_device_code_of_another_file_mentions_is_kept_in_a_header(tmp_path: Path) -> None:
    _file(
        tmp_path / "types.h",
        "#include <cooperative_groups.h>\n"
        "struct Step { static constexpr int of(int x) { return x + 1; } };\n"
        "struct Unused { int of(int x) { return x; } };\n"
        'struct Named { void* open() { REFUSE("a device"); } };\n'
        "#define STEP(x) Step::of(x)\n#define REFUSE(x) throw std::runtime_error(x)\n",
    )
    kernel = _file(
        tmp_path / "k.cu",
        '#include "types.h"\n__global__ void k(int* x, int Named) {\n'
        "  cooperative_groups::this_thread_block().sync();\n  *x = STEP(*x) + Named;\n}\n",
    )
    (header,) = sliced_headers(user_headers(kernel), slice_device(kernel.text))
    assert ("struct Step" in header.text, "Unused" in header.text, 'runtime_error("' in header.text) == (
        True,
        False,
        False,
    )
    build = build_cuda(kernel, "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def test_the_include_guard_of_an_including_file_is_closed(tmp_path: Path) -> None:
    part = _file(tmp_path / "part.cuh", "__global__ void k(Node* x) { x->key = 1; }\n")
    _file(
        tmp_path / "all.cu",
        '#ifndef ALL\n#define ALL\n#include <type_traits>\nstruct Node { int key; };\n#include "part.cuh"\n#endif\n',
    )
    build = build_included(part, text_before(part, including_files(part)[0]), "sm_90")
    assert build.binary is not None, build.log


def test_macros_of_one_header_mark_device_functions_in_another(tmp_path: Path) -> None:
    _file(tmp_path / "words.h", "#define ON_GPU __device__ \\\n  __forceinline__\n")
    _file(
        tmp_path / "ops.h",
        '#include "words.h"\nON_GPU int twice(int x) { return 2 * x; }\n'
        "struct Word { ON_GPU static int of(int x) {\n#ifdef __CUDA_ARCH__\n return x;\n#else\n"
        " return std::abs(x);\n#endif\n } void print() { std::puts(0); } };\n",
    )
    text = (
        '#include "ops.h"\nON_GPU int once(int x) { return Word::of(x); }\n'
        "__global__ void k(int* x) { *x = twice(once(*x)); }\n"
    )
    build = build_cuda(_file(tmp_path / "k.cu", text), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def test_headers_are_found_in_submodules_and_empty_ones_are_named(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    modules = tmp_path / ".gitmodules"
    modules.touch()
    kernel = _file(tmp_path / "src/k.cu", "#include <shapes/side.h>\n__global__ void k(int* x) { *x = SIDE; }\n")
    (error,) = build_cuda(kernel, "sm_90", spare_headers=True).diagnostics
    assert error.message.endswith(". `build.include_dirs` can name its folder")
    modules.write_text('[submodule "parts"]\n\tpath = parts/shapes\n\turl = https://host/shapes\n')
    (tmp_path / "parts/shapes").mkdir(parents=True)
    (error,) = build_cuda(kernel, "sm_90", spare_headers=True).diagnostics
    assert error.message.endswith(
        "Submodules of its project are empty, `parts/shapes`: `git submodule update --init` gets them"
    )
    _file(tmp_path / "parts/shapes/include/shapes/side.h", "#define SIDE 4\n")
    assert include_folders((kernel,), ()) == (tmp_path / "parts/shapes/include",)


def test_instances_of_a_class_of_host_code_do_not_keep_it(tmp_path: Path) -> None:
    text = """#include <nowhere.h>
template <typename T> __global__ void k(T* x) { *x = 1; }
template <typename T> void Layer<T>::run(T* x) { k<T><<<1, 32>>>(x); }
template class Layer<float>;
"""
    build = build_cuda(_file(tmp_path / "k.cu", text), "sm_90", ("k<float>",), spare_headers=True)
    assert build.binary is not None, build.log


def test_macros_are_found_in_cmakes_own_folder(tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    (tmp_path / "cmake").mkdir()
    (tmp_path / "cmake/cuda.cmake").write_text("if(CUDA)\n  add_definitions(-DWITH_CUDA)\nendif()\n")
    found = definitions(tmp_path / "k.cu", ["#ifdef WITH_CUDA\n#endif\n"], "sm_90")
    assert [(one.flag, one.path.name, one.line) for one in found] == [("-DWITH_CUDA", "cuda.cmake", 2)]


def test_a_header_far_away_in_the_project_is_found_for_facts_alone(tmp_path: Path) -> None:
    for place in (".git", "geometry/cuda/csrc", "sensors/cuda/csrc", "legacy/csrc"):
        (tmp_path / place).mkdir(parents=True)
    (tmp_path / "geometry/cuda/csrc/pose.cuh").write_text("struct Pose { float x; };\n")
    source = SourceFile(tmp_path / "sensors/cuda/csrc/k.cu", '#include "pose.cuh"\n')
    assert include_folders([source], ()) == ()
    assert include_folders([source], (), anywhere=True) == (tmp_path / "geometry/cuda/csrc",)
    (tmp_path / "legacy/csrc/pose.cuh").symlink_to(tmp_path / "nowhere/pose.cuh")
    assert include_folders([source], (), anywhere=True) == (tmp_path / "geometry/cuda/csrc",)
    (tmp_path / "legacy/csrc/pose.cuh").unlink()
    (tmp_path / "legacy/csrc/pose.cuh").write_text("struct Pose { double x; };\n")
    assert include_folders([source], (), anywhere=True) == ()
    (tmp_path / "sensors/old").mkdir()
    (tmp_path / "sensors/old/pose.cuh").write_text("struct Pose { int x; };\n")
    assert include_folders([source], (), anywhere=True) == (tmp_path / "sensors/old",)
