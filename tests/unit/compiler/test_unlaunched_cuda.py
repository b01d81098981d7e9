"""CUDA files without a workload: instances of templates and blocks from their host code, and what is assumed."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Build, Diagnostic, Severity
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.cuda.assumed import build_unlaunched
from kernel_lsp.compiler.cuda.build import build_cuda, build_included
from kernel_lsp.compiler.cuda.instances import MOST, with_few_instances
from kernel_lsp.compiler.cuda.nvrtc import include_folders
from kernel_lsp.compiler.headers.includers import including_files, text_before
from kernel_lsp.compiler.headers.user import user_headers
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.verdict import KernelResources
from kernel_lsp.runner.messages.build import CacheFolder, CompileAlone
from kernel_lsp.runner.workers.compile import methods
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.cuda import find_cuda_kernels
from kernel_lsp.source.cuda_classes import find_classes
from kernel_lsp.source.template_arguments import ATTEMPTS, instance_of

FILE = """
#ifdef NOBODY_DEFINES_THIS
__global__ void absent(float* x) { x[0] = 1.0f; }
#endif
__global__ void plain(float* x) { x[threadIdx.x] *= 2.0f; }
namespace ops {
template <typename T, int N> __global__ void told(T* x) { x[threadIdx.x * N] += T(1); }
}
template <typename T> __global__ void deduced(T* x) { x[threadIdx.x] += T(1); }
template <int BLOCK_SIZE, int HALF = BLOCK_SIZE / 2> __global__ void partly(float* x) {
  __shared__ float s[HALF];
  s[threadIdx.x] = x[BLOCK_SIZE + threadIdx.x];
  x[threadIdx.x] = s[HALF - 1 - threadIdx.x];
}
template <typename T> __global__ void never(T* x) { x->nothing_has_this(); }
void host(float* x, double* y, int n) {
  plain<<<n, 128>>>(x);
  if (n > 9) {
    const int N = 4;
    ops::told<float, N><<<n, dim3(N, 8)>>>(x);
  } else {
    const int N = 2;
    ops::told<double, N><<<n, 32>>>(y);
  }
  deduced<<<n, n>>>(x);
}
"""


@pytest.fixture(scope="module")
def built() -> tuple[dict[str, KernelResources], dict[str, Assumed]]:
    source = SourceFile(Path("k.cu"), FILE)
    build, plan, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    found = resources_of(Built(build, (plan,)))
    return {one.name: one for one in found}, {one.kernel: one for one in assumed}


def test_instances_that_host_code_names_are_made_and_nothing_is_assumed_of_them(built) -> None:
    resources, assumed = built
    assert {"ops::told<float, 4>", "ops::told<double, 2>"} <= resources.keys()
    assert (assumed["ops::told"].types, assumed["ops::told"].compiled) == ((), True)
    assert assumed["plain"] == Assumed("plain", 5, (), compiled=True)


def test_blocks_of_host_code_give_an_occupancy_where_they_are_constant(built) -> None:
    resources, _ = built
    assert {name: one.threads for name, one in resources.items()} == {
        "plain": 128,
        "ops::told<float, 4>": 32,
        "ops::told<double, 2>": 32,
        "deduced<float>": None,
        "partly<256>": None,
    }
    assert resources["plain"].occupancy == 1.0
    assert resources["deduced<float>"].occupancy is None


def test_what_no_launch_names_is_assumed_and_said(built) -> None:
    _, assumed = built
    assert assumed["deduced"].types == ("T=float",)
    assert assumed["partly"].types == ("BLOCK_SIZE=256",)
    assert assumed["partly"].guessed
    assert not assumed["absent"].compiled


def test_a_template_that_cannot_be_made_costs_no_other_its_facts(built) -> None:
    resources, assumed = built
    assert not any(name.startswith("never") for name in resources)
    assert not assumed["never"].compiled
    assert re.match(r"as never<float>, line 15: expression must have", assumed["never"].problem)


@pytest.mark.parametrize(
    ("head", "told", "instance", "assumed"),
    [
        ("typename T, const int N = 256", (), "k<float, 256>", ("T=float",)),
        ("class T, bool B", (), "k<float, false>", ("T=float", "B=false")),
        ("int BM, int BK, int TM", (), "k<64, 8, 8>", ("BM=64", "BK=8", "TM=8")),
        ("int N, int M", ("7", None), "k<7, 4>", ("M=4",)),
        ("typename T, typename... Ts", (), "k<float>", ("T=float",)),
        ("Mode mode", (), "k<(Mode)0>", ("mode=(Mode)0",)),
        ("typename IdType, typename IType", (), "k<int, float>", ("IdType=int", "IType=float")),
    ],
)
def test_arguments_come_from_launches_defaults_and_names(head, told, instance, assumed) -> None:
    (kernel,) = find_cuda_kernels(f"template <{head}> __global__ void k(float* x) {{}}", Path("k.cu"))
    assert instance_of(kernel, told, 0) == (instance, assumed)


def test_nothing_is_assumed_for_a_template_of_templates() -> None:
    text = "template <template <typename> class C> __global__ void k(C<float> x) {}"
    (kernel,) = find_cuda_kernels(text, Path("k.cu"))
    assert instance_of(kernel, (), 0) is None


def test_a_headers_templates_are_those_that_a_file_which_includes_it_launches(tmp_path: Path) -> None:
    text = (
        "#pragma once\ntemplate <int ROWS, int EACH> __global__ void tiles(float* x) {\n"
        "  constexpr int parts = ROWS / (32 * EACH);\n  float kept[parts] = {x[0]};\n  x[threadIdx.x] = kept[0];\n}\n"
    )
    header = SourceFile(tmp_path / "kernels/tiles.cuh", text)
    header.path.parent.mkdir()
    header.path.write_text(text)
    (tmp_path / "kernels.cuh").write_text('#include "kernels/tiles.cuh"\n')
    (tmp_path / "other.cu").write_text("void other(float* x) { tiles<1, 1><<<1, 64>>>(x); }\n")
    runner = tmp_path / "runner.cu"
    runner.write_text(
        '#include "kernels.cuh"\nvoid run(float* x) {\n  const int ROWS = 256;\n'
        "  tiles<ROWS, 4><<<1, ROWS / 4>>>(x);\n}\n"
    )
    including = including_files(header)
    assert [file.path.name for file in including] == ["runner.cu", "kernels.cuh"], "the one that launches it first"
    assert including_files(SourceFile(runner, runner.read_text())) == ()
    build, plan, assumed = build_unlaunched(header, lambda names: build_cuda(header, "sm_90", names), including)
    (fact,) = resources_of(Built(build, (plan,)))
    assert (fact.name, fact.occupancy is not None, assumed) == ("tiles<256, 4>", True, ())


def test_a_header_is_compiled_after_what_stands_before_its_include(tmp_path: Path) -> None:
    """It may use types and CUDA's headers that only the file which includes it names."""
    text = "__global__ void twice(real* x, const __grid_constant__ CUtensorMap map) { x[threadIdx.x] *= FACTOR; }\n"
    header = SourceFile(tmp_path / "twice.cuh", text)
    header.path.write_text(text)
    (tmp_path / "first.cuh").write_text("__global__ void first(real* x) { no_such_function(x); }\n")
    program = SourceFile(
        tmp_path / "program.cu",
        "#include <cuda.h>\n#include <vector>\ntypedef double real;\nstd::vector<real> kept;\n"
        '#include "first.cuh"\n#define FACTOR real(2)\n#include "twice.cuh"\nint main() { return 0; }\n',
    )
    program.path.write_text(program.text)
    assert build_cuda(header, "sm_90").binary is None
    before = text_before(header, including_files(header)[0])
    assert "FACTOR" in before.text
    assert "first.cuh" not in before.text, "kernels of other headers are not of this one"
    build = build_included(header, before, "sm_90")
    assert build.binary is not None, build.log
    assert [kernel.name for kernel in build.binary.kernels] == ["twice"]
    wrong = SourceFile(header.path, text.replace("x[threadIdx.x]", "\n  y[threadIdx.x]"))
    (said,) = build_included(wrong, before, "sm_90").diagnostics
    assert (said.path, said.line, said.message) == (str(header.path), 2, 'identifier "y" is undefined')


