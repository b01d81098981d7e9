"""Hover, code lenses and inlay hints in a real server process."""

import asyncio
import re
from pathlib import Path

import pytest
from lsprotocol import types

from tests.lsp.job_session import EVERYTHING, ROOT, editor, recorded

SCALE = """template <int N>
__global__ void scale(float* x, int n) {
    __shared__ float tile[256];
    tile[threadIdx.x] = x[threadIdx.x];
    __syncthreads();
    x[threadIdx.x] = tile[255 - threadIdx.x] * N;
}
__global__ void copy(const float* x, float* y) { y[threadIdx.x] = x[threadIdx.x]; }
"""
SOFTMAX = ROOT / "examples/triton/softmax.py"
ON = {"editor": {"verdict_lens": False, "job_lens": False, "variant_lens": False}}

pytestmark = pytest.mark.asyncio


async def lenses(session, uri):
    found = await session.client.text_document_code_lens_async(types.CodeLensParams(types.TextDocumentIdentifier(uri)))
    return [(lens.range.start.line, lens.command.title) for lens in found]


async def eventually(session, uri, wanted):
    """The lenses once one of them has the words wanted."""
    async with asyncio.timeout(60):
        found = await lenses(session, uri)
        while not any(wanted in title for _, title in found):
            await asyncio.sleep(0.05)
            found = await lenses(session, uri)
    return found


async def hover(session, uri, line, character):
    params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
    return await session.client.text_document_hover_async(params)


async def test_facts_above_each_kernel_from_open_to_fixed(tmp_path):
    async with editor(tmp_path, **ON) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        assert await lenses(session, uri) == [(1, "compiling"), (7, "compiling")]
        (_, template), (_, copy) = await eventually(session, uri, "regs")
        assert re.fullmatch(
            r"\d+ regs, 1 KiB smem, occupancy: needs a launch", template
        )  # of an instance that is assumed
        assert re.fullmatch(r"\d+ regs, occupancy: needs a launch", copy)
        session.edit(uri, SCALE.replace("= x[threadIdx.x]; }", "= nothing; }"))
        found = await eventually(session, uri, "when it last compiled")
        assert found == [(1, template), (7, f"when it last compiled: {copy}")], "the other one compiles as it stands"
        session.edit(uri, SCALE)
        assert len(await lenses(session, uri)) == 2


async def test_a_kernel_that_never_compiled_says_so_beside_one_that_does(tmp_path):
    async with editor(tmp_path, **ON) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE.replace("= x[threadIdx.x]; }", "= nothing; }"), "cuda")
        (_, template), (_, copy) = await eventually(session, uri, "regs")
        assert template.endswith("occupancy: needs a launch")
        assert copy == "does not compile"


async def test_a_triton_kernel_has_the_facts_of_its_launches(tmp_path):
    file = tmp_path / "softmax.py"
    file.write_text(SOFTMAX.read_text())
    async with editor(tmp_path, **ON) as session:
        uri = session.open(file)
        ((_, title),) = await eventually(session, uri, "regs")
        assert "occupancy" in title
        line = next(i for i, text in enumerate(SOFTMAX.read_text().split("\n")) if "def softmax_kernel" in text)
        shown = await hover(session, uri, line, 6)
        assert "| sm_90 |" in shown.contents.value


async def test_each_kind_of_lens_can_be_switched_off(tmp_path):
    everything_off = {"editor": ON["editor"] | {"facts_lens": False}}
    async with editor(tmp_path, **everything_off) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        assert await lenses(session, uri) == []


@pytest.mark.thorough
async def test_hover_shows_every_architecture_and_not_what_is_on_the_screen(tmp_path):
    async with editor(tmp_path, arch=["sm_80", "sm_90"]) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        assert await hover(session, uri, 1, 18) is None, "nothing is known yet"
        await eventually(session, uri, "regs")
        shown = await hover(session, uri, 7, 18)
        assert shown.range == types.Range(types.Position(7, 16), types.Position(7, 20))
        assert "void copy" not in shown.contents.value
        assert "needs a launch" in shown.contents.value
        assert "| sm_80 |" in shown.contents.value
        assert "| sm_90 |" in shown.contents.value
        assert await hover(session, uri, 4, 0) is None


