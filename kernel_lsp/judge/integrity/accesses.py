"""Check the single memory accesses of a candidate that is about to be called faster.

compute-sanitizer repeats its launches on the GPU, and the emulator runs it on the CPU, side by side. Both compare with
what they say of the baseline. On small cases all blocks run; of the timed launches the emulator runs a few, with the
whole grid. Only a candidate that was confirmed to be faster is looked at in this way.
"""

import asyncio
import contextlib
import random
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from kernel_lsp import policy
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.emulation import EmulatedRun
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile, measure_baseline
from kernel_lsp.judge.inputs.check import check
from kernel_lsp.judge.inputs.draw import PLAIN, Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of_finding
from kernel_lsp.judge.inputs.other_sizes import NAME as OTHER_SIZES
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.integrity import sanitizer
from kernel_lsp.judge.integrity.sanitizer import Hazard
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.sampling import CaseSample, blocks_run, sample_version
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.runner.emulated import SampledRun
from kernel_lsp.runner.messages.subject import SampleBlocks
from kernel_lsp.runner.messages.subject_answers import LaunchFile
from kernel_lsp.runner.shield import both, start
from kernel_lsp.source.candidate import Candidate

_SANITIZER, _EMULATOR, _SAMPLE = "compute-sanitizer", "emulator", "blocks of the timed launch on the emulator"
_OFF = "judge.sanitize is off"


@dataclass(frozen=True, slots=True)
class _Emulated:
    """The baseline on the emulator.

    Attributes:
        harness: of the emulator.
        profile: of its runs; None where even the smallest case is too large to be run whole.
        baseline: the baseline there.
        other_sizes: the check on sizes that are not listed.
        told: by case, the kinds of findings that the baseline's own samples of blocks show.
    """

    harness: Harness
    profile: BaselineProfile | None
    baseline: Subject
    other_sizes: OtherSizesCheck
    told: dict[int, set[str]] = field(default_factory=dict[int, set[str]])


