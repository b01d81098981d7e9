import json
from dataclasses import replace
from pathlib import Path

import pytest
import sample_verdicts as sample
from rich.console import Console

from kernel_lsp.check import FileReport
from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.errors import SourceError
from kernel_lsp.judge.emulation import Emulation, NotEmulated
from kernel_lsp.judge.verdict import Check, CheckStatus, Outcome, Stage
from kernel_lsp.refine.outcome import Refinement, Tried
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.report.check import file_view, summary_view
from kernel_lsp.report.formats.json import check_json
from kernel_lsp.report.machine import refinement_json
from kernel_lsp.report.search import NEAREST, attempts_view
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language


def shown(view) -> list[str]:
    console = Console(width=100, color_system=None)
    with console.capture() as capture:
        console.print(view)
    return [" ".join(line.split()) for line in capture.get().splitlines()]


def tried(label, outcome, ratio=None, message="", verdict=None) -> Tried:
    candidate = Candidate(Language.CUDA, SourceFile(Path("k.cu"), label), None, label, "tuner")
    interval = (ratio * 0.99, ratio * 1.01) if ratio else None
    return Tried(candidate, Feedback(Stage.TIMED, outcome, ratio, interval, message), verdict)


def test_a_search_that_found_nothing_shows_what_came_nearest():
    slow = [tried(f"slow {n}", Outcome.SLOWER, 1.2 + n / 10) for n in range(NEAREST)]
    wrong = tried("no mask", Outcome.WRONG, message="differs at [3]")
    near = tried("BLOCK 256", Outcome.AMBIGUOUS, 0.98, "1.020x in a race")
    head, first, *rest = shown(attempts_view(Refinement(tried=[*slow, wrong, near], seconds=42.0)))
    assert head == f"{NEAREST + 2} candidates in 42.0 s {NEAREST} SLOWER · 1 WRONG · 1 raced"
    assert first == "BLOCK 256 raced 1.020x 1.010-1.031 1.020x in a race"
    assert len(rest) == NEAREST - 1


def test_without_a_gpu_attempts_stand_in_predicted_order_and_it_is_said_that_none_was_measured():
    plain = [tried(name, Outcome.UNTIMED) for name in ("A", "B", "C")]
    ratios = (None, 1.25, 0.5)
    found = [replace(t, feedback=replace(t.feedback, predicted=p)) for t, p in zip(plain, ratios, strict=True)]
    head, said, *rows = shown(attempts_view(Refinement(tried=found, seconds=9.0)))
    assert head == "3 candidates in 9.00 s 3 UNTIMED"
    assert said.endswith("none was measured.")
    assert rows == ["C UNTIMED predicted 2.00x", "B UNTIMED predicted 0.80x", "A UNTIMED"]
    objects = json.loads(refinement_json(Refinement(tried=found), ""))["tried"]
    assert [one["predicted_ratio"] for one in objects] == [*ratios]


def test_a_candidate_raced_and_judged_counts_once_and_the_best_is_not_repeated():
    raced, judged = tried("A", Outcome.AMBIGUOUS, 0.7), tried("A", Outcome.FASTER, 0.7, verdict=sample.faster())
    found = Refinement(best=sample.faster(), variant=judged.candidate, tried=[raced, judged], seconds=9.0)
    assert shown(attempts_view(found)) == ["1 candidate in 9.00 s 1 FASTER"]


def test_a_refinement_as_one_object():
    judged = tried("A", Outcome.FASTER, 0.7, verdict=sample.faster())
    found = Refinement(sample.faster(), judged.candidate, [judged], "faster", 9.0, 4.0)
    said = json.loads(refinement_json(found, "--- a/k.cu\n"))
    assert (said["found"], said["diff"], said["seconds_to_first"]) == (True, "--- a/k.cu\n", 4.0)
    assert said["verdict"]["verdict"] == "FASTER"
    assert (said["tried"][0]["label"], said["tried"][0]["id"]) == ("A", sample.faster().id)


def report(**changes) -> FileReport:
    return FileReport(
        Path("k.cu"),
        Language.CUDA,
        "sm_90",
        ("f", "g"),
        **{"seconds": 0.42, "workloads": (Path("k_workload.py"),)} | changes,
    )


def skipped(name: str, detail: str, case: str | None = None) -> Check:
    return Check(name=name, status=CheckStatus.SKIPPED, detail=detail, case=case)


def test_a_file_that_is_well_takes_one_line():
    checks = [Check(name="reference", status=CheckStatus.PASSED), Check(name="reference", status=CheckStatus.PASSED)]
    assert shown(file_view(report(checks=checks), "")) == ["✓ k.cu 0.42 s 2 checks passed"]


def test_what_only_a_gpu_can_do_is_no_fault():
    passed = Check(name="inputs: normal", status=CheckStatus.PASSED)
    large = [skipped("inputs: normal", "too large", case=case) for case in ("n=1", "n=2")]
    odd = skipped("inputs: large", "the kernel as it stands does not manage them")
    (line,) = shown(file_view(report(checks=[passed, *large, odd]), ""))
    assert line == "✓ k.cu 0.42 s right on 1 of 3 cases (1 check), 1 skipped"
    (line,) = shown(file_view(report(checks=[passed, skipped("run", "there is no GPU")]), ""))
    assert line == "✓ k.cu 0.42 s compiled, needs a GPU to run"


