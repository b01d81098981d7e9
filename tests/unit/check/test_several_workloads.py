"""A kernel file with several workloads: what is found with each stands in one report."""

from kernel_lsp.check.joining import joined, joined_emulations
from kernel_lsp.check.record import CaseTime, Examination
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.judge.emulation import EmulatedRun, Emulation, NotEmulated
from kernel_lsp.judge.verdict import Check, CheckStatus
from kernel_lsp.rules.rule import Needs


def found(message: str) -> Diagnostic:
    return Diagnostic("norm.cu", 1, 1, 1, 1, Severity.WARNING, message)


def passed(name: str, case: str | None) -> Check:
    return Check(name=name, status=CheckStatus.PASSED, case=case)


def examined(wrong: str, case: str) -> Examination:
    return Examination(
        (found("of the compiler"), found(wrong)),
        (
            Check(name="inputs: normal", status=CheckStatus.PASSED, case=case),
            Check(name="run", status=CheckStatus.PASSED),
        ),
        done=(Needs.NOTHING, Needs.COMPILING),
        times=(CaseTime(case, 1.0, (1.0, 1.0)),),
    )


def test_one_workload_is_as_it_is():
    alone = examined("wrong", "n=1")
    assert joined([("norm_workload", alone)]) is alone


def test_what_one_workload_alone_finds_bears_its_name():
    forward, backward = examined("wrong there", "n=1"), examined("wrong here", "n=1")
    both = joined([("forward", forward), ("backward", backward)])
    said = [finding.message for finding in both.findings]
    assert said == ["of the compiler", "with forward: wrong there", "with backward: wrong here"]
    assert [check.case for check in both.checks] == ["forward: n=1", None, "backward: n=1", None]
    assert both.times is not None
    assert [time.case for time in both.times] == ["forward: n=1", "backward: n=1"]
    assert set(both.done) == {Needs.NOTHING, Needs.COMPILING}
    assert joined([("forward", forward), ("backward", Examination(()))]).times is None, "not both were timed"


def test_emulated_runs_are_those_of_all():
    runs = [EmulatedRun("n=1", "normal", 8), EmulatedRun("n=2", "normal", 8)]
    first, second = Emulation((runs[0],)), Emulation((runs[1],), NotEmulated("wgmma"))
    assert joined_emulations([first, None, second]) == Emulation(tuple(runs), NotEmulated("wgmma"))
    assert joined_emulations([None, None]) is None
