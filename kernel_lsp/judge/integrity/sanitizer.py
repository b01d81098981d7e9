"""Run compute-sanitizer's four tools on a candidate's launches, and read their reports.

A candidate's launches on the smallest cases are recorded in a worker and repeated by a program that knows nothing but
the driver (`runner/workers/replay.py`), under each tool in its own process, side by side (`judge.sanitizer_tools`). A
finding that the baseline's launches show as well is not held against a candidate.
"""

import asyncio
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.sanitizer_tools import FOUND, TOOLS, SanitizerTools
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.subject import RecordLaunches
from kernel_lsp.runner.messages.subject_answers import LaunchFile

NOT_INSTALLED = "it is not installed; it comes with the CUDA toolkit (package cuda-sanitizer)"
_LINE = re.compile(r"^=========(?P<indent>\s*)(?P<text>.*?)\s*$")
_ABOUT_THE_RUN = re.compile(
    r"COMPUTE-SANITIZER|(ERROR|RACECHECK|LEAK) SUMMARY|Program hit|Target application|No attachable process|"
    r"Error: (process|Target|No |Failed|Unable)|Internal|Warning:"
)
_PLACE = re.compile(r"\bat (?P<kernel>.+?)\+0x[0-9a-f]+(?: in (?P<file>.+?):(?P<line>\d+))?(?:\s|$)")
_ONLY_WARNINGS = re.compile(r"RACECHECK SUMMARY: \d+ hazards? displayed \(0 errors, (\d+) warnings?\)")
_THREAD = re.compile(r"by (thread \([\d,]+\) in block \([\d,]+\))")


@dataclass(frozen=True, slots=True)
class Hazard:
    """A finding of one tool at one place.

    Attributes:
        tool: `memcheck`, `racecheck`, `initcheck` or `synccheck`.
        message: what it is, in the tool's words.
        kernel: the function it is in.
        file: name of the source file, without folders; empty where the machine code names none.
        line: from 1, or 0.
        other: line of the other access of a race, or 0.
        where: thread and block of the first one, if the tool says so.
        count: how many times it was reported.
    """

    tool: str
    message: str
    kernel: str
    file: str = ""
    line: int = 0
    other: int = 0
    where: str = ""
    count: int = 1

    @property
    def place(self) -> tuple[str, str, str, int]:
        """Return the key that identifies it: tool, message, file and line."""
        return self.tool, self.message, self.file, self.line


@dataclass(frozen=True, slots=True)
class Sanitized:
    """The hazards of one version's launches; `failed` maps a tool that could not run to the reason.

    `remarks` maps a tool to what it says besides and is held against nobody.
    """

    hazards: tuple[Hazard, ...]
    failed: dict[str, str]
    remarks: dict[str, str] = field(default_factory=dict[str, str])


def read_hazards(tool: str, said: str) -> tuple[Hazard, ...]:
    """Return the errors in a tool's output, those of one kind at one place merged; warnings are left out."""
    found: dict[tuple[str, str, str, int], Hazard] = {}
    for block in _blocks(said):
        hazard = _hazard(tool, block)
        known = found.get(hazard.place)
        found[hazard.place] = hazard if known is None else replace(known, count=known.count + 1)
    return tuple(found.values())


def ruling_of_hazard(hazard: Hazard, case: str, source: Path) -> Ruling:
    """Return the ruling for a hazard."""
    place = "" if not hazard.line else f"line {hazard.line}: "
    if hazard.line and hazard.file and hazard.file != source.name:
        place = f"{hazard.file}:{hazard.line}: "
    other = f" (the other access: line {hazard.other})" if hazard.other and hazard.other != hazard.line else ""
    where = f", by {hazard.where}" if hazard.where else ""
    message = hazard.message[0].lower() + hazard.message[1:].rstrip(".")
    reason = f"on {case}, {place}{message}{other} in `{hazard.kernel}`{where} ({hazard.tool})"
    faults = hazard.tool in ("memcheck", "synccheck")
    return Ruling(Outcome.RUN_FAILED, Stage.RUN, reason) if faults else Ruling(Outcome.WRONG, Stage.CORRECT, reason)


async def record_launches(harness: Harness, subject: Subject, profile: BaselineProfile) -> LaunchFile:
    """Return the file that keeps a freshly loaded version's launches on small cases, or why there is none.

    Nothing may have been launched in its process before; the memory of those cases is free again.
    """
    if not harness.tools.installed:
        return LaunchFile("", NOT_INSTALLED)
    draws = small_draws(profile)
    if draws[0].input_bytes > policy.SANITIZER_RECORDED_BYTES:
        return LaunchFile("", "the inputs are too large to be recorded")
    for draw in draws:
        await harness.fill(subject, draw)
    buffers = tuple(draw.buffer for draw in draws)
    kept = await subject.ask(RecordLaunches(buffers=buffers), deadline=policy.FIRST_RUN_SECONDS)
    for draw in draws:
        await harness.unbind(subject, draw.buffer)
    return kept


