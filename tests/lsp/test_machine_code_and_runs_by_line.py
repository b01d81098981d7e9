"""What lines became and what they did: hovers with machine code, inlay hints, and the check that a save begins."""

import asyncio
import re

import pytest
from lsprotocol import types

from tests.lsp.job_session import editor
from tests.lsp.test_diagnostics import messages

STRIDED = """__global__ void gather(const float* x, float* y, int n) {
    __shared__ float tile[32][32];
    int i = threadIdx.x;
    tile[i][0] = x[i * 32];
    __syncthreads();
    y[i] = tile[31 - i][0];
}
"""
WORKLOAD = """import torch

CASES = [dict(n=32)]


def inputs(n):
    return (torch.randn(32 * n, device="cuda"),)


def reference(x):
    return x[::32].flip(0)


def launch(module, x):
    y = torch.empty(32, device=x.device)
    module.gather[(1,), (32,)](x, y, 32)
    return y
"""
HINTS = {"editor": {"register_hints": True, "sector_hints": True, "bank_hints": True}}
NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}

pytestmark = pytest.mark.asyncio


@pytest.fixture
def kernel(tmp_path):
    (tmp_path / "gather_workload.py").write_text(WORKLOAD)
    path = tmp_path / "gather.cu"
    path.write_text(STRIDED)
    return path


def save(session, uri):
    session.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))


async def hints(session, uri, lines=(0, 99)):
    extent = types.Range(types.Position(lines[0], 0), types.Position(lines[1], 0))
    params = types.InlayHintParams(types.TextDocumentIdentifier(uri), extent)
    found = await session.client.text_document_inlay_hint_async(params)
    return {(hint.position.line, hint.label) for hint in found}


async def eventually(ask, good):
    async with asyncio.timeout(60):
        while not good(found := await ask()):
            await asyncio.sleep(0.1)
    return found


@pytest.mark.thorough
@pytest.mark.parametrize("shows", ["off", "summary"])
async def test_hovering_over_a_line_says_in_a_line_what_it_became(kernel, tmp_path, shows):
    settings = {"editor": {"machine_code_hover": shows, "register_hints": True}}
    async with editor(tmp_path, environment=NO_GPU, **settings) as session:
        uri = session.open(kernel, language="cuda")
        await eventually(lambda: hints(session, uri), bool)  # the machine code is known then
        params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(5, 6))
        shown = await session.client.text_document_hover_async(params)
        if shows == "off":
            assert shown is None
        else:
            said = r"\d+ instructions on sm_\d+, .*1 of global memory.*, \d+ registers live.*"
            assert re.fullmatch(said, shown.contents.value)


@pytest.mark.thorough
async def test_hovering_over_a_line_shows_its_machine_code(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, editor={"machine_code_hover": "full"}) as session:
        uri = session.open(kernel, language="cuda")

        def ask(line=5):
            params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, 6))
            return session.client.text_document_hover_async(params)

        shown = await eventually(ask, lambda found: found is not None)
        assert re.match(r"\d+ instructions on sm_\d+, at most \d+ registers live, `gather`\n", shown.contents.value)
        assert re.search(r"^LDS R\d+", shown.contents.value, re.MULTILINE)
        assert "STG.E" in shown.contents.value
        assert shown.range == types.Range(types.Position(5, 0), types.Position(5, len(STRIDED.split("\n")[5])))
        session.edit(uri, "\n" + STRIDED)
        assert await ask() is None or (await ask()).range.start.line == 5


@pytest.mark.thorough
async def test_hints_are_shown_where_asked_for_and_move_with_the_text(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **HINTS) as session:
        uri = session.open(kernel, language="cuda")
        found = await eventually(lambda: hints(session, uri), bool)
        assert {line for line, _ in found} <= set(range(7))
        assert all(re.fullmatch(r"\d+ regs", label) for _, label in found)
        assert {line for line, _ in await hints(session, uri, (5, 5))} == {5}
        session.edit(uri, "\n" + STRIDED)
        assert await hints(session, uri) in (set(), {(line + 1, label) for line, label in found})
        moved = await eventually(lambda: hints(session, uri), bool)
        assert moved == {(line + 1, label) for line, label in found}


@pytest.mark.thorough
async def test_a_save_runs_the_kernel_and_counts_what_its_lines_do(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, **HINTS) as session:
        uri = session.open(kernel, language="cuda")
        save(session, uri)
        found = await eventually(
            lambda: hints(session, uri), lambda found: any("sectors" in label for _, label in found)
        )
        assert {(3, "32.0 sectors"), (3, "32.0-way"), (5, "4.0 sectors"), (5, "32.0-way")} <= found
        assert {"KL030", "KL031"} <= {d.code for d in session.client.diagnostics[uri]}
        assert not [text for text in session.said if "Checking" in text]


async def test_a_save_finds_an_access_out_of_bounds_at_its_line(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, STRIDED.replace("y[i] =", "y[i + 1] ="), "cuda")
        save(session, uri)
        await session.until(lambda: messages(session, uri))
        shown = session.client.diagnostics[uri][0]
        assert shown.severity == types.DiagnosticSeverity.Error
        assert shown.range.start.line == 5
        assert "but `y` has 32 elements" in shown.message
        session.edit(uri, STRIDED)
        await session.until(lambda: not messages(session, uri))


async def test_a_profile_marks_costly_lines_with_the_emulators_counts(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        [profile] = [a for a in await session.actions(uri, line=0) if a.title == "Profile gather"]
        job = await session.command("profile", *profile.command.arguments)
        assert (await session.ended(job["id"]))["reason"].startswith(
            "Counted by the emulator on n=32 (sm_90), no times"
        )
        found = dict(await hints(session, uri))
        assert re.fullmatch(r"counted: \d+ % of instructions, 89 % of traffic", found[3]), "32 of 36 sectors"
        assert re.fullmatch(r"counted: \d+ % of instructions, 11 % of traffic", found[5])
        params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(0, 18))
        shown = (await session.client.text_document_hover_async(params)).contents.value
        assert "Counted by the emulator on n=32 (sm_90), no times" in shown
        assert re.search(
            r"^\| 4 \| .* 89 % \| 32\.0 \(4\.0\) .*``tile\[i\]\[0\] = x\[i \* 32\];`` \|$", shown, re.MULTILINE
        )
        session.edit(uri, STRIDED.replace("];\n    __sync", "];\n\n    // all is read\n    __sync"))
        moved = dict(await hints(session, uri))
        assert (moved[3], moved[7]) == (found[3], found[5])


@pytest.mark.thorough
async def test_checking_on_save_can_be_switched_off(kernel, tmp_path):
    async with editor(tmp_path, environment=NO_GPU, editor={"check_on_save": False}) as session:
        uri = session.open(kernel, language="cuda")
        save(session, uri)
        await asyncio.sleep(0.5)
        assert (await session.request("jobs", None))["jobs"] == []
