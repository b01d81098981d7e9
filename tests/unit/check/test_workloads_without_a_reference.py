"""Workloads that do not say what is right: kernels run on the emulator, and nothing is claimed of outputs."""

import asyncio
from pathlib import Path

import pytest
from check_support import KERNEL, WORKLOAD, checking, codes, settings_in
from rich.console import Console, RenderableType

from kernel_lsp.errors import WorkloadError
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import is_uncompared
from kernel_lsp.lsp.job_handlers.checks import as_result
from kernel_lsp.report.check import file_view, summary_view

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("without_a_gpu")
WITHOUT = WORKLOAD.replace("def reference(x):\n    return 2 * x\n\n\n", "")


def shown(view: RenderableType) -> str:
    """The text of a view, on one line."""
    console = Console(width=200, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return " ".join(capture.get().split())


@pytest.fixture
def bare(path: Path) -> Path:
    """A kernel whose workload has no `reference`."""
    path.with_name("scale_workload.py").write_text(WITHOUT)
    return path


def test_a_kernel_runs_and_the_report_does_not_call_it_right(bare, tmp_path):
    def steps(check):
        report = check(bare)
        assert report.ok
        assert is_uncompared(report.checks)
        assert "inputs: normal" in [one.name for one in report.checks if one.status == "passed"]
        line, last = (shown(view) for view in (file_view(report, KERNEL), summary_view([report])))
        assert "outputs not compared" in line
        assert "✓" not in line
        assert "outputs of 1 file compared with nothing" in last
        assert "all well" not in last
        assert "outputs are compared with nothing" in as_result(report)["reason"]

    checking(tmp_path, steps)


def test_what_it_does_to_memory_is_found_all_the_same(bare, tmp_path):
    def steps(check):
        bare.write_text(KERNEL.replace("i < n", "i <= n"))
        assert codes(check(bare)) == [("KL010", 5)] * 2

    checking(tmp_path, steps)


def test_outputs_that_depend_on_where_inputs_lie_are_told_apart(bare, tmp_path):
    """The same inputs in another layout have the answer that the kernel gave before."""

    def steps(check):
        details = [one.detail for one in check(bare).checks if one.name == "inputs: strided"]
        assert any("is wrong from index" in detail for detail in details), details

    checking(tmp_path, steps)


def test_an_ignore_of_wrong_answers_is_not_called_needless(bare, tmp_path):
    def steps(check):
        bare.write_text(KERNEL.replace("    int i", "    // kernel-lsp: ignore[KL020] known\n    int i"))
        assert codes(check(bare)) == []

    checking(tmp_path, steps, strict=True)


def test_nothing_is_judged_by_it(bare, tmp_path):
    async def judged():
        async with open_session(make_target(bare), settings_in(tmp_path)):
            raise AssertionError("a session is open")

    with pytest.raises(WorkloadError, match="no `reference`") as refused:
        asyncio.run(judged())
    assert "Write `reference`" in refused.value.fix


def test_inputs_that_its_launch_does_not_take_are_named(bare, tmp_path):
    bare.with_name("scale_workload.py").write_text(WITHOUT.replace('device="cuda"),)', 'device="cuda"), 3)'))

    def steps(check):
        (found,) = check(bare).diagnostics
        assert "what `inputs` returns does not fit `launch`" in found.message

    checking(tmp_path, steps)


def test_a_part_of_an_output_that_is_not_written_is_no_wrong_answer(bare, tmp_path):
    """How large outputs are is the draft's guess."""
    bare.with_name("scale_workload.py").write_text(WITHOUT.replace("empty_like(x)", "empty(2000, device='cuda')"))

    def steps(check):
        assert codes(check(bare)) == []

    checking(tmp_path, steps)


def test_a_reference_that_is_gone_when_it_is_needed_is_an_error(path, tmp_path):
    path.with_name("scale_workload.py").write_text(WORKLOAD + "\n\ndel reference\n")

    def steps(check):
        report = check(path)
        assert not report.ok
        assert "`reference` is gone when the file has been executed" in report.diagnostics[0].message

    checking(tmp_path, steps)
