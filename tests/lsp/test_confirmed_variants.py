"""A variant is shown once it is confirmed, and its final checks end while it is read: proved, or taken back."""

import asyncio
import os
from typing import Any

import pytest

from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.store.store import open_store
from tests.lsp.job_session import Editor, data_of, editor, store_offer, verdict_on
from tests.lsp.raw_client import ROOT
from tests.lsp.test_reading_features import eventually, lenses
from tests.softmax_kernel import write_softmax

UNTIMED = {"refine": {"untimed": True}}
WAITING = "confirmed, final checks under way"
SERVICES = """
import sys

if any("kernel_lsp.lsp" in argument for argument in sys.orig_argv):
    from dataclasses import replace

    from kernel_lsp.lsp import catalog

    catalog.JOBS["refine"] = replace(catalog.JOBS["refine"], handler="confirmed_search:search")
"""
FAULT = {"verdict": Outcome.WRONG, "stage": Stage.CORRECT, "reason": "racecheck: two threads write one place"}

pytestmark = pytest.mark.asyncio


class Search:
    """A search in an editor, whose final checks end when a test says so."""

    def __init__(self, tmp_path) -> None:
        self.folder = tmp_path / "kernels"
        self.folder.mkdir()
        self.kernel = write_softmax(self.folder)
        self.variant = self.kernel.read_text().replace("num_warps=4", "num_warps=2")
        (tmp_path / "sitecustomize.py").write_text(SERVICES)
        paths = os.pathsep.join(map(str, (tmp_path, ROOT, ROOT / "tests/fixtures")))
        self.environment = {"CUDA_VISIBLE_DEVICES": "", "PYTHONPATH": paths}
        confirmed = verdict_on(self.kernel, self.variant, final_checks=FinalChecks.UNDER_WAY)
        self.id = confirmed.id
        (self.folder / "confirmed.json").write_text(confirmed.model_dump_json())

    def end(self, **changes: Any) -> None:
        """Let the final checks end; the verdict is FASTER unless the changes say another one."""
        verdict = verdict_on(self.kernel, self.variant, final_checks=FinalChecks.AFTERWARDS, **changes)
        draft = self.folder / "draft.json"
        draft.write_text(verdict.model_dump_json())
        draft.rename(self.folder / "final.json")

    async def shown(self, session: Editor) -> tuple[str, str]:
        """Start the search; return the text's URI and the job's id once the variant is shown."""
        uri = session.open(self.kernel)
        job = (await session.command("refine", uri, "softmax_kernel"))["id"]
        while not await variants(session, uri):
            assert not any(one["id"] == job and one["state"] == "failed" for one in session.jobs), session.jobs[-1]
            await asyncio.sleep(0.05)
        return uri, job


@pytest.fixture
def search(tmp_path):
    return Search(tmp_path)


async def variants(session: Editor, uri: str) -> list[dict[str, Any]]:
    return (await session.request("variants", {"textDocument": {"uri": uri}}))["variants"]


async def application(session: Editor, uri: str) -> Any:
    return next(one for one in await session.actions(uri) if one.title.startswith("Apply "))


async def test_it_is_shown_and_not_applied_until_it_is_proved(search):
    async with editor(search.folder, environment=search.environment, real=True, **UNTIMED) as session:
        uri, job = await search.shown(session)
        [variant] = await variants(session, uri)
        assert variant["pending"]
        assert WAITING in variant["title"]
        action = await application(session, uri)
        assert WAITING in action.title
        assert action.data is None, "an edit of its own would be applied unasked"
        assert await session.command("apply", uri, search.id) is False
        assert session.applied == []
        assert [one.title for one in session.asked[0].actions] == ["Apply it now"]
        with open_store(data_of(search.folder)) as store:
            assert store.list_verdicts() == []

        search.end()
        assert (await session.ended(job))["state"] == "done"
        [variant] = await variants(session, uri)
        assert not variant["pending"]
        assert WAITING not in variant["title"]
        resolved = await session.client.code_action_resolve_async(await application(session, uri))
        assert resolved.edit is not None
        page = await session.request("evidence", {"verdict": search.id, "textDocument": {"uri": uri}})
        assert FinalChecks.AFTERWARDS.value in page["page"]
        assert not any("taken back" in said for said in session.said)


async def test_lenses_stand_as_they_were_until_a_new_verdict_is_read(search):
    text = search.kernel.read_text()
    store_offer(search.folder, search.kernel, text.replace("num_warps=4", "num_warps=8"), speedup=1.1)
    seen: list[list[str]] = []
    over = asyncio.Event()

    async def watch(session: Editor, uri: str) -> None:
        while not over.is_set():
            seen.append([title for _, title in await lenses(session, uri)])

    quiet = {"editor": {"facts_lens": False}}
    async with editor(search.folder, environment=search.environment, real=True, **UNTIMED, **quiet) as session:
        uri = session.open(search.kernel)
        await eventually(session, uri, "1.10x faster")
        watching = asyncio.create_task(watch(session, uri))
        _, job = await search.shown(session)
        await session.until(lambda: any("1.25x" in title for title in seen[-1]))
        search.end()
        await session.ended(job)
        await session.until(lambda: "Refine" in seen[-1])
        over.set()
        await watching
    kinds = [[title for title in titles if "show difference" in title or "roofline" in title] for titles in seen]
    assert {len(titles) for titles in seen} == {4}, "no lens goes for a moment"
    assert {len(titles) for titles in kinds} == {2}
    best = [titles[0].partition("x")[0] for titles in kinds]
    assert best == sorted(best), "the better variant stays once it is shown"


@pytest.mark.thorough
async def test_it_is_taken_back_with_the_reason_if_they_fail(search):
    async with editor(search.folder, environment=search.environment, real=True, **UNTIMED) as session:
        uri, job = await search.shown(session)
        search.end(**FAULT)
        await session.ended(job)
        assert await variants(session, uri) == []
        await session.until(lambda: any(FAULT["reason"] in said for said in session.said))
        [said] = [one for one in session.said if "taken back" in one]
        assert said.startswith("num_warps 4 -> 2")
        assert "undo" not in said
        assert not any(one.title.startswith("Apply ") for one in await session.actions(uri))
        assert session.applied == []


@pytest.mark.thorough
async def test_who_applies_it_before_hears_that_it_is_taken_back(search):
    async with editor(search.folder, environment=search.environment, real=True, **UNTIMED) as session:
        uri, job = await search.shown(session)
        session.answer = "Apply it now"
        assert await session.command("apply", uri, search.id) is True
        assert session.texts[uri].text == search.variant
        search.end(**FAULT)
        await session.ended(job)
        await session.until(lambda: any("You have applied it: undo that." in said for said in session.said))


@pytest.mark.thorough
async def test_it_is_taken_back_if_the_search_ends_before_its_final_checks(search):
    async with editor(search.folder, environment=search.environment, real=True, **UNTIMED) as session:
        uri, job = await search.shown(session)
        await session.command("cancel", job)
        await session.ended(job)
        assert await variants(session, uri) == []
        await session.until(lambda: any("before its final checks did" in said for said in session.said))