def test_a_header_is_compiled_after_those_that_a_header_of_all_includes_before_it(tmp_path: Path) -> None:
    """A template of another header costs nothing, and its constants are wanted."""
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts/first.cuh").write_text(
        "#pragma once\nconst int LANES = 32;\ntemplate <typename T> __global__ void first(T* x) { *x = LANES; }\n"
    )
    text = "template <int N> __global__ void second(int* x) { *x = LANES * N; }\n"
    header = SourceFile(tmp_path / "parts/second.cuh", text)
    header.path.write_text(text)
    (tmp_path / "all.cuh").write_text(
        '#ifndef ALL\n#define ALL\n#include "parts/first.cuh"\n#include "parts/second.cuh"\n#endif\n'
    )
    main = SourceFile(
        tmp_path / "main.cu", '#define TYPE int\n#include "all.cuh"\nvoid host(int* x) { second<2><<<1, 1>>>(x); }\n'
    )
    main.path.write_text(main.text)
    before = text_before(header, including_files(header)[0])
    build = build_included(header, before, "sm_90", ("second<2>",))
    assert build.binary is not None, build.log
    assert [kernel.name for kernel in build.binary.kernels] == ["second<2>"]


def test_what_a_condition_leaves_out_is_said_with_its_line(built) -> None:
    _, assumed = built
    assert not assumed["absent"].compiled
    assert "`#ifdef NOBODY_DEFINES_THIS` in line 2 leaves it out" in assumed["absent"].problem


