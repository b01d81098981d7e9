"""A kernel for a plain PyTorch module, from the editor: what is offered where, what is written, and what is told."""

import shutil
import tempfile
from pathlib import Path

import pytest
import pytest_asyncio
from lsprotocol import types

from tests.lsp.job_session import EVERYTHING, editor, store_offer
from tests.served_model.fake_server import FakeServer, said
from tests.served_model.module import PROBLEM, RIGHT, TRITON, code_of, write_answer, write_module
from tests.softmax_kernel import write_softmax

UNTIMED = {"refine": {"untimed": True}}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
REWRITE = "refactor.rewrite.kernel-lsp"
CUDA, TRITON_TITLE = "Write a CUDA kernel for this module", "Write a Triton kernel for this module"
OFFER = "Write scale_cuda.py (one kernel): 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200"

pytestmark = pytest.mark.asyncio


@pytest_asyncio.fixture
async def server():
    folder = Path(tempfile.mkdtemp(prefix="kl-"))  # with a short name, for a socket lies in it
    made = FakeServer(folder / "socket", key=None)
    await made.open()
    yield made
    await made.close()
    shutil.rmtree(folder)


def served(server, profile="kevin-32b", **refine):
    """Settings under which the server is asked."""
    model = {"endpoint": f"unix:{server.socket}", "name": "tiny", "profile": profile}
    return {"model": model, "judge": {"families": ["normal"]}, "refine": {"untimed": True} | refine}


def reasons(actions):
    return {action.title: action.disabled.reason for action in actions if action.disabled}


@pytest.mark.thorough
async def test_a_module_is_offered_a_kernel_in_either_language(tmp_path, server):
    async with editor(tmp_path, environment=NO_GPU, **served(server, "general")) as session:
        found = await session.actions(session.open(write_module(tmp_path)), line=0)
        assert [action.title for action in found] == [CUDA, TRITON_TITLE, "Check scale.py"]
        assert not reasons(found)
        assert {str(action.kind) for action in found[:2]} == {REWRITE}
        assert [action.command.arguments[1] for action in found[:2]] == ["cuda", "triton"]
    async with editor(tmp_path, environment=NO_GPU, **served(server, "kevin-32b")) as session:
        found = await session.actions(session.open(tmp_path / "scale.py"))
        why = "Models of the profile `kevin-32b` write CUDA, and Triton is asked for."
        assert reasons(found) == {TRITON_TITLE: why}


@pytest.mark.thorough
async def test_a_module_with_an_answer_is_refined_not_lowered(tmp_path, server):
    path = write_answer(tmp_path)
    path.write_text(PROBLEM + path.read_text())
    async with editor(tmp_path, environment=NO_GPU, **served(server)) as session:
        uri = session.open(path)
        titles = [action.title for action in await session.actions(uri, line=path.read_text()[:900].count("\n"))]
        assert CUDA not in titles
        with pytest.raises(Exception, match="not a plain PyTorch module"):
            await session.command("lower", uri, "cuda")


@pytest.mark.thorough
async def test_what_stands_in_the_way_is_said(tmp_path):
    path = write_module(tmp_path)
    async with editor(tmp_path, environment=NO_GPU, **UNTIMED) as session:
        uri = session.open(path)
        assert reasons(await session.actions(uri))[CUDA] == "No model server is running on this machine."
    (tmp_path / "scale_triton.py").touch()
    async with editor(
        tmp_path, environment=NO_GPU, model={"endpoint": "unix:/x", "name": "tiny", "profile": "general"}
    ) as session:
        uri = session.open(path)
        found = await session.actions(uri)
        while CUDA not in reasons(found):  # the driver may take its time to answer
            found = await session.actions(uri)
        assert "needs an NVIDIA GPU" in reasons(found)[CUDA]
    settings = UNTIMED | {"model": {"endpoint": "unix:/x", "name": "tiny", "profile": "general"}}
    async with editor(tmp_path, environment=NO_GPU, **settings) as session:
        assert reasons(await session.actions(session.open(path))) == {
            TRITON_TITLE: "scale_triton.py is there already: refine that"
        }
    async with editor(tmp_path, environment=NO_GPU, trusted=False, **settings) as session:
        assert "not trusted" in reasons(await session.actions(session.open(path)))[CUDA]


@pytest.mark.thorough
async def test_a_verified_kernel_becomes_a_new_file(tmp_path):
    path = write_module(tmp_path)
    verdict = store_offer(tmp_path, path, code_of(RIGHT), label="one kernel")
    async with editor(tmp_path, environment=NO_GPU, **UNTIMED) as session:
        uri = session.open(path)
        [action, *_] = await session.actions(uri)
        assert action.title == OFFER
        edit = (await session.client.code_action_resolve_async(action)).edit
        assert [type(one) for one in edit.document_changes] == [types.CreateFile, types.TextDocumentEdit]
        assert edit.document_changes[0].options == types.CreateFileOptions(overwrite=False, ignore_if_exists=False)
        listed = (await session.request("variants", {"textDocument": {"uri": uri}}))["variants"]
        assert [(one["verdict"], one["fits"]) for one in listed] == [(verdict.id, True)]
        made = tmp_path / "scale_cuda.py"
        seen = await session.request("variant", {"textDocument": {"uri": uri}, "verdict": verdict.id})
        assert seen["creates"]
        assert seen["files"] == [{"uri": made.as_uri(), "text": code_of(RIGHT)}]
        assert await session.command("apply", uri, verdict.id)
        assert session.texts[made.as_uri()].text == code_of(RIGHT)
        assert session.texts[uri].text == PROBLEM == path.read_text()
        after = await session.actions(uri)
        assert OFFER not in [one.title for one in after]
        with pytest.raises(Exception, match="This file already exists"):
            await session.command("apply", uri, verdict.id)


