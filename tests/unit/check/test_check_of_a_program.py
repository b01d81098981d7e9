"""`kernel-lsp check --run`: the user's own tests run without a GPU, and what their kernels do wrong has a line."""

import gc
import json
import os
import subprocess
import sys
import unittest
from pathlib import Path
from typing import Any

import pytest
import torch

from kernel_lsp.runner.emulated import EmulatedFinding
from kernel_lsp.runner.programs import EmulatedProcess, NotRun, ProgramFinding, ProgramKernel, added_up
from kernel_lsp.runner.workers.emulated_program import current_tests
from kernel_lsp.runner.workers.emulated_program_memory import ProgramMemory, ProgramOperations

START = "from kernel_lsp.cli.main import main; main()"
KERNELS = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    b = tl.load(y + places)
    tl.store(out + places, tl.load(x + places, mask=inside) + b, mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 64),)](x, y, out, x.numel(), BLOCK=64)
    return out


@triton.jit
def total_kernel(x, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    part = tl.sum(tl.load(x + places, mask=places < n, other=0.0))
    before = tl.load(out)
    tl.store(out, before + part)  # kernel-lsp: ignore[KL015] one block in these tests


def total(x, out):
    total_kernel[(triton.cdiv(x.numel(), 64),)](x, out, x.numel(), BLOCK=64)
    return out


@triton.jit
def video_kernel(x, BLOCK: tl.constexpr):
    places = tl.arange(0, BLOCK)
    value = tl.load(x + places)
    asm: tl.constexpr = "vabsdiff4.u32.u32.u32 $0, $1, $1, $1;"
    tl.store(x + places, tl.inline_asm_elementwise(asm, "=r,r", [value], dtype=tl.int32, is_pure=True, pack=1))


def video(x):
    video_kernel[(1,)](x, BLOCK=32)
"""
TESTS = """import unittest
import pytest
import torch
from ops import add, total, video

needs_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="no GPU")


@needs_gpu
@pytest.mark.parametrize("n", [64, 65, 66])
def test_add(n):
    x, y = torch.randn(n, device="cuda"), torch.randn(n, device="cuda")
    torch.testing.assert_close(add(x, y), x + y)


def test_a_sum_that_begins_with_anything():
    assert total(torch.ones(32, device="cuda"), torch.empty(1, device="cuda")).isnan()


def test_a_sum():
    assert total(torch.ones(32, device="cuda"), torch.zeros(1, device="cuda")).item() == 31, "it is 32"


def test_an_instruction_that_is_not_emulated():
    video(torch.zeros(32, dtype=torch.int32, device="cuda"))


def test_an_extension():
    from torch.utils.cpp_extension import load_inline

    load_inline("doubled", cpp_sources="", cuda_sources="__global__ void k() {}")


INLINE = '''
__global__ void halve(float* x, int n) { if (threadIdx.x <= n) x[threadIdx.x] /= 2; }
void halved(torch::Tensor x) { halve<<<1, 64>>>(x.data_ptr<float>(), (int)x.numel()); }
'''


def test_an_extension_that_goes_one_too_far():
    from torch.utils.cpp_extension import load_inline

    module = load_inline("m", "void halved(torch::Tensor x);", INLINE, functions=["halved"])
    module.halved(torch.ones(33, device="cuda"))


class Others(unittest.TestCase):
    def test_compiled(self):
        doubled = torch.compile(lambda x: 2 * x)
        assert doubled(torch.ones(3, device="cuda")).sum() == 6
