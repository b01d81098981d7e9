"""Which extensions go the fast path, what they cost the second time, and what is said of mistakes."""

import re
from pathlib import Path
from typing import Any

import pytest
from torch.utils import cpp_extension

from kernel_lsp.compiler.builds.cache import BuildCache
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host import compiler
from kernel_lsp.compiler.host.build import fast_build
from kernel_lsp.compiler.host.request import ExtensionRequest, cuda_file_request
from kernel_lsp.compiler.toolchain.file_cache import FileCache
from kernel_lsp.errors import WorkloadError
from kernel_lsp.runner.workers.inline import recording
from kernel_lsp.source.candidate import SourceFile

KERNEL = """__global__ void twice(const float* x, float* y, int n) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < n) y[i] = 2 * x[i];
}
"""
HOST = """torch::Tensor run(torch::Tensor x) {
  auto y = torch::empty_like(x);
  twice<<<1, 32>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
  return y;
}
"""
DECLARED = "torch::Tensor run(torch::Tensor x);"
needs_gcc = pytest.mark.skipif(compiler.host_compiler() is None, reason="no g++")


def asked_for(cuda: str | list[str] | None = KERNEL + HOST, cpp: str = DECLARED, **rest: Any) -> ExtensionRequest:
    call = {"cpp_sources": cpp, "cuda_sources": cuda, "functions": ["run"]} | rest
    with recording() as asked:
        cpp_extension.load_inline("kernels", **call)
    return asked[0]


def build(request: ExtensionRequest, kept: Path, text: str = "") -> ExtensionBuild | str:
    caches = BuildCache(kept, 1 << 28), FileCache(kept, 1 << 28, ".host")
    return fast_build(request, "sm_80", SourceFile(Path("answer.py"), text), kept, cache=caches[0], libraries=caches[1])


def with_host(statement: str) -> str:
    return KERNEL + HOST.replace("auto y", f"{statement} auto y")


