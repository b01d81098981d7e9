"""A check says what it does: it compiles, then it runs one set of inputs after the other."""

import re

import pytest

from tests.lsp.job_session import editor
from tests.scale_kernel import KERNEL, WORKLOAD

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}


async def test_it_names_the_case_and_counts_what_it_has_done(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor={"check_on_save": False}) as session:
        uri = session.open(kernel, language="cuda")
        job = await session.command("check", uri)
        await session.ended(job["id"])
        seen = [one for one in session.jobs if one["id"] == job["id"] and one["state"] == "running"]
        bar = [value for _, value in session.progress]
    texts = list(dict.fromkeys(one["text"] for one in seen))
    assert "compiled, starting to run it" in texts
    counted = [one for one in seen if re.fullmatch(r"case \d of \d \(n=\d+\): \d+ of \d+ checks", one["text"])]
    assert counted
    shares = [one["percentage"] for one in seen]
    assert shares == sorted(shares)
    assert shares[-1] > 0
    reported = [value for value in bar if value["kind"] == "report"]
    assert any(value["percentage"] and "of" in value["message"] for value in reported)
