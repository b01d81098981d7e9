"""What is kept of jobs that have ended, and for the next one."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock, MagicMock

import pytest

from kernel_lsp.errors import WorkloadError
from kernel_lsp.lsp import jobs as module
from kernel_lsp.lsp.catalog import CHECK, FIX, JobKind
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.wire import State

_RESULT = {"reason": "all is well", "verdict": None}


@pytest.mark.asyncio
async def test_a_job_that_has_ended_has_its_name_and_no_text(tmp_path):
    background = MagicMock(start=asyncio.ensure_future)
    results = MagicMock(settle=AsyncMock())
    path = tmp_path / "long.cu"
    jobs = Jobs(MagicMock(), background, *[MagicMock()] * 4, results, MagicMock())
    job, _ = jobs.start(JobRequest(CHECK, Document(path.as_uri(), path, "// 5,000 lines", 7, "utf-16")))
    assert job.wanted.document.text
    assert jobs.cancel(job.id)
    await job.ended.wait()
    assert (job.state, job.wanted.document.text, job.result) == (State.CANCELLED, "", None)
    shown = jobs.get(job.id).record
    assert (shown.uri, shown.version, shown.title) == (path.as_uri(), 7, "Checking long.cu")


@pytest.mark.asyncio
@pytest.mark.parametrize(
    ("kind", "fails", "timing", "expected"),
    [
        (CHECK, False, False, ["take", "keep"]),
        (CHECK, False, True, ["take"]),
        (CHECK, True, False, ["take"]),
        (FIX, False, False, []),
    ],
)
async def test_after_a_check_a_process_is_kept_for_the_next_one(
    kind: JobKind, fails: bool, timing: bool, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    background, results = MagicMock(start=asyncio.ensure_future), MagicMock(settle=AsyncMock())
    path = tmp_path / "scale.cu"
    jobs = Jobs(MagicMock(), background, *[MagicMock()] * 4, results, MagicMock())
    answer = AsyncMock(side_effect=WorkloadError("it is broken") if fails else None, return_value=_RESULT)
    warm = MagicMock(take=lambda: warm.did.append("take") or MagicMock(ask=answer), did=[])
    warm.keep = lambda _: warm.did.append("keep")
    jobs._warm_service, jobs._turn = warm, SimpleNamespace(locked=lambda: timing)
    monkeypatch.setattr(module, "Service", lambda: MagicMock(ask=answer))
    job, _ = jobs.start(JobRequest(kind, Document(path.as_uri(), path, "", 1, "utf-16")))
    await job.ended.wait()
    assert warm.did == expected
