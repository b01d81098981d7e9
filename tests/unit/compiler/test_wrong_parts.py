"""Parts of files that do not compile and that kernels do not need: facts do without them, and that is said."""

from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.build import Build, Severity
from kernel_lsp.compiler.cuda.build import build_cuda
from kernel_lsp.compiler.headers.user import of_libraries, user_headers
from kernel_lsp.compiler.toolchain.tools import tool
from kernel_lsp.source.candidate import SourceFile

LAYER = """#include <boost/shared_ptr.hpp>
#include "parameters.pb.h"
namespace flags = google;
using boost::shared_ptr;
template <class T> class Layer {
 public:
  explicit Layer(const Parameters& given);
  virtual void run(const vector<Blob<T>*>& inputs);
  shared_ptr<T> kept;
};
#define MAKE(name) template void name<float>::run(const vector<Blob<float>*>& inputs)
"""
KERNEL = """#include "layer.hpp"
__global__ void twice(float* x) { x[threadIdx.x] *= 2; }
template <class T> void Layer<T>::run(const vector<Blob<T>*>& inputs) { twice<<<1, 32>>>(inputs[0]->data()); }
MAKE(Layer);
"""


def _built(folder: Path, kernel: str, *, facts: bool = True, **headers: str) -> Build:
    for name, text in headers.items():
        (folder / f"{name}.hpp").write_text(text)
    return build_cuda(SourceFile(folder / "k.cu", kernel), "sm_90", spare_headers=facts, whole_file=False)


def test_what_a_library_that_is_not_here_makes_of_host_code_costs_no_kernel_its_facts(tmp_path: Path) -> None:
    build = _built(tmp_path, KERNEL, layer=LAYER)
    assert build.binary is not None, build.log
    assert [kernel.name for kernel in build.binary.kernels] == ["twice"]
    assert not any(one.severity is Severity.ERROR for one in build.diagnostics)
    said = [one for one in build.diagnostics if one.message.startswith("host code was left out")]
    assert (Path(said[0].path).name, said[0].line) == ("layer.hpp", 3)
    assert _built(tmp_path, KERNEL, facts=False).binary is None  # what is judged stays whole


def test_a_kernel_that_needs_such_a_part_has_an_error_with_the_parts_own(tmp_path: Path) -> None:
    header = "namespace flags = google;\ninline __device__ float turned(float x) { return x * lost; }\n"
    kernel = '#include "turn.hpp"\n__global__ void k(float* x) { *x = turned(*x); }\n'
    build = _built(tmp_path, kernel, turn=header)
    errors = {one.line: one for one in build.diagnostics if one.path.endswith("k.cu")}
    assert build.binary is None
    assert 'identifier "turned" is undefined' in errors[2].message
    assert f'{tmp_path / "turn.hpp"}, line 2: identifier "lost" is undefined' in errors[2].message


def test_a_mistake_in_the_file_itself_is_shown_at_its_line(tmp_path: Path) -> None:
    build = _built(tmp_path, "constexpr int N = lost;\n__global__ void k(int* x) { *x = N; }\n")
    errors = [(one.line, one.message) for one in build.diagnostics if one.severity is Severity.ERROR]
    assert build.binary is None
    assert errors[0] == (1, 'identifier "lost" is undefined')


def test_a_device_function_that_no_kernel_calls_keeps_its_error(tmp_path: Path) -> None:
    header = "namespace flags = google;\n__device__ float turned(float x) { return x * lost; }\n"
    build = _built(tmp_path, '#include "turn.hpp"\n__global__ void k(float* x) { *x = 1; }\n', turn=header)
    assert build.binary is not None, build.log
    errors = [one for one in build.diagnostics if one.severity is Severity.ERROR]
    assert [(Path(one.path).name, one.line, one.message) for one in errors] == [
        ("turn.hpp", 2, 'identifier "lost" is undefined')
    ]


@pytest.mark.skipif(tool("nvcc").path is None, reason="nvcc is not installed")
def test_device_code_that_nvcc_compiles_has_no_errors_of_another_compilers(tmp_path: Path) -> None:
    header = "#include <map>\nstruct Named { std::map<int, int> own; __device__ float at() const { return 1; } };\n"
    build = _built(tmp_path, '#include "named.hpp"\n__global__ void k(float* x) { *x = 1; }\n', named=header)
    assert build.binary is not None, build.log
    assert not any(one.severity is Severity.ERROR for one in build.diagnostics)


def test_data_members_are_never_cut_alone(tmp_path: Path) -> None:
    header = "namespace flags = google;\nstruct Spec {\n  lost::type first;\n  int second;\n};\n"
    build = _built(tmp_path, '#include "spec.hpp"\n__global__ void k(Spec* x) { x->second = 1; }\n', spec=header)
    assert build.binary is None
    assert any(f"{tmp_path / 'spec.hpp'}, line 3" in one.message for one in build.diagnostics)


def test_types_that_only_instances_name_are_device_code(tmp_path: Path) -> None:
    kernel = """#include <algorithm>
template <int N_> struct Traits { static constexpr int N = std::min(N_, 64); };
template <typename Of> __global__ void fill(float* x) { x[threadIdx.x] = Of::N; }
void run(float* x) { fill<Traits<128>><<<1, 32>>>(x); }
"""
    source = SourceFile(tmp_path / "k.cu", kernel)
    build = build_cuda(source, "sm_90", ["fill<Traits<128>>"], spare_headers=True, whole_file=False)
    assert build.binary is not None, build.log
    assert [one.name for one in build.binary.kernels] == ["fill<Traits<128>>"]


def test_libraries_for_device_code_are_those_that_know_nvrtc_and_hold_not_the_file(tmp_path: Path) -> None:
    texts = {
        "third/cute/tensor.hpp": '#include "cute/config.hpp"\n',
        "third/cute/config.hpp": "#if defined(__CUDACC_RTC__)\n#endif\n",
        "include/own/launch.h": "#include <cstdio>\n",
        "beside.h": "#ifdef __CUDACC_RTC__\n#endif\n",
    }
    for name, text in texts.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    source = SourceFile(tmp_path / "k.cu", '#include <cute/tensor.hpp>\n#include <own/launch.h>\n#include "beside.h"\n')
    headers = user_headers(source, [tmp_path / "third", tmp_path / "include"])
    found = of_libraries(headers, source.path)
    assert {path.name for path in found} == {"tensor.hpp", "config.hpp"}
    assert not of_libraries(headers, tmp_path / "third/cute/own.cu")
