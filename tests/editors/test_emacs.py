"""Emacs with eglot, in batch mode, with the set-up that the README gives."""

import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.editors.editor_folder import EXAMPLES, HERE, make_folder

PACKAGES = sorted(Path("/usr/share/emacs/site-lisp/elpa").glob("*/"))


def _has_eglot(emacs: str, load: list[str]) -> bool:
    command = [emacs, "--batch", "-q", *load, "--eval", "(require 'eglot)"]
    return subprocess.run(command, capture_output=True, check=False, timeout=60).returncode == 0


def test_a_session_in_emacs(tmp_path):
    emacs = shutil.which("emacs")
    if emacs is None:
        pytest.skip("Emacs is not installed")
    load = [argument for folder in PACKAGES for argument in ("-L", str(folder))]
    if not _has_eglot(emacs, load):
        pytest.skip("Emacs has no eglot: it is older than 29 and the package eglot is not installed")
    setup = EXAMPLES / "emacs.el"
    environment = make_folder(tmp_path) | {"RESULT": str(tmp_path / "result.txt"), "SETUP": str(setup)}
    command = [emacs, "--batch", "-q", *load, "-l", str(HERE / "drive.el")]
    subprocess.run(command, cwd=tmp_path, env=os.environ | environment, timeout=200, check=False)
    result = (tmp_path / "result.txt").read_text()
    assert result.endswith("PASS\n"), result
    assert "mode cuda-mode" in result
    assert re.search(r"diagnostic 2 .*undefined", result)
    assert "action Apply num_warps 4 -> 2: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200" in result
    assert re.search(r"progress Stop refining softmax_kernel \(.*\d+ candidates, \d+ correct, \d:\d\d left\)", result)
    assert "stopped cancelled" in result
    assert "applied t" in result
    assert "older version of the kernel" in result
