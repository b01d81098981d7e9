"""`kernel-lsp capture`: a program is run once, its functions become workloads, and those find a planted bug."""

import asyncio
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from kernel_lsp.capture.adopt import adopted_workload
from kernel_lsp.capture.program_record import read_seen
from kernel_lsp.capture.ranking import ranking
from kernel_lsp.capture.run import Captured, capture_program
from kernel_lsp.check import check
from kernel_lsp.config.settings import Settings
from kernel_lsp.source.files import read_source
from kernel_lsp.workload.capture import FOLDER, capture_text, read_capture
from kernel_lsp.workload.spec import find_workloads

KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + 3 * tl.load(y + places, mask=inside), mask=inside)


def add(x, y, block=32):
    out = torch.empty_like(x)
    x = x.contiguous()
    add_kernel[(triton.cdiv(x.numel(), block),)](x, y, out, x.numel(), BLOCK=block)
    return out


def add_into(x, y):
    add_kernel[(triton.cdiv(x.numel(), 32),)](x, y, x, x.numel(), BLOCK=32)


def helper(thing, x):
    add_into(x, x + 1)


class Holder:
    def call(self, x):
        add_kernel[(1,)](x, x, x, x.numel(), BLOCK=32)
"""
PROGRAM = """import sys
import torch
from adding import Holder, add, add_into, helper
torch.manual_seed(0)
for rows in (40, 40, 70):
    add(torch.randn(rows), torch.randn(rows))
x = torch.ones(33)
helper(object(), x)
Holder().call(x)
print("sum", float(x.sum()))
sys.exit(3)
"""


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("project")
    (folder / "adding.py").write_text(KERNEL)
    (folder / "train.py").write_text(PROGRAM)
    return folder


@pytest.fixture(scope="module")
def captured(project: Path) -> Captured:
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRITON_INTERPRET", "1")
        return capture_program([sys.executable, str(project / "train.py")], project / FOLDER)


def test_a_program_that_fails_keeps_its_exit_code_and_what_was_seen(captured: Captured):
    assert captured.code == 3
    assert captured.seen.errors == ()
    assert [path.is_file() for path in captured.written] == [True, True]


def test_the_function_that_launches_is_captured_with_its_arguments_at_entry(captured: Captured):
    by_name = {capture.function: capture for capture in captured.seen.captures}
    assert sorted(by_name) == ["add", "add_into"]
    cases = {tuple(case.arguments["x"]["shape"]): case for case in by_name["add"].cases}
    assert {shape: case.count for shape, case in cases.items()} == {(40,): 2, (70,): 1}
    assert cases[(40,)].arguments["block"] == {"kind": "int", "value": 32}
    assert (cases[(40,)].mutated, cases[(40,)].returned) == ((), 1)
    assert by_name["add_into"].mutated == ("x",)
    assert by_name["add"].text == KERNEL


def test_the_ranking_counts_launches_and_says_what_a_faster_kernel_would_give(captured: Captured):
    (ranked,) = ranking(captured.seen)
    assert ranked.kernel.launches == 5
    assert ranked.share == pytest.approx(1)
    assert ranked.gain == pytest.approx(1.5)
    assert {one.program_seconds for one in captured.seen.captures} == {
        sum(case.seconds for one in captured.seen.captures for case in one.cases)
    }


def test_no_values_are_kept_but_whole_numbers(captured: Captured):
    for capture in captured.seen.captures:
        assert '"data"' not in capture_text(capture)


@pytest.mark.thorough
def test_a_captured_run_computes_what_an_uncaptured_one_does(project: Path, captured: Captured):
    environment = {**os.environ, "TRITON_INTERPRET": "1"}
    plain = subprocess.run(
        [sys.executable, "train.py"], cwd=project, env=environment, capture_output=True, text=True, check=False
    )
    watched = subprocess.run(
        [
            str(Path(sys.executable).with_name("kernel-lsp")),
            "capture",
            "-o",
            "elsewhere",
            "--",
            sys.executable,
            "train.py",
        ],
        cwd=project,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert (watched.returncode, watched.stdout) == (plain.returncode, plain.stdout)
    assert "ended with exit code 3" in watched.stderr
    assert "not of GPU time" in watched.stderr
    assert "ignored" not in watched.stderr


@pytest.mark.thorough
def test_other_ranks_are_left_alone_and_nothing_launched_is_no_failure(project: Path, tmp_path: Path):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("TRITON_INTERPRET", "1")
        patched.setenv("RANK", "1")
        found = capture_program([sys.executable, str(project / "train.py")], tmp_path)
    assert (found.code, found.seen.kernels, found.written) == (3, (), ())


def test_a_run_in_inference_mode_is_captured(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    program = project / "serve.py"
    program.write_text(
        "import torch\nfrom adding import add_into\n"
        "with torch.inference_mode():\n    for _ in range(3):\n        add_into(torch.ones(40), torch.ones(40))\n"
    )
    seen = capture_program([sys.executable, str(program)], tmp_path).seen
    assert seen.errors == ()
    (case,) = seen.captures[0].cases
    assert (case.count, case.mutated) == (3, ("x",))


def test_a_folder_named_as_a_library_is_the_projects(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("TRITON_INTERPRET", "1")
    (folder := tmp_path / "ops" / "triton").mkdir(parents=True)
    (folder / "adding.py").write_text(KERNEL)
    (folder / "serve.py").write_text("import torch\nfrom adding import add\nadd(torch.ones(40), torch.ones(40))\n")
    seen = capture_program([sys.executable, str(folder / "serve.py")], tmp_path).seen
    assert [capture.function for capture in seen.captures] == ["add"]


def test_a_line_that_was_cut_off_costs_only_itself(tmp_path: Path):
    counts = {"kind": "counts", "program": "p", "seconds": 1.0, "launches": 2, "functions": [], "generated": []}
    kernel = {"file": "/k.py", "name": "k", "line": 1, "launches": 2, "why": "because"}
    whole = json.dumps({**counts, "kernels": [kernel], "errors": [], "device": ""})
    (tmp_path / "7.jsonl").write_text(f'{whole}\n{{"kind": "cou')
    seen = read_seen(tmp_path)
    assert [(one.launches, one.why) for one in seen.kernels] == [(2, "because")]


def test_an_adopted_capture_is_the_draft_of_a_workload(project: Path, captured: Captured):
    for capture in captured.seen.captures:
        file = adopted_workload(capture, project)
        assert file.text.startswith("# kernel-lsp: draft")
        said: dict[str, object] = {}
        exec(file.text, said)
        assert len(said["CASES"]) == len(capture.cases)
        assert said["KERNEL"] == "adding.py"


def test_check_finds_the_capture_and_a_planted_bug(project: Path, captured: Captured):
    path = project / "adding.py"
    add = next(one for one in captured.written if ".add." in one.name)
    assert read_capture(add.read_text(), add).function == "add"
    assert len(find_workloads(read_source(path))) == 2

    async def checked(text: str):
        path.write_text(text)
        (report,) = await check([read_source(path)], Settings(), workload=add)
        return report

    right = asyncio.run(checked(KERNEL))
    wrong = asyncio.run(checked(KERNEL.replace("+ 3 *", "+ 2 *")))
    path.write_text(KERNEL)
    assert right.ok
    assert any("as right as the captured function, in float64" in found.message for found in right.diagnostics)
    assert not wrong.ok
