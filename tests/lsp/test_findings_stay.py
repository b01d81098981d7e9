"""Findings of a check stay in view while their author fixes them, and a text too large for that is left alone."""

import pytest
from lsprotocol import types

from kernel_lsp.lsp.documents import LARGEST
from tests.lsp.job_session import editor
from tests.lsp.test_job_lenses import titled
from tests.scale_kernel import KERNEL, WORKLOAD

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
QUIET = {"check_on_save": False}
WRONG = KERNEL.replace("if (i < n) ", "")


def shown(session, uri):
    return [(d.code, d.range.start.line, d.message) for d in session.client.diagnostics.get(uri, [])]


async def test_they_stay_and_move_until_their_line_is_changed(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(WRONG)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        found = await session.until(lambda: shown(session, uri))
        assert {code for code, *_ in found} == {"KL010"}
        [row] = (await session.request("kernels", {}))["files"]
        assert (row["checked"], row["passed"]) == ("2 errors", False)
        session.edit(uri, "#define MORE\n" + WRONG)
        later = [(code, line + 1, f"{message} (before your edit)") for code, line, message in found]
        assert await session.until(lambda: later if shown(session, uri) == later else None)
        session.edit(uri, WRONG)
        assert await session.until(lambda: shown(session, uri) == found), "what was checked is back"
        session.edit(uri, "// one line more\n" + WRONG)
        later = [(code, line + 1, message) for code, line, message in found]
        assert await session.until(lambda: shown(session, uri) == later), "a comment makes no older text of it"
        [row] = (await session.request("kernels", {}))["files"]
        assert (row["checked"], row["passed"]) == ("2 errors", False)
        session.edit(uri, KERNEL)
        await session.until(lambda: not shown(session, uri))


@pytest.mark.thorough
async def test_a_check_that_ends_after_an_edit_is_shown_as_older(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(WRONG)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        uri = session.open(kernel, language="cuda")
        job = await session.command("check", uri)
        session.edit(uri, WRONG + "// typed meanwhile\n")
        await session.ended(job["id"])
        [(code, _, message), *_] = await session.until(lambda: shown(session, uri))
        assert code == "KL010"
        assert message.endswith(" (before your edit)")


@pytest.mark.thorough
async def test_a_text_that_is_too_large_is_left_alone_and_said_so(tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        kernel = tmp_path / "generated.cu"
        kernel.write_text("")
        uri = session.open(kernel, KERNEL + "// generated\n" * (LARGEST // 12), "cuda")
        [(_, line, message)] = await session.until(lambda: shown(session, uri))
        assert (line, "too large" in message) == (0, True)
        params = types.CodeLensParams(types.TextDocumentIdentifier(uri))
        assert not await session.client.text_document_code_lens_async(params)
        with pytest.raises(Exception, match="too large"):
            await session.command("check", uri)


@pytest.mark.thorough
@pytest.mark.parametrize("answer", [None, "Check without One", "What to Do"])
async def test_without_a_gpu_a_search_is_refused_at_once_with_what_can_be_done(tmp_path, answer):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        session.answer = answer
        uri = session.open(kernel, language="cuda")
        while not any(a.disabled and "GPU" in a.disabled.reason for a in await session.actions(uri, line=0)):
            pass  # the driver may take its time to answer
        with pytest.raises(Exception, match="needs an NVIDIA GPU"):
            await session.command("refine", uri, "scale")
        [asked] = await session.until(lambda: session.asked)
        assert asked.type == types.MessageType.Info
        assert asked.message == "Refining scale needs an NVIDIA GPU, and this machine has none."
        assert [action.title for action in asked.actions] == ["Check without One", "What to Do"]
        if answer == "What to Do":
            await session.until(lambda: any("refine.untimed" in said for said in session.said))
        if answer == "Check without One":
            await session.until(lambda: [job for job in session.jobs if job["work"] == "check"])
        else:
            assert (await session.request("jobs", {}))["jobs"] == []


async def test_a_lens_says_that_a_search_needs_a_gpu_unless_it_may_go_on_without_one(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(KERNEL)
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        uri = session.open(kernel, language="cuda")
        lens = await titled(session, uri, "Refine (needs a GPU)")
        assert "this machine has none" in lens.tooltip
        assert (await session.request("status", {}))["searches"] is False
        with pytest.raises(Exception, match="needs an NVIDIA GPU"):
            await session.command("refine", *lens.arguments)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET, refine={"untimed": True}) as session:
        await titled(session, session.open(kernel, language="cuda"), "Refine")
        assert (await session.request("status", {}))["searches"] is True


@pytest.mark.thorough
async def test_what_an_earlier_session_found_is_known_at_once(tmp_path):
    kernel, other = tmp_path / "scale.cu", tmp_path / "other.cu"
    for file in (kernel, other):
        file.write_text(WRONG)
        file.with_name(f"{file.stem}_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET | {"judge_fixes": False}) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        found = await session.until(lambda: shown(session, uri))
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        asked = {"textDocument": {"uri": uri}}
        known = await session.request("checks", asked)  # of a file that is not open
        assert [one["line"] for one in known["findings"]] == [line for _, line, _ in found]
        assert known["families"][0]["status"] == "failed"
        assert known["kernels"] == [{"name": "scale", "line": 0}]
        session.open(kernel, language="cuda")
        assert await session.until(lambda: shown(session, uri)) == found
        session.edit(uri, WRONG + "#define MORE\n")
        assert (await session.request("checks", asked))["older"]
        asked = {"textDocument": {"uri": other.as_uri()}}
        assert (await session.request("checks", asked))["reason"] is None, "its name is another: it was never checked"
        assert (await session.request("jobs", {}))["jobs"] == [], "nothing was run"
