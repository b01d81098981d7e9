"""What is found on this machine, and that finding it stays light."""

import subprocess
import sys
from importlib.metadata import version
from pathlib import Path

import pytest

from kernel_lsp.compiler.toolchain import tools as looking
from kernel_lsp.compiler.toolchain.toolkit import find_tool
from kernel_lsp.compiler.toolchain.tools import find_toolchain, tool, versions


def test_every_piece_is_listed_with_its_version() -> None:
    tools = find_toolchain()
    assert set(tools) == {
        "nvrtc", "nvcc", "ptxas", "nvdisasm", "ncu", "compute-sanitizer",
        "torch", "triton", "cuda-bindings", "driver", "vllm",
    }  # fmt: skip
    assert tools["torch"].version == version("torch")
    assert tools["triton"].version == version("triton")
    assert tools["nvrtc"].present
    assert tools["ptxas"].present, "Triton brings one"
    assert versions() == {name: piece.version for name, piece in tools.items() if piece.present}


def program(folder: Path, name: str, script: str) -> Path:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path


@pytest.mark.parametrize(
    ("script", "expected"),
    [
        ("echo 'Cuda compilation tools, release 13.0, V13.0.88'", "13.0.88"),
        ("echo 'Version 2025.3.1.0 (build 36398880)'", "2025.3.1.0"),
        ("echo 'broken'; exit 1", None),
        ("exit 0", None),
    ],
)
def test_a_program_is_asked_for_its_version(
    script: str, expected: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = program(tmp_path, "ncu", script)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    looking._program.cache_clear()
    try:
        found = tool("ncu")
    finally:
        looking._program.cache_clear()
    assert (found.path, found.version) == (path, expected)


def test_a_tool_of_the_toolkit_is_found_through_cuda_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "bin").mkdir()
    path = program(tmp_path / "bin", "a-tool-of-no-one-else", "exit 0")
    assert find_tool("a-tool-of-no-one-else") is None
    monkeypatch.setenv("CUDA_HOME", str(tmp_path))
    assert find_tool("a-tool-of-no-one-else") == path


def test_looking_imports_nothing_heavy() -> None:
    script = (
        "import sys; from kernel_lsp.compiler.builds import cache; from kernel_lsp.compiler.machine_code import cubin;"
        "from kernel_lsp.compiler.machine_code import occupancy; from kernel_lsp.compiler.toolchain import tools;"
        "tools.find_toolchain();"
        "print([m for m in ('torch', 'triton', 'numpy', 'cuda', 'vllm') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
