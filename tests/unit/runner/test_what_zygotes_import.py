"""A zygote imports what its workers need and no more: every session and every editor waits for it."""

import asyncio
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from runner_support import KERNEL_PATH, SECONDS

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.runner import pool as pool_of_workers
from kernel_lsp.runner.libraries import importable, shared
from kernel_lsp.runner.messages.subject import Load
from kernel_lsp.runner.open_zygote import OpenZygote, ZygoteGoneError, fork_worker
from kernel_lsp.runner.pool import Flavour, Pool
from kernel_lsp.runner.zygote import ForkRequest

EXAMPLES = Path(__file__).parents[3] / "examples"
_PROGRAM = """
import importlib, sys
from kernel_lsp.runner import pool

for recipe in pool._RECIPES.values():
    for module in (*recipe.imports, *recipe.own):
        importlib.import_module(module)
print(*sorted({"torch._dynamo", "sympy", "triton", "vllm"} & sys.modules.keys()))
"""


def test_compilers_that_few_kernels_need_are_not_imported() -> None:
    ran = subprocess.run([sys.executable, "-c", _PROGRAM], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.split() == []


_SIZES = """
import sys
from pathlib import Path
from kernel_lsp.runner.workers import oracle
from kernel_lsp.runner.workers.draws import Draws
from kernel_lsp.workload.load import load_workload
import torch

for path in map(Path, sys.argv[1:]):
    draws = Draws(load_workload(path.read_text(), path, "cpu", 1), "cpu")
    before = set(sys.modules)
    assert all(draws.sizes())
    print(*sorted(sys.modules.keys() - before))
print(torch.cuda.is_initialized())
"""


def test_an_oracle_learns_sizes_without_torchs_compiler() -> None:
    workloads = [EXAMPLES / "cuda" / f"{name}_workload.py" for name in ("saxpy", "cross_entropy", "histogram", "sgemm")]
    ran = subprocess.run([sys.executable, "-c", _SIZES, *workloads], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == [""] * len(workloads) + ["False"]


_READ = """
import sys

read = []
sys.addaudithook(lambda event, given: read.append(str(given[0])) if event == "open" else None)
from kernel_lsp.runner.workers import triton_once
from triton.runtime.autotuner import triton_key

print(any("libtriton" in path for path in read), any("triton/compiler" in path for path in read))
before = len(read)
print(triton_key.cache_info().currsize, len(triton_key()) > 64, len(read) - before)
"""


def test_tritons_compiler_is_not_read_to_know_that_it_is_the_same() -> None:
    ran = subprocess.run([sys.executable, "-c", _READ], capture_output=True, text=True, timeout=300)
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.splitlines() == ["False True", "1 True 0"]


@pytest.mark.parametrize(
    "name",
    [
        "torch.distributed.tensor._ops.utils",  # its package imports it
        "torch.testing",
        "torch.testing._internal",
        "json",  # comes with Python
        "tests",
        "no_such_package",
    ],
)
def test_only_installed_packages_are_imported_where_no_users_code_runs(name: str) -> None:
    assert importable([name, "torch.distributed.tensor"]) == ["torch.distributed.tensor"]


def test_only_what_many_projects_use_stays_imported_between_sessions() -> None:
    assert shared(["torch.distributed.tensor", "pytest", "numpy"]) == ["torch.distributed.tensor", "numpy"]


_PACKAGES = """
import sys, threading
from kernel_lsp.runner.libraries import Before

before = Before.now()
import json, sortedcontainers
{also}
print(*before.imported_since())
"""


@pytest.mark.parametrize(
    ("also", "seen"),
    [
        ("", True),
        ("threading.Thread(target=sys.stdin.read, daemon=True).start()", False),
    ],
)
def test_packages_whose_threads_a_fork_would_lose_are_left_to_each_worker(
    also: str, seen: bool, tmp_path: Path
) -> None:
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _PACKAGES.format(also=also)]
    environment = os.environ | {"PYTHONPATH": str(root)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=tmp_path, env=environment, text=True
    ) as process:
        assert process.stdout is not None
        said = process.stdout.readline().split()
        process.communicate()
    assert ("sortedcontainers" in said) is seen
    assert "json" not in said


_HARMLESS = """
import os, sys
from pathlib import Path
from kernel_lsp.runner import libraries

libraries._GPU, libraries._DRIVER = sys.argv[1], Path(sys.argv[1])
os.environ.pop("CUDA_VISIBLE_DEVICES", None)
print(*libraries.harmless(["quiet", "missing", *sys.argv[2:], "later"]))
print(*sorted({"quiet", "opens", "ends", "later"} & sys.modules.keys()))
os.environ["CUDA_VISIBLE_DEVICES"] = ""
print(*libraries.harmless(["quiet", *sys.argv[2:]]))
"""


@pytest.mark.parametrize(
    ("also", "kept"), [([], "quiet missing later"), (["opens"], "quiet missing"), (["ends"], "quiet missing")]
)
def test_what_would_open_the_gpu_is_not_imported_where_workers_are_forked(
    also: list[str], kept: str, tmp_path: Path
) -> None:
    gpu = tmp_path / "nvidiactl"
    gpu.touch()
    modules = {"quiet": "", "opens": f"held = open({str(gpu)!r})", "ends": "import os; os._exit(1)", "later": ""}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    root = Path(__file__).parents[3]
    command = [sys.executable, "-c", _HARMLESS, str(gpu), *also]
    environment = os.environ | {"PYTHONPATH": f"{root}:{tmp_path}"}
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stdout.splitlines() == [kept, "", " ".join(["quiet", *also])], ran.stderr


_ASKED = """
import os, socket, sys
import msgspec
from kernel_lsp.runner import zygote

zygote.importable = list  # installed or not
ours, theirs = socket.socketpair()
if os.fork() == 0:
    ours.close()
    zygote.serve(theirs, sys.argv[1])
    os._exit(0)
theirs.close()
print(ours.recv(64).decode(), end="")
libraries = ("quiet", "missing", *sys.argv[2:], "later")
free = {"read": None, "write": [], "processes": True, "limits": {}}
request = zygote.ForkRequest("json", sys.argv[1], None, libraries, {}, free)
socket.send_fds(ours, [msgspec.json.encode(request)], [0])
answer = ours.recv(64).decode()
print("a worker" if answer.strip().isdigit() else answer or "no word")
"""


@pytest.mark.parametrize(
    ("also", "answer"),
    [
        ([], "a worker"),
        (["raises"], "a worker"),
        (["works_on"], "spoiled by works_on"),
        (["ends"], "no word"),
    ],
)
def test_a_zygote_says_what_spoils_it_before_its_first_worker(also: list[str], answer: str, tmp_path: Path) -> None:
    thread = "import threading, time\nthreading.Thread(target=time.sleep, args=(60,), daemon=True).start()"
    modules = {"quiet": "", "raises": "1 / 0", "works_on": thread, "ends": "import os; os._exit(1)", "later": ""}
    for name, text in modules.items():
        (tmp_path / f"{name}.py").write_text(text)
    environment = os.environ | {"PYTHONPATH": f"{Path(__file__).parents[3]}:{tmp_path}"}
    command = [sys.executable, "-c", _ASKED, str(tmp_path), *also]
    ran = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=60)
    assert ran.stdout.split("\n")[:2] == ["ready", answer], ran.stderr


