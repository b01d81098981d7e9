"""Final looks on a GPU: one process records the launches that the tools repeat, and then runs other sizes."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from judge_support import draw, fake_harness, fake_subject

from kernel_lsp.config.settings import JudgeSettings, Settings
from kernel_lsp.judge.errors import UnjudgedError
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.inputs.other_sizes import OtherSizesCheck
from kernel_lsp.judge.integrity import sanitizer
from kernel_lsp.judge.integrity.accesses import FinalLooks
from kernel_lsp.judge.integrity.sanitizer import Sanitized, read_hazards
from kernel_lsp.judge.ruling import Ruling, wrong
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.judge.verdict import CheckStatus, Outcome
from kernel_lsp.runner.messages.subject_answers import LaunchFile
from kernel_lsp.runner.worker import WorkerDied

RACE = "========= Error: Race reported between Write access at softmax+0xf0 in saxpy.cu:20\n=========     and more\n"


class Gpu:
    """A harness whose steps are noted by process; the emulator, which has other tests, is off."""

    def __init__(
        self,
        monkeypatch: pytest.MonkeyPatch,
        *,
        sanitize: bool = True,
        said: str = "",
        of_sizes: Ruling | None = None,
        full: bool = False,
        large: bool = False,
        dies: bool = False,
    ) -> None:
        self.noted: list[str] = []
        self._said, self._of_sizes, self._full, self._entered = said, of_sizes, full, 0
        self._dies = dies
        judge = JudgeSettings() if sanitize else JudgeSettings(sanitize="off")
        parts: dict[str, Any] = {"enter": self._enter, "leave": self._leave, "settings": Settings(judge=judge)}
        self.harness = fake_harness(large=large, **parts)
        monkeypatch.setattr(sanitizer, "record_launches", self._record)
        monkeypatch.setattr(sanitizer, "run_tools", self._run_tools)
        monkeypatch.setattr(OtherSizesCheck, "prepare", lambda _: self.noted.append("baseline on other sizes"))
        monkeypatch.setattr(OtherSizesCheck, "check_in", lambda _, version, _findings: self._check_in(version))
        monkeypatch.setattr(FinalLooks, "_emulate", self._emulate)

    def look(self) -> tuple[Ruling | None, Findings]:
        findings = Findings()

        async def steady_load(loaded: asyncio.Event) -> None:
            await asyncio.sleep(0.01)
            self.noted.append("loaded")
            loaded.set()

        async def main() -> Ruling | None:
            loaded = asyncio.Event()
            profile = BaselineProfile(draws=[draw()])
            looks = FinalLooks(self.harness, self._version("A"), profile, ())
            task = asyncio.create_task(steady_load(loaded))
            ruling = await looks.examine(self._version("B"), findings, Timeline(), loaded)
            await task
            return ruling

        return asyncio.run(main()), findings

    def _version(self, name: str) -> Subject:
        version = fake_subject(name=name)
        version.candidate = cast(Any, type("Version", (), {"kernel": type("Kernel", (), {"path": Path("saxpy.cu")})}))
        version.built = cast(Any, name)
        return version

    async def _enter(self, _candidate: object, built: str) -> Subject:
        if self._full:
            raise UnjudgedError("no process for it could be set up: too little memory")
        self._entered += 1
        entered = fake_subject(SimpleNamespace(alive=True), name=f"{built}{self._entered}")
        self.noted.append(f"{entered.name} loaded")
        return entered

    async def _leave(self, version: Subject) -> None:
        self.noted.append(f"{version.name} left")

    async def _record(self, _harness: object, version: Subject, _profile: object) -> LaunchFile:
        self.noted.append(f"{version.name} recorded")
        if self._dies:
            version.worker.alive = False
            raise WorkerDied("its process ended")
        return LaunchFile(f"launches of {version.name}")

    async def _run_tools(self, _harness: object, launches: LaunchFile, tools: Any) -> Sanitized:
        self.noted.append(f"{len(tools)} on {launches.file}")
        return Sanitized(read_hazards("racecheck", self._said if "B" in launches.file else ""), {})

    async def _check_in(self, version: Subject) -> Ruling | None:
        self.noted.append(f"other sizes in {version.name}")
        return self._of_sizes

    async def _emulate(self, *_: object) -> None:
        return None


def test_one_process_does_for_the_tools_and_for_other_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch)
    ruling, findings = gpu.look()
    assert ruling is None
    assert gpu.noted == [
        *("B1 loaded", "B1 recorded", "loaded", "baseline on other sizes"),
        *("4 on launches of B1", "other sizes in B1", "B1 left"),
    ], "what keeps the GPU busy would show in the steady load"
    assert {check.status for check in findings.checks} == {CheckStatus.PASSED}


def test_a_hazard_is_held_against_what_the_baseline_does_and_ends_the_look(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, said=RACE)
    ruling, _ = gpu.look()
    assert ruling is not None
    assert ruling.outcome is Outcome.WRONG
    assert gpu.noted[-5:] == ["A2 loaded", "A2 recorded", "1 on launches of A2", "A2 left", "B1 left"]


def test_a_gain_that_is_wrong_on_a_size_near_the_largest_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    found = wrong("wrong on n=7")
    assert Gpu(monkeypatch, of_sizes=found).look()[0] == found


def test_sizes_are_run_in_a_new_process_where_recording_ended_the_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a candidate would be accused of dying on a size that it never ran on."""
    gpu = Gpu(monkeypatch, dies=True)
    ruling, findings = gpu.look()
    assert ruling is None
    assert gpu.noted[-4:] == ["B2 loaded", "other sizes in B2", "B2 left", "B1 left"]
    (check,) = findings.checks
    assert (check.name, check.status) == ("compute-sanitizer", CheckStatus.SKIPPED)
    assert check.detail.startswith("the launches could not be recorded")


def test_sizes_are_run_where_no_tool_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, sanitize=False)
    _, findings = gpu.look()
    assert gpu.noted == ["B1 loaded", "loaded", "baseline on other sizes", "other sizes in B1", "B1 left"]
    assert [(check.name, check.detail) for check in findings.checks] == [("compute-sanitizer", "judge.sanitize is off")]


def test_beside_a_large_kernel_no_sizes_are_run(monkeypatch: pytest.MonkeyPatch) -> None:
    gpu = Gpu(monkeypatch, large=True)
    _, findings = gpu.look()
    assert "other sizes in B1" not in gpu.noted
    assert next(check for check in findings.checks if check.name == "other sizes").status is CheckStatus.SKIPPED


def test_a_check_without_a_process_is_said_to_be_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    ruling, findings = Gpu(monkeypatch, full=True).look()
    assert ruling is None
    assert {(check.name, check.status) for check in findings.checks} == {
        ("compute-sanitizer", CheckStatus.SKIPPED),
        ("other sizes", CheckStatus.SKIPPED),
    }
    assert all("too little memory" in check.detail for check in findings.checks)
