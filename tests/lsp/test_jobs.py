"""Jobs in a real server process: started, watched, joined, cancelled, killed."""

import os
import re
import signal
import subprocess

import pytest
from lsprotocol import types

from kernel_lsp.store.store import open_store
from tests.lsp.job_session import below, children, data_of, editor, gone
from tests.softmax_kernel import write_softmax

TWO = {"refine": {"proposers": "scripted_proposers:two", "untimed": True}}
ENDLESS = {"refine": {"proposers": "scripted_proposers:endless", "untimed": True}}
# A machine with a GPU must tell the same story.
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def kernel(tmp_path):
    return write_softmax(tmp_path)


def processes(session):
    """The job's own process, which is the server's youngest child, and all below it."""
    job = max(children(session.pid))
    return {job} | below(job)


async def test_a_search_tells_where_it_stands_and_stores_what_it_finds(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **TWO) as session:
        uri = session.open(kernel)
        started = await session.command("refine", uri, "softmax_kernel")
        assert (started["state"], started["joined"]) == ("waiting", False)
        ended = await session.ended(started["id"])
    assert ended["state"] == "done"
    assert ended["reason"].endswith("of 2 candidates 2 build and 1 are right")
    assert not any(ended["reason"] in said for said in session.said)  # whoever hears of jobs shows their end himself
    seen = [job["progress"] for job in session.jobs if job["progress"]]
    assert [seen[-1][name] for name in ("proposed", "built", "correct")] == [2, 2, 1]
    assert seen[0]["budget"] == 120
    elapsed = [progress["elapsed"] for progress in seen]
    assert elapsed == sorted(elapsed)
    bar = [value for _, value in session.progress]
    assert (bar[0]["kind"], bar[-1]["kind"]) == ("begin", "end")
    assert bar[0]["title"] == "Refining softmax_kernel"
    assert "2 candidates, 1 correct, " in bar[-2]["message"]
    assert re.search(r"1:\d\d left", bar[-2]["message"])
    with open_store(data_of(tmp_path)) as store:
        assert {row.verdict for row in store.list_verdicts()} == {"UNTIMED", "WRONG"}
        [search] = store.list_sessions()
        assert len(store.list_turns(search)) == 2


async def test_a_second_start_joins_and_another_text_begins_anew(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **ENDLESS) as session:
        uri = session.open(kernel)
        wanted = {"work": "refine", "textDocument": {"uri": uri}, "kernel": "softmax_kernel"}
        first = await session.request("startJob", wanted)
        second = await session.request("startJob", wanted)
        assert (second["id"], second["joined"]) == (first["id"], True)
        session.edit(uri, session.texts[uri].text + "\n# more\n")
        third = await session.request("startJob", wanted)
        assert third["id"] != first["id"]
        assert (await session.ended(first["id"]))["reason"].startswith("the text was changed")
        assert await session.command("cancel", third["id"])
        assert (await session.ended(third["id"]))["state"] == "cancelled"


async def test_cancel_ends_every_process_below_and_kill_9_of_the_server_those_of_the_next_job(kernel, tmp_path):
    own = {"runner": {"warm_minutes": 0}, **ENDLESS}
    async with editor(tmp_path, environment=NO_GPU, real=True, ends_well=False, **own) as session:
        uri = session.open(kernel)
        job = await session.command("refine", uri)
        await session.until(lambda: [j for j in session.jobs if j["progress"] and j["progress"]["correct"]])
        started = processes(session)
        assert len(started) > 3  # the job, its zygotes, their workers
        assert (await session.request("cancelJob", {"id": job["id"]})) == {"cancelled": True}
        ended = await session.ended(job["id"], 30)
        await gone(started)
        assert ended["state"] == "cancelled"
        assert (await session.request("cancelJob", {"id": job["id"]})) == {"cancelled": False}
        with open_store(data_of(tmp_path)) as store:
            assert store.list_verdicts()  # what was found before is kept
        again = await session.command("refine", uri)
        await session.until(lambda: [j for j in session.jobs if j["id"] == again["id"] and j["state"] == "running"])
        left = below(session.pid)
        assert len(left) > 2  # the service, its zygote, the job
        os.kill(session.pid, signal.SIGKILL)
        await gone(left | {session.pid})
    with open_store(data_of(tmp_path)) as store:
        assert store.list_verdicts()


@pytest.mark.thorough
async def test_a_client_that_agrees_late_to_a_progress_bar_has_it_then(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **ENDLESS) as session:
        session.agrees_after = 4.0
        job = await session.command("refine", session.open(kernel))
        await session.until(lambda: [j for j in session.jobs if j["state"] == "running"])
        assert session.progress == []
        await session.until(lambda: session.progress)
        assert session.progress[0][1]["kind"] == "begin"
        await session.request("cancelJob", {"id": job["id"]})
        await session.ended(job["id"])
    assert session.progress[-1][1]["kind"] == "end"