@pytest.mark.parametrize("nested", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_kernels_are_the_symbols_of_a_file_open_or_not(tmp_path, nested):
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    offered = {"textDocument": {"documentSymbol": {"hierarchicalDocumentSymbolSupport": nested}}}
    async with editor(tmp_path, trusted=False, capabilities=EVERYTHING | offered) as session:
        params = types.DocumentSymbolParams(types.TextDocumentIdentifier(file.as_uri()))
        found = await session.client.text_document_document_symbol_async(params)
        assert [one.name for one in found] == ["scale", "copy"]
        whole = found[0].range if nested else found[0].location.range
        assert (whole.start.line, whole.end.line) == (0, 6)


@pytest.mark.parametrize("shown", [True, pytest.param(False, marks=pytest.mark.thorough)])
async def test_an_edit_tells_what_it_costs_against_the_saved_text(tmp_path, shown):
    file = tmp_path / "scale.cu"
    file.write_text(SCALE)
    dearer = SCALE.replace("tile[256]", "tile[512]")
    settings = {"editor": ON["editor"] | {"cost_lens": shown}}
    async with editor(tmp_path, **settings) as session:
        uri = session.open(file, language="cuda")
        await eventually(session, uri, "regs")
        session.edit(uri, dearer)
        found = await eventually(session, uri, "1 KiB -> 2 KiB smem" if shown else "2 KiB smem")
        assert ("->" in found[0][1]) is shown
        file.write_text(dearer)
        session.client.text_document_did_save(types.DidSaveTextDocumentParams(types.TextDocumentIdentifier(uri)))
        assert "->" not in (await eventually(session, uri, ", 2 KiB smem"))[0][1]


@pytest.mark.thorough
async def test_the_facts_lead_to_the_machine_code(tmp_path):
    file = tmp_path / "scale.cu"
    loop = "for (int i = threadIdx.x; i < 4096; i += blockDim.x) y[i] = x[i];"
    file.write_text(SCALE.replace("y[threadIdx.x] = x[threadIdx.x];", loop))
    async with editor(tmp_path, **ON) as session:
        uri = session.open(file, language="cuda")
        await eventually(session, uri, "regs")
        params = types.CodeLensParams(types.TextDocumentIdentifier(uri))
        lens = (await session.client.text_document_code_lens_async(params))[1].command
        path = (await session.command(lens.command.removeprefix("kernel-lsp."), *lens.arguments))["path"]
        assert await session.until(lambda: session.shown) == [Path(path).as_uri()]
        listing = Path(path).read_text()
        assert listing.splitlines()[0].split() == ["//line", "addr", "live", "copy"]
        assert re.search(r"^ +\d+ [0-9a-f]{5} +\d+ .* STG\.E", listing, re.MULTILINE)
        assert re.search(r"^\.L_x_\d+:$", listing, re.MULTILINE), "branches have somewhere to go"


@pytest.mark.parametrize(
    "name", ["vscode_1.139_languageclient11", pytest.param("neovim_0.11.4", marks=pytest.mark.thorough)]
)
async def test_clients_are_told_when_there_are_new_lenses(name, tmp_path):
    capabilities = recorded(name)
    can = "codeLens" in capabilities["workspace"]
    async with editor(tmp_path, capabilities=capabilities, **ON) as session:
        uri = session.open(tmp_path / "scale.cu", SCALE, "cuda")
        await eventually(session, uri, "regs")
        assert (session.refreshed > 0) is can


@pytest.mark.thorough
async def test_a_text_on_no_disk_is_compiled_too(tmp_path):
    async with editor(tmp_path, **ON) as session:
        client = session.client
        item = types.TextDocumentItem("untitled:Untitled-1", "cuda-cpp", 1, SCALE)
        client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        found = await eventually(session, "untitled:Untitled-1", "regs")
        assert [line for line, _ in found] == [1, 7]
