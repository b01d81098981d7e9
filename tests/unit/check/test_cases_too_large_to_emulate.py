"""A check without a GPU where even the smallest case is large: a few blocks are run, and nothing else is claimed."""

from pathlib import Path

import pytest
from check_support import KERNEL, checking, codes
from rich.console import Console

from kernel_lsp.lsp.job_handlers.checks import as_result
from kernel_lsp.report.check import summary_view

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("without_a_gpu")


@pytest.fixture(autouse=True)
def _nothing_is_small(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kernel_lsp.policy.EMULATED_CASE_BYTES", 0)


def test_a_few_blocks_are_run_and_nobody_says_all_well(path: Path, tmp_path: Path) -> None:
    def steps(check):
        report = check(path)
        assert report.ok
        (blocks,) = [one for one in report.checks if one.status == "passed"]
        assert blocks.detail == "`scale` 4 of 4"
        console = Console(width=200, color_system=None)
        with console.capture() as capture:
            console.print(summary_view([report]))
        assert "outputs of 1 file compared with nothing" in capture.get()
        assert "all well" not in capture.get()
        assert "too large for the emulator" in as_result(report)["reason"]

    checking(tmp_path, steps)


def test_what_these_blocks_do_to_memory_is_found_at_its_line(path: Path, tmp_path: Path) -> None:
    def steps(check):
        path.write_text(KERNEL.replace("i < n", "i <= n"))
        assert set(codes(check(path))) == {("KL010", 5)}

    checking(tmp_path, steps)


def test_wrong_answers_are_not_found_and_not_denied(path: Path, tmp_path: Path) -> None:
    def steps(check):
        path.write_text(KERNEL.replace("FACTOR * x[i]", "x[i]"))
        report = check(path)
        assert codes(report) == []
        assert "inputs: normal" not in [one.name for one in report.checks]

    checking(tmp_path, steps)
