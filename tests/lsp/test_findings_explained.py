"""What a finding means is one step away: on hover over it, and behind the link at its code."""

from pathlib import Path
from urllib.parse import unquote, urlsplit

import pytest
from lsprotocol import types

from kernel_lsp.rules.catalog import RULES
from tests.lsp.job_session import EVERYTHING, editor

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
TEXT = """// kernel-lsp: ignore[KL999] there is no such rule
__global__ void scale(float* x) { x[threadIdx.x] *= 2.f; }
"""


async def hover(session, uri, line, character):
    params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
    return await session.client.text_document_hover_async(params)


async def symbols(session, uri):
    params = types.DocumentSymbolParams(types.TextDocumentIdentifier(uri))
    return [one.name for one in await session.client.text_document_document_symbol_async(params)]


@pytest.mark.sampled(2)
@pytest.mark.parametrize("links", [True, False])
async def test_a_finding_leads_to_its_rule(tmp_path, links):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(TEXT)
    shows = {"publishDiagnostics": {"codeDescriptionSupport": links}}
    capabilities = EVERYTHING | {"textDocument": EVERYTHING["textDocument"] | shows}
    async with editor(tmp_path, environment=NO_GPU, capabilities=capabilities) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        [finding] = await session.until(lambda: session.client.diagnostics.get(uri))
        rule = RULES[finding.code]
        at = finding.range.start
        assert (await hover(session, uri, at.line, at.character + 1)).contents.value == rule.page
        named = await hover(session, uri, 1, 18)
        assert named is None or rule.page not in named.contents.value
        fixes = await session.actions(uri, ["quickfix"], at.line, [finding])
        [explain] = [fix for fix in fixes if fix.title == f"Explain {rule.id}: {rule.name}"]
        await session.command(explain.command.command.removeprefix("kernel-lsp."), *explain.command.arguments)
        [page] = await session.until(lambda: session.shown)
        assert Path(unquote(urlsplit(page).path)).read_text() == rule.page
        if links:
            page = Path(unquote(urlsplit(finding.code_description.href).path))
            assert page.is_relative_to(tmp_path / ".home/cache")
            assert page.read_text() == rule.page
        else:
            assert finding.code_description is None


async def test_a_cell_of_a_notebook_is_a_text_like_any_other(tmp_path):
    cell = "vscode-notebook-cell:/somewhere/tuning.ipynb#W1sZmlsZQ%3D%3D"
    text = "import triton\n\n@triton.jit\ndef scale(x, n):\n    pass\n"
    async with editor(tmp_path, environment=NO_GPU) as session:
        item = types.TextDocumentItem(cell, "python", 1, text)
        session.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        assert await symbols(session, cell) == ["scale"]
        change = types.TextDocumentContentChangeWholeDocument(text.replace("scale", "shift"))
        name = types.VersionedTextDocumentIdentifier(version=2, uri=cell)
        session.client.text_document_did_change(types.DidChangeTextDocumentParams(name, [change]))
        assert await symbols(session, cell) == ["shift"]
