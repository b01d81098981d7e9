"""Edits: against the text as it is, only where the judged text still stands, and seen before they are believed."""

import pytest

from tests.lsp.job_session import EVERYTHING, editor, store_offer
from tests.softmax_kernel import write_softmax

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
CUDA = """__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}
"""
WORKLOAD = """import torch

CASES = [dict(n=64)]


def inputs(n):
    return torch.randn(n, device="cuda")


def reference(x):
    return 0.5 * x


def launch(module, x):
    y = torch.empty_like(x)
    module.scale[((x.numel() + 255) // 256,), (256,)](x, y, x.numel())
    return y
"""

pytestmark = pytest.mark.asyncio


@pytest.fixture
def kernel(tmp_path):
    return write_softmax(tmp_path)


def faster_text(text):
    return text.replace("num_warps=4", "num_warps=2")


async def apply_action(session, uri, line=17):
    return (await session.actions(uri, only=["refactor"], line=line))[0]


async def test_the_edit_is_versioned_and_touches_only_what_differs(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        resolved = await session.client.code_action_resolve_async(await apply_action(session, uri))
        [change] = resolved.edit.document_changes
        assert change.text_document.version == 1
        [edit] = change.edits
        assert edit.new_text == "2"
        assert edit.range.start.line == edit.range.end.line
        assert edit.range.end.character - edit.range.start.character == 1


@pytest.mark.thorough
async def test_a_kernel_that_has_moved_is_edited_where_it_is_now(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        action = await apply_action(session, uri)
        moved = kernel.read_text().replace("import torch\n", "# Größe 𝒏: a comment above\nimport torch\n", 1)
        session.edit(uri, moved)
        resolved = await session.client.code_action_resolve_async(action)
        assert session.apply(resolved.edit)
        assert session.texts[uri].text == faster_text(moved)


@pytest.mark.thorough
async def test_line_ends_stay_as_they_are(kernel, tmp_path):
    text = kernel.read_text().replace("\n", "\r\n")
    kernel.write_bytes(text.encode())
    store_offer(tmp_path, kernel, faster_text(text))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, text)
        resolved = await session.client.code_action_resolve_async(await apply_action(session, uri))
        assert session.apply(resolved.edit)
        assert session.texts[uri].text == faster_text(text)


@pytest.mark.sampled(2)
@pytest.mark.parametrize("answer", ["Refine it again", None])
async def test_a_kernel_that_has_changed_is_left_alone(kernel, tmp_path, answer):
    store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    settings = {"refine": {"untimed": True, "proposers": "scripted_proposers:two"}}
    async with editor(tmp_path, environment=NO_GPU, **settings) as session:
        session.answer = answer
        uri = session.open(kernel)
        action = await apply_action(session, uri)
        session.edit(uri, session.texts[uri].text.replace("tl.exp(x", "tl.exp2(x"))
        with pytest.raises(Exception, match="older version of the kernel"):
            await session.client.code_action_resolve_async(action)
        [asked] = await session.until(lambda: session.asked)
        assert asked.message == "This result is for an older version of the kernel. Judge it again?"
        [older, *_] = await session.actions(uri, only=["refactor"])
        assert older.title == action.title
        assert "older version" in older.disabled.reason
        if answer:
            await session.until(lambda: [job for job in session.jobs if job["work"] == "refine"])
            await session.command("cancel")
        else:
            assert session.jobs == []


@pytest.mark.thorough
async def test_what_an_editor_says_of_an_edit_is_not_believed(kernel, tmp_path):
    verdict = store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        session.honest = False
        session.apply = lambda edit: False
        assert await session.command("apply", uri, verdict.id)
        await session.until(lambda: [said for said in session.said if "its text is another one" in said])
        assert len(session.applied) == 1


@pytest.mark.thorough
async def test_an_editor_may_decline(kernel, tmp_path):
    verdict = store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        session.apply = lambda edit: False
        assert await session.command("apply", uri, verdict.id) is False


@pytest.mark.thorough
async def test_a_variant_with_another_launch_changes_both_files(tmp_path):
    kernel, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    kernel.write_text(CUDA)
    workload.write_text(WORKLOAD)
    launch = WORKLOAD.replace("255", "127").replace("256", "128")
    variant = CUDA.replace("const float* x", "const float* __restrict__ x")
    store_offer(tmp_path, kernel, variant, launch=launch)
    annotations = {"changeAnnotationSupport": {}}
    workspace = EVERYTHING["workspace"] | {
        "workspaceEdit": EVERYTHING["workspace"]["workspaceEdit"] | annotations,
    }
    async with editor(tmp_path, environment=NO_GPU, capabilities=EVERYTHING | {"workspace": workspace}) as session:
        uri = session.open(kernel, language="cuda")
        closed = await session.client.code_action_resolve_async(await apply_action(session, uri, line=0))
        assert [change.text_document.version for change in closed.edit.document_changes] == [1, None]
        beside = session.open(workload)
        session.edit(beside, "# In the editor only.\n" + WORKLOAD)
        resolved = await session.client.code_action_resolve_async(await apply_action(session, uri, line=0))
        first, second = resolved.edit.document_changes
        assert [first.text_document.version, second.text_document.version] == [1, 2]
        [note] = resolved.edit.change_annotations.values()
        assert note.needs_confirmation
        assert all(edit.annotation_id in resolved.edit.change_annotations for edit in second.edits)
        assert session.apply(resolved.edit)
        assert session.texts[uri].text == variant
        assert session.texts[beside].text == "# In the editor only.\n" + launch


@pytest.mark.thorough
async def test_a_new_session_finds_the_variants_of_an_older_one(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel.read_text()))
    for _ in range(2):
        async with editor(tmp_path, environment=NO_GPU) as session:
            assert (await apply_action(session, session.open(kernel))).title.startswith("Apply num_warps 4 -> 2: 1.25x")
