"""Planted bugs, judged on the emulator as on every machine that hides its GPU."""

import asyncio
import io
import json
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console
from typer.testing import CliRunner

from kernel_lsp import mutation_testing as strength
from kernel_lsp.cli.main import app
from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.target import Target
from kernel_lsp.mutation_testing import Fate, FileStrength, Mutant, measure_strength
from kernel_lsp.mutation_testing.advice import advice_for, always_equal, always_round, reason_for
from kernel_lsp.report.strength import strength_summary, strength_view
from kernel_lsp.runner.messages.oracle import Compare
from kernel_lsp.source.files import read_source
from kernel_lsp.source.mutations import Bug
from kernel_lsp.store.store import open_store
from tests.private_home import private_home

pytest.importorskip("torch")

KERNEL = """extern "C" __global__ void reverse(const float* x, float* y, int n) {
    __shared__ float s[128];
    int t = threadIdx.x;
    s[t] = t < n ? x[t] : 0.0f;
    __syncthreads();
    if (t < n) {
        y[t] = s[n - 1 - t];
    }
}
"""
WORKLOAD = """import torch

CASES = {cases}


def inputs(n):
    return (torch.randn(n, device="cuda"),)


def reference(x):
    return x.flip(0)


def launch(module, x):
    y = torch.empty_like(x)
    module.reverse[1, 128](x, y, x.numel())
    return y
"""


@pytest.fixture(autouse=True)
def without_a_gpu(monkeypatch, tmp_path):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    for name, folder in private_home(tmp_path / ".home").items():
        monkeypatch.setenv(name, folder)


def written(folder: Path, cases: str, kernel: str = KERNEL) -> Path:
    path = folder / "reverse.cu"
    path.write_text(kernel)
    path.with_name("reverse_workload.py").write_text(WORKLOAD.format(cases=cases))
    return path


def measured(path: Path, **options) -> FileStrength:
    settings = load_settings(path)[0]
    return asyncio.run(measure_strength([read_source(path)], settings, **options))[0]


def test_a_workload_with_a_ragged_case_catches_what_matters(tmp_path):
    report = measured(written(tmp_path, "[dict(n=100), dict(n=128)]"))
    assert report.problem == ""
    assert report.of(Fate.UNKNOWN) == ()
    assert {mutant.what for mutant in report.of(Fate.SURVIVED)} <= {"`0.0f` → `1`"}, "nobody reads what is filled in"
    by = {mutant.bug: mutant.by for mutant in report.of(Fate.CAUGHT)}
    assert by[Bug.DROPPED_BARRIER] == "emulator: shared-race"
    assert by[Bug.UNINITIALISED_SHARED] == "emulator: uninitialised"
    assert by[Bug.DROPPED_GUARD] == "emulator: out-of-bounds"
    assert all(mutant.reason for mutant in report.mutants if mutant.fate is not Fate.SAME_CODE)


@pytest.mark.thorough
def test_a_workload_of_whole_blocks_is_told_so(tmp_path):
    report = measured(written(tmp_path, "[dict(n=128)]"))
    survived = {mutant.what for mutant in report.of(Fate.SURVIVED)}
    assert "`t < n` → `true`" in survived
    assert report.score is not None
    assert report.score < 0.9
    assert "no case that ran is off the tiles: `n` is a multiple of 128" in report.advice


def test_a_kernel_that_is_wrong_itself_is_not_tried(tmp_path):
    report = measured(written(tmp_path, "[dict(n=100)]", KERNEL.replace("n - 1 - t", "t")))
    assert "the kernel itself fails" in report.problem
    assert report.mutants == ()
    assert report.score is None


