"""Torch extensions built whole: what is asked of torch, what is kept, and what is said when it cannot be done."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from kernel_lsp.compiler.builds.build import Build
from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.builds.options import BuildOptions
from kernel_lsp.compiler.host import full
from kernel_lsp.compiler.host.full import full_build
from kernel_lsp.compiler.host.request import cuda_file_request, inline_request
from kernel_lsp.compiler.toolchain.tools import Tool
from kernel_lsp.device.device import device_named
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.runner.messages.build import BuildCandidate, BuildExtensionFully, CacheFolder
from kernel_lsp.runner.workers import build as build_worker
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.files import read_source
from kernel_lsp.source.kernel import Language

KERNELBENCH = Path(__file__).parents[3] / "examples" / "kernelbench"
SOURCE = "#include <torch/extension.h>\ntorch::Tensor run(torch::Tensor x) { return x; }\n"


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A torch with CUDA and an nvcc, and in place of a compile of a minute the library it would leave."""
    calls: list[dict[str, Any]] = []

    def load(name: str, sources: list[str], build_directory: str, **rest: Any) -> None:
        text = "".join(Path(source).read_text() for source in sources)
        calls.append({"text": text, "arch": os.environ["TORCH_CUDA_ARCH_LIST"], "folder": build_directory, **rest})
        if "broken" in text:
            path = text.split('"')[1]
            assert "#line 1" in text
            raise RuntimeError(
                f'Error building extension: FAILED\n{path}(2): error: identifier "broken" is undefined\n'
            )
        Path(build_directory, f"{name}.so").write_bytes(b"library")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/usr/local/cuda")
    monkeypatch.setattr(full, "_load", load)
    monkeypatch.setattr(full, "tool", lambda name: Tool(name, "13.0.88", Path("/usr/local/cuda/bin/nvcc")))
    return calls


def build(
    folder: Path, arch: str, functions: tuple[str, ...] = (), text: str = SOURCE
) -> tuple[Build, Path | None, ExtensionBuild]:
    path = folder / "run.cu"
    request = cuda_file_request(path, text, functions)
    built = full_build(request, arch, SourceFile(path, text), folder / "kept", BuildOptions(), "it is asked for")
    assert built.host.path == "full"
    assert built.host.reason == "it is asked for"
    return built.build, Path(built.extension) if built.extension else None, built


