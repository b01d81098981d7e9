"""What checking one file finds, keeps and forgets; on the emulator, as on every machine that hides its GPU."""

import os
import re
import shutil
from dataclasses import replace
from pathlib import Path

import pytest
from check_support import HEADER, KERNEL, WORKLOAD, checking, codes, settings_in

from kernel_lsp import policy
from kernel_lsp.check import Checker, examiner, record_baseline
from kernel_lsp.compiler.builds.build import Severity
from kernel_lsp.errors import ConfigurationError

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("without_a_gpu")
EXAMPLES = Path(__file__).parents[3] / "examples"


def test_a_wrong_answer_is_said_at_a_kernel_that_was_launched(path, tmp_path):
    first = "__global__ void unused(float* y) {\n    y[0] = 0;\n}\n"
    path.write_text(path.read_text().replace("extern", first + "extern", 1))
    path.with_name("factor.cuh").write_text(HEADER.replace("2", "3"))

    def steps(check):
        assert codes(check(path)) == [("KL020", 6)]

    checking(tmp_path, steps)


def test_a_draft_hides_no_error_of_the_compiler(path, tmp_path):
    workload = path.with_name("scale_workload.py")
    workload.write_text(f"# kernel-lsp: draft\n{workload.read_text()}")
    path.write_text(path.read_text().replace("y[i] =", "z[i] ="))

    def steps(check):
        report = check(path)
        assert sorted((f.code, Path(f.path).name, f.line) for f in report.diagnostics) == [
            ("KL001", "scale.cu", 5),
            ("KL022", "scale_workload.py", 1),
        ]

    checking(tmp_path, steps)


def test_a_file_is_examined_once(path, tmp_path, monkeypatch):
    def steps(check):
        first = check(path)
        assert first.ok
        assert codes(first) == []
        assert not first.remembered
        assert first.emulation is not None
        path.with_name("factor.cuh").write_text(HEADER.replace("2", "3"))
        wrong = check(path)
        assert not wrong.remembered, "a header that it includes has changed"
        assert codes(wrong) == [("KL020", 3)]
        assert "is wrong from index" in wrong.diagnostics[0].message
        path.with_name("factor.cuh").write_text(HEADER)

    checking(tmp_path, steps)

    def nothing_is_started(*_):
        raise AssertionError("a worker is started")

    monkeypatch.setattr(examiner, "pool_on", nothing_is_started)

    def again(check):
        report = check(path)
        assert report.remembered
        assert report.ok
        assert [c.status for c in report.checks].count("passed") >= 5
        assert report.resources[0].registers > 0
        monkeypatch.chdir(path.parent)
        assert check(Path("scale.cu")).remembered

    checking(tmp_path, again)


@pytest.mark.thorough
def test_the_end_of_a_process_is_not_remembered(path, tmp_path):
    died = "import os\n\nos._exit(0)\n"
    workload = path.with_name("scale_workload.py")
    workload.write_text(workload.read_text().replace("import torch\n", f"import torch\n{died}"))

    def steps(check):
        for _ in range(2):
            report = check(path)
            assert "process ended" in report.diagnostics[0].message
            assert not report.remembered

    checking(tmp_path, steps)


def test_out_of_bounds_is_found_silenced_and_missed_when_it_is_gone(path, tmp_path):
    broken = KERNEL.replace("i < n", "i <= n")

    def steps(check):
        path.write_text(broken)
        report = check(path)
        assert codes(report) == [("KL010", 5)] * 2
        said = [found.message for found in report.diagnostics]
        assert ["but `y` has 1,000 elements" in one for one in said].count(True) == 1, said
        assert ["but `x` has 1,000 elements" in one for one in said].count(True) == 1, said
        assert not report.ok
        known = check(path)
        assert known.remembered
        assert known.diagnostics == report.diagnostics

        ignore = "    // kernel-lsp: ignore[KL010] the caller pads\n    if"
        path.write_text(broken.replace("    if", ignore))
        report = check(path)
        assert report.ok
        assert codes(report) == []
        found = [(one.finding.code, one.finding.line, one.reason) for one in report.silenced]
        assert found == [("KL010", 6, "the caller pads")] * 2

        path.write_text(KERNEL.replace("    if", ignore))
        report = check(path)
        assert report.ok
        assert codes(report) == [("KL050", 5)]
        assert not report.passes(strict=True)

    checking(tmp_path, steps)


