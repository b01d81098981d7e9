"""One search that races on two GPUs: both take part, and the gain is judged in full on the first."""

import asyncio
import os
from collections.abc import Sequence
from pathlib import Path
from unittest import mock

import pytest
from judges import EXAMPLES

from kernel_lsp.config.settings import PathSettings, RefineSettings, Settings
from kernel_lsp.device.nvml import Gpu, find_gpus
from kernel_lsp.judge import race as races
from kernel_lsp.judge.session import Session
from kernel_lsp.judge.target import make_target
from kernel_lsp.refine import workbench
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import Store

pytestmark = pytest.mark.gpu


def test_both_gpus_race_and_the_first_one_judges(gpu: Gpu, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with mock.patch.dict(os.environ):
        os.environ.pop("CUDA_VISIBLE_DEVICES", None)
        there = [other for other in find_gpus() if other.uuid != gpu.uuid and other.name == gpu.name]
    if not there:
        pytest.skip("there is no second GPU of this kind")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", f"{gpu.uuid},{there[0].uuid}")
    raced: list[str] = []

    async def race(session: Session, subjects: Sequence[races.Subject], *rest: object) -> list[races.RaceResult]:
        assert session.gpu is not None
        raced.append(session.gpu.uuid)
        return await races.race(session, subjects, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(workbench, "race", race)
    settings = Settings(
        gpu=gpu.uuid,
        paths=PathSettings(data=tmp_path / "data", cache=tmp_path / "cache"),
        refine=RefineSettings(budget=60.0, strategy="tuner-only"),
    )
    said: list[str] = []
    with Store(tmp_path / "store") as store:
        target = make_target(EXAMPLES / "cuda/rmsnorm.cu")
        found = asyncio.run(refine_target(target, settings, store, asyncio.Event(), say=said.append, gpus=2))
    assert set(raced) == {gpu.uuid, there[0].uuid}, said
    assert found.best is not None, found.reason
    assert found.best.verdict == "FASTER"
    verdicts = [tried.verdict for tried in found.tried if tried.verdict is not None]
    assert {verdict.evidence.device.uuid for verdict in verdicts if verdict.evidence.device} == {gpu.uuid}