async def test_a_check_that_is_cancelled_has_kept_nothing(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        job = await session.command("check", session.open(kernel))
        assert await session.command("cancel", job["id"])
        ended = await session.ended(job["id"])
        assert (ended["state"], ended["reason"]) == ("cancelled", "it was cancelled")


@pytest.mark.thorough
async def test_the_progress_bar_cancels_too(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **ENDLESS) as session:
        job = await session.command("refine", session.open(kernel))
        await session.until(lambda: session.progress)
        session.client.window_work_done_progress_cancel(types.WorkDoneProgressCancelParams(session.progress[0][0]))
        assert (await session.ended(job["id"], 5))["state"] == "cancelled"


async def test_jobs_that_time_take_turns_and_a_check_does_not_wait(kernel, tmp_path):
    other = kernel.with_name("other.py")
    other.write_text(kernel.read_text())
    async with editor(tmp_path, environment=NO_GPU, **ENDLESS) as session:
        first = await session.command("refine", session.open(kernel))
        second = await session.command("refine", session.open(other))
        await session.until(lambda: [j for j in session.jobs if j["id"] == first["id"] and j["state"] == "running"])
        check = await session.command("check", other.as_uri())
        assert (await session.ended(check["id"]))["reason"].endswith("checks passed")
        listed = {job["id"]: job for job in (await session.request("jobs", {}))["jobs"]}
        assert (listed[second["id"]]["state"], listed[second["id"]]["text"]) == ("waiting", "waiting")
        await session.command("cancel", first["id"])
        await session.until(lambda: [j for j in session.jobs if j["id"] == second["id"] and j["state"] == "running"])
        assert await session.command("cancel")
        assert (await session.ended(second["id"]))["state"] == "cancelled"


@pytest.mark.thorough
async def test_a_failed_check_shows_the_case_at_the_kernel(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        wrong = kernel.read_text().replace("numerator / tl.sum", "0.5 * numerator / tl.sum")
        uri = session.open(kernel, wrong)  # as it is in the editor, not as it is on disk
        job = await session.command("check", uri)
        ended = await session.ended(job["id"])
        assert "is wrong from index [0, 0]" in ended["reason"]
        shown = await session.until(lambda: session.client.diagnostics.get(uri))
        assert any("is wrong from index [0, 0]" in one.message for one in shown)


@pytest.mark.thorough
async def test_compare_judges_the_last_commit_against_the_text(kernel, tmp_path):
    who = ("-c", "user.name=a", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false")
    for arguments in (("init", "-q"), ("add", "softmax.py"), ("commit", "-qm", "first")):
        subprocess.run(["git", *who, *arguments], cwd=tmp_path, check=True)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        same = await session.command("compare", uri)
        assert "the same program" in (await session.ended(same["id"]))["reason"]
        session.edit(uri, session.texts[uri].text.replace("numerator / tl.sum", "2 * numerator / tl.sum"))
        other = await session.command("compare", uri)
        ended = await session.ended(other["id"])
    with open_store(data_of(tmp_path)) as store:
        found = store.find_verdict(ended["verdict"])
    assert found is not None
    assert found["verdict"] == "WRONG"
    assert found["evidence"]["candidate_label"] == "since the last commit"


@pytest.mark.thorough
async def test_a_rewrite_can_be_judged_by_itself(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        job = await session.command("rewrite", session.open(kernel), "softmax_kernel", "streaming stores")
        assert "right on the emulator" in (await session.ended(job["id"]))["reason"]
        other = await session.command("rewrite", kernel.as_uri(), "softmax_kernel", "no such rewrite")
        assert "does not apply" in (await session.ended(other["id"]))["reason"]


async def test_a_killed_runner_is_an_answer_and_not_a_hang(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, real=True, **ENDLESS) as session:
        uri = session.open(kernel)
        job = await session.command("refine", uri)
        await session.until(lambda: [j for j in session.jobs if j["progress"] and j["progress"]["correct"]])
        started = processes(session)
        os.kill(max(children(session.pid)), signal.SIGKILL)
        ended = await session.ended(job["id"], 30)
        assert ended["state"] == "failed"
        assert "Try again" in ended["reason"]
        await gone(started)
        again = await session.command("refine", uri)
        assert again["id"] != job["id"]
        await session.command("cancel")
    with open_store(data_of(tmp_path)) as store:
        assert store.list_verdicts()


@pytest.mark.thorough
@pytest.mark.parametrize("end", ["crash", "kill -9"])
async def test_nothing_outlives_the_client_or_the_server(kernel, tmp_path, end):
    own = {"runner": {"warm_minutes": 0}, **ENDLESS}
    async with editor(tmp_path, environment=NO_GPU, real=True, ends_well=False, **own) as session:
        await session.command("refine", session.open(kernel))
        await session.until(lambda: [j for j in session.jobs if j["progress"] and j["progress"]["correct"]])
        with open_store(data_of(tmp_path)) as store:
            stored = len(store.list_verdicts())
        started = below(session.pid)
        assert len(started) > 3
        if end == "crash":
            session.client._server.stdin.close()  # all that is left of a client that died
        else:
            os.kill(session.pid, signal.SIGKILL)
        await gone(started | {session.pid})
    with open_store(data_of(tmp_path)) as store:
        assert len(store.list_verdicts()) >= stored >= 1


@pytest.mark.thorough
async def test_what_cannot_be_run_says_why(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, trusted=False) as session:
        with pytest.raises(Exception, match="do not trust"):
            await session.command("refine", session.open(kernel))
    async with editor(tmp_path, environment=NO_GPU) as session:
        bare = kernel.with_name("bare.cu")
        bare.write_text("__global__ void k(float* y) { y[0] = 1; }\n")
        job = await session.command("compare", session.open(bare, language="cuda"))
        assert "no workload was found" in (await session.ended(job["id"]))["reason"]
        for arguments in ([], [1], ["a", "b", "c"], [None]):
            with pytest.raises(Exception, match="texts"):
                await session.command("refine", *arguments)