def test_a_bug_is_not_called_caught_where_the_judge_lacks_memory(tmp_path, monkeypatch):
    asked = Harness.oracle

    async def ask(harness: Harness, request: Any, **options: Any) -> Any:
        if isinstance(request, Compare) and not request.baseline:
            raise UnjudgedError("a check could not be made (Compare): OutOfMemoryError")
        return await asked(harness, request, **options)

    monkeypatch.setattr(Harness, "oracle", ask)
    report = measured(written(tmp_path, "[dict(n=100)]"))
    assert report.of(Fate.CAUGHT) == report.of(Fate.SURVIVED) == ()
    assert report.of(Fate.UNKNOWN)


def test_what_has_not_changed_is_not_tried_again(tmp_path, monkeypatch):
    path = written(tmp_path, "[dict(n=100)]")
    with open_store(tmp_path / "data") as store:
        first = measured(path, store=store)

        async def fail(*_):
            raise AssertionError("it is tried again")

        monkeypatch.setattr(strength, "measure_file", fail)
        again = measured(path, store=store)
    assert again.remembered
    assert again.mutants == first.mutants


def test_each_of_several_workloads_has_a_strength_of_its_own(tmp_path, monkeypatch):
    async def pretend(target: Target, *_: object) -> FileStrength:
        return FileStrength(target.source.path, "emulator", ("n=1",))

    path = written(tmp_path, "[dict(n=100)]")
    (tmp_path / "whole_workload.py").write_text('KERNEL = "reverse.cu"\n' + WORKLOAD.format(cases="[dict(n=128)]"))
    monkeypatch.setattr(strength, "measure_file", pretend)
    reports = asyncio.run(measure_strength([read_source(path)], load_settings(path)[0]))
    assert [one.workload and one.workload.name for one in reports] == ["reverse_workload.py", "whole_workload.py"]
    console = Console(width=200, file=io.StringIO())
    console.print(strength_view(reports[1]), strength_summary(reports))
    assert "whole_workload.py" in console.file.getvalue()


def test_the_command_prints_and_writes_json(tmp_path):
    path = written(tmp_path, "[dict(n=128)]")
    shown = CliRunner().invoke(app, ["check", "--strength", str(path)])
    assert shown.exit_code == 0, shown.output
    assert "SURVIVED" in shown.output
    assert "To catch more" in shown.output
    said = json.loads(CliRunner().invoke(app, ["check", "--strength", "--json", str(path)]).stdout)
    assert said["counted"] > said["caught"] > 0
    assert said["files"][0]["remembered"]
    assert {mutant["fate"] for mutant in said["files"][0]["mutants"]} >= {"caught", "survived"}


def test_a_file_without_a_workload_says_so(tmp_path):
    path = tmp_path / "alone.cu"
    path.write_text(KERNEL)
    assert measured(path).problem == "no workload was found for this kernel"


def test_sizes_that_hide_a_bug():
    cases = ("rows=16, cols=512", "rows=4, cols=1024")
    assert always_round(cases) == ["`cols` is a multiple of 512"]
    assert always_round(("n=1003",)) == []
    assert always_equal(("m=64, n=64, k=3", "m=96, n=96, k=3")) == ["`m` = `n`"]
    assert reason_for(Bug.DROPPED_GUARD, cases) == "in every case that ran `cols` is a multiple of 512"
    assert advice_for([Bug.SWAPPED_INDEX, Bug.WRONG_STRIDE], ("m=64, n=64",)) == (
        "no case that ran tells these apart: `m` = `n`",
    )
    assert all(reason_for(bug, ("n=7",)) and advice_for([bug], ("n=7",)) for bug in Bug)


def test_only_what_is_caught_or_survives_counts():
    mutants = tuple(Mutant("b", "k", 1, "w", fate) for fate in Fate)
    report = FileStrength(Path("k.cu"), "emulator", ("n=1",), mutants, ("add a case",))
    assert report.score == 0.5
    console = Console(width=160)
    with console.capture() as captured:
        console.print(strength_view(report, every=True), strength_summary([report]))
    text = captured.get()
    assert "1 of 2 planted bugs caught" in text
    assert "1 make no difference to the machine, 1 do not compile, 1 could not be judged" in text
    assert "50.0%" in text
