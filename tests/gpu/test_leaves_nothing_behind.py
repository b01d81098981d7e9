"""When the command is over, however it ended, its processes and their files are gone."""

import time
from pathlib import Path

import pytest
import spinning
from judges import CommandLine, eventually, shares_gpu, used_memory

from kernel_lsp.device.nvml import Gpu
from tests.processes import processes_below

pytestmark = pytest.mark.gpu


def test_a_judgement_leaves_nothing_behind(kernel_lsp: CommandLine, tmp_path: Path, gpu: Gpu) -> None:
    spinning.write(tmp_path)
    (tmp_path / "other.cu").write_text(spinning.KERNEL.replace(*spinning.rounds(100)))
    (tmp_path / "tmp").mkdir()
    before = used_memory(gpu)
    process = kernel_lsp("judge", "scale.cu", "other.cu", TMPDIR=str(tmp_path / "tmp"))
    printed, said = process.communicate(timeout=60)
    assert process.returncode == 0, printed + said
    assert "FASTER" in printed
    assert list((tmp_path / "tmp").iterdir()) == []
    eventually(lambda: not processes_below(tmp_path / "tmp"), "workers outlive the command")
    if not shares_gpu():
        eventually(lambda: used_memory(gpu) < before + (64 << 20), "GPU memory outlives the command")


def test_workers_die_with_a_killed_command(kernel_lsp: CommandLine, tmp_path: Path, gpu: Gpu) -> None:
    spinning.write(tmp_path)
    (tmp_path / "hang.cu").write_text(
        spinning.KERNEL.replace(spinning.BODY, "for (volatile int turn = 0; turn < 1;) {}")
    )
    (tmp_path / "tmp").mkdir()
    before = used_memory(gpu)
    slow = {"KERNEL_LSP_RUNNER_DEADLINE_FLOOR_S": "600"}
    process = kernel_lsp("judge", "scale.cu", "hang.cu", TMPDIR=str(tmp_path / "tmp"), **slow)
    eventually(lambda: len(processes_below(tmp_path / "tmp")) >= 5, "workers never started", 60)
    time.sleep(8)  # by now one of them runs a kernel that never ends
    process.kill()
    process.communicate(timeout=20)
    eventually(lambda: not processes_below(tmp_path / "tmp"), "workers outlive the command")
    if not shares_gpu():
        eventually(lambda: used_memory(gpu) < before + (64 << 20), "GPU memory outlives the command")
    eventually(lambda: not [p for p in (tmp_path / "tmp").rglob("*") if p.is_file()], "files outlive the command")