def test_a_library_is_built_once_and_kept(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    first, library, _ = build(tmp_path, "sm_90a", ("run",))
    again, same, made = build(tmp_path, "sm_90a", ("run",))
    assert made.host.cached_host
    assert library is not None
    assert library.read_bytes() == b"library"
    assert same == library
    assert (first.cached, again.cached, first.way) == (False, True, "extension")
    (call,) = loads
    assert call["arch"] == "9.0a"
    assert "TORCH_CUDA_ARCH_LIST" not in os.environ
    assert str(tmp_path) in call["extra_include_paths"]
    assert not any(flag.startswith("-std") for flag in call["extra_cuda_cflags"])
    assert 'm.def("run", &run);' in call["text"]
    assert library.stem.isidentifier()


def test_a_file_that_binds_itself_is_left_as_it_is(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    text = SOURCE + 'PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) { m.def("run", &run); }\n'
    build(tmp_path, "sm_120", ("run",), text)
    assert loads[0]["text"].count("PYBIND11_MODULE") == 1
    assert loads[0]["arch"] == "12.0"


def test_errors_are_at_the_users_line_and_tried_again(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    for _ in range(2):
        failed, library, _ = build(tmp_path, "sm_90", text=SOURCE.replace("return x", "return broken"))
        assert library is None
        (error,) = failed.diagnostics
        assert (error.path, error.line) == (str(tmp_path / "run.cu"), 2)
    assert len(loads) == 2


def test_what_a_killed_build_left_behind_holds_nobody_up(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    made = build(tmp_path, "sm_90")[1]
    assert made is not None
    (made.parent / "complete.log").unlink()
    (made.parent / "lock").touch()
    start = time.perf_counter()
    assert build(tmp_path, "sm_90")[1] == made
    assert time.perf_counter() - start < 5
    assert not (made.parent / "lock").exists()
    assert len(loads) == 2


def test_without_cuda_in_torch_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(CannotJudgeError, match="built with CUDA") as caught:
        build(tmp_path, "sm_90")
    assert caught.value.fix


def test_without_nvcc_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(full, "tool", lambda name: Tool(name, None, None))
    with pytest.raises(CannotJudgeError, match="needs nvcc") as caught:
        build(tmp_path, "sm_90")
    assert caught.value.fix


def test_what_the_launch_calls_is_bound_and_the_users_options_are_passed(
    tmp_path: Path, loads: list[dict[str, Any]]
) -> None:
    workload = """
import torch
CASES = [dict(n=8)]
def inputs(n): return (torch.randn(n, device="cuda"),)
def reference(x): return x
def launch(module, x): return module.run(x)
"""
    text = "__global__ void kernel(float* x) {}\n" + SOURCE + "int unused() { return 0; }\n"
    worker = build_worker.methods()
    source = SourceFile(tmp_path / "run.cu", text)
    options = BuildOptions(("-DTILE=64",), (tmp_path / "include",))
    asked = BuildCandidate(
        language=Language.CUDA,
        kernel=source,
        workload=SourceFile(tmp_path / "run_workload.py", workload),
        launch=None,
        device=device_named("sm_90"),
        options=options,
        cache=CacheFolder(tmp_path / "cache", 0),
        triton_cache=tmp_path / "triton",
        processes=1,
        misaligned=False,
    )
    (request,) = worker.build(asked).requests
    fully = BuildExtensionFully(
        extension=request,
        origin=source,
        arch="sm_90",
        options=options,
        folder=tmp_path / "kept",
        reason="it is asked for",
    )
    made = worker.build_extension_fully(fully)
    assert made.extension is not None
    assert made.extension.endswith(".so")
    (call,) = loads
    assert 'm.def("run", &run);' in call["text"]
    assert "&unused" not in call["text"]
    assert "-DTILE=64" in call["extra_cuda_cflags"]
    assert str(tmp_path / "include") in call["extra_include_paths"]


def test_an_answer_asks_for_its_extensions_each_time_that_it_is_built(tmp_path: Path) -> None:
    problem, answer = (read_source(KERNELBENCH / name) for name in ("bias_gelu.py", "bias_gelu_cuda.py"))
    worker = build_worker.methods()
    asked = BuildCandidate(
        language=Language.TORCH,
        kernel=answer,
        workload=problem,
        launch=None,
        device=device_named("sm_90"),
        options=BuildOptions(),
        cache=CacheFolder(tmp_path / "cache", 0),
        triton_cache=tmp_path / "triton",
        processes=1,
        misaligned=False,
    )
    (first,), (again,) = worker.build(asked).requests, worker.build(asked).requests
    assert first == again


def test_inline_texts_are_written_as_torch_writes_them(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    cpp, cuda = "torch::Tensor run(torch::Tensor x);", "torch::Tensor run(torch::Tensor x) { return x; }"
    file = SourceFile(tmp_path / "answer.py", f'import torch\n\nCUDA = """{cuda}"""\nCPP = """{cpp}"""\n')
    request = inline_request("inline", cpp, cuda, functions=["run"], extra_cflags=["-O2"], extra_ldflags=["-lcublas"])
    built = full_build(request, "sm_90", file, tmp_path / "kept")
    assert built.ok
    (call,) = loads
    assert f'#include <torch/extension.h>\n#line 4 "{file.path}"\n{cpp}' in call["text"]
    assert f'#include <cuda_runtime.h>\n#line 3 "{file.path}"\n{cuda}' in call["text"]
    assert 'm.def("run", torch::wrap_pybind_function(run), "run");' in call["text"]
    assert (call["extra_cflags"], call["extra_ldflags"][0], call["with_cuda"]) == (["-O2"], "-lcublas", True)
    assert [Path(file).name for file in call["extra_ldflags"][1:]] == ["libstdc++.so.6", "-Wl,-z,separate-code"]


def test_host_code_alone_needs_neither_nvcc_nor_a_gpu(
    tmp_path: Path, loads: list[dict[str, Any]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    request = inline_request("alone", SOURCE, functions=["run"])
    assert full_build(request, "sm_90", SourceFile(tmp_path / "answer.py", ""), tmp_path / "kept").ok
    assert loads[0]["with_cuda"] is None
