"""Races of one search on several equal GPUs; two emulators stand for them, and what they race is made up."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from test_sweeps_by_turns import KERNEL, WORKLOAD

from kernel_lsp.config.settings import JudgeSettings, PathSettings, Settings
from kernel_lsp.device import choice
from kernel_lsp.device.choice import equal_gpus
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.race import RaceResult
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine import further_gpus, workbench
from kernel_lsp.refine.further_gpus import further_sessions
from kernel_lsp.refine.workbench import Workbench

H200 = Gpu(0, "NVIDIA H200", "GPU-0", "sm_90", "580.1", 140 << 30)
TEXTS = ("3 * x[i] - x[i]", "x[i] + x[i] + 0.0f", "4 * x[i] - 2 * x[i]", "2 * x[i] + 1")  # the last one is wrong


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    paths = PathSettings(data=tmp_path / "data", cache=tmp_path / "cache")
    return Settings(paths=paths, judge=JudgeSettings(families=["normal"]))


def write_kernel(folder: Path) -> Path:
    path = folder / "scale.cu"
    path.write_text(KERNEL.format(n=2))
    path.with_name("scale_workload.py").write_text(WORKLOAD.format(n=2))
    return path


@pytest.mark.asyncio
async def test_each_session_races_its_share_against_its_own_baseline(
    tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    raced: list[tuple[Session, list[str]]] = []
    said: list[str] = []

    async def fake_race(session: Session, subjects: Sequence[Subject], _: object) -> list[RaceResult]:
        assert session.measured is not None
        assert all(subject.worker is not session.measured.baseline.worker for subject in subjects)
        raced.append((session, [subject.candidate.label for subject in subjects]))
        return [RaceResult(subject, 0.9, (0.85, 0.95)) for subject in subjects]

    monkeypatch.setattr(workbench, "race", fake_race)
    target = make_target(write_kernel(tmp_path))
    old = "y[i] = 2 * x[i]"
    candidates = [
        target.version(target.source.text.replace(old, f"y[i] = {text}"), text, "rewrite:x") for text in TEXTS
    ]
    async with (
        open_session(target, settings) as first,
        further_sessions(first, settings, (None,), said.append) as others,
    ):
        async with asyncio.timeout(60):
            while not others:
                await asyncio.sleep(0.05)
        bench = Workbench(
            first,
            60.0,
            on_progress=lambda _: None,
            on_tried=lambda _: None,
            on_exchange=lambda _: None,
            on_confirmed=None,
            seed=0,
            others=others,
        )
        found = await bench._race(candidates, (), 1.0)  # pyright: ignore[reportPrivateUsage]
        assert sorted(raced, key=lambda one: one[1]) == [(first, [TEXTS[0], TEXTS[2]]), (others[0], [TEXTS[1]])]
    assert [result.subject.candidate.label for result in found] == [TEXTS[0], TEXTS[2], TEXTS[1]]
    outcomes = {tried.candidate.label: tried.feedback.verdict for tried in bench.result.tried}
    assert outcomes[TEXTS[3]] == "WRONG"
    assert len(outcomes) == 4
    assert said == []


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("change", "words"),
    [("fails", "the kernel does not build"), ("cases", "other cases are timed there")],
)
async def test_a_gpu_that_cannot_take_part_is_said_and_the_search_has_its_own(
    change: str, words: str, tmp_path: Path, settings: Settings, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    target = make_target(write_kernel(tmp_path))
    async with open_session(target, settings) as first:
        if change == "fails":
            broken = replace(target, source=replace(target.source, text=target.source.text.replace("float*", "flaot*")))
            monkeypatch.setattr(first, "target", broken)
        else:
            elsewhere = cast(TimedCase, SimpleNamespace(draw=SimpleNamespace(case=99)))
            assert first.measured is not None
            unequal = replace(first.measured, cases=(elsewhere,))
            monkeypatch.setattr(first, "measured", unequal)
        async with further_sessions(first, settings, (None,), said.append) as others:
            async with asyncio.timeout(60):
                while not said:
                    await asyncio.sleep(0.05)
            assert not others
    assert words in said[0]
    assert said[0].startswith("Another emulator takes no part in the search: ")


def test_equal_gpus_are_of_one_kind_and_no_model_server_uses_them(monkeypatch: pytest.MonkeyPatch) -> None:
    gpus = [replace(H200, index=n, uuid=f"GPU-{n}") for n in range(4)]
    gpus[1] = replace(gpus[1], name="NVIDIA L40S")
    monkeypatch.setattr(choice, "find_gpus", lambda: tuple(gpus))
    assert [gpu.index for gpu in equal_gpus(gpus[0], 3)] == [2, 3]
    assert [gpu.index for gpu in equal_gpus(gpus[2], 1)] == [0]
    assert [gpu.index for gpu in equal_gpus(gpus[0], 3, {"GPU-2"})] == [3]
    assert equal_gpus(None, 3) == ()


def test_gpus_of_model_servers_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    servers = (SimpleNamespace(gpus=("GPU-2",)), SimpleNamespace(gpus=("GPU-0", "GPU-2")))
    monkeypatch.setattr(further_gpus, "running", lambda: servers)
    assert further_gpus.used_by_models() == {"GPU-0", "GPU-2"}
