"""What compute-sanitizer prints, as hazards at lines of the user's file. The texts are what version 2025.3 printed."""

import asyncio
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from judge_support import fake_harness

from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.integrity import sanitizer
from kernel_lsp.judge.integrity.accesses import FinalLooks
from kernel_lsp.judge.integrity.sanitizer import (
    TOOLS,
    Hazard,
    Sanitized,
    note_hazards,
    read_hazards,
    read_report,
    ruling_of_hazard,
)
from kernel_lsp.judge.sanitizer_tools import FOUND
from kernel_lsp.judge.verdict import CheckStatus, Outcome, Stage
from kernel_lsp.runner.messages.subject_answers import LaunchFile

PAST_END = """========= COMPUTE-SANITIZER
========= Invalid __global__ read of size 4 bytes
=========     at oob+0xc0 in planted.cu:5
=========     by thread (232,0,0) in block (3,0,0)
=========     Access to 0x7f56a4800fa0 is out of bounds
=========     and is 1 bytes after the nearest allocation at 0x7f56a4800000 of size 4,000 bytes
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: <module> in rep.py:19
=========\x20
========= Program hit CUDA_ERROR_LAUNCH_FAILED (error 719) due to "unspecified launch failure" on CUDA API call.
=========     Saved host backtrace up to driver entry point at error
=========         Host Frame: <module> in rep.py:20
=========\x20
sync 719 seconds 0.817
========= ERROR SUMMARY: 2 errors
"""
INLINED = """========= COMPUTE-SANITIZER
========= Invalid __global__ write of size 4 bytes
=========     at inner(float *, int)+0x70 in planted.cu:29
=========     by thread (52,0,0) in block (0,0,0)
=========     Access to 0x7f043a800810 is out of bounds
=========         Device Frame: inlined(const float *, float *, int)+0x20 in planted.cu:31
=========\x20
========= Invalid __global__ write of size 4 bytes
=========     at inner(float *, int)+0x70 in planted.cu:29
=========     by thread (53,0,0) in block (0,0,0)
=========     Access to 0x7f043a800824 is out of bounds
=========\x20
========= Invalid __global__ write of size 16 bytes
=========     at inner(float *, int)+0x90 in planted.cu:29
=========     by thread (0,0,0) in block (0,0,0)
=========     Access to 0x7fe112800404 is misaligned
========= ERROR SUMMARY: 3 errors
"""
RACE = """========= COMPUTE-SANITIZER
========= Error: Race reported between Write access at race+0xf0 in planted.cu:9
=========     and Read access at race+0xc0 in planted.cu:11 [512 hazards]
=========     and Read access at race+0x110 in planted.cu:12 [256 hazards]
=========\x20
========= Warning: Race reported between Read access at race+0xf0 in planted.cu:20
=========     and Write access at race+0xc0 in planted.cu:21 [12 hazards]
=========\x20
sync 0 seconds 0.992
========= RACECHECK SUMMARY: 2 hazards displayed (1 errors, 1 warnings)
"""
UNSET = """========= COMPUTE-SANITIZER
========= Uninitialized __global__ memory read of size 4 bytes
=========     at uninit+0x80 in planted.cu:16
=========     by thread (96,0,0) in block (0,0,0)
=========     Address 0x7f9efe800580
=========     Saved host backtrace up to driver entry point at kernel launch time
=========         Host Frame: <module> in rep.py:19
========= ERROR SUMMARY: 1 error
"""
BARRIER = """========= COMPUTE-SANITIZER
========= Barrier error detected. Divergent thread(s) in warp.
=========     at diverge+0x70 in planted.cu:26
=========     by thread (32,0,0) in block (0,0,0)
========= ERROR SUMMARY: 1 error
"""
CLEAN = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 0 errors\n"
SOURCE = Path("/home/me/planted.cu")


def test_an_access_past_an_end_is_at_its_line() -> None:
    assert read_hazards("memcheck", PAST_END) == (
        Hazard(
            "memcheck",
            "Invalid __global__ read of size 4 bytes: out of bounds",
            "oob",
            "planted.cu",
            5,
            where="thread (232,0,0) in block (3,0,0)",
        ),
    )


def test_reports_of_one_kind_at_one_line_are_one_hazard() -> None:
    two, other = read_hazards("memcheck", INLINED)
    assert (two.line, two.kernel, two.count) == (29, "inner(float *, int)", 2)
    assert other.message == "Invalid __global__ write of size 16 bytes: misaligned"


def test_a_race_names_both_lines_and_warnings_are_left_out() -> None:
    (found,) = read_hazards("racecheck", RACE)
    assert found.message == "Race reported between Write access and another"
    assert (found.kernel, found.line, found.other) == ("race", 9, 11)


@pytest.mark.parametrize(
    ("tool", "said", "message", "line"),
    [
        ("initcheck", UNSET, "Uninitialized __global__ memory read of size 4 bytes", 16),
        ("synccheck", BARRIER, "Barrier error detected. Divergent thread(s) in warp.", 26),
    ],
)
def test_the_other_tools_are_read_too(tool: str, said: str, message: str, line: int) -> None:
    (found,) = read_hazards(tool, said)
    assert (found.message, found.line) == (message, line)


def test_a_tool_that_finds_nothing_says_nothing() -> None:
    assert read_hazards("memcheck", CLEAN) == ()
    assert read_hazards("memcheck", "Traceback: something else\n") == ()


