"""The last look at a candidate that is about to be called faster: at single accesses, where a run shows only results.

compute-sanitizer repeats its launches on the GPU, and the emulator runs it on the CPU, side by side. Both compare with
what they say of the baseline. Only a candidate that was confirmed to be faster is looked at in this way.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge import correctness, sanitizer
from kernel_lsp.judge.bench import Bench, Subject
from kernel_lsp.judge.correctness import Failure, Findings, Yardstick
from kernel_lsp.judge.sanitizer import Sanitized
from kernel_lsp.runner.shield import both, start

_EMULATOR = "emulator"


@dataclass
class Finalists:
    """What is kept from one such look to the next: the baseline on the emulator. Close it in the end."""

    bench: Bench
    baseline: Subject
    yard: Yardstick
    _emulated: "asyncio.Task[tuple[Bench, Yardstick] | str] | None" = field(default=None, init=False)

    async def examine(self, candidate: Subject, findings: Findings) -> Failure | None:
        """Look at a candidate and note what was done; what is wrong with it, if anything."""
        if self.bench.settings.judge.sanitize == "off":
            for name in ("compute-sanitizer", _EMULATOR):
                findings.skipped(name, "judge.sanitize is off")
            return None
        seen = Findings()
        found = await both(self._sanitize(candidate, findings), self._emulate(candidate, seen))
        findings.checks += seen.checks
        return next(filter(None, found), None)

    async def close(self) -> None:
        """End the emulator's workers."""
        if self._emulated is not None:
            made = await self._emulated
            if not isinstance(made, str):
                await made[0].close()

    async def _sanitize(self, candidate: Subject, findings: Findings) -> Failure | None:
        names = [self.bench.cases[draw.case] for draw in sanitizer.small_draws(self.yard)]
        case = f"case {names[0]}" if len(names) == 1 else f"cases {'; '.join(names)}"
        found = await self._hazards(candidate, sanitizer.TOOLS)
        if isinstance(found, str):
            findings.skipped("compute-sanitizer", found, case)
            return None
        suspicious = [tool for tool in sanitizer.TOOLS if any(hazard.tool == tool for hazard in found.hazards)]
        theirs = await self._hazards(self.baseline, suspicious) if suspicious else None
        known = theirs.hazards if isinstance(theirs, Sanitized) else ()
        return sanitizer.note_hazards(found, known, case, candidate.candidate.kernel.path, findings)

    async def _hazards(self, version: Subject, tools: Sequence[str]) -> Sanitized | str:
        """What tools say of a version, loaded into a process of its own, or why they say nothing."""
        try:
            subject = await self.bench.enter(version.candidate, version.built)
            try:
                return await sanitizer.sanitize(self.bench, subject, self.yard, tools)
            finally:
                await self.bench.leave(subject)
        except correctness.RUN_ERRORS as error:
            return f"the launches could not be recorded: {error}"

    async def _emulate(self, candidate: Subject, findings: Findings) -> Failure | None:
        if self._emulated is None:
            self._emulated = start(self._open_emulator())
        made = await asyncio.shield(self._emulated)
        if isinstance(made, str):
            findings.skipped(_EMULATOR, made)
            return None
        bench, yard = made
        try:
            subject = await bench.enter(candidate.candidate, candidate.built)
            try:
                seen = await correctness.check(bench, subject, yard, quick=True)
            finally:
                await bench.leave(subject)
        except correctness.RUN_ERRORS as error:
            findings.skipped(_EMULATOR, f"it cannot run the candidate: {error}")
            return None
        if seen.failure is not None:
            findings.fail(_EMULATOR, seen.failure)
        else:
            findings.passed(_EMULATOR, f"{len(seen.runs)} runs, every access checked")
        return seen.failure

    async def _open_emulator(self) -> tuple[Bench, Yardstick] | str:
        """The baseline on the emulator, or why it cannot run there."""
        bench = Bench(self.bench.pool, self.bench.target, self.bench.settings, self.bench.builders, None)
        why: str | None = None
        try:
            await bench.open()
            subject = await bench.enter(self.baseline.candidate, self.baseline.built)
            yard = await correctness.measure_baseline(bench, subject)
            if (broken := yard.findings.failure) is None:
                return bench, yard
            why = f"the baseline itself fails there: {broken.reason}"
        except CannotJudgeError as error:
            why = error.message + (f" (line {error.line})" if error.line else "")
        except correctness.RUN_ERRORS as error:
            why = str(error)
        await bench.close()
        return why
