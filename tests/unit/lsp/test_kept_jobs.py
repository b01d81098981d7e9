"""What is kept of jobs that have ended."""

import asyncio
from unittest.mock import AsyncMock, MagicMock

import pytest

from kernel_lsp.lsp.catalog import CHECK
from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.job import JobRequest
from kernel_lsp.lsp.jobs import Jobs
from kernel_lsp.lsp.wire import State


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