@pytest.mark.asyncio
async def test_another_zygote_leaves_to_workers_what_spoiled_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, ...]] = []

    async def spoiled_at_first(zygote: OpenZygote, request: ForkRequest, parameters: Any) -> tuple[int, socket.socket]:
        asked.append(request.libraries)
        if len(asked) == 1:
            raise ZygoteGoneError(["it_works_on", "it_comes_later"])
        return await fork_worker(zygote, request, parameters)

    monkeypatch.setattr(pool_of_workers, "fork_worker", spoiled_at_first)
    async with Pool() as pool:
        pool.foresee(["sortedcontainers", "it_works_on", "it_comes_later"])
        await pool.worker(Flavour.EMULATE, "subject", device="cpu")
        pool.foresee(["it_works_on", "rich"])
        assert pool.libraries == ("sortedcontainers", "rich")
    assert asked == [("sortedcontainers", "it_works_on", "it_comes_later"), ("sortedcontainers",)]


_HEAVY = "torch.distributed.tensor"
_KERNEL = f"""
import {_HEAVY}
import triton
import triton.language as tl


@triton.jit
def twice(x, y, n, SIZE: tl.constexpr):
    at = tl.program_id(0) * SIZE + tl.arange(0, SIZE)
    tl.store(y + at, 2 * tl.load(x + at, at < n), at < n)
"""
_WORKLOAD = """
import torch

CASES = [{"n": 100}]


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return 2 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.twice[(1,)](x, y, x.numel(), SIZE=128)
    return y
"""


@pytest.mark.thorough
def test_what_a_users_file_imports_later_workers_have(tmp_path: Path) -> None:
    kernel = tmp_path / "twice.py"
    kernel.write_text(_KERNEL)
    (tmp_path / "twice_workload.py").write_text(_WORKLOAD)
    asks = f"import sys\n\nif '{_HEAVY}' not in sys.modules:\n    raise RuntimeError('it is not there')\n"

    async def opened() -> tuple[str, ...]:
        async with Pool() as pool:
            async with open_session(make_target(kernel), Settings(), pool):
                libraries = pool.libraries
            worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
            await worker.ask(Load(path=KERNEL_PATH, text=f"{asks}def launch(): ..."), deadline=SECONDS)
            return libraries

    # Nothing that the build itself imports, for which the workers would be set up anew.
    assert set(asyncio.run(opened())) == {_HEAVY, "triton", "triton.language", "torch"}


_THREAD = """
import sys, threading
from pathlib import Path
from kernel_lsp.runner.libraries import Before

before, leave = Before.now(), threading.Event()
thread = threading.Thread(target=leave.wait)
thread.start()
Path(f"/proc/self/task/{thread.native_id}/comm").write_text(sys.argv[1])
import rich
print("rich" in before.imported_since())
leave.set()
"""


@pytest.mark.parametrize(("name", "lasts"), [("worker", "False"), ("jemalloc_bg_thd", "True")])
def test_a_fork_can_use_what_starts_its_threads_anew(name: str, lasts: str) -> None:
    ran = subprocess.run([sys.executable, "-c", _THREAD, name], capture_output=True, text=True, timeout=300)
    assert ran.stdout.split() == [lasts], ran.stderr