"""


def run(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", START, "check", "--run", *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": os.pathsep.join((str(folder), *sys.path))},
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "tests").mkdir()
    (folder / "ops.py").write_text(KERNELS)
    (folder / "tests" / "test_ops.py").write_text(TESTS)
    return folder


@pytest.fixture(scope="module")
def answer(project: Path) -> subprocess.CompletedProcess[str]:
    quiet = ("-q", "-p", "no:cacheprovider", "-p", "no:asyncio", "-p", "no:xdist")
    return run(project, "--json", "--", "python", "-m", "pytest", *quiet, "tests")


@pytest.fixture(scope="module")
def said(answer: subprocess.CompletedProcess[str]) -> Any:
    return json.loads(answer.stdout)


def test_the_programs_output_and_exit_code_stay_its_own(answer: subprocess.CompletedProcess[str], said: Any):
    assert "1 failed, 6 passed, 2 skipped" in answer.stderr
    assert said["program"]["exit_code"] == 1
    assert answer.returncode == 1


def test_each_finding_is_reported_once_at_its_line_with_the_tests_that_reached_it(said: Any):
    report, _ = said["files"]
    errors = {one["code"]: one for one in report["diagnostics"] if one["severity"] == "error"}
    lines = KERNELS.splitlines()
    assert report["path"] == "ops.py"
    assert not said["ok"]
    assert sorted(errors) == ["KL010", "KL012"]
    assert "b = tl.load(y + places)" in lines[errors["KL010"]["line"] - 1]
    assert "before = tl.load(out)" in lines[errors["KL012"]["line"] - 1]
    assert "but `y` has 65 elements" in errors["KL010"]["message"]
    assert "test_add[65] and 1 other test, in 2 launches" in errors["KL010"]["message"]
    assert "test_a_sum_that_begins_with_anything" in errors["KL012"]["message"]


def test_an_extensions_kernels_are_checked_at_their_lines_of_the_python_file(said: Any):
    _, report = said["files"]
    found = [one for one in report["diagnostics"] if one["severity"] == "error"]
    assert report["path"] == "tests/test_ops.py"
    assert {one["code"] for one in found} == {"KL010"}
    assert all("void halve" in TESTS.splitlines()[one["line"] - 1] for one in found)
    assert "`x[33]`, but `x` has 33 elements" in found[0]["message"]
    assert "test_an_extension_that_goes_one_too_far" in found[0]["message"]


def test_what_was_not_run_is_said_plainly(said: Any):
    missed, extension = said["program"]["not_run"]
    assert (missed["kernel"], missed["launches"]) == ("video_kernel", 1)
    assert missed["tests"] == ["tests/test_ops.py::test_an_instruction_that_is_not_emulated"]
    assert (extension["kernel"], extension["tests"]) == ("doubled", ["tests/test_ops.py::test_an_extension"])
    sentences = " ".join(said["program"]["left_out"])
    assert "vabsdiff4" in sentences
    assert "torch.compile was called once" in sentences
    checks = {one["status"] for one in said["files"][0]["checks"]}
    assert checks == {"passed", "skipped"}


def test_captures_are_left_behind(project: Path, said: Any):
    names = sorted(Path(path).name.split(".")[1] for path in said["program"]["captures"])
    assert names == ["add", "total"]
    assert (project / ".kernel-lsp" / "captures" / ".gitignore").is_file()


def test_a_program_that_launches_nothing_is_not_called_well(tmp_path: Path):
    (tmp_path / "nothing.py").write_text("print('done')\n")
    answer = run(tmp_path, "python", "nothing.py")
    assert answer.returncode == 3
    assert "No kernel was launched" in answer.stdout
    assert "done" in answer.stderr


def test_a_kernel_that_needs_a_later_architecture_is_compiled_for_it(tmp_path: Path):
    """The architecture that is emulated has no `float8e4nv`."""
    (tmp_path / "widen.py").write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def widen(x, y, BLOCK: tl.constexpr):\n"
        "    places = tl.arange(0, BLOCK)\n"
        "    tl.store(y + places, tl.load(x + places).to(tl.float32))\n"
        "y = torch.empty(32, device='cuda')\n"
        "for factor in (1, 2):\n"
        "    widen[(1,)](torch.full((32,), 1.0 * factor, device='cuda').to(torch.float8_e4m3fn), y, BLOCK=32)\n"
        "    print(y.sum().item())\n"
    )
    answer = run(tmp_path, "python", "widen.py")
    assert answer.returncode == 0, answer.stdout + answer.stderr
    assert answer.stderr.split()[-2:] == ["32.0", "64.0"], "the second launch finds the first one's kernel"
    assert "2 launches of 1 kernel" in answer.stdout


def test_the_first_architecture_of_the_settings_is_the_gpu_that_a_program_sees(tmp_path: Path):
    (tmp_path / "pyproject.toml").write_text("[tool.kernel-lsp]\narch = ['sm_90a', 'sm_80']\n")
    (tmp_path / "double.py").write_text(
        "import torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def double(x, BLOCK: tl.constexpr):\n"
        "    places = tl.arange(0, BLOCK)\n"
        "    tl.store(x + places, 2 * tl.load(x + places))\n"
        "x = torch.ones(32, device='cuda')\n"
        "double[(1,)](x, BLOCK=32)\n"
        "print(torch.cuda.get_device_capability(), triton.runtime.driver.active.get_current_target().arch, x.sum())\n"
    )
    answer = run(tmp_path, "python", "double.py")
    assert answer.stderr.split() == ["(9,", "0)", "90", "tensor(64.)"], answer.stderr
    assert "1 launch of 1 kernel on the emulator (sm_90a" in answer.stdout


def test_a_device_is_named_by_number_and_by_default(tmp_path: Path):
    (tmp_path / "places.py").write_text(
        "import torch\n"
        "x = torch.ones(3, device=torch.cuda.current_device())\n"
        "layer = torch.nn.Linear(3, 3, device=0).to(0)\n"
        "print(x.to(0).device, x.to(0, torch.float16).device, torch.device(0), layer(x).device)\n"
        "torch.set_default_device('cuda')\n"
        "print(torch.ones(2).device, torch.get_default_device())\n"
        "torch.set_default_device('meta')\n"
        "print(torch.get_default_device(), torch.ones(1 << 40).shape)\n"
    )
    answer = run(tmp_path, "python", "places.py")
    assert answer.stderr.split() == ["cuda:0"] * 6 + ["meta", "torch.Size([1099511627776])"], answer.stderr


def test_threads_of_a_program_launch_too(tmp_path: Path):
    (tmp_path / "threads.py").write_text(
        "import concurrent.futures, threading, torch, triton, triton.language as tl\n"
        "@triton.jit\n"
        "def double(x, n, BLOCK: tl.constexpr):\n"
        "    places = tl.arange(0, BLOCK)\n"
        "    tl.store(x + places, 2 * tl.load(x + places, mask=places < n), mask=places < n)\n"
        "def doubled(n):\n"
        "    x = torch.ones(n, device='cuda')\n"
        "    double[(1,)](x, n, BLOCK=64)\n"
        "    return int(x.sum())\n"
        "class Worker(threading.Thread):\n"
        "    def run(self):\n"
        "        print(doubled(40))\n"
        "worker = Worker()\n"
        "worker.start()\n"
        "worker.join()\n"
        "with concurrent.futures.ThreadPoolExecutor(3) as pool:\n"
        "    print(*pool.map(doubled, range(33, 39)))\n"
    )
    answer = run(tmp_path, "python", "threads.py")
    assert answer.stderr.split() == ["80", "66", "68", "70", "72", "74", "76"], answer.stderr
    assert "7 launches of 1 kernel" in answer.stdout


def test_options_for_kernel_files_do_not_go_with_a_program(tmp_path: Path):
    answer = run(tmp_path, "--changed", "python", "nothing.py")
    assert answer.returncode == 2
    assert "--run takes a program" in answer.stderr


def finding(launches: int, *tests: str) -> ProgramFinding:
    return ProgramFinding(EmulatedFinding("global-race", "It races.", "/k.py", 4, "k"), "/k.py", launches, list(tests))


@pytest.mark.thorough
def test_findings_of_several_processes_are_one():
    first = EmulatedProcess("sm_80", 1.0, [ProgramKernel("k", "/k.py", 2, 3)], [finding(1, "a")])
    second = EmulatedProcess(
        "sm_80", 2.0, [ProgramKernel("k", "/k.py", 2, 4)], [finding(2, "a", "b")], [NotRun("k", "/k.py", 0, "no", 1)], 1
    )
    both = added_up((first, second))
    assert (both.seconds, both.uncompiled, both.kernels[0].launches, len(both.not_run)) == (3.0, 1, 7, 1)
    assert [(one.launches, one.tests, one.finding.count) for one in both.findings] == [(3, ["a", "b"], 2)]


class _Case(unittest.TestCase):
    def test_names(self) -> None:
        self.names = current_tests()


@pytest.mark.thorough
def test_a_unittest_that_runs_is_named(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PYTEST_CURRENT_TEST", "tests/test_x.py::test_y[a b] (call)")
    assert current_tests() == ["tests/test_x.py::test_y[a b]"]
    monkeypatch.delenv("PYTEST_CURRENT_TEST")
    case = _Case("test_names")
    case.debug()
    assert case.names == [case.id()]


@pytest.mark.thorough
def test_memory_goes_with_its_tensor_and_what_nothing_wrote_is_known():
    memory = ProgramMemory()
    with ProgramOperations(memory):
        empty, zeros = torch.empty(100), torch.zeros(100)
        view = zeros[50:]
        empty[:10] = 1
    unset = memory.buffers.find(empty.data_ptr())
    assert unset is not None
    assert unset.valid is not None
    assert (unset.valid[:40] == 0xFF).all()
    assert not unset.valid[40:].any()
    assert bool(empty[10:].isnan().all())
    address = empty.data_ptr()
    del empty, zeros, unset
    gc.collect()
    memory.sweep()
    assert memory.buffers.find(address) is None
    kept = memory.buffers.find(view.data_ptr())
    assert kept is not None
    assert kept.valid is None