NAMED = """
template <typename T, int ROWS, int COLS> __global__ void tile(T* x) {
  static_assert(COLS == 2 * ROWS, "nothing that is assumed");
  x[threadIdx.x * ROWS] += T(COLS);
}
template <> __global__ void tile<double, 3, 3>(double* x) { x[0] = 3; }
void host(float* x, cudaLaunchConfig_t* config) {
  const int ROWS = 24, COLS = 2 * ROWS;
  auto kernel = tile<float, ROWS, COLS>;
  cudaLaunchKernelEx(config, kernel, x);
}
"""


def test_instances_that_host_code_takes_the_address_of_are_made(tmp_path: Path) -> None:
    source = SourceFile(tmp_path / "k.cu", NAMED)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert build.binary is not None, build.log
    assert {kernel.name for kernel in build.binary.kernels} == {"tile<float, 24, 48>", "tile<double, 3, 3>"}
    assert not assumed, "an instance that is written out is compiled as any kernel"


def test_a_part_of_a_program_is_compiled_after_what_includes_it_has_declared(tmp_path: Path) -> None:
    part = SourceFile(tmp_path / "kernels.cu", "__global__ void fill(Node* x) { x[threadIdx.x].key = WIDTH; }\n")
    part.path.write_text(part.text)
    (tmp_path / "other.cu").write_text("__global__ void other(int* x) { *x = 1; }\n")
    assert including_files(part) == ()
    whole = 'struct Node { int key; };\n#define WIDTH 8\n#include "kernels.cu"\n'
    (tmp_path / "main.cu").write_text(whole + "void host(Node* x) { fill<<<1, 64>>>(x); }\n")
    (main,) = including_files(part)
    assert build_cuda(part, "sm_90").binary is None
    build = build_included(part, text_before(part, main), "sm_90")
    assert build.binary is not None, build.log


def test_a_macro_that_only_the_command_line_defines_ends_the_trials(tmp_path: Path) -> None:
    """No other instance brings it into being, and for some names each trial would ask nvcc too."""
    text = "template <typename T> __global__ void k(T* x) { x[threadIdx.x] *= width; }\n"
    source, asked = SourceFile(tmp_path / "k.cu", text), list[Sequence[str]]()

    def compile_names(names: Sequence[str]) -> Build:
        asked.append(names)
        return build_cuda(source, "sm_90", names)

    _, _, (assumed,) = build_unlaunched(source, compile_names)
    assert assumed.problem == ('line 1: identifier "width" is undefined; `build.options` can define it, `-Dwidth=...`')
    assert len(set(asked)) == 3, "without instances, and with two"


