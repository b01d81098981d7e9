"""`kernel-lsp refine` as a person uses it: find, print, apply, interrupt."""

import json
import shutil
import signal
import subprocess
import time
from pathlib import Path

import pytest
from judges import EXAMPLES, CommandLine

from kernel_lsp.store.store import open_store

pytestmark = pytest.mark.gpu


def copy_example(name: str, folder: Path) -> Path:
    """A CUDA example and its workload in `folder`, which is made."""
    folder.mkdir(exist_ok=True)
    for file in (f"{name}.cu", f"{name}_workload.py"):
        shutil.copy(EXAMPLES / "cuda" / file, folder)
    return folder / f"{name}.cu"


def verdicts(folder: Path) -> list[str]:
    """Outcomes in the store of the command line's user, newest first."""
    if not (folder / "data").is_dir():
        return []
    with open_store(folder / "data") as store:
        return [row.verdict for row in store.list_verdicts()]


def test_a_gain_is_found_printed_as_a_patch_and_applied(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    copy_example("rmsnorm", tmp_path)
    original = copy_example("rmsnorm", tmp_path / "original")
    patched = copy_example("rmsnorm", tmp_path / "patched")
    process = kernel_lsp("refine", "rmsnorm.cu", "--budget", "40s", "--diff", "--apply")
    patch, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    assert "faster" in said
    assert "Written:" in said
    assert "FASTER" in verdicts(tmp_path)

    tool = ["git", "apply", "-"] if shutil.which("git") else ["patch", "-p1"]
    subprocess.run(tool, input=patch, text=True, cwd=patched.parent, check=True, capture_output=True)
    changed = [f for f in ("rmsnorm.cu", "rmsnorm_workload.py") if read(original, f) != read(patched, f)]
    assert changed
    for name in changed:
        assert read(patched, name) == (tmp_path / name).read_text()

    process = kernel_lsp("judge", "original/rmsnorm.cu", "rmsnorm.cu", "--json")
    printed, said = process.communicate(timeout=120)
    assert process.returncode == 0, said
    verdict = json.loads(printed)
    assert verdict["verdict"] == "FASTER", verdict["reason"]


def read(kernel: Path, name: str) -> str:
    return kernel.with_name(name).read_text()


def test_an_interrupt_keeps_what_was_found(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    copy_example("softmax", tmp_path)
    process = kernel_lsp("refine", "softmax.cu", "--budget", "150s", "--json")
    end = time.monotonic() + 120  # three such tests may share a GPU
    while "FASTER" not in verdicts(tmp_path) and process.poll() is None and time.monotonic() < end:
        time.sleep(0.2)
    assert process.poll() is None, process.communicate()
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in said
    assert said.strip().endswith("Stopped.")
    kept = json.loads(printed)
    assert kept["cancelled"]
    assert kept["found"] == ("FASTER" in verdicts(tmp_path))
    assert kept["found"], kept["reason"]
    assert kept["verdict"]["verdict"] == "FASTER"
    assert kept["diff"].startswith("--- a/")
    assert (tmp_path / "softmax.cu").read_text() == (EXAMPLES / "cuda" / "softmax.cu").read_text()


def test_an_interrupt_before_the_search_ends_cleanly(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    copy_example("softmax", tmp_path)
    process = kernel_lsp("refine", "softmax.cu")
    time.sleep(3)
    process.send_signal(signal.SIGINT)
    printed, said = process.communicate(timeout=20)
    assert process.returncode == 130
    assert "Traceback" not in said + printed
