"""Lenses above a kernel that speak of judging it."""

import asyncio
import re

import pytest
from lsprotocol import types

from tests.lsp.job_session import editor, store_offer
from tests.lsp.test_reading_features import eventually
from tests.scale_kernel import KERNEL, WORKLOAD
from tests.softmax_kernel import write_softmax

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
ENDLESS = {"proposers": "scripted_proposers:endless", "untimed": True}
QUIET = {"facts_lens": False}


@pytest.fixture
def kernel(tmp_path):
    return write_softmax(tmp_path)


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
        variant, check, refine, measured = await settled(session, uri, 4)
        assert measured.title == "41.2 µs, 61 % of roofline (rows=4096 cols=4096)"
        assert refine.title == "Refine"
        assert check.title == "Check"
        assert (variant.title, variant.command) == ("1.25x faster: show difference", "kernel-lsp.difference")
        assert "num_warps=2" in (await session.command("difference", *variant.arguments))["markdown"]
        assert await session.command("apply", *variant.arguments)
        assert "num_warps=2" in session.texts[uri].text
        after = await settled(session, uri, 3)
        while "29.0" not in after[-1].title:
            await asyncio.sleep(0.05)
            after = await lenses(session, uri)
        assert [lens.title for lens in after] == ["Check", "Refine", "29.0 µs, 88 % of roofline (rows=4096 cols=4096)"]


async def test_the_difference_comes_first_then_steps_then_the_time_then_facts(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS) as session:
        uri = session.open(kernel)
        await eventually(session, uri, "regs")
        shown = await settled(session, uri, 5)
        words = ["show difference", "Check", "Refine", "of roofline", "regs"]
        assert [word in lens.title for word, lens in zip(words, shown, strict=True)] == [True] * 5
        assert "95 % CI" not in shown[0].title, "the first lens is short enough for a split window"
        assert shown[0].tooltip.startswith("1.25x faster (95 % CI 1.23-1.26), 2 cases")


@pytest.mark.thorough
async def test_of_several_workloads_each_is_named(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    other = 'KERNEL = "softmax.py"\nCASES = [dict(n=1)]\n\n\ndef inputs(n): ...\n\n\ndef reference(x): ...\n'
    (kernel.parent / "other_workload.py").write_text(other)
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=QUIET) as session:
        measured = (await settled(session, session.open(kernel), 4))[-1]
        assert measured.title == "softmax: 41.2 µs, 61 % of roofline (rows=4096 cols=4096)"


@pytest.mark.thorough
async def test_their_number_stays_while_a_job_runs(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=QUIET) as session:
        uri = session.open(kernel)
        before = await settled(session, uri, 4)
        job = await session.command("refine", *before[2].arguments)
        seen = []
        while not seen or not seen[-1][2].startswith("Stop ("):
            seen.append([lens.title for lens in await lenses(session, uri)])
            await asyncio.sleep(0.05)
        assert {len(titles) for titles in seen} == {4}
        stop = (await lenses(session, uri))[2]
        assert re.fullmatch(r"Stop \(\d:\d\d\)", stop.title), "it leaves room for the others"
        assert re.match(r"Refining .*: .*\d+ candidates, \d+ correct, \d:\d\d left", stop.tooltip)
        assert await session.command("cancel", *stop.arguments)
        await session.ended(job["id"], 5)
        assert [lens.title for lens in await lenses(session, uri)][2] == "Refine"


@pytest.mark.thorough
async def test_each_kind_can_be_switched_off(kernel, tmp_path):
    store_offer(tmp_path, kernel, kernel.read_text().replace("num_warps=4", "num_warps=2"))
    off = QUIET | {"job_lens": False, "verdict_lens": False}
    async with editor(tmp_path, environment=NO_GPU, refine=ENDLESS, editor=off) as session:
        [variant] = await settled(session, session.open(kernel), 1)
        assert variant.title.endswith("show difference")


async def test_they_lead_from_a_kernel_to_a_check(tmp_path):
    bare = tmp_path / "scale.cu"
    bare.write_text(KERNEL)
    workload = tmp_path / "scale_workload.py"
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET, trusted=False) as session:
        uri = session.open(bare, language="cuda")
        [trust] = await settled(session, uri, 1)
        assert trust.title == f"Not trusted: trust {tmp_path.name}"
        await press(session, trust)
        [draft] = await settled(session, uri, 1)
        assert draft.title == "Draft a workload"
        await press(session, draft)
        finish = await titled(session, uri, "Draft: finish scale_workload.py")
        assert finish.command == "kernel-lsp.draft"
        workload.write_text(WORKLOAD)
        check = await titled(session, uri, "Check")
        job = await press(session, check)
        assert (await session.ended(job["id"]))["state"] == "done"
        passed = next(lens for lens in await lenses(session, uri) if "checks passed" in lens.title)
        [row] = (await session.request("kernels", {}))["files"]
        assert (row["checked"], row["passed"]) == (passed.title, True)
        session.edit(uri, KERNEL + "\n")
        [row] = (await session.request("kernels", {}))["files"]
        assert (row["checked"], row["passed"]) == (None, None), "this text was not checked"
        assert (await titled(session, uri, "Check")).arguments == passed.arguments


async def press(session, lens):
    return await session.command(lens.command.removeprefix("kernel-lsp."), *lens.arguments)


async def titled(session, uri, title):
    async with asyncio.timeout(60):
        while not (found := [lens for lens in await lenses(session, uri) if lens.title == title]):
            await asyncio.sleep(0.05)
    return found[0]


async def test_a_workload_that_cannot_be_read_is_one_click_away(tmp_path):
    """The finding stands at the kernel, where its reader is, and leads to the line that is meant."""
    kernel, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    kernel.write_text(KERNEL)
    workload.write_text("import torch\nCASES = [dict(n=100)\n")
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        mend = await titled(session, uri, "Mend scale_workload.py")
        assert "was never closed" in mend.tooltip
        [finding] = await session.until(lambda: session.client.diagnostics.get(uri))
        assert finding.message.startswith("scale_workload.py:2: ")
        assert finding.range.start.character == KERNEL.index("scale(")
        [related] = finding.related_information
        assert (related.location.uri, related.location.range.start.line) == (workload.as_uri(), 1)
        await session.command("draft", *mend.arguments)
        assert await session.until(lambda: session.shown) == [workload.as_uri()]