CLASSES = """
template <typename T, typename U> struct ForwardEnd { __device__ U operator()(T x) { return x; } };
template <typename T, typename U> struct BackwardEnd {
  __device__ U operator()(T x, T y) { return x * y; }
};
template <> struct ForwardEnd<int, int> {};
template <typename T> struct AddOp { __device__ T operator()(T a, T b) { return a + b; } };
struct Settings { int rows; };
template <template <typename, typename> class End, typename T> __global__ void run_backward(T* x) {
  x[0] = End<T, float>()(x[0], x[1]);
}
template <typename T, typename ReduceOp> __global__ void reduce(T* x, ReduceOp op) { x[0] = op(x[0], x[1]); }
"""


def test_templates_and_functors_are_given_the_likest_class_of_the_file() -> None:
    classes = find_classes(CLASSES)
    assert [(one.name, len(one.parameters), one.called) for one in classes] == [
        ("ForwardEnd", 2, True),
        ("BackwardEnd", 2, True),
        ("AddOp", 1, True),
        ("Settings", 0, False),
    ]
    backward, reduce = find_cuda_kernels(CLASSES, Path("k.cu"))
    assert instance_of(backward, (), 0, classes) == ("run_backward<BackwardEnd, float>", ("End=BackwardEnd", "T=float"))
    assert instance_of(reduce, (), 0, classes) == ("reduce<float, AddOp<float>>", ("T=float", "ReduceOp=AddOp<float>"))


def test_a_type_parameter_is_given_a_class_with_the_members_that_the_kernel_asks_of_it(tmp_path: Path) -> None:
    _ = (tmp_path / "group.cuh").write_text("template <typename V, int kSize> struct Other { using Word = V; };\n")
    text = """#include "group.cuh"
template <typename V, int kSize = 4> struct Group { using Word = V; static constexpr int Size = kSize; V own[kSize]; };
template <typename Items> __global__ void sum(Items* x) {
  for (int i = 0; i < Items::Size; i++) x[0].own[0] += typename Items::Word(x[0].own[i]);
}
"""
    source = SourceFile(tmp_path / "k.cu", text)
    headers = user_headers(source)
    build, _, (assumed,) = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names), (), headers)
    assert build.binary is not None, build.log
    assert (assumed.types, assumed.compiled) == (("Items=Group<float>",), True)


def test_arguments_that_a_macro_elsewhere_would_define_are_assumed() -> None:
    text = """template <typename T, int N> __global__ void k(T* x) { x[0] = x[N]; }
void run(int kind, void* x) {
  SWITCH(kind, { k<own_scalar, 16><<<1, 32>>>(x); });
}
"""
    source = SourceFile(Path("k.cu"), text)
    build, _, (assumed,) = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert build.binary is not None, build.log
    assert [fact.name for fact in build.binary.kernels] == ["k<float, 16>"]
    assert assumed.types == ("T=float",)


NESTED = """namespace lib {
namespace ops { struct Add { static __device__ float of(float x) { return x + 1; } }; }
template <typename Op> __global__ void each(float* x) { *x = Op::of(*x); }
void run(float* x) { each<ops::Add><<<1, 32>>>(x); }
}
"""


def test_classes_of_a_nested_namespace_are_found_where_the_launch_stands() -> None:
    source = SourceFile(Path("k.cu"), NESTED)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names, spare_headers=True))
    assert build.binary is not None, build.log
    assert [fact.name for fact in build.binary.kernels] == ["lib::each<ops::Add>"]
    assert assumed == ()


def test_overloads_and_instances_that_the_file_asks_for_itself_are_made_and_nothing_is_assumed() -> None:
    text = (
        "__global__ void both(float* x) { x[0] = 1; }\n__global__ void both(int* x) { x[0] = 1; }\n"
        "template <typename T, int N> __global__ void asked(T* x) { static_assert(N == 3); x[0] += N; }\n"
        "#define ASK(T) template __global__ void asked<T, 3>(T*);\nASK(float)\nASK(double)\n"
    )
    source = SourceFile(Path("k.cu"), text)
    asked: list[tuple[str, ...]] = []

    def compile_names(names: Sequence[str]) -> Build:
        asked.append(tuple(names))
        return build_cuda(source, "sm_90", names)

    build, _, assumed = build_unlaunched(source, compile_names)
    assert build.binary is not None, build.log
    assert {"asked<float, 3>", "asked<double, 3>"} <= {fact.name for fact in build.binary.kernels}
    assert (assumed, asked) == ((), [()])


