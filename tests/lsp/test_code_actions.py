"""Code actions: what is offered where, to which editor, and why not."""

import asyncio
import re

import pytest
from lsprotocol import types

from kernel_lsp.workload.spec import DRAFT
from tests.lsp.job_session import EVERYTHING, editor, recorded, store_offer
from tests.scale_kernel import WORKLOAD
from tests.softmax_kernel import write_softmax

UNTIMED = {"refine": {"untimed": True}}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
BARE = """__global__ void scale(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 0.5f * x[i];
}
"""
REWRITE = "refactor.rewrite.kernel-lsp"

pytestmark = pytest.mark.asyncio


@pytest.fixture
def kernel(tmp_path):
    return write_softmax(tmp_path)


def faster_text(kernel):
    return kernel.read_text().replace("num_warps=4", "num_warps=2")


def titles(actions):
    return [action.title for action in actions]


def ctrl_dot(actions):
    """Titles of those that VS Code shows at a place: `source` has a menu of its own, and a disabled one is hidden."""
    return [action.title for action in actions if not str(action.kind).startswith("source") and not action.disabled]


FIRST_STEPS = ["Check scale.cu", "Draft scale_workload.py from scale", "Capture a run"]


def reasons(actions):
    return {action.title: action.disabled.reason for action in actions if action.disabled}


async def test_at_a_kernel_there_is_all_that_can_be_done(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel))
    async with editor(tmp_path, environment=NO_GPU, **UNTIMED) as session:
        uri = session.open(kernel)
        found = {action.title: action for action in await session.actions(uri)}
        assert list(found) == [
            "Apply num_warps 4 -> 2: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200",
            "Refine softmax_kernel",
            "Profile softmax_kernel",
            "Check softmax.py",
            "Compare softmax.py with the last commit",
            "Record the baseline of softmax.py",
            "Show the evidence: 1.25x faster (95 % CI 1.23-1.26), 2 cases, verified on NVIDIA H200",
            "Capture a run",
        ]
        assert not any(action.disabled for action in found.values())
        assert {str(action.kind) for action in found.values()} == {
            REWRITE,
            "refactor.kernel-lsp.check",
            "refactor.kernel-lsp.profile",
            "refactor.kernel-lsp.compare",
            "source.kernel-lsp.baseline",
            "refactor.kernel-lsp.evidence",
            "refactor.kernel-lsp.capture",
        }
        assert titles(await session.actions(uri, line=0)) == list(found)[3:]  # no kernel there


@pytest.mark.thorough
async def test_only_what_is_asked_for(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel))
    async with editor(tmp_path, environment=NO_GPU, **UNTIMED) as session:
        uri = session.open(kernel)
        for only, expected in (
            (
                ["refactor"],
                {
                    REWRITE,
                    *(f"refactor.kernel-lsp.{name}" for name in ("check", "profile", "compare", "evidence", "capture")),
                },
            ),
            (["refactor.rewrite"], {REWRITE}),
            ([REWRITE], {REWRITE}),
            (["refactor.kernel-lsp.check", "quickfix"], {"refactor.kernel-lsp.check"}),
            (["source"], {"source.kernel-lsp.baseline"}),
            (["refactor.extract"], set()),
            (["refactor.rewrite.kernel-lsp.more"], set()),
        ):
            found = await session.actions(uri, only=only)
            assert {str(action.kind) for action in found} == expected, only


@pytest.mark.thorough
async def test_variants_come_best_first(kernel, tmp_path):
    for number, speedup in enumerate((1.1, 1.9, 1.5)):
        text = faster_text(kernel) + f"\n# {number}\n"
        store_offer(tmp_path, kernel, text, label=f"v{number}", speedup=speedup, interval=(speedup, speedup))
    async with editor(tmp_path, environment=NO_GPU) as session:
        found = titles(await session.actions(session.open(kernel), only=[REWRITE]))
        assert [re.findall(r"v\d", title) for title in found] == [["v1"], ["v2"], ["v0"], []]


async def test_nothing_is_run_where_nobody_is_trusted(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, trusted=False, **UNTIMED) as session:
        found = await session.actions(session.open(kernel))
        assert ctrl_dot(found) == [f"Trust {tmp_path.name}: compile and run what is in it"]
        why = reasons(found)
        assert set(why) == {
            "Refine softmax_kernel",
            "Profile softmax_kernel",
            "Check softmax.py",
            "Compare softmax.py with the last commit",
            "Record the baseline of softmax.py",
            "Capture a run",
        }
        assert all("not trusted" in reason for reason in why.values())