def test_machine_code_without_lines_has_no_place() -> None:
    (found,) = read_hazards("memcheck", PAST_END.replace(" in planted.cu:5", ""))
    assert (found.kernel, found.file, found.line) == ("oob", "", 0)
    assert ruling_of_hazard(found, "case n=4", SOURCE).reason.startswith("on case n=4, invalid __global__ read")


def test_a_hazard_becomes_a_sentence_about_the_version() -> None:
    past = ruling_of_hazard(read_hazards("memcheck", PAST_END)[0], "case n=4", SOURCE)
    assert (past.outcome, past.stage) == (Outcome.RUN_FAILED, Stage.RUN)
    assert past.reason == (
        "on case n=4, line 5: invalid __global__ read of size 4 bytes: out of bounds in `oob`, "
        "by thread (232,0,0) in block (3,0,0) (memcheck)"
    )
    race = ruling_of_hazard(read_hazards("racecheck", RACE)[0], "case n=4", SOURCE)
    assert (race.outcome, race.stage) == (Outcome.WRONG, Stage.CORRECT)
    assert "line 9: race reported between Write access and another (the other access: line 11) in `race`" in race.reason


def test_a_hazard_in_a_header_names_the_header() -> None:
    (found,) = read_hazards("synccheck", BARRIER.replace("planted.cu", "tiles.cuh"))
    assert ", tiles.cuh:26: barrier error" in ruling_of_hazard(found, "case n=4", SOURCE).reason


def test_what_the_baseline_does_too_is_not_held_against_a_candidate() -> None:
    hazards, findings = read_hazards("initcheck", UNSET), Findings()
    found = Sanitized(hazards, {"racecheck": "not finished after 60 s"})
    assert note_hazards(found, hazards, "case n=4", SOURCE, findings) is None
    assert {check.name.split()[1]: check.status for check in findings.checks} == {
        "memcheck": CheckStatus.PASSED,
        "racecheck": CheckStatus.SKIPPED,
        "initcheck": CheckStatus.PASSED,
        "synccheck": CheckStatus.PASSED,
    }
    ruling = note_hazards(found, (), "case n=4", SOURCE, Findings())
    assert ruling is not None
    assert ruling.outcome is Outcome.WRONG


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ({}, []),
        ({"initcheck": UNSET}, ["initcheck"]),
        ({"memcheck": PAST_END, "racecheck": RACE}, ["memcheck", "racecheck"]),
    ],
    ids=["nothing found", "one tool", "two tools"],
)
def test_of_the_baseline_only_the_tools_are_asked_that_found_something(
    said: dict[str, str], asked: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    tools_by_version: dict[str, list[str]] = {}

    async def enter(candidate: Any, built: str) -> str:
        return built

    async def leave(_: str) -> None:
        pass

    async def record_launches(_harness: Any, version: str, _profile: Any) -> LaunchFile:
        return LaunchFile(version)

    async def run_tools(_harness: Any, launches: LaunchFile, tools: Sequence[str]) -> Sanitized:
        tools_by_version[launches.file] = list(tools)
        found = said if launches.file == "candidate" else {}
        return Sanitized(tuple(h for tool in tools if tool in found for h in read_hazards(tool, found[tool])), {})

    def version(name: str) -> Any:
        return SimpleNamespace(candidate=SimpleNamespace(kernel=SimpleNamespace(path=SOURCE)), built=name)

    monkeypatch.setattr(sanitizer, "record_launches", record_launches)
    monkeypatch.setattr(sanitizer, "run_tools", run_tools)
    monkeypatch.setattr(sanitizer, "small_draws", lambda _: [SimpleNamespace(case=0)])
    harness = fake_harness(enter=enter, leave=leave)
    looks = FinalLooks(harness, version("baseline"), cast(Any, None), ())
    ruling = asyncio.run(looks._sanitize(version("candidate"), LaunchFile("candidate"), Findings()))
    assert (ruling is not None) == bool(said)
    assert tools_by_version.pop("candidate") == list(TOOLS)
    assert tools_by_version == ({"baseline": asked} if asked else {})


WARNED = """========= COMPUTE-SANITIZER
========= Warning: Race reported between Read access at softmax+0xf0 in softmax.cu:20
=========     and Write access at softmax+0xc0 in softmax.cu:21 [12 hazards]
=========\x20
sync 0 seconds 0.992
========= RACECHECK SUMMARY: 3 hazards displayed (0 errors, 3 warnings)
"""


@pytest.mark.parametrize(
    ("status", "said", "hazards", "failed", "remarked"),
    [
        (FOUND, RACE, 1, "", ""),
        (FOUND, WARNED, 0, "", "3 warnings and no error: threads of a warp may rely on going together"),
        (1, WARNED, 0, "RACECHECK SUMMARY: 3 hazards displayed (0 errors, 3 warnings)", ""),  # it failed otherwise
        (None, "", 0, "not finished after 20 s", ""),
        (0, "", 0, "", ""),
    ],
)
def test_warnings_alone_are_remarked_on_and_held_against_nobody(
    status: int | None, said: str, hazards: int, failed: str, remarked: str
) -> None:
    found = read_report("racecheck", status, said, 20.0)
    assert len(found.hazards) == hazards
    assert (found.failed.get("racecheck", ""), found.remarks.get("racecheck", "")) == (failed, remarked)
    if remarked:
        findings = Findings()
        assert note_hazards(found, (), "case n=1", Path("softmax.cu"), findings) is None
        (check,) = [check for check in findings.checks if check.name.endswith("racecheck")]
        assert (check.status, check.detail) == (CheckStatus.PASSED, remarked)