def test_an_error_in_a_header_is_said_with_the_headers_name(tmp_path: Path) -> None:
    (tmp_path / "part.cuh").write_text("template <typename T> __device__ T first(T* x) { return x.nothing; }\n")
    text = (
        '#include "part.cuh"\n__global__ void plain(int* x) { x[0] = 1; }\n'
        "template <typename T> __global__ void k(T* x) { x[0] = first(x); }\n"
    )
    source = SourceFile(tmp_path / "k.cu", text)
    _, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert assumed[1].problem.startswith("as k<float>, part.cuh, line 1: ")


def test_templates_of_one_name_are_told_by_their_parameters_and_enumerations_by_their_namespace() -> None:
    text = """#include <cuda_fp16.h>
namespace ops {
enum class Mode { ADD, MULTIPLY };
template <typename T> __global__ void both(T* __restrict__ out, const T* x) { out[0] = x[0]; }
template <typename T> __global__ void both(T* out, const T* x, int n) { out[n] = x[n]; }
template <typename T, Mode mode> __global__ void choose(T* x) { x[0] = mode == Mode::ADD ? x[0] + T(1) : T(2); }
template <typename T> __global__ void pairs(T* x) { x[0] = __hadd2(x[0], x[1]); }
}
"""
    source = SourceFile(Path("k.cu"), text)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert [(one.kernel, one.problem) for one in assumed if not one.compiled] == []
    assert build.binary is not None
    assert len(build.binary.kernels) == 4
    assert [one.types for one in assumed][2:] == [("T=float", "mode=(Mode)0"), ("T=__half2",)]


def test_templates_are_tried_together_and_only_those_that_errors_are_about_change(tmp_path: Path) -> None:
    _ = (tmp_path / "pair.cuh").write_text("template <typename T> __device__ float first(T* x) { return x->y; }\n")
    many = "".join(f"template <typename T> __global__ void k{n}(T* x) {{ x[0] += T(1); }}\n" for n in range(9))
    text = (
        f'#include "pair.cuh"\n{many}template <typename T> __global__ void wide(T* x) {{ x[0].x += first(x); }}\n'
        "template <typename T> __global__ void never(T* x) { x->nothing_has_this(); }\n"
    )
    source = SourceFile(tmp_path / "k.cu", text)
    asked: list[int] = []

    def compile_names(names: Sequence[str]) -> Build:
        asked.append(len(names))
        return build_cuda(source, "sm_90", names)

    build, _, assumed = build_unlaunched(source, compile_names)
    assert build.binary is not None
    assert [one.types for one in assumed if one.compiled] == [("T=float",)] * 9 + [("T=float4",)]
    assert not assumed[-1].compiled
    assert len(asked) <= ATTEMPTS + 1, "as many compilations as one template takes alone"


def test_a_text_that_crashes_the_compiler_costs_a_process_and_its_mistake_is_said(tmp_path: Path) -> None:
    source = SourceFile(Path("k.cu"), "template <typename T>\n__global__ void k(Nobody* x, T* y) { y[0] = 1; }\n")
    asked = CompileAlone(kernel=source, arch="sm_90", options=BuildOptions(), cache=CacheFolder(tmp_path, 1 << 20))
    made = methods().compile_alone(asked)
    assert (made.build.binary, made.assumed) == (None, ())
    said = " ".join(one.message for one in made.build.diagnostics)
    assert (made.build.diagnostics[0].line, "Nobody" in said) == (2, True), said


