"""Runs a candidate on sizes that CASES does not name, wherever the kernel as it stands is right.

A kernel that is right on the listed sizes alone cannot take the other's place. The emulator runs both on small sizes,
for it keeps accesses within their tensors; the GPU on sizes near the largest one, where a kernel may take another path.
Each version is run in a process that nothing else needs any more.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from kernel_lsp import policy
from kernel_lsp.errors import NotBuiltError
from kernel_lsp.judge.emulation import read_run
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.compare import ruling_on
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of, ruling_of_finding
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.runner.messages.oracle import OtherSizes
from kernel_lsp.runner.messages.subject import Run
from kernel_lsp.runner.worker import WorkerTimedOut

NAME = "other sizes"


@dataclass(frozen=True, slots=True)
class _Ran:
    """One run: the ruling on it, if anything is wrong, and its seconds; the emulator's are the processor's."""

    ruling: Ruling | None
    seconds: float


def _note_end(task: "asyncio.Task[list[Draw]]") -> None:
    """Look at how a task ended: who is interrupted asks no more, and asyncio would print the error as nobody's."""
    if not task.cancelled():
        task.exception()


@dataclass
class OtherSizesCheck:
    """Sizes that CASES does not name, with the baseline's own runs on them, which are made once.

    They are small without a GPU, where kernels are emulated, and near the largest listed one with one.
    """

    harness: Harness
    baseline: Subject
    _managed: "asyncio.Task[list[Draw]] | None" = field(default=None, init=False)
    _unmanaged: str = field(default="", init=False)
    _too_late: list[str] = field(default_factory=list[str], init=False)

    async def check(self, candidate: Subject, findings: Findings) -> Ruling | None:
        """Return the ruling on a candidate that is wrong, or fails, where the baseline is right."""
        if not self.wanted(findings):
            return None
        subject = await self.harness.enter(candidate.candidate, candidate.built)
        try:
            return await self.check_in(subject, findings)
        finally:
            self.harness.leave_behind(self.harness.leave(subject))

    def wanted(self, findings: Findings) -> bool:
        """Return whether there is anything to run; say in the findings why not."""
        if self.harness.workload.contract.listed_sizes:
            findings.skipped(NAME, "CONTRACT says that callers use those in CASES only")
            return False
        if self._managed is not None and self._managed.done() and not self._managed.result():
            self._note_unmanaged(findings)
            return False
        return True

    async def check_in(self, subject: Subject, findings: Findings) -> Ruling | None:
        """Return the ruling on a candidate that is loaded in a process of which no more is wanted, or None."""
        managed = await asyncio.shield(self.prepare())
        for case in self._too_late:
            findings.skipped(NAME, "the kernel as it stands took all the time that there is for them", case)
        return await self._check(subject, managed, findings) if managed else self._note_unmanaged(findings)

    def prepare(self) -> "asyncio.Task[list[Draw]]":
        """Return the work of running the baseline on the sizes, started by the first call."""
        if self._managed is None:
            self._managed = asyncio.create_task(self._of_baseline())
            self._managed.add_done_callback(_note_end)
        return self._managed

    def _note_unmanaged(self, findings: Findings) -> None:
        if self._unmanaged:
            findings.skipped(NAME, f"the kernel as it stands was run on none: {self._unmanaged}")

    async def _check(self, subject: Subject, managed: Sequence[Draw], findings: Findings) -> Ruling | None:
        spent = 0.0
        for draw in managed:
            case = self.harness.cases[draw.case]
            if spent > 2 * policy.OTHER_SIZES_SECONDS:
                findings.skipped(NAME, "the time for them is spent", case)
                continue
            try:
                ran = await self._run(subject, draw)
            except RUN_ERRORS as error:
                if self._excuses(error):
                    findings.skipped(NAME, f"it was not run: {error}", case)
                    if not subject.worker.alive:
                        break
                    continue
                ran = _Ran(ruling_of(error, "running", case), 0.0)
            spent += ran.seconds
            if ran.ruling is None:
                findings.passed(NAME, case=case)
            elif ran.ruling.outcome is Outcome.UNTIMED:
                findings.skipped(NAME, ran.ruling.reason, case)
            else:
                return findings.fail(NAME, _told(ran.ruling), case)
        return None

    def _excuses(self, error: Exception) -> bool:
        """Return True if an error of a run says nothing of a candidate; whatever else it does not manage does.

        An instance of a template is built for the listed sizes, and the emulator may be slow.
        """
        return isinstance(error, NotBuiltError) or (isinstance(error, WorkerTimedOut) and self.harness.gpu is None)

    async def _of_baseline(self) -> list[Draw]:
        """Return inputs of other sizes that the baseline is right on; what it does not manage costs nobody anything."""
        harness = self.harness
        first = len(harness.cases)
        names = await harness.oracle(OtherSizes(near=harness.gpu is not None))
        harness.workload = replace(harness.workload, cases=(*harness.cases, *names))
        managed: list[Draw] = []
        subject = await harness.enter(self.baseline.candidate, self.baseline.built)
        spent = 0.0
        try:
            for case in range(first, first + len(names)):
                if not subject.worker.alive:
                    break
                if spent > policy.OTHER_SIZES_SECONDS:
                    self._too_late.append(harness.cases[case])
                    continue
                try:
                    draw = await drawing.draw(harness, case, PLAIN)
                    ran = await self._run(subject, draw, baseline=True)
                except RUN_ERRORS as error:
                    self._unmanaged = str(error)
                    continue
                spent += ran.seconds
                if ran.ruling is not None:
                    self._unmanaged = ran.ruling.reason
                elif harness.gpu is None and ran.seconds > policy.OTHER_SIZE_SECONDS:
                    self._unmanaged = f"on case {harness.cases[case]} it takes {ran.seconds:.1f} s"
                else:
                    managed.append(draw)
        finally:
            await harness.leave(subject)
        return managed

    async def _run(self, subject: Subject, draw: Draw, *, baseline: bool = False) -> _Ran:
        harness, began = self.harness, self.harness.turns.clock()
        may_compile = harness.gpu is not None
        deadline = policy.FIRST_RUN_SECONDS if may_compile else policy.OTHER_SIZES_DEADLINE_SECONDS
        await harness.fill(subject, draw)
        ran = await subject.ask(Run(buffer=draw.buffer), deadline=deadline)
        compared = await harness.compare(subject, draw, ran.published, baseline=baseline)
        ruling = ruling_on(harness, draw, compared, ran.trampled)
        if ran.emulated is None:
            await harness.unbind(subject, draw.buffer)  # it takes as much memory as the largest case
            return _Ran(ruling, harness.turns.clock() - began)
        emulated = read_run(harness.cases[draw.case], draw.family, draw.input_bytes, ran.emulated)
        found = ruling_of_finding(emulated.findings[0], emulated) if emulated.findings else None
        return _Ran(found or ruling, emulated.seconds)


def _told(ruling: Ruling) -> Ruling:
    """Return the ruling with what is particular about the case, and what would make it acceptable."""
    reason = (
        f"{ruling.reason.rstrip('.')}; that is a size that CASES does not name, and the kernel as it stands is right "
        "there (if callers never use such, say it in CONTRACT: `multiples`, or `listed_sizes=True`)"
    )
    return replace(ruling, reason=reason)
