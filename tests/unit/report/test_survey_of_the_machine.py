import stat

from rich.console import Console

from kernel_lsp.device.nvml import Gpu
from kernel_lsp.report import doctor


def program(path, text):
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_a_tool_says_its_version(tmp_path, monkeypatch):
    says = "echo 'Cuda compilation tools, release 13.0, V13.0.88'"
    monkeypatch.setattr(doctor, "find_tool", lambda name: program(tmp_path / name, says) if name == "nvcc" else None)
    items = {item.name: item for item in doctor.survey()}
    assert (items["nvcc"].found, items["nvcc"].version) == (True, "13.0.88")
    assert (items["ncu"].found, items["ncu"].version) == (False, None)


def test_a_tool_that_cannot_start_is_missing(tmp_path, monkeypatch):
    broken = tmp_path / "nvcc"
    broken.write_bytes(b"\x7fELF")
    broken.chmod(0o755)
    monkeypatch.setattr(doctor, "find_tool", lambda name: broken)
    nvcc = next(item for item in doctor.survey() if item.name == "nvcc")
    assert not nvcc.found
    assert "does not answer" in nvcc.detail


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


def test_what_is_missing_is_shown_with_cost_and_cure():
    console = Console(width=80, color_system=None)
    here = doctor.Item("torch", True, "2.13.0", "", "no workload can run", "pip install torch")
    gone = doctor.Item("ncu", False, None, "", "no hardware counters", "install it")
    with console.capture() as capture:
        console.print(doctor.survey_view([here, gone]))
    text = capture.get()
    assert "✓  torch  2.13.0" in text
    assert "ncu: no hardware counters.\n  install it" in text
    assert "no workload can run" not in text