async def test_what_needs_a_workload_a_gpu_or_a_file_says_so(kernel, tmp_path):
    bare = tmp_path / "scale.cu"
    bare.write_text(BARE)
    async with editor(tmp_path, environment=NO_GPU) as session:
        found = await session.actions(session.open(bare, language="cuda"), line=0)
        assert "no workload" in reasons(found)["Refine scale"]
        assert ctrl_dot(found) == FIRST_STEPS
        uri = session.open(kernel)
        found = await session.actions(uri)
        while "Refine softmax_kernel" not in reasons(found):  # the driver may take its time to answer
            found = await session.actions(uri)
        assert "needs an NVIDIA GPU" in reasons(found)["Refine softmax_kernel"]
        assert "Check softmax.py" not in reasons(found)
        draft = tmp_path / "scale_workload.py"
        draft.write_text(f"{DRAFT}\nCASES = []\ninputs = reference = None\ndef inputs(): ...\ndef reference(): ...\n")
        session.edit(bare.as_uri(), BARE + "\n")
        assert "draft" in reasons(await session.actions(bare.as_uri(), line=0))["Refine scale"]


@pytest.mark.thorough
async def test_an_editor_that_shows_no_reasons_gets_only_what_works(kernel, tmp_path):
    capabilities = EVERYTHING | {"textDocument": {"codeAction": {"dataSupport": True}}}
    async with editor(tmp_path, environment=NO_GPU, trusted=False, capabilities=capabilities) as session:
        [trust] = await session.actions(session.open(kernel))
        await session.command("trust", *trust.command.arguments)
        assert "Check softmax.py" in titles(await session.actions(kernel.as_uri()))


@pytest.mark.parametrize(
    "name",
    [
        "vscode_1.139_languageclient11",
        pytest.param("neovim_0.11.4", marks=pytest.mark.thorough),
        pytest.param("neovim_0.7.2", marks=pytest.mark.thorough),
    ],
)
async def test_real_editors_can_apply_a_variant(kernel, tmp_path, name):
    store_offer(tmp_path, kernel, faster_text(kernel))
    async with editor(tmp_path, environment=NO_GPU, capabilities=recorded(name)) as session:
        uri = session.open(kernel)
        apply = (await session.actions(uri, only=["refactor"]))[0]
        assert apply.edit is None
        resolved = await session.client.code_action_resolve_async(apply)
        assert resolved.command is None
        assert session.apply(resolved.edit)
        assert session.texts[uri].text == faster_text(kernel)
        assert not any("Apply" in title for title in titles(await session.actions(uri)))


async def test_our_extension_brings_into_view_what_was_applied(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        resolved = await session.client.code_action_resolve_async((await session.actions(uri, only=["refactor"]))[0])
        assert resolved.command.command == "kernelLsp.applied"
        changed = resolved.edit.document_changes[0].edits[0].range.start.line
        assert [*resolved.command.arguments][:2] == [uri, changed]


@pytest.mark.thorough
async def test_an_editor_that_resolves_nothing_applies_by_command(kernel, tmp_path):
    store_offer(tmp_path, kernel, faster_text(kernel))
    capabilities = EVERYTHING | {"textDocument": {"codeAction": {}}}
    async with editor(tmp_path, environment=NO_GPU, capabilities=capabilities) as session:
        uri = session.open(kernel)
        apply = (await session.actions(uri, only=["refactor"]))[0]
        assert apply.command.command == "kernel-lsp.apply"
        assert await session.command("apply", *apply.command.arguments)
        assert session.texts[uri].text == faster_text(kernel)


@pytest.mark.thorough
async def test_resolving_what_we_did_not_make_changes_nothing(kernel, tmp_path):
    async with editor(tmp_path) as session:
        session.open(kernel)
        for data in (None, 3, {"uri": 3}, {"uri": kernel.as_uri()}):
            action = types.CodeAction("Theirs", data=data)
            assert (await session.client.code_action_resolve_async(action)).edit is None


@pytest.mark.thorough
async def test_a_running_search_can_be_stopped_from_the_same_menu(kernel, tmp_path):
    settings = {"refine": {"untimed": True, "proposers": "scripted_proposers:endless"}}
    async with editor(tmp_path, environment=NO_GPU, **settings) as session:
        uri = session.open(kernel)
        job = await session.command("refine", uri, "softmax_kernel")
        await session.until(lambda: session.jobs and session.jobs[-1]["progress"])
        [stop] = await session.actions(uri, only=[REWRITE])
        assert re.match(r"Stop refining softmax_kernel \(.*\d+ candidates, \d+ correct, \d:\d\d left\)", stop.title)
        await session.command(stop.command.command.removeprefix("kernel-lsp."), *stop.command.arguments)
        assert (await session.ended(job["id"], 5))["state"] == "cancelled"


async def test_evidence_is_a_page_in_the_editor(kernel, tmp_path):
    verdict = store_offer(tmp_path, kernel, faster_text(kernel))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel)
        [show] = [a for a in await session.actions(uri) if a.title.startswith("Show")]
        answer = await session.command("evidence", *show.command.arguments)
        [page] = await session.until(lambda: session.shown)
        text = (tmp_path / page.removeprefix("file://")).read_text()
        assert text == answer["markdown"]
        assert "-    softmax_kernel[(rows,)]" in text
        assert "num_warps=2" in text
        asked = await session.request("evidence", {"verdict": verdict.id[:8]})
        assert (asked["verdict"], asked["markdown"]) == (verdict.id, text)
        assert "num_warps=2" in asked["page"]
        assert ">Apply<" not in asked["page"], "nobody says to what it would be applied"
        here = await session.request("evidence", {"verdict": verdict.id, "textDocument": {"uri": uri}})
        assert ">Apply<" in here["page"]
        with pytest.raises(Exception, match="No verdict begins with"):
            await session.request("evidence", {"verdict": "ffffffff"})


