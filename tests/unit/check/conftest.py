"""What the tests of checking one file begin with."""

from pathlib import Path

import pytest
from check_support import write_scale


@pytest.fixture
def without_a_gpu(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide the machine's GPU, so that kernels run on the emulator."""
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A small kernel, with its header and workload."""
    return write_scale(tmp_path / "repo")
