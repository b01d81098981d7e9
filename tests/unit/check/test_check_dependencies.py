"""What a check rests on: the key changes with everything that could change the outcome, and with nothing else."""

import shutil
from pathlib import Path

import pytest
from check_support import KERNEL, WORKLOAD, settings_in, write_scale

from kernel_lsp.check.dependencies import Dependencies, dependencies_of
from kernel_lsp.check.files import kernel_files_among
from kernel_lsp.config.settings import BuildSettings, JudgeSettings
from kernel_lsp.device.device import device_named
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.spec import find_workload

GPU = Gpu(0, "NVIDIA H200", "GPU-1", "sm_90", "580.1", 1 << 37)


@pytest.fixture
def path(tmp_path) -> Path:
    return write_scale(tmp_path / "repo")


def depends(path: Path) -> Dependencies:
    source = read_source(path)
    return dependencies_of(source, find_workload(source), settings_in(path.parent))


def key(path: Path, arch="sm_90", gpu=None, run=True, **changes) -> str:
    settings = settings_in(path.parent).model_copy(update=changes)
    found = depends(path).key(settings, device_named(arch), gpu, run=run)
    assert found is not None
    return found


def test_every_file_that_is_read_is_known(path):
    folder = path.parent
    (folder / "sizes.py").write_text("N = 1000\n")
    (folder / "scale_workload.py").write_text(WORKLOAD.replace("import torch", "import torch\nfrom sizes import N"))
    assert depends(path).paths == {
        (folder / name).resolve() for name in ("scale.cu", "factor.cuh", "scale_workload.py", "sizes.py")
    }


@pytest.mark.parametrize("name", ["scale.cu", "factor.cuh", "scale_workload.py"])
def test_the_key_changes_with_each_text(path, name):
    before = key(path)
    file = path.with_name(name)
    file.write_text(file.read_text() + "\n#define X\n" if name == "scale.cu" else file.read_text() + "\n")
    assert key(path) != before


def test_the_key_changes_with_the_machine_and_the_settings_that_matter(path):
    keys = {
        key(path),
        key(path, arch="sm_80"),
        key(path, arch="H100 PCIe"),
        key(path, gpu=GPU),
        key(path, run=False),
        key(path, judge=JudgeSettings(factor=3)),
        key(path, build=BuildSettings(options=["-DX"])),
    }
    assert len(keys) == 7
    assert key(path, build=BuildSettings(cache_limit=0)) == key(path)


def test_the_key_is_the_same_elsewhere(path, tmp_path, monkeypatch):
    shutil.copytree(path.parent, tmp_path / "other")
    assert key(tmp_path / "other" / "scale.cu") == key(path)
    monkeypatch.chdir(path.parent)
    assert key(Path("scale.cu")) == key(path)


def test_there_is_no_key_where_something_unknown_is_imported(path):
    workload = path.with_name("scale_workload.py")
    workload.write_text(WORKLOAD.replace("import torch", "import torch\nimport kernels_of_mine"))
    assert depends(path).key(settings_in(path.parent), device_named("sm_90"), None, run=True) is None


@pytest.mark.parametrize("line", ["from cuda.bindings import driver", "import cuda.bindings.driver"])
def test_the_drivers_bindings_are_known_by_their_version(path, line):
    workload = path.with_name("scale_workload.py")
    workload.write_text(f"{line}\n{workload.read_text()}")
    assert key(path)
    workload.write_text(f"import cuda.unheard_of\n{workload.read_text()}")
    assert not depends(path).whole


def test_changed_files_stand_for_their_kernels(path):
    folder = path.parent
    (folder / "plain.py").write_text("import triton\n")
    (folder / "other.cu").write_text(KERNEL.replace("factor.cuh", "another.cuh"))

    def named(*names: str) -> list[str]:
        return [s.path.name for s in kernel_files_among([folder / n for n in names], related=True)]

    assert named("scale_workload.py") == ["scale.cu"]
    assert named("factor.cuh") == ["scale.cu"]
    assert named("plain.py") == []
    assert named("factor.cuh", "scale.cu", "scale_workload.py") == ["scale.cu"]
    (folder / "scale_workload.py").write_text("not Python(")
    assert named("scale_workload.py") == ["scale.cu"], "a workload that is broken breaks its kernel's check"
