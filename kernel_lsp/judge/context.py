"""The state that the stages of a judgement share: the measured baseline, and everything learned about one candidate."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass, field, replace

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.building import Builders, Built
from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.integrity.accesses import FinalLooks
from kernel_lsp.judge.integrity.host_time import CallTimes
from kernel_lsp.judge.integrity.launches import ObservedLaunches
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.procedure import DecisionRule, FirstLook
from kernel_lsp.judge.measure.statistics import Decision
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.judge.timing import SustainedRun, Trace
from kernel_lsp.judge.verdict import DeviceState
from kernel_lsp.model.gate import Quieted
from kernel_lsp.runner.messages.subject_answers import Recorded
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.static_check import Note


@dataclass(frozen=True, slots=True)
class MeasuredBaseline:
    """The baseline, loaded and measured: what a candidate is compared with.

    Attributes:
        harness: owns its process.
        baseline: its process.
        profile: its answers on all inputs.
        cases: how each case is timed; empty without a GPU, or where the baseline itself is wrong.
        untimed: cases that are too short beside the others.
        recorded: the properties of its recordings.
        seen: its launches on the GPU.
        looks: the last looks at confirmed gains.
        other_sizes: sizes that CASES does not name, without a GPU; where there is one, `looks` have them.
    """

    harness: Harness
    baseline: Subject
    profile: BaselineProfile
    cases: tuple[TimedCase, ...] = ()
    untimed: tuple[TimedCase, ...] = ()
    recorded: tuple[Recorded, ...] = ()
    seen: ObservedLaunches = field(default_factory=ObservedLaunches)
    looks: FinalLooks | None = None
    other_sizes: OtherSizesCheck | None = None


@dataclass(frozen=True, slots=True)
class SessionContext:
    """The surroundings of all judgements of one session.

    Attributes:
        target: what is judged.
        settings: those in force at the target's file.
        gpu: None where kernels are emulated.
        builders: compile workers.
        baseline_built: the baseline's build.
        measured: the measured baseline; None without a GPU if it cannot be emulated.
        unmeasured: why it is not measured, else empty.
        timer: holds the GPU for timing, with model servers kept off it.
        pids: returns the ids of our own processes.
    """

    target: Target
    settings: Settings
    gpu: Gpu | None
    builders: Builders
    baseline_built: Built
    measured: MeasuredBaseline | None
    unmeasured: str
    timer: Callable[[], AbstractAsyncContextManager[tuple[Quieted, ...]]]
    pids: Callable[[], frozenset[int]]


@dataclass
class Context:
    """One judgement on its way through the stages; each stage fills in its part.

    Attributes:
        session: what all judgements of the session share.
        candidate: the version under judgement.
        known: True if judged in full before, beside another baseline: plain inputs only, and no final checks.
        always_run: run it even if it is the baseline's own program.
        on_decision: called with the decision after each block.
        timeline: seconds by stage.
        built: its build.
        subject: its process.
        reloaded: baseline and candidate in the fresh processes of a confirmation.
        notes: actions of its host code beyond creating tensors and launching, for the evidence.
        findings: checks so far.
        cases: the timed cases.
        series: all blocks measured.
        first: the first look at them.
        pairs: blocks of each look where the baseline is slow; None where they are not fixed beforehand.
        quieted: model servers that are kept off the GPU while it is timed.
        confirmation_blocks: blocks of the second look.
        memories: launches of the last look that worked in memory of their own.
        device: the GPU while timing.
        protections: what confined its process.
        seen: its launches on the GPU.
        traces: the same for the evidence.
        calls: host and GPU time of eager calls.
        sustained: a steady load, if one was run.
        on_confirmed: called with the ruling on a confirmed gain before its final checks, by who shows it then.
        final_checks: when a confirmed gain had its final checks; None before there is one.
    """

    session: SessionContext
    candidate: Candidate
    known: bool = False
    always_run: bool = False
    on_decision: Callable[[Decision], None] | None = None
    timeline: Timeline = field(default_factory=Timeline)
    built: Built | None = None
    subject: Subject | None = None
    reloaded: list[Subject] = field(default_factory=list[Subject])
    notes: list[Note] = field(default_factory=list[Note])
    findings: Findings = field(default_factory=Findings)
    cases: tuple[TimedCase, ...] = ()
    series: Series | None = None
    first: FirstLook | None = None
    pairs: int | None = None
    quieted: tuple[Quieted, ...] = ()
    confirmation_blocks: int = 0
    memories: int = 0
    device: DeviceState | None = None
    protections: tuple[str, ...] = ()
    seen: ObservedLaunches = field(default_factory=ObservedLaunches)
    traces: list[Trace] = field(default_factory=list[Trace])
    calls: list[CallTimes] = field(default_factory=list[CallTimes])
    sustained: SustainedRun | None = None
    on_confirmed: Callable[[Ruling], None] | None = None
    final_checks: FinalChecks | None = None

    def confirmed(self, ruling: Ruling) -> None:
        """Note that a gain is confirmed and that its final checks come next."""
        self.final_checks = FinalChecks.AWAITED
        if self.on_confirmed is not None:
            self.final_checks = FinalChecks.UNDER_WAY
            self.on_confirmed(ruling)
            self.final_checks = FinalChecks.AFTERWARDS

    def rule(self, cases: Sequence[TimedCase], *, shared: bool) -> DecisionRule:
        """Return the rule by which these cases are decided; `shared` says that others compute on the GPU too."""
        # A slow launch, of which pairs are fixed, moves its data many times: what it copies meanwhile is not known.
        bandwidth = self.harness.bandwidth if self.pairs is None else None
        copying = [case.copying_share(bandwidth) for case in cases]
        judge = self.session.settings.judge
        return DecisionRule.of(cases, judge, shared=shared, pairs=self.pairs, copying=copying)

    @property
    def measured(self) -> MeasuredBaseline:
        """The measured baseline; later stages come only where there is one."""
        assert self.session.measured is not None, "an earlier stage ends where nothing is measured"
        return self.session.measured

    @property
    def untimed(self) -> tuple[TimedCase, ...]:
        """Cases that are too short to be timed, recorded as the timed ones are."""
        return tuple(replace(case, captured=self.cases[0].captured) for case in self.measured.untimed)

    @property
    def harness(self) -> Harness:
        """The harness."""
        return self.measured.harness

    @property
    def running(self) -> Subject:
        """The candidate's process; later stages come only where there is one."""
        assert self.subject is not None, "an earlier stage ends where nothing is loaded"
        return self.subject

    @property
    def same_bits(self) -> bool:
        """True where every launch on the same inputs must leave the same bits."""
        return self.measured.profile.same_bits(self.harness)