def test_findings_lie_where_the_file_is_called(path, tmp_path, monkeypatch):
    path.write_text(KERNEL.replace("FACTOR", "two"))
    path.with_name("other.cu").write_text(KERNEL.replace("FACTOR", "MISSING(x)"))
    path.with_name("factor.cuh").write_text("#define MISSING(x) 2.0f\n#warning old header\n")
    moved = tmp_path / "moved"

    def steps(check):
        found = check(path).diagnostics
        assert (found[0].code, found[0].path, found[0].line) == ("KL001", str(path), 5)
        assert 'identifier "two" is undefined' in found[0].message
        shutil.copytree(path.parent, moved)
        again = check(moved / "scale.cu")
        assert again.remembered
        assert again.diagnostics[0] == replace(found[0], path=str(moved / "scale.cu"))
        monkeypatch.chdir(path.parent)
        header = [d for d in check(Path("other.cu")).diagnostics if d.code == "KL002"]
        assert [(os.path.realpath(d.path), d.line) for d in header] == [(str(path.with_name("factor.cuh")), 2)]

    checking(tmp_path, steps)


@pytest.mark.parametrize(
    ("workload", "code", "words", "name"),
    [
        (WORKLOAD.replace("def launch", "def lunch"), "KL022", "has no `launch`", "scale_workload.py"),
        (WORKLOAD.replace("CASES", "SIZES"), "KL022", "does not define CASES. It needs", "scale_workload.py"),
        (WORKLOAD.replace("return 2 * x", "raise ValueError('no')"), "KL022", "raised", "scale_workload.py"),
        (WORKLOAD.replace("import torch", "import torch, sizes", 1), "KL022", "raised", "scale_workload.py"),
        ("CASES = [", "KL022", "Python cannot parse this file", "scale_workload.py"),
        (WORKLOAD.replace("torch.randn", "torch.zeros"), "KL023", "cannot tell right from wrong", "scale.cu"),
    ],
    ids=["no launch", "no cases", "reference raises", "import raises", "no Python", "weak"],
)
def test_a_workload_that_is_not_good(path, tmp_path, workload, code, words, name):
    path.with_name("scale_workload.py").write_text(workload)

    def steps(check):
        report = check(path)
        found = next(d for d in report.diagnostics if d.code == code)
        assert words in found.message
        assert Path(found.path) == path.with_name(name)
        assert report.ok == (code == "KL023")

    checking(tmp_path, steps)


@pytest.mark.thorough
def test_a_workload_may_import_what_lies_beside_it(path, tmp_path, monkeypatch):
    path.with_name("sizes.py").write_text("N = 1000\n")
    workload = WORKLOAD.replace("import torch", "import torch\nfrom sizes import N").replace("n=1000", "n=N")
    path.with_name("scale_workload.py").write_text(workload)
    monkeypatch.chdir(tmp_path)

    def steps(check):
        relative = path.relative_to(tmp_path)
        assert codes(check(relative)) == []
        path.with_name("sizes.py").write_text("N = 'many'\n")
        (found,) = check(relative).diagnostics
        assert (found.code, found.path) == ("KL022", str(relative.with_name("scale_workload.py")))

    checking(tmp_path, steps)


@pytest.mark.thorough
def test_the_settings_can_silence_a_rule(path, tmp_path):
    path.write_text(KERNEL.replace("i < n", "i <= n"))

    def steps(check):
        report = check(path)
        assert report.ok
        assert {s.reason for s in report.silenced} == {"by the settings"}

    checking(tmp_path, steps, ignore=["KL010"])


def test_regressions_against_the_baseline_in_the_repository(path, tmp_path):
    def steps(check):
        (written,) = record_baseline([check(path)])
        assert written == path.parent / ".kernel-lsp/baseline.json"
        recorded = written.read_text()
        assert '"scale.cu"' in recorded
        assert codes(check(path)) == []
        written.write_text(re.sub(r'"registers": \d+', '"registers": 1', recorded))
        report = check(path)
        assert report.remembered, "the baseline is compared with what is known"
        assert codes(report) == [("KL040", 3)]
        assert not report.ok
        path.write_text(KERNEL.replace("extern", "// kernel-lsp: ignore[KL040, KL043] meant\nextern"))
        report = check(path)
        assert codes(report) == [], "KL043 could not have spoken without a GPU"
        assert report.ok

    checking(tmp_path, steps)


def test_the_code_of_each_kernel_has_a_hash_of_its_own(path, tmp_path):
    second = KERNEL.partition("\n")[2].replace("scale", "other").replace("FACTOR", "3.0f")
    launch = "    module.other[(x.numel() + 255) // 256, 256](x, torch.empty_like(x), x.numel())\n    return y"
    path.with_name("scale_workload.py").write_text(WORKLOAD.replace("    return y", launch))

    def steps(check):
        path.write_text(KERNEL + second)
        first = {kernel.name: kernel.code for kernel in check(path).resources}
        path.write_text("// a comment\n" + KERNEL + second.replace("3.0f", "4.0f"))
        changed = {kernel.name: kernel.code for kernel in check(path).resources}
        assert set(first) == set(changed) == {"scale", "other"}
        assert None not in first.values()
        assert first["scale"] == changed["scale"]
        assert first["other"] != changed["other"]

    checking(tmp_path, steps)