def test_of_very_many_instances_the_first_of_each_kernel_are_compiled_and_that_is_said() -> None:
    text = (
        "template <int N> __global__ void first(float* x) { x[0] += N; }\n"
        "template <int N> __global__ void second(float* x) { x[0] *= N; }\n"
        "#define ASK(N) template __global__ void first<N>(float*);\n"
    )
    few = SourceFile(Path("k.cu"), text + "ASK(1)\nASK(2)\nASK(3)\ntemplate __global__ void second<1>(float*);\n")
    assert with_few_instances(few) == (few, ())
    macros = "".join(f"ASK({number})\n" for number in range(MOST))
    written = "".join(f"template __global__ void second<{number}>(float*);\n" for number in range(9))
    many = SourceFile(Path("k.cu"), text + macros + written)
    cut, (said,) = with_few_instances(many)
    build, _, assumed = build_unlaunched(cut, lambda names: build_cuda(cut, "sm_90", names))
    assert build.binary is not None
    assert sorted(fact.name for fact in build.binary.kernels) == ["first<0>", "first<1>", "second<0>", "second<1>"]
    assert (assumed, said.line, len(cut.text)) == ((), 4, len(many.text))
    assert said.message.startswith(f"{MOST + 9 - 4} of the instances")


def test_an_instance_of_types_without_a_name_is_the_host_codes(tmp_path: Path) -> None:
    """As CUTLASS' examples ask for one, by `decltype` of what their host code has computed."""
    text = (
        "struct Own { int rows; };\n"
        "template <class Shape> __global__ void rows(float* x, Shape shape) { *x = shape.rows; }\n"
        "void host(float* x) {\n  auto own = Own{1};\n  auto kernel = &rows<decltype(own)>;\n"
        "  kernel<<<1, 1>>>(x, own);\n}\n"
    )
    source = SourceFile(tmp_path / "k.cu", text)
    whole = build_cuda(SourceFile(source.path, f"{text}template __global__ void rows<Own>(float*, Own);\n"), "sm_90")
    wrong = Diagnostic(str(source.path), 2, 1, 2, 2, Severity.ERROR, "expression must have class type")
    asked: list[Sequence[str]] = []

    def compile_names(names: Sequence[str]) -> Build:
        asked.append(names)
        return replace(whole, binary=None, diagnostics=(wrong,)) if names else whole

    build, _, assumed = build_unlaunched(source, compile_names)
    assert build.binary is not None
    assert ([kernel.name for kernel in build.binary.kernels], assumed) == (["rows<Own>"], ())
    assert len(asked) == 2, "one instance that was assumed, and the file as it stands"


def test_a_function_among_a_templates_parameters_is_that_of_an_instance_of_its_launcher() -> None:
    text = """namespace ops {
struct Scale { float by; };
__device__ float scaled(float x, const Scale& scale) { return x * scale.by; }
template <typename T, typename P, float (*Op)(float, const P&)> __global__ void told(T* x, P p) { *x = T(Op(*x, p)); }
template <bool ON, typename P, float (*Op)(float, const P&)> __global__ void open(float* x, P p) {
  if constexpr (ON) { *x = Op(*x, p); } else { *x += 1; }
}
template <typename P, float (*Op)(float, const P&)> void run(int kind, float* x, P p) {
  SWITCH(kind, InputT, told<InputT, P, Op><<<1, 32>>>(x, p););
}
template void run<Scale, scaled>(int, float*, Scale);
}
"""
    source = SourceFile(Path("k.cu"), text)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert build.binary is not None
    assert [(one.types, one.problem) for one in assumed] == [
        (("T=float",), ""),
        (("ON=false", "P=float", "Op=nullptr"), ""),
    ]


def test_an_enumerator_is_assumed_that_satisfies_the_kernels_assertions() -> None:
    text = """enum Way { ROWS, COLUMNS };
template <Way way> __global__ void k(int* x) { static_assert(way == COLUMNS, "columns only"); *x = way; }
"""
    source = SourceFile(Path("k.cu"), text)
    _, _, (one,) = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert one.types == ("way=(Way)1",)


def test_an_argument_that_only_a_macro_would_tell_is_not_known() -> None:
    text = """template <typename T, int N> __global__ void k(T* x) { *x = N; }
template <typename T, int bits> void launch(T* x) { k<T, bits><<<1, 32>>>(x); }
#define MAKE(T, bits) template void launch<T, bits>(T*);
"""
    source = SourceFile(Path("k.cu"), text)
    _, _, (one,) = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert (one.types, one.problem) == (("T=float", "N=4"), "")


