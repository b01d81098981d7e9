"""A gain on a workload whose smallest case is large: a few blocks and other sizes are emulated, and no case whole."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.config.settings import PathSettings, Settings
from kernel_lsp.judge.inputs.findings import Findings
from kernel_lsp.judge.integrity.accesses import FinalLooks
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.timeline import Timeline
from kernel_lsp.judge.verdict import CheckStatus
from tests.scale_kernel import KERNEL, WORKLOAD


@pytest.mark.parametrize(("most", "whole"), [(1 << 30, True), (0, False)])
def test_the_emulator_runs_a_case_whole_only_where_that_is_quick(
    most: int, whole: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kernel_lsp.policy.EMULATED_WHOLE_BYTES", most)
    path = tmp_path / "scale.cu"
    path.write_text(KERNEL)
    path.with_name("scale_workload.py").write_text(WORKLOAD)
    settings, findings = Settings(paths=PathSettings(data=tmp_path, cache=tmp_path)), Findings()

    async def look() -> None:
        async with open_session(make_target(path), settings) as session:
            assert session.measured is not None
            assert session.harness is not None
            profile, baseline = session.measured.profile, session.measured.baseline
            plain = next(draw for draw in profile.draws if draw.is_plain)
            looks = FinalLooks(session.harness, baseline, profile, cast(Any, [SimpleNamespace(draw=plain)]))
            try:
                assert await looks._emulate(baseline, findings, Timeline()) is None
            finally:
                await looks.close()

    asyncio.run(look())
    said = {check.name: check.status for check in findings.checks}
    assert said.pop("emulator") is (CheckStatus.PASSED if whole else CheckStatus.SKIPPED)
    assert set(said.values()) == {CheckStatus.PASSED}
    assert len(said) == 2, "blocks of the timed launch, and sizes that are not listed"