@pytest.mark.thorough
def test_an_example_with_bank_conflicts_gets_its_hint(tmp_path):
    def steps(check):
        report = check(EXAMPLES / "cuda/transpose.cu")
        assert report.ok
        assert [d.code for d in report.diagnostics] == ["KL031"]
        line = (EXAMPLES / "cuda/transpose.cu").read_text().splitlines()[report.diagnostics[0].line - 1]
        assert "= tile[threadIdx.x]" in line

    checking(tmp_path, steps)


def test_a_fault_in_one_case_does_not_hide_the_others(path, tmp_path):
    faulty = path.read_text().replace("if (i < n) y[i]", "if (i < n || n == 100) y[i]")
    path.write_text(faulty.replace("[i];", "[i] * (n != 200);"))
    workload = path.with_name("scale_workload.py")
    workload.write_text(workload.read_text().replace("[dict(n=1000)]", "[dict(n=100), dict(n=200), dict(n=300)]"))

    def steps(checked):
        report = checked(path)
        said = [d.message for d in report.diagnostics if d.severity is Severity.ERROR]
        assert any("elements (thread " in message for message in said), said
        assert any("on case n=200 output 0 is wrong" in message for message in said), said
        assert [check.case for check in report.checks if check.status == "passed"] == ["n=300"]

    checking(tmp_path, steps)


@pytest.mark.thorough
def test_a_launch_that_fails_on_most_inputs_is_a_warning(path, tmp_path):
    workload = path.with_name("scale_workload.py")
    picky = (
        "    most, ends = float(x.abs().max()), float(x[-1] - x[0])\n"
        "    if most and (not 2 < most < 6 or abs(ends) > 5 or not x.is_contiguous()):\n"
        '        raise ValueError("zip() argument 3 is shorter")\n'
    )
    workload.write_text(WORKLOAD.replace("    y = torch.empty_like(x)\n", picky + "    y = torch.empty_like(x)\n"))

    def steps(check):
        report = check(path)
        assert report.ok
        (found,) = [one for one in report.diagnostics if one.code == "KL023"]
        assert re.match(r"`launch` fails on \d+ of \d+ sets of inputs, so little was checked: ", found.message)
        assert "zip() argument 3 is shorter" in found.message

    checking(tmp_path, steps)


def test_include_folders_that_nobody_has_named_are_said(path, tmp_path):
    include = path.parent / "include"
    include.mkdir()
    path.with_name("factor.cuh").rename(include / "factor.cuh")

    def steps(check):
        assert check(path).guessed_folders == (include,)

    checking(tmp_path, steps)


def test_kernels_that_no_case_launches_are_named(path, tmp_path):
    path.write_text(KERNEL + KERNEL.replace("scale", "other").partition("\n")[2])

    def steps(check):
        assert check(path).never_launched == ("other",)

    checking(tmp_path, steps)


def test_a_part_of_a_program_may_need_a_header_that_only_the_program_includes(tmp_path):
    """The process that compiles it may read no more of the disk than it needs."""
    part = tmp_path / "code/kernels/part.cu"
    part.parent.mkdir(parents=True)
    part.write_text("__global__ void k(Node* x) { x->key = 1; }\n")
    (tmp_path / "code/common.h").write_text("struct Node { int key; };\n")
    program = 'extern "C" {\n#include "../common.h"\n#include "part.cu"\n}\n'
    (part.parent / "program.cu").write_text(program)

    def steps(check):
        report = check(part)
        assert report.ok, report.diagnostics
        assert [kernel.name for kernel in report.resources] == ["k"]

    checking(tmp_path, steps)


def test_settings_that_would_hide_an_error_of_the_compiler_are_refused(tmp_path):
    with pytest.raises(ConfigurationError, match=r"KL001 .*cannot be silenced"):
        Checker(settings_in(tmp_path, ignore=["KL001"]))


def test_a_build_that_does_not_end_says_what_may_be_the_cause(path, tmp_path, monkeypatch):
    monkeypatch.setattr(policy, "BUILD_SECONDS", 0.01)
    workload = path.with_name("scale_workload.py")

    def steps(check):
        (found,) = check(path).diagnostics
        assert found.code == "KL001"
        assert "`inputs` and `launch` in scale_workload.py do not come to an end" in found.message
        workload.unlink()
        assert "move some kernels to a file of their own" in check(path).diagnostics[-1].message

    checking(tmp_path, steps)
