from pathlib import Path

import pytest
from rich.console import Console

from kernel_lsp.compiler.toolchain.tools import Tool, find_toolchain
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.report import doctor


@pytest.fixture
def with_tools(monkeypatch):
    """The survey of a machine with the given tools and none besides."""

    def survey(*tools: Tool) -> dict[str, doctor.Item]:
        missing = {name: Tool(name, None, None) for name in find_toolchain()}
        monkeypatch.setattr(doctor, "find_toolchain", lambda: missing | {tool.name: tool for tool in tools})
        return {item.name: item for item in doctor.survey()}

    return survey


def test_a_tool_with_its_version_and_place(with_tools):
    items = with_tools(Tool("nvcc", "13.0.88", Path("/opt/cuda/bin/nvcc")))
    nvcc = items["nvcc"]
    assert (nvcc.found, nvcc.version, nvcc.detail) == (True, "13.0.88", "/opt/cuda/bin/nvcc")
    assert not items["ncu"].found


def test_a_tool_that_cannot_start_is_missing(with_tools):
    nvcc = with_tools(Tool("nvcc", None, Path("/opt/cuda/bin/nvcc")))["nvcc"]
    assert (nvcc.found, nvcc.detail) == (False, "/opt/cuda/bin/nvcc does not answer")


def test_a_torch_without_cuda_is_told(with_tools):
    assert "cannot use a GPU" in with_tools(Tool("torch", "2.13.0+cpu", None))["torch"].detail


def test_the_toolkit_says_its_version(tmp_path, monkeypatch):
    (tmp_path / "version.json").write_text('{"cuda": {"version": "13.0.2"}}')
    monkeypatch.setattr(doctor, "toolkit_folders", lambda: (tmp_path / "none", tmp_path))
    toolkit = next(item for item in doctor.survey() if item.name == "CUDA toolkit")
    assert (toolkit.version, toolkit.detail) == ("13.0.2", str(tmp_path))


def test_gpus_are_named_with_driver_and_memory(monkeypatch):
    gpu = Gpu(0, "NVIDIA H200", "GPU-0", "sm_90", "580.95", 140 * 2**30)
    monkeypatch.setattr(doctor, "find_gpus", lambda: (gpu,))
    driver, first, *_ = doctor.survey()
    assert (driver.name, driver.version) == ("NVIDIA driver", "580.95")
    assert (first.name, first.version, first.detail) == ("GPU 0", "NVIDIA H200", "sm_90, 140 GiB")


def test_no_gpu_costs_the_timing(monkeypatch):
    monkeypatch.setattr(doctor, "find_gpus", lambda: ())
    gpu = doctor.survey()[0]
    assert not gpu.found
    assert "no speedup is claimed" in gpu.cost


def test_what_is_missing_is_shown_with_cost_and_fix():
    console = Console(width=80, color_system=None)
    here = doctor.Item("torch", True, "2.13.0", "", "no workload can run", "pip install torch")
    gone = doctor.Item("ncu", False, None, "", "no hardware counters", "install it")
    with console.capture() as capture:
        console.print(doctor.survey_view([here, gone]))
    text = capture.get()
    assert "✓  torch  2.13.0" in text
    assert "ncu: no hardware counters.\n  install it" in text
    assert "no workload can run" not in text


def test_a_long_path_is_shown_whole():
    path = "/a/virtual/environment/lib/python3.11/site-packages/triton/backends/nvidia/bin/nvdisasm"
    console = Console(width=40)
    with console.capture() as capture:
        console.print(doctor.survey_view([doctor.Item("nvdisasm", True, "13.1.80", path, "", "")]), crop=False)
    assert path in "".join(line.split()[-1] for line in capture.get().splitlines() if line.strip())