@pytest.mark.parametrize(
    ("name", "dispatch", "kind"),
    [("at::", "AT_DISPATCH_FLOATING_TYPES", "scalar_t"), ("", "DISPATCH_FLOAT", "scalar_t_0")],
)
def test_the_types_of_a_dispatch_are_filled_in_within_other_types(name: str, dispatch: str, kind: str) -> None:
    text = f"""#include <ATen/ATen.h>
template <typename T, typename A> __global__ void k(T* x) {{ A sum = *x; *x = sum; }}
void run(at::Tensor x) {{
  {dispatch}(x.scalar_type(), "k", [&] {{
    using accscalar_t = {name}acc_type<{kind}, true>;
    k<{kind}, accscalar_t><<<1, 32>>>(x.data_ptr<{kind}>());
  }});
}}
"""
    source = SourceFile(Path("k.cu"), text)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names))
    assert build.binary is not None, build.log
    assert (build.way, [one.problem for one in assumed if one.problem]) == ("nvrtc", [])


def test_128_bit_integers_are_known_to_the_compiler() -> None:
    build = build_cuda(SourceFile(Path("k.cu"), "__global__ void k(unsigned __int128* x) { *x += 1; }\n"), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log


def _without_curand(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leave out the folders in which cuRAND's device header lies on some machines."""
    folders = tuple(one for one in include_folders() if not (one / "curand_kernel.h").is_file())
    monkeypatch.setattr("kernel_lsp.compiler.cuda.build.include_folders", lambda: folders)
    monkeypatch.setattr("kernel_lsp.compiler.cuda.nvrtc.include_folders", lambda: folders)


def test_kernels_that_use_curand_are_left_out_where_its_header_is_not_here(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _ = (tmp_path / "noise.h").write_text(
        "#include <curand_kernel.h>\n__device__ float noise(curandState* s) { return curand_uniform(s); }\n"
    )
    text = """#include "noise.h"
__global__ void plain(float* x) { *x += 1; }
__global__ void noisy(float* x) { curandState s; *x = noise(&s); }
template <typename T> __global__ void open(T* x) { curandState s; *x = T(noise(&s)); }
void run(float* x) { open<float><<<1, 32>>>(x); }
"""
    _without_curand(monkeypatch)
    source = SourceFile(tmp_path / "k.cu", text)
    build, _, assumed = build_unlaunched(source, lambda names: build_cuda(source, "sm_90", names, spare_headers=True))
    assert build.binary is not None, build.log
    assert [fact.name for fact in build.binary.kernels] == ["plain"]
    assert [(one.kernel, one.compiled, "pip install nvidia-curand" in one.problem) for one in assumed] == [
        ("plain", True, False),
        ("noisy", False, True),
        ("open", False, True),
    ]
    alone = SourceFile(tmp_path / "k.cu", text.replace("__global__ void plain(float* x) { *x += 1; }\n", ""))
    said = build_cuda(alone, "sm_90", spare_headers=True).diagnostics
    assert [(one.severity, one.line, "pip install nvidia-curand" in one.message) for one in said] == [
        (Severity.ERROR, 2, True),
        (Severity.ERROR, 3, True),
    ]


def test_curands_host_functions_cost_no_kernel_its_facts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    _without_curand(monkeypatch)
    header = """#include <curand.h>
#include <curand_kernel.h>
inline void fill(curandGenerator_t own, float* x) { curandGenerateUniform(own, x, 1); }
__device__ inline void fill(float* x) { *x = 1; }
"""
    _ = (tmp_path / "fill.h").write_text(header)
    text = """#include "fill.h"
__global__ void plain(float* x) { fill(x); }
__global__ void raw(unsigned* x, curandStateSobol32_t* s) { *x = curand(s); }
"""
    build = build_cuda(SourceFile(tmp_path / "k.cu", text), "sm_90", spare_headers=True)
    assert build.binary is not None, build.log
    assert [fact.name for fact in build.binary.kernels] == ["plain"]
    assert [said.line for said in build.diagnostics if "device functions of cuRAND" in said.message] == [3]


def test_variables_in_registers_are_compiled_as_other_compilers_do() -> None:
    text = "__global__ void k(int* x) {\n  register int y = *x;\n  *x = y + 1;\n}\n"
    build = build_cuda(SourceFile(Path("k.cu"), text), "sm_90")
    assert (build.way, build.binary is not None) == ("nvrtc", True), build.log