def test_what_the_emulator_does_not_run_is_named_with_its_line():
    lacking = Emulation(needs_gpu=NotEmulated("`tcgen05.ld` is not emulated.", "mma.cuh", 7))
    checks = [skipped("run", "there is no GPU")]
    _, line = shown(file_view(report(checks=checks, emulation=lacking), ""))
    assert line == "not run: `tcgen05.ld` is not emulated. (mma.cuh:7)"


@pytest.mark.parametrize("width", [80, 100])
def test_lines_stand_under_one_another(width):
    checks = [Check(name="inputs: normal", status=CheckStatus.PASSED)] * 10
    checks += [skipped("inputs: normal", "too large", case=str(number)) for number in range(3)]
    long, short = (
        replace(report(checks=checks, seconds=seconds), path=Path(path))
        for path, seconds in (("examples/triton/cross_entropy.py", 12.34), ("examples/cuda/saxpy.cu", 0.09))
    )
    console = Console(width=width, color_system=None)
    with console.capture() as capture:
        for one in (long, short):
            console.print(file_view(one, "", width=len(str(long.path))))
    first, second = capture.get().splitlines()
    assert first.index("10 checks") == second.index("10 checks")


def test_a_file_with_an_error_shows_it_at_its_place():
    bad = Diagnostic("k.cu", 1, 5, 1, 6, Severity.ERROR, "expected a ;")
    first, *rest = shown(file_view(report(diagnostics=[bad]), "int x"))
    assert first.startswith("✗ k.cu")
    assert rest == ["k.cu:1:5: error: expected a ;", "1 | int x", "| ^"]


def test_a_note_is_no_error():
    note = Diagnostic("k.cu", 1, 1, 1, 1, Severity.NOTE, "it has no workload")
    assert shown(file_view(report(diagnostics=[note]), "int x")) == ["✓ k.cu 0.42 s it has no workload"]


def test_the_summary_counts_files_and_says_once_what_was_skipped():
    bad = report(diagnostics=[Diagnostic("k.cu", 1, 1, 1, 1, Severity.ERROR, "no")])
    odd = skipped("inputs: large", "the kernel as it stands does not manage them")
    right = Check(name="inputs: normal", status=CheckStatus.PASSED)
    assert shown(summary_view([report(checks=[right])])) == ["1 file, 2 kernels, sm_90: all well"]
    for none_run in (report(workloads=()), report(checks=[])):  # it has no workload, or was checked with --no-run
        (said,) = shown(summary_view([none_run]))
        assert said == "1 file, 2 kernels, sm_90: no errors, 1 file compiled and not run"
    assert shown(summary_view([report(checks=[right, odd, odd]), bad])) == [
        "Skipped in 1 file: the kernel as it stands does not manage them.",
        "2 files, 4 kernels, sm_90: 1 with errors",
    ]


def test_the_summary_says_what_was_not_read_and_for_what_nothing_was_built():
    right = Check(name="inputs: normal", status=CheckStatus.PASSED)
    unread = SourceError("Byte 0xfc is not UTF-8.", Path("k.py"), 3, "Save the file in UTF-8.")
    first, *rest = shown(summary_view([report(checks=[right], not_built_for=("sm_75", "B200"))], [unread]))
    assert first == "Not read: k.py:3: Byte 0xfc is not UTF-8. Save the file in UTF-8."
    assert " ".join(rest) == (
        "1 file, 2 kernels, sm_90: no errors, not built for sm_75, B200 (`kernel-lsp facts` builds for each), "
        "1 file not read"
    )


def test_reasons_that_differ_in_figures_are_said_once():
    files = [
        report(checks=[skipped("inputs: strided", f"{n} of 1,000 elements are wrong: nan for -{n}.5e-3")])
        for n in (9, 10)
    ]
    assert shown(summary_view(files))[0] == "Skipped in 2 files: 9 of 1,000 elements are wrong: nan for -9.5e-3."


def test_the_summary_says_what_there_was_no_gpu_for():
    all_of_it, large = report(checks=[skipped("run", "no")]), report(checks=[skipped("inputs: normal", "too large")])
    assert shown(summary_view([all_of_it, large]))[0] == (
        "No GPU: some kernels were compiled only; kernels ran on the emulator, on small cases."
    )
    assert shown(summary_view([all_of_it]))[0] == "No GPU: some kernels were compiled only."


def test_check_as_one_object():
    bad = report(diagnostics=[Diagnostic("k.cu", 3, 1, 3, 2, Severity.ERROR, "no")])
    said = json.loads(check_json([report(), bad]))
    assert not said["ok"]
    assert [file["ok"] for file in said["files"]] == [True, False]
    assert said["files"][1]["diagnostics"][0]["line"] == 3


def test_what_was_not_compiled_or_launched_is_said_and_is_not_well():
    tried = (Assumed("f", 3, ("x: *fp32",), compiled=True), Assumed("g", 9, (), compiled=False, problem="line 2: no"))
    partly = report(workloads=(), assumed=tried)
    first, *rest = shown(file_view(partly, ""))
    assert first.startswith("– k.cu")
    assert rest == ["f, assumed: x: *fp32", "k.cu:9: g was not compiled: line 2: no"]
    (said,) = shown(summary_view([partly]))
    assert said.endswith("no errors, 1 kernel compiled for assumed types and not run, 1 not compiled")
    told = Assumed("h", 12, (), compiled=True)
    (said,) = shown(summary_view([report(workloads=(), assumed=(tried[0], told))]))
    assert said.endswith("no errors, 2 kernels compiled (1 for assumed types) and not run")
    (said,) = shown(summary_view([report(workloads=(), assumed=tried[1:])]))
    assert said == "1 file, 2 kernels, sm_90: nothing was compiled"
