"""Collect the results of checks, and turn errors and findings into rulings."""

from dataclasses import dataclass, field

from kernel_lsp.errors import CannotJudgeError, KernelLspError
from kernel_lsp.judge.emulation import EmulatedFinding, EmulatedRun, placed_message
from kernel_lsp.judge.errors import UnjudgedError, reason_of
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.verdict import Check, CheckStatus, ErrorFigures, Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut

RUN_ERRORS = (WorkerFailure, KernelLspError)
"""Errors that running a version may end in."""
_AMISS = (  # a GPU runs such code, with unpredictable answers
    *("uninitialised", "shared-race", "global-race"),
    *("unawaited-copy", "overwritten-stage", "missing-proxy-fence"),
)


@dataclass(slots=True)
class Findings:
    """Checks of one version, in order.

    Attributes:
        checks: each with how it ended.
        errors: errors against the truth.
        runs: emulated ones, where there is no GPU.
        prints: by key of the inputs, checksums of the outputs.
        ruling: the failure that ended the checks.
    """

    checks: list[Check] = field(default_factory=list[Check])
    errors: list[ErrorFigures] = field(default_factory=list[ErrorFigures])
    runs: list[EmulatedRun] = field(default_factory=list[EmulatedRun])
    prints: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    ruling: Ruling | None = None

    def passed(self, name: str, detail: str = "", case: str | None = None) -> None:
        """Record a check that passed."""
        self.checks.append(Check(name=name, status=CheckStatus.PASSED, detail=detail, case=case))

    def skipped(self, name: str, detail: str, case: str | None = None) -> None:
        """Record a check that was skipped, and why."""
        self.checks.append(Check(name=name, status=CheckStatus.SKIPPED, detail=detail, case=case))

    def fail(self, name: str, ruling: Ruling, case: str | None = None) -> Ruling:
        """Record the check that failed and its ruling, and return the ruling."""
        self.checks.append(Check(name=name, status=CheckStatus.FAILED, detail=ruling.reason, case=case))
        self.ruling = ruling
        return ruling


def ruling_of(error: Exception, doing: str, case: str) -> Ruling:
    """Return the ruling for an exception that was raised while a version ran.

    It is UNTIMED where the version is not to blame: the judge lacks memory, or this machine cannot run it.
    """
    if isinstance(error, CannotJudgeError):
        return Ruling(Outcome.UNTIMED, Stage.RUN, f"it could not be judged, {doing} on case {case}: {error.message}")
    if isinstance(error, UnjudgedError) or (isinstance(error, WorkerFailure) and error.driver_lacks_memory):
        return Ruling(Outcome.UNTIMED, Stage.RUN, f"it could not be judged, {doing} on case {case}: {reason_of(error)}")
    if isinstance(error, WorkerTimedOut):
        return Ruling(Outcome.TIMED_OUT, Stage.RUN, f"it did not finish {doing} on case {case}: {error.message}")
    if isinstance(error, WorkerDied):
        reason = f"its process died {doing} on case {case}: {error.message}"
        return Ruling(Outcome.RUN_FAILED, Stage.RUN, reason, died=True)
    if isinstance(error, WorkerFailure):
        said = error.message.splitlines()[0] if error.message else error.kind
        return Ruling(Outcome.RUN_FAILED, Stage.RUN, f"it failed {doing} on case {case}: {error.kind}: {said}")
    return Ruling(Outcome.RUN_FAILED, Stage.RUN, f"it failed {doing} on case {case}: {error}")


def ruling_of_finding(finding: EmulatedFinding, run: EmulatedRun) -> Ruling:
    """Return the ruling for a finding of the emulator: a fault on a GPU, or an answer that varies between runs."""
    inputs = "" if run.family == "normal" else f" with {run.family} inputs"
    outcome, stage = (Outcome.WRONG, Stage.CORRECT) if finding.kind in _AMISS else (Outcome.RUN_FAILED, Stage.RUN)
    return Ruling(outcome, stage, f"on case {run.case}{inputs}, {placed_message(finding)}")