async def run_tools(harness: Harness, launches: LaunchFile, tools: Sequence[str]) -> Sanitized:
    """Return the findings of these tools on recorded launches; they run side by side, for about a second."""
    told = await asyncio.gather(*(_run(harness.tools, tool, Path(launches.file)) for tool in tools))
    merged = Sanitized((), {})
    for one in told:
        merged = Sanitized(merged.hazards + one.hazards, merged.failed | one.failed, merged.remarks | one.remarks)
    return merged


def small_draws(profile: BaselineProfile) -> list[Draw]:
    """Return plain inputs of the smallest cases: at most three, and only one if they are large."""
    plain = [draw for draw in profile.draws if draw.is_plain]
    chosen = plain[:1]
    for draw in plain[1 : policy.SANITIZER_CASES]:
        if sum(one.input_bytes for one in (*chosen, draw)) <= policy.SANITIZER_SMALL_BYTES:
            chosen.append(draw)
    return chosen


def note_hazards(
    found: Sanitized, baseline: Sequence[Hazard], case: str, source: Path, findings: Findings
) -> Ruling | None:
    """Record the tools' findings on these cases; return the ruling for the first that the baseline lacks, or None.

    Baseline and candidate are different code, so a hazard counts as shared if the same tool says the same of both.
    """
    known = {(hazard.tool, hazard.message) for hazard in baseline}
    ruling: Ruling | None = None
    for tool in TOOLS:
        name = f"compute-sanitizer {tool}"
        hazards = [hazard for hazard in found.hazards if hazard.tool == tool]
        new = [hazard for hazard in hazards if (hazard.tool, hazard.message) not in known]
        if new:
            broken = ruling_of_hazard(new[0], case, source)
            findings.fail(name, broken, case)
            ruling = ruling or broken
        elif tool in found.failed:
            findings.skipped(name, found.failed[tool], case)
        else:
            theirs = "nothing that the baseline does not do too" if hazards else ""
            findings.passed(name, theirs or found.remarks.get(tool, ""), case)
    return ruling


async def _run(tools: SanitizerTools, tool: str, file: Path) -> Sanitized:
    small = file.stat().st_size <= policy.SANITIZER_SMALL_BYTES
    seconds = policy.SANITIZER_SECONDS if small else policy.SANITIZER_LARGE_SECONDS
    return read_report(tool, *await tools.run(tool, file, seconds), seconds)


def read_report(tool: str, status: int | None, said: str, seconds: float) -> Sanitized:
    """Return what a tool found by its exit status, None if it was stopped after so many seconds, and its output."""
    hazards = read_hazards(tool, said)
    if hazards or status == 0:
        return Sanitized(hazards, {})
    if status is None:
        return Sanitized((), {tool: f"not finished after {seconds:.0f} s"})
    if status == FOUND and (warned := _ONLY_WARNINGS.search(said)):
        count = "1 warning" if warned[1] == "1" else f"{warned[1]} warnings"
        return Sanitized((), {}, {tool: f"{count} and no error: threads of a warp may rely on going together"})
    last = next((line for line in reversed(said.splitlines()) if line.strip("= ")), f"it ended with {status}")
    return Sanitized((), {tool: last.strip("= ")[:200]})


def _blocks(said: str) -> Iterator[list[str]]:
    """Yield each report in a tool's output: the line that names the error, and its further lines."""
    block: list[str] = []
    for line in said.splitlines():
        found = _LINE.match(line)
        if found is None or not found["text"]:
            continue
        if len(found["indent"]) > 1:
            if block:
                block.append(found["text"])
            continue
        if block:
            yield block
        block = [] if _ABOUT_THE_RUN.match(found["text"]) else [found["text"]]
    if block:
        yield block


def _hazard(tool: str, block: list[str]) -> Hazard:
    head, *rest = block
    head = head.removeprefix("Error: ")
    places = [place for line in block if not line.startswith("Host Frame") for place in [_PLACE.search(line)] if place]
    first = places[0] if places else None
    message = re.sub(r" between (\w+) access at .*", r" between \1 access and another", head)
    message = _with_reason(message, rest)
    thread = next((found[1] for line in rest if (found := _THREAD.search(line))), "")
    return Hazard(
        tool,
        message,
        first["kernel"] if first else "",
        Path(first["file"]).name if first and first["file"] else "",
        int(first["line"]) if first and first["line"] else 0,
        int(places[1]["line"]) if len(places) > 1 and places[1]["line"] and tool == "racecheck" else 0,
        thread,
    )


def _with_reason(message: str, rest: list[str]) -> str:
    """Return a message such as `Invalid __global__ read of size 4 bytes`, with the tool's reason appended."""
    why = next((found[1] for line in rest if (found := re.search(r"^(?:Access|Address) .* is (.*)$", line))), None)
    return f"{message}: {why}" if why else message