@pytest.mark.thorough
async def test_at_ones_own_kernel_there_is_what_leads(tmp_path):
    """Without a workload and without a GPU, as most people begin."""
    bare = tmp_path / "scale.cu"
    bare.write_text(BARE)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(bare, language="cuda")
        assert ctrl_dot(await session.actions(uri, line=0)) == FIRST_STEPS
        await session.command("draft", uri)
        assert await session.until(lambda: session.shown) == [(tmp_path / "scale_workload.py").as_uri()]
        finish = "Finish the draft scale_workload.py"
        while finish not in (found := ctrl_dot(await session.actions(uri, line=0))):
            assert "Check scale.cu" in found
        session.shown.clear()
        await session.command("draft", uri)  # as the action says
        assert await session.until(lambda: session.shown) == [(tmp_path / "scale_workload.py").as_uri()]


@pytest.mark.thorough
async def test_a_text_that_is_no_file_yet_has_to_be_saved_before_a_draft(tmp_path):
    async with editor(tmp_path) as session:
        uri = "untitled:Untitled-1"
        session.client.text_document_did_open(
            types.DidOpenTextDocumentParams(types.TextDocumentItem(uri, "cuda-cpp", 1, BARE))
        )
        with pytest.raises(Exception, match="Save the text as a file first"):
            await session.command("draft", uri)


async def test_a_workload_is_drafted_and_never_overwritten(tmp_path):
    bare, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    bare.write_text(BARE)
    async with editor(tmp_path) as session:
        uri = session.open(bare, language="cuda")
        [draft] = [a for a in await session.actions(uri, line=0) if a.title.startswith("Draft")]
        assert draft.title == "Draft scale_workload.py from scale"
        await session.command("draft", *draft.command.arguments)
        assert workload.read_text().startswith(DRAFT)
        await asyncio.sleep(1.1)  # what was read of the disk is taken as fresh for a second
        workload.write_text(WORKLOAD)
        with pytest.raises(Exception, match="already exists"):
            await session.command("draft", *draft.command.arguments)
        assert workload.read_text() == WORKLOAD
        await asyncio.sleep(1.1)
        workload.write_text("the user's own")  # it cannot be used, and is shown
        await session.command("draft", *draft.command.arguments)
        assert workload.read_text() == "the user's own"


@pytest.mark.thorough
async def test_a_draft_keeps_nothing_from_being_compiled_and_is_used_at_a_click(tmp_path):
    bare, workload = tmp_path / "scale.cu", tmp_path / "scale_workload.py"
    bare.write_text(BARE)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(bare, language="cuda")
        await session.command("draft", uri)
        text = workload.read_text()
        assert text.startswith(DRAFT)
        await asyncio.sleep(1.1)  # as long as the answer before it holds
        session.edit(uri, BARE.replace("0.5f", "half"))
        [finding] = await session.until(lambda: session.client.diagnostics.get(uri))
        assert "half" in finding.message, "what it says is of the kernel, and not of the draft"
        session.edit(uri, BARE)
        await session.until(lambda: not session.client.diagnostics.get(uri))

        mine = session.open(workload)
        [hint] = await session.until(lambda: session.client.diagnostics.get(mine))
        assert (hint.severity, hint.range.start.line) == (types.DiagnosticSeverity.Information, 0)
        [use] = await session.actions(mine, line=0, findings=[hint])
        assert use.title == "Use this workload"
        assert session.apply(use.edit)
        assert session.texts[mine].text == text.partition("\n")[2]
        await session.until(lambda: not session.client.diagnostics.get(mine))
        job = await session.command(use.command.command.removeprefix("kernel-lsp."), *use.command.arguments)
        said = (await session.ended(job["id"]))["reason"]
        assert said.endswith("checks passed"), "the draft as it is in the editor was run"
