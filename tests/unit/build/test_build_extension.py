"""Torch extensions built whole: what is asked of torch, what is kept, and what is said when it cannot be done."""

import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.utils import cpp_extension

from kernel_lsp.build import extension
from kernel_lsp.build.extension import build_torch_extension
from kernel_lsp.build.toolchain import Tool
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.runner.workers import build as build_worker
from kernel_lsp.source.candidate import SourceFile

SOURCE = "#include <torch/extension.h>\ntorch::Tensor run(torch::Tensor x) { return x; }\n"


@pytest.fixture
def loads(monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """A torch with CUDA and an nvcc, and in place of a compile of a minute the library it would leave."""
    calls: list[dict[str, Any]] = []

    def load(name: str, sources: list[str], build_directory: str, **rest: Any) -> None:
        text = Path(sources[0]).read_text()
        calls.append({"text": text, "arch": os.environ["TORCH_CUDA_ARCH_LIST"], "folder": build_directory, **rest})
        if "broken" in text:
            path = text.split('"')[1]
            raise RuntimeError(
                f'Error building extension: FAILED\n{path}(2): error: identifier "broken" is undefined\n'
            )
        Path(build_directory, f"{name}.so").write_bytes(b"library")

    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(cpp_extension, "CUDA_HOME", "/usr/local/cuda")
    monkeypatch.setattr(cpp_extension, "load", load)
    monkeypatch.setattr(extension, "tool", lambda name: Tool(name, "13.0.88", Path("/usr/local/cuda/bin/nvcc")))
    return calls


def source(folder: Path, text: str = SOURCE) -> SourceFile:
    return SourceFile(folder / "run.cu", text)


def test_a_library_is_built_once_and_kept(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    first, library = build_torch_extension(source(tmp_path), "sm_90a", tmp_path / "kept", ["run"])
    again, same = build_torch_extension(source(tmp_path), "sm_90a", tmp_path / "kept", ["run"])
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
    build_torch_extension(source(tmp_path, text), "sm_120", tmp_path / "kept", ["run"])
    assert loads[0]["text"].count("PYBIND11_MODULE") == 1
    assert loads[0]["arch"] == "12.0"


def test_errors_are_at_the_users_line_and_tried_again(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    for _ in range(2):
        failed, library = build_torch_extension(
            source(tmp_path, SOURCE.replace("return x", "return broken")), "sm_90", tmp_path / "kept"
        )
        assert library is None
        (error,) = failed.diagnostics
        assert (error.path, error.line) == (str(tmp_path / "run.cu"), 2)
    assert len(loads) == 2


def test_what_a_killed_build_left_behind_holds_nobody_up(tmp_path: Path, loads: list[dict[str, Any]]) -> None:
    _, made = build_torch_extension(source(tmp_path), "sm_90", tmp_path / "kept")
    assert made is not None
    (made.parent / "complete.log").unlink()
    (made.parent / "lock").touch()
    start = time.perf_counter()
    assert build_torch_extension(source(tmp_path), "sm_90", tmp_path / "kept")[1] == made
    assert time.perf_counter() - start < 5
    assert not (made.parent / "lock").exists()
    assert len(loads) == 2


def test_without_cuda_in_torch_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", None)
    with pytest.raises(CannotJudgeError, match="built with CUDA") as caught:
        build_torch_extension(source(tmp_path), "sm_90", tmp_path / "kept")
    assert caught.value.cure


def test_without_nvcc_it_says_what_to_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.version, "cuda", "13.0")
    monkeypatch.setattr(extension, "tool", lambda name: Tool(name, None, None))
    with pytest.raises(CannotJudgeError, match="need nvcc") as caught:
        build_torch_extension(source(tmp_path), "sm_90", tmp_path / "kept")
    assert caught.value.cure


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
    asked = {
        "path": str(tmp_path / "run.cu"),
        "text": text,
        "workload_path": str(tmp_path / "run_workload.py"),
        "workload_text": workload,
        "launch_path": None,
        "launch_text": None,
        "arch": "sm_90",
        "options": ["-DTILE=64"],
        "include_dirs": [str(tmp_path / "include")],
        "cache_folder": str(tmp_path / "cache"),
        "extension_folder": str(tmp_path / "kept"),
    }
    rest = {"language": "cuda", "cache_limit": 0, "triton_cache": str(tmp_path / "triton")}
    assert build_worker.build(**asked, **rest) is None
    answer = build_worker.build_extension(**asked, **rest)
    assert answer["extension"].endswith(".so")
    (call,) = loads
    assert 'm.def("run", &run);' in call["text"]
    assert "&unused" not in call["text"]
    assert "-DTILE=64" in call["extra_cuda_cflags"]
    assert str(tmp_path / "include") in call["extra_include_paths"]