@pytest.mark.thorough
async def test_a_client_that_makes_no_files_has_the_server_write_it(tmp_path):
    path = write_module(tmp_path)
    verdict = store_offer(tmp_path, path, code_of(TRITON), label="one program")
    can = {name: value for name, value in EVERYTHING.items() if name != "workspace"}
    async with editor(tmp_path, environment=NO_GPU, capabilities=can, **UNTIMED) as session:
        uri = session.open(path)
        [action, *_] = await session.actions(uri)
        assert list(action.command.arguments) == [uri, verdict.id]
        assert await session.command("apply", uri, verdict.id)
        made = tmp_path / "scale_triton.py"
        assert made.read_text() == code_of(TRITON)
        assert f"The kernel was written to {made}." in session.said


@pytest.mark.thorough
async def test_a_kernel_for_an_older_module_is_not_offered(tmp_path):
    path = write_module(tmp_path)
    verdict = store_offer(tmp_path, path, code_of(RIGHT), label="one kernel")
    async with editor(tmp_path, environment=NO_GPU, **UNTIMED) as session:
        uri = session.open(path, PROBLEM + "\n# a note\n")
        assert OFFER in [one.title for one in await session.actions(uri)]
        session.edit(uri, PROBLEM.replace("3 * x", "4 * x"))
        assert OFFER not in [one.title for one in await session.actions(uri)]
        with pytest.raises(Exception, match="older version"):
            await session.command("apply", uri, verdict.id)
        assert not (tmp_path / "scale_cuda.py").exists()


async def test_lenses_of_a_module(tmp_path, server):
    path = write_module(tmp_path)
    store_offer(tmp_path, path, code_of(RIGHT), label="one kernel")
    async with editor(tmp_path, environment=NO_GPU, **served(server, "general")) as session:
        uri = session.open(path)

        async def lenses():
            given = types.CodeLensParams(types.TextDocumentIdentifier(uri))
            return list(await session.client.text_document_code_lens_async(given) or [])

        found = await lenses()
        while not found:  # what the store knows is read in the background
            found = await lenses()
        assert [lens.command.title for lens in found] == [
            "Write a CUDA kernel",
            "Write a Triton kernel",
            "Write scale_cuda.py: 1.25x faster (95 % CI 1.23-1.26)",
        ]
        assert {lens.range.start.line for lens in found} == {4}


async def test_the_job_asks_the_model_and_tells_what_came_of_it(tmp_path, server):
    server.reply = lambda _: [said(TRITON, tokens=9), said(finish="stop", tokens=9)]
    settings = served(server, "drkernel-8b", trajectories=1, turns=1)
    async with editor(tmp_path, environment=NO_GPU, **settings) as session:
        uri = session.open(write_module(tmp_path))
        job = await session.command("lower", uri, "triton")
        assert job["title"] == "Writing a kernel for scale.py"
        ended = await session.ended(job["id"], 120)
        assert ended["state"] == "done", ended
        assert ended["reason"].endswith("of 1 candidates 1 build and 1 are right")
        assert ended["verdict"] is None, "nothing was timed, so nothing is offered"
        [asked] = server.bodies
        assert PROBLEM in asked["messages"][0]["content"]
        assert not (tmp_path / "scale_triton.py").exists()


@pytest.mark.thorough
async def test_notes_of_a_search_are_shown(tmp_path):
    kernel = write_softmax(tmp_path)
    quick = {"refine": {"untimed": True, "budget": 15}, "judge": {"families": ["normal"]}}
    can = {name: value for name, value in EVERYTHING.items() if name != "experimental"}
    async with editor(tmp_path, environment=NO_GPU, capabilities=can, **quick) as session:
        uri = session.open(kernel)
        await session.command("refine", uri)
        note = await session.until(lambda: [text for text in session.said if text.startswith("No model was asked")])
        assert len(note) == 1
        assert note[0].startswith("No model was asked: No model server is running on this machine. Start one with")
        [job] = (await session.request("jobs", {}))["jobs"]
        assert job["notes"] == note
        await session.command("refine", uri)
        await session.until(lambda: len([text for text in session.said if text.startswith(job["title"])]) == 2)
        await session.request("jobs", {})  # what was said before its answer has arrived
        assert [text for text in session.said if text.startswith("No model was asked")] == note, "it is said once"
