"""A text that differs from a checked one only in comments and empty lines is known, its findings at their lines."""

from dataclasses import replace
from pathlib import Path

import pytest
from check_support import HEADER, KERNEL, checking, codes

from kernel_lsp.check import examiner
from kernel_lsp.check.moved import moved
from kernel_lsp.check.record import Examination
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.judge.emulation import EmulatedRun, Emulation, placed_message
from kernel_lsp.judge.verdict import Check, CheckStatus
from kernel_lsp.runner.emulated import EmulatedFinding, LineCounters
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.code_lines import code_lines

pytestmark = pytest.mark.usefixtures("without_a_gpu")

STORE = "    if (i < n) y[i] = FACTOR * x[i];\n"


def test_a_comment_or_an_empty_line_costs_no_new_check(path, tmp_path, monkeypatch):
    wrong = KERNEL.replace("i < n", "i <= n")
    path.write_text(wrong)

    def steps(check):
        first = check(path)
        assert codes(first) == [("KL010", 5)] * 2, "it reads and writes there"
        monkeypatch.setattr(examiner, "examine", None)
        path.write_text("// two\n\n" + wrong.replace("[i];\n", "[i];  // past the end\n"))
        moved_down = check(path)
        assert moved_down.remembered
        assert codes(moved_down) == [("KL010", 7)] * 2
        assert moved_down.diagnostics[0].column == first.diagnostics[0].column
        assert {one.line for run in moved_down.emulation.runs for one in run.counters} >= {7}
        path.write_text(wrong.replace("[i];\n", "[i];  // kernel-lsp: ignore[KL010] known\n"))
        silenced = check(path)
        assert silenced.remembered
        assert codes(silenced) == []
        assert {one.reason for one in silenced.silenced} == {"known"}

    checking(tmp_path, steps)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("scale.cu", KERNEL.replace("FACTOR * x", "FACTOR * (float)(__LINE__ - 5 + 1) * x")),
        ("scale.cu", KERNEL.replace("    int i", "    assert(n >= 0);\n    int i")),
        ("factor.cuh", HEADER.replace("2.0f", "(2.0f + 0 * __LINE__)")),
    ],
)
def test_code_that_asks_for_its_line_is_another_one_elsewhere(name, text, path, tmp_path):
    path.with_name(name).write_text(text)
    kernel = path.read_text()

    def steps(check):
        check(path)
        path.write_text(kernel + "// the end\n")
        assert check(path).remembered, "no line has moved"
        path.write_text("// above\n" + kernel)
        assert not check(path).remembered

    checking(tmp_path, steps)


def test_a_comment_counts_where_a_text_is_read(path, tmp_path):
    workload = path.with_name("scale_workload.py")
    workload.write_text(workload.read_text().replace("import torch\n", "import inspect\n\nimport torch\n", 1))

    def steps(check):
        check(path)
        path.write_text(KERNEL + "// the end\n")
        assert not check(path).remembered

    checking(tmp_path, steps)


def source(text: str) -> SourceFile:
    return SourceFile(Path("scale.cu"), text)


def examined(text: str, line: int, message: str = "is wrong", name: str = "scale.cu") -> Examination:
    found = Diagnostic(name, line, 5, line, 20, Severity.ERROR, message)
    lines = code_lines(text, python=False).numbers
    return replace(Examination((found,)), lines=lines)


def move(one: Examination, text: str) -> Examination | None:
    return moved(one, source(text), code_lines(text, python=False))


def test_places_move_with_their_lines():
    below = "// above\n" + KERNEL
    of_header = examined(KERNEL, 5, name="factor.cuh")
    assert move(of_header, below).findings == of_header.findings
    run = EmulatedRun(
        "n=1",
        "normal",
        4,
        (EmulatedFinding("global-race", "races", "scale.cu", 5, "scale", other=("scale.cu", 4)),),
        (LineCounters("scale", "scale.cu", 5), LineCounters("scale", "", 0)),
    )
    found = move(replace(examined(KERNEL, 5), emulation=Emulation((run,))), below)
    assert (found.findings[0].line, found.findings[0].end_line) == (6, 6)
    [run] = found.emulation.runs
    assert (run.findings[0].line, run.findings[0].other) == (6, ("scale.cu", 5))
    assert [one.line for one in run.counters] == [6, 0]
    assert found.lines == code_lines(below, python=False).numbers


def test_a_check_names_the_line_of_its_finding_as_it_is_now():
    seen = EmulatedFinding("out-of-bounds", "reads past the end", "scale.cu", 5, "scale")
    check = Check(name="baseline", status=CheckStatus.FAILED, detail=f"on case n=1, {placed_message(seen)}")
    emulation = Emulation((EmulatedRun("n=1", "normal", 4, (seen,)),))
    one = replace(examined(KERNEL, 5), checks=(check,), emulation=emulation)
    assert move(one, "// above\n" + KERNEL).checks[0].detail == "on case n=1, line 6: reads past the end"
    assert move(replace(one, emulation=None), "// above\n" + KERNEL) is None, "whose line it is, is not known"


def test_a_finding_ends_with_its_line():
    commented = KERNEL.replace("x[i];\n", "x[i];  // as long as this\n")
    found = replace(examined(commented, 5).findings[0], end_column=60)
    one = replace(examined(commented, 5), findings=(found,))
    assert move(one, KERNEL).findings[0].end_column == len(STORE)


@pytest.mark.parametrize(
    ("line", "message", "name"),
    [
        (5, "the other access is in line 4", "scale.cu"),
        (5, "previous declaration at scale.cu(4)", "scale.cu"),
        (2, "is about an empty line", "scale.cu"),
        (5, "is wrong", "../link/scale.cu"),
    ],
)
def test_what_cannot_be_moved_is_checked_anew(line, message, name):
    assert move(examined(KERNEL, line, message, name), "// above\n" + KERNEL) is None


def test_a_message_may_name_a_line_that_stays():
    one = examined(KERNEL, 5, "the other access is in line 4")
    assert move(one, KERNEL + "// the end\n").findings == one.findings
