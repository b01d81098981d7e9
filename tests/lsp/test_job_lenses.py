"""Lenses above a kernel that speak of judging it."""

import asyncio
import re

import pytest
from lsprotocol import types

from tests.lsp.job_session import editor, kernel_file, store_offer

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
ENDLESS = {"proposers": "scripted_proposers:endless", "untimed": True}
QUIET = {"facts_lens": False}


@pytest.fixture
def kernel(tmp_path):
    return kernel_file(tmp_path)


async def lenses(session, uri):
    params = types.CodeLensParams(types.TextDocumentIdentifier(uri))
    return [lens.command for lens in await session.client.text_document_code_lens_async(params)]


async def settled(session, uri, count):
    """The lenses as they are once what the store knows has been read."""
    found = await lenses(session, uri)
    while len(found) < count:
        await asyncio.sleep(0.05)
        found = await lenses(session, uri)
    return found


async def test_they_tell_what_was_measured_and_what_was_found(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=QUIET) as session:
        uri = session.open(kernel)
        measured, refine, variant = await settled(session, uri, 3)
        assert measured.title == "41.2 µs, 61 % of roofline (rows=4096 cols=4096)"
        assert refine.title == "Refine"
        assert variant.title == "Apply: 1.25x faster (95 % CI 1.23-1.26)"
        assert await session.command("apply", *variant.arguments)
        assert "num_warps=2" in session.texts[uri].text
        after = await settled(session, uri, 2)
        while "29.0" not in after[0].title:
            await asyncio.sleep(0.05)
            after = await lenses(session, uri)
        assert [lens.title for lens in after] == ["29.0 µs, 88 % of roofline (rows=4096 cols=4096)", "Refine"]


async def test_of_several_workloads_each_is_named(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    other = 'KERNEL = "softmax.py"\nCASES = [dict(n=1)]\n\n\ndef inputs(n): ...\n\n\ndef reference(x): ...\n'
    (kernel.parent / "other_workload.py").write_text(other)
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=QUIET) as session:
        measured = (await settled(session, session.open(kernel), 3))[0]
        assert measured.title == "softmax: 41.2 µs, 61 % of roofline (rows=4096 cols=4096)"


async def test_their_number_stays_while_a_job_runs(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=QUIET) as session:
        uri = session.open(kernel)
        before = await settled(session, uri, 3)
        job = await session.command("refine", *before[1].arguments)
        seen = []
        while not seen or "correct" not in seen[-1][1]:
            seen.append([lens.title for lens in await lenses(session, uri)])
            await asyncio.sleep(0.05)
        assert {len(titles) for titles in seen} == {3}
        stop = (await lenses(session, uri))[1]
        assert re.match(r"Stop: .*\d+ candidates, \d+ correct, \d:\d\d left", stop.title)
        assert await session.command("cancel", *stop.arguments)
        await session.ended(job["id"], 5)
        assert [lens.title for lens in await lenses(session, uri)][1] == "Refine"


async def test_each_kind_can_be_switched_off(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    off = QUIET | {"job_lens": False, "verdict_lens": False}
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=off) as session:
        [variant] = await settled(session, session.open(kernel), 1)
        assert variant.title.startswith("Apply: ")