@pytest.mark.sampled(5)
@needs_gcc
@pytest.mark.parametrize(
    ("request_", "reason"),
    [
        (asked_for(KERNEL + HOST.replace("x.numel()", "cublas_size(x)")), "cublas_size"),
        (asked_for("#include <cublas_v2.h>\n" + with_host("cublasHandle_t h;")), "cublasHandle_t"),
        (asked_for(with_host("thrust::device_vector<float> v(3);")), "thrust"),
        (asked_for("#include <boost/any.hpp>\n" + KERNEL + HOST), "boost/any.hpp: No such file"),
        (asked_for("__constant__ float w[4];\n" + with_host("cudaMemcpyToSymbol(w, 0, 16);")), "'w' was not declared"),
        (asked_for(with_host("cudaMalloc(0, 1);")), "cudaMalloc"),
        (asked_for(with_host("auto z = at::cuda::blas::gemm<float>;")), "blas"),
        (asked_for(with_host("std::thread([] {}).join();")), "starts threads"),
        (asked_for(KERNEL + HOST + "TORCH_LIBRARY(ops, m) {}"), "registers operators"),
        (asked_for(KERNEL + HOST, functions=None), "binds no functions"),
        (asked_for(extra_cuda_cflags=["-rdc=true"]), "option -rdc=true"),
        (asked_for(extra_ldflags=["-lcublas"]), "option -lcublas"),
        (asked_for(KERNEL.replace("int n)", "int)").replace("i < n", "i < 32") + HOST), "no name of its own"),
        (
            asked_for(
                "template <class F> __global__ void each(F f) { f(threadIdx.x); }\n"
                "torch::Tensor run(torch::Tensor x) { float* p = x.data_ptr<float>();"
                " each<<<1, 4>>>([=] __device__ (int i) { p[i] = 1; }); return x; }"
            ),
            "instance for a lambda",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)  # fmt: skip
def test_what_the_thin_header_cannot_do_is_said(request_: ExtensionRequest, reason: str, kept: Path) -> None:
    said = build(request_, kept)
    assert isinstance(said, str), said
    assert re.search(reason, said), said


@needs_gcc
def test_a_change_of_device_code_leaves_the_host_part_as_it_is(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[list[str]] = []
    start = compiler._start  # pyright: ignore[reportPrivateUsage]

    def counted(command: list[str], folder: Path) -> Any:
        started.append(command)
        return start(command, folder)

    monkeypatch.setattr(compiler, "_start", counted)

    def built(cuda: str) -> ExtensionBuild:
        made = build(asked_for(cuda), kept)
        assert isinstance(made, ExtensionBuild), made
        return made

    marked = "// of this test alone\nint unused_here = 7;\n"
    first = built(KERNEL + HOST + marked)
    cold = len(started)
    assert cold >= 3, "two units and the link, perhaps the header"
    assert not first.host.cached_host
    assert first.host.path == "fast"
    for edited in (
        KERNEL.replace("2 * x[i]", "3 * x[i]"),
        KERNEL.replace("  if (i < n)", "\n\n  // three times\n  if (i < n)"),
        "__device__ float helper(float v) { return 2 * v; }\n" + KERNEL.replace("2 * x[i]", "helper(x[i])"),
    ):
        again = built(edited + HOST + marked)
        assert again.host.cached_host
        assert not again.host.cached_device
        assert again.library == first.library
        assert again.binary is not None
        assert first.binary is not None
        assert again.binary.cubin != first.binary.cubin
    assert len(started) == cold
    assert built(KERNEL + HOST + marked).host.cached_device
    changed = built(KERNEL + HOST.replace("<<<1, 32>>>", "<<<2, 32>>>") + marked)
    assert not changed.host.cached_host
    assert changed.host.cached_device
    assert len(started) == cold + 3


@needs_gcc
def test_without_a_folder_for_the_header_it_takes_longer_and_works(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    made = build(asked_for(), tmp_path / "file" / "below")
    assert isinstance(made, ExtensionBuild), made
    assert made.ok


@needs_gcc
def test_mistakes_stand_at_the_line_of_the_python_file(kept: Path) -> None:
    cuda = KERNEL + HOST
    wrong = {
        "kernel": cuda.replace("2 * x[i]", "2 * x[j]"),
        "host": cuda.replace("return y;\n}", "return y\n}"),
        "kernel, of two strings": cuda.replace("2 * x[i]", "2 * x[j]"),
    }
    for where, text in wrong.items():
        parts = [text]
        if "two" in where:
            parts = [text.removesuffix(HOST), HOST]
        names = [f"PART_{number}" for number in range(len(parts))]
        given = "\n\n\n".join(f'{name} = """{part}"""' for name, part in zip(names, parts, strict=True))
        file = f"import torch\n\n{given}\nm = load_inline('m', '', cuda_sources=[{', '.join(names)}])\n"
        failed = build(asked_for(parts), kept, file)
        assert isinstance(failed, ExtensionBuild), failed
        assert not failed.ok
        error = failed.build.diagnostics[0]
        assert Path(error.path).name == "answer.py"
        line = file.splitlines()[error.line - 1]
        assert ("return y" if where == "host" else "x[j]") in line, (where, error)


SIGNATURE = "__global__ void twice(const float*"


@needs_gcc
def test_a_mistake_in_a_kernels_signature_is_told_as_the_device_compiler_tells_it(kept: Path) -> None:
    assert SIGNATURE in KERNEL
    failed = build(asked_for((KERNEL + HOST).replace(SIGNATURE, SIGNATURE.replace("float", "flot"))), kept)
    assert isinstance(failed, ExtensionBuild), failed
    assert 'identifier "flot" is undefined' in failed.build.diagnostics[0].message


@needs_gcc
@pytest.mark.parametrize("type_", ["const torch::Other<float>", "TORCH_API const float"])
def test_what_a_header_of_torchs_might_bring_is_no_mistake(type_: str, kept: Path) -> None:
    said = build(asked_for((KERNEL + HOST).replace(SIGNATURE, SIGNATURE.replace("const float", type_))), kept)
    assert isinstance(said, str), said


@needs_gcc
@pytest.mark.parametrize(
    ("type_", "widened"),
    [("half", "__half2float"), ("__half", "__half2float"), ("__nv_bfloat16", "__bfloat162float")],
)
def test_16_bit_floats_need_no_header_beside_torchs(type_: str, widened: str, kept: Path) -> None:
    kernel = KERNEL.replace("const float*", f"const {type_}*").replace("x[i]", f"{widened}(x[i])")
    host = HOST.replace("x.data_ptr<float>()", f"reinterpret_cast<const {type_}*>(x.data_ptr())")
    built = build(asked_for(kernel + host), kept)
    assert isinstance(built, ExtensionBuild), built
    assert built.ok, built.build.diagnostics


@needs_gcc
def test_a_cuda_file_is_an_extension_of_its_own(tmp_path: Path, kept: Path) -> None:
    (tmp_path / "shapes.h").write_text("constexpr int WIDTH = 32;\n")
    text = '#include "shapes.h"\n#include <torch/extension.h>\n' + KERNEL + HOST.replace("32", "WIDTH")
    request = cuda_file_request(tmp_path / "run.cu", text, ["run"])
    built = fast_build(request, "sm_80", SourceFile(tmp_path / "run.cu", text), kept)
    assert isinstance(built, ExtensionBuild), built
    assert [kernel.name for kernel in built.kernels] == ["twice"]
    assert built.kernels[0].parameters == ("x", "y", "n")
    bound = text + "PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { }"
    assert cuda_file_request(tmp_path / "run.cu", bound, ["run"]).functions is None


def test_requests_are_known_by_content_and_not_by_name() -> None:
    with recording() as asked:
        for name in ("one", "two"):
            module = cpp_extension.load_inline(name, [DECLARED], [KERNEL, HOST], functions="run", verbose=True)
        cpp_extension.load_inline("three", DECLARED, KERNEL + HOST, functions={"run": "runs"}, extra_cflags=["-O2", ""])
    one, two, three = asked
    assert one.digest == two.digest
    assert three.digest != one.digest
    assert three.cflags == ("-O2",)
    assert one.cuda[0].text == f"{KERNEL}\n{HOST}"
    assert one.functions == (("run", "run"),)
    assert three.functions == (("run", "runs"),)
    with pytest.raises(WorkloadError, match=r"`two\.run` is called before"):
        module.run(None)


def test_files_are_asked_for_by_their_texts(tmp_path: Path) -> None:
    (tmp_path / "a.cu").write_text(KERNEL)
    (tmp_path / "b.cpp").write_text(DECLARED)
    with recording() as asked:
        cpp_extension.load("files", [str(tmp_path / "a.cu"), tmp_path / "b.cpp"])
        with pytest.raises(WorkloadError, match="cannot be read"):
            cpp_extension.load("files", [str(tmp_path / "missing.cu")])
    (request,) = asked
    assert [(unit.cuda, unit.text) for unit in request.units] == [(False, DECLARED), (True, KERNEL)]
    assert str(tmp_path) in request.include_paths
