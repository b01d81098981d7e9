"""Moves the result of an examination to a text that has the same code on other lines."""

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import PurePath

from kernel_lsp.check.record import Examination
from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.judge.emulation import EmulatedFinding, EmulatedRun, placed_message
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.code_lines import CodeLines

_NAMES_A_LINE = re.compile(r"\blines?\s+\d|\w\.\w+[:(]\d")


class _LostError(Exception):
    """It cannot be told where something stands now."""


class _Move:
    """A move from the lines of an examination to those of a text."""

    def __init__(self, examined: Examination, source: SourceFile, code: CodeLines) -> None:
        self._name, self._stays = source.path.name, examined.lines == code.numbers
        self._lines = dict(zip(examined.lines, code.numbers, strict=True))
        self._lengths = [len(line) for line in source.text.encode().split(b"\n")]
        runs = examined.emulation.runs if examined.emulation else ()
        self._seen: Sequence[EmulatedFinding] = [one for run in runs for one in run.findings]

    def line(self, path: str, line: int) -> int:
        """Return where a line of a file stands now; 0 is none."""
        if PurePath(path).name != self._name or line <= 0:
            return line
        if path != self._name:  # the same file, perhaps, by another way
            raise _LostError
        if line == 1 and 1 not in self._lines:  # it is about the whole file
            return 1
        if line not in self._lines:
            raise _LostError
        return self._lines[line]

    def message(self, said: str) -> str:
        """Return a message, which may quote that of an emulated finding with its line."""
        if self._stays:
            return said
        before, quoted, after = said, None, ""
        for one in self._seen:
            first, found, last = said.partition(placed_message(one))
            if found:
                before, quoted, after = first, one, last
                break
        others = (before, quoted.message if quoted else "", after)
        if any(map(_NAMES_A_LINE.search, others)):  # of what file, only its author knows
            raise _LostError
        moved = placed_message(replace(quoted, line=self.line(quoted.path, quoted.line))) if quoted else ""
        return before + moved + after

    def finding(self, found: Diagnostic) -> Diagnostic:
        """Return a finding where it stands now, which ends with its line at the latest."""
        line, end = self.line(found.path, found.line), self.line(found.path, found.end_line)
        end_column = found.end_column
        if found.path == self._name:
            end_column = min(end_column, self._lengths[end - 1] + 1)
        said = self.message(found.message)
        return replace(found, line=line, end_line=end, end_column=end_column, message=said)

    def run(self, run: EmulatedRun) -> EmulatedRun:
        """Return a run with its findings and counters where they stand now."""
        findings = tuple(
            replace(
                one,
                line=self.line(one.path, one.line),
                message=self.message(one.message),
                other=one.other and (one.other[0], self.line(*one.other)),
            )
            for one in run.findings
        )
        counters = tuple(replace(one, line=self.line(one.path, one.line)) for one in run.counters)
        return replace(run, findings=findings, counters=counters)


def moved(examined: Examination, source: SourceFile, code: CodeLines) -> Examination | None:
    """Return an examination as it holds for `source`, whose lines of code are `code`, the same ones as it examined.

    None if that cannot be told: a place has no code, or a message names a line, which may be another one now.
    """
    if len(examined.lines) != len(code.numbers):
        return None
    move, emulation = _Move(examined, source, code), examined.emulation
    try:
        if emulation is not None:
            why = emulation.needs_gpu
            if why is not None:
                line = why.line and move.line(PurePath(why.path or "").name, why.line)
                why = replace(why, reason=move.message(why.reason), line=line)
            emulation = replace(emulation, runs=tuple(map(move.run, emulation.runs)), needs_gpu=why)
        return replace(
            examined,
            findings=tuple(map(move.finding, examined.findings)),
            checks=tuple(one.model_copy(update={"detail": move.message(one.detail)}) for one in examined.checks),
            assumed=tuple(
                replace(one, line=move.line(source.path.name, one.line), problem=move.message(one.problem))
                for one in examined.assumed
            ),
            emulation=emulation,
            lines=code.numbers,
        )
    except _LostError:
        return None