@dataclass
class FinalLooks:
    """The final access checks of one session's candidates; the emulated baseline is kept between them.

    Close it after use.
    """

    harness: Harness
    baseline: Subject
    profile: BaselineProfile
    timed: Sequence[TimedCase]
    _emulated: "asyncio.Task[_Emulated | str] | None" = field(default=None, init=False)
    _near_sizes: OtherSizesCheck = field(init=False)

    def __post_init__(self) -> None:
        """Make the check on sizes near the largest; it runs nothing yet."""
        self._near_sizes = OtherSizesCheck(self.harness, self.baseline)

    async def examine(
        self, candidate: Subject, findings: Findings, timeline: Timeline, loaded: asyncio.Event
    ) -> Ruling | None:
        """Run the checks on a candidate and record them; return the ruling on a fault, or None.

        The tools and other sizes keep the GPU busy, so they wait for `loaded`: the steady load is over then.
        """
        of_emulator = Findings()
        with timeline.stage("sanitize"):
            found = await both(
                self._run_on_gpu(candidate, findings, timeline, loaded),
                self._emulate(candidate, of_emulator, timeline),
            )
        findings.checks += of_emulator.checks
        return next(filter(None, found), None)

    def prepare(self) -> "asyncio.Task[_Emulated | str]":
        """Return the work of running the baseline on the emulator, started by the first call: it takes seconds."""
        if self._emulated is None:
            self._emulated = start(self._open_emulator())
        return self._emulated

    async def sampled(self, candidate: Candidate, built: Built) -> CaseSample | None:
        """Return a few blocks of a version's largest case on the emulator; None where it cannot run them."""
        made = await asyncio.shield(self.prepare())
        return None if isinstance(made, str) else await sample_version(made.harness, candidate, built)

    async def close(self) -> None:
        """End the emulator's workers, those that are being started too."""
        if self._emulated is not None:
            self._emulated.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                made = await self._emulated
                if not isinstance(made, str):
                    await made.harness.close()

    @property
    def _sanitizes(self) -> bool:
        return self.harness.settings.judge.sanitize != "off"

    def _runs_near_sizes(self, findings: Findings) -> bool:
        if self.harness.large or self.harness.launch_time.slow:
            findings.skipped(OTHER_SIZES, "near the largest: the kernel as it stands takes too much memory or time")
            return False
        return self._near_sizes.wanted(findings)

    async def _run_on_gpu(
        self, candidate: Subject, findings: Findings, timeline: Timeline, loaded: asyncio.Event
    ) -> Ruling | None:
        """Record launches in a fresh process, have compute-sanitizer repeat them, and run other sizes in that process.

        One process for both: to set one up takes the driver 0.3 s, beside others longer.
        """
        if not self._sanitizes:
            findings.skipped(_SANITIZER, _OFF)
        sizes = self._runs_near_sizes(findings)
        if not (self._sanitizes or sizes):
            return None
        try:
            async with self._entered(candidate) as subject:
                launches = await self._recorded(subject) if self._sanitizes else None
                await loaded.wait()
                if sizes:
                    self._near_sizes.prepare()
                if launches is not None and (ruling := await self._sanitize(candidate, launches, findings)) is not None:
                    return ruling
                with timeline.stage("other sizes"):
                    return await self._run_near_sizes(candidate, subject, findings) if sizes else None
        except RUN_ERRORS as error:
            for name in ([_SANITIZER] if self._sanitizes else []) + ([OTHER_SIZES] if sizes else []):
                findings.skipped(name, str(error))
            return None

    async def _run_near_sizes(self, candidate: Subject, recorded: Subject, findings: Findings) -> Ruling | None:
        """Run other sizes in the process whose launches were recorded, or in a new one if that ended it."""
        try:
            if recorded.worker.alive:
                return await self._near_sizes.check_in(recorded, findings)
            return await self._near_sizes.check(candidate, findings)
        except RUN_ERRORS as error:
            findings.skipped(OTHER_SIZES, f"near the largest: {error}")
            return None

    async def _recorded(self, subject: Subject) -> LaunchFile:
        try:
            return await sanitizer.record_launches(self.harness, subject, self.profile)
        except RUN_ERRORS as error:
            return LaunchFile(reason=f"the launches could not be recorded: {error}")

    async def _sanitize(self, candidate: Subject, launches: LaunchFile, findings: Findings) -> Ruling | None:
        names = [self.harness.cases[draw.case] for draw in sanitizer.small_draws(self.profile)]
        case = f"case {names[0]}" if len(names) == 1 else f"cases {'; '.join(names)}"
        if not launches.file:
            findings.skipped(_SANITIZER, launches.reason, case)
            return None
        found = await sanitizer.run_tools(self.harness, launches, sanitizer.TOOLS)
        suspicious = [tool for tool in sanitizer.TOOLS if any(hazard.tool == tool for hazard in found.hazards)]
        known = await self._hazards_of_baseline(suspicious) if suspicious else ()
        return sanitizer.note_hazards(found, known, case, candidate.candidate.kernel.path, findings)

    async def _hazards_of_baseline(self, tools: Sequence[str]) -> tuple[Hazard, ...]:
        """Return the findings of the tools for the baseline; none where its launches cannot be repeated."""
        try:
            async with self._entered(self.baseline) as subject:
                launches = await self._recorded(subject)
                return (await sanitizer.run_tools(self.harness, launches, tools)).hazards if launches.file else ()
        except RUN_ERRORS:
            return ()

    @asynccontextmanager
    async def _entered(self, version: Subject) -> AsyncGenerator[Subject]:
        """Yield a version in a fresh process, which ends behind it."""
        subject = await self.harness.enter(version.candidate, version.built)
        try:
            yield subject
        finally:
            self.harness.leave_behind(self.harness.leave(subject))

    async def _emulate(self, candidate: Subject, findings: Findings, timeline: Timeline) -> Ruling | None:
        """Run a candidate on the emulator: listed cases in one process, and beside it other sizes in another."""
        if not self._sanitizes:
            findings.skipped(_EMULATOR, _OFF)
            return None
        made = await asyncio.shield(self.prepare())
        if isinstance(made, str):
            findings.skipped(_EMULATOR, made)
            return None
        of_sizes = Findings()
        with timeline.stage("emulate"):
            found = await both(
                self._emulate_listed(made, candidate, findings), self._emulate_others(made, candidate, of_sizes)
            )
        findings.checks += of_sizes.checks
        return next(filter(None, found), None)

    async def _emulate_listed(self, made: _Emulated, candidate: Subject, findings: Findings) -> Ruling | None:
        try:
            subject = await made.harness.enter(candidate.candidate, candidate.built)
            try:
                if made.profile is None:
                    findings.skipped(_EMULATOR, "the smallest case of the workload is too large to be run whole")
                else:
                    seen = await check(made.harness, subject, made.profile, quick=True)
                    if seen.ruling is not None:
                        return findings.fail(_EMULATOR, seen.ruling)
                    findings.passed(_EMULATOR, f"{len(seen.runs)} runs, every access checked")
                return await self._sample(made, subject, findings)
            finally:
                await made.harness.leave(subject)
        except RUN_ERRORS as error:
            findings.skipped(_EMULATOR, f"it cannot run the candidate: {error}")
            return None

    async def _emulate_others(self, made: _Emulated, candidate: Subject, findings: Findings) -> Ruling | None:
        try:
            return await made.other_sizes.check(candidate, findings)
        except RUN_ERRORS as error:
            findings.skipped(OTHER_SIZES, f"the emulator cannot run the candidate: {error}")
            return None

    async def _sample(self, made: _Emulated, subject: Subject, findings: Findings) -> Ruling | None:
        """Emulate a few blocks of each timed launch; kinds of findings that the baseline shows too are ignored."""
        for case in self.timed:
            number, name = case.draw.case, made.harness.cases[case.draw.case]
            if case.draw.input_bytes > policy.SAMPLED_INPUT_BYTES or made.harness.workload.scaled:
                findings.skipped(_SAMPLE, "its inputs are too large for it", name)
                continue
            try:
                ruling, detail = await self._sample_case(made, subject, number)
            except RUN_ERRORS as error:
                findings.skipped(_SAMPLE, f"it cannot run them: {error}", name)
                continue
            if ruling is not None:
                return findings.fail(_SAMPLE, ruling, name)
            findings.passed(_SAMPLE, detail, name)
        return None

    async def _sample_case(self, made: _Emulated, subject: Subject, number: int) -> tuple[Ruling | None, str]:
        """Return the ruling on a sample of blocks, and a text on how much of the launch was run."""
        draw = await drawing.draw(made.harness, number, PLAIN)
        seed = random.SystemRandom().getrandbits(32)
        most = policy.EMULATED_SAMPLE_INSTRUCTIONS
        request = SampleBlocks(buffer=draw.buffer, count=policy.EMULATED_TIMED_BLOCKS, seed=seed, instructions=most)
        case = made.harness.cases[number]
        if number not in made.told:
            told = await self._sampled(made, made.baseline, draw, request)
            made.told[number] = {finding.kind for finding in told.findings}
        ran = await self._sampled(made, subject, draw, request)
        found = next((finding for finding in ran.findings if finding.kind not in made.told[number]), None)
        if found is not None:
            return ruling_of_finding(found, EmulatedRun(case, draw.family, draw.input_bytes)), ""
        return None, blocks_run(ran) + (f"; no further: {ran.ended}" if ran.ended else "")

    async def _sampled(self, made: _Emulated, version: Subject, draw: Draw, request: SampleBlocks) -> SampledRun:
        await made.harness.fill(version, draw)
        ran = await version.ask(request, deadline=policy.EMULATED_SAMPLE_SECONDS)
        await made.harness.unbind(version, draw.buffer)
        return ran

    async def _open_emulator(self) -> _Emulated | str:
        """Return the baseline on the emulator, or why it cannot run there."""
        harness = Harness(self.harness.pool, self.harness.target, self.harness.settings, self.harness.builders, None)
        harness.workload = self.harness.workload  # by what a captured function is right, the GPU has said
        try:
            await harness.open()
            subject = await harness.enter(self.baseline.candidate, self.baseline.built)
            others, (_, least) = OtherSizesCheck(harness, subject), await drawing.smallest_case(harness)
            if least > policy.EMULATED_WHOLE_BYTES:
                return _Emulated(harness, None, subject, others)  # a run would hold the gain up for a minute
            profile = await measure_baseline(harness, subject)
            if (broken := profile.findings.ruling) is None:
                return _Emulated(harness, profile, subject, others)
            why = f"the baseline itself fails there: {broken.reason}"
        except CannotJudgeError as error:
            why = error.message + (f" (line {error.line})" if error.line else "")
        except RUN_ERRORS as error:
            why = str(error)
        except asyncio.CancelledError:
            await harness.close()
            raise
        await harness.close()
        return why
