"""Recording a baseline from the editor: what the file on the disk costs now is what later checks hold it to."""

import json

import pytest
from lsprotocol import types

from tests.lsp.job_session import editor

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
LIGHT = "__global__ void f(float* x) { x[threadIdx.x] *= 2.f; }\n"
HEAVY = """__global__ void f(float* x) {
    float v[48];
    for (int i = 0; i < 48; ++i) v[i] = x[i * 64];
    __syncthreads();
    for (int i = 0; i < 48; ++i) x[threadIdx.x + 64 * i] = v[i];
}
"""
TITLE = "Record the baseline of f.cu"


async def action(session, uri):
    [found] = [one for one in await session.actions(uri, ["source.kernel-lsp.baseline"], line=0) if one.title == TITLE]
    return found


@pytest.mark.thorough
async def test_a_recorded_baseline_takes_its_regressions_away(tmp_path):
    kernel, baseline = tmp_path / "f.cu", tmp_path / ".kernel-lsp/baseline.json"
    (tmp_path / "pyproject.toml").touch()
    kernel.write_text(LIGHT)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        job = await session.command("baseline", *(await action(session, uri)).command.arguments)
        assert (await session.ended(job["id"]))["reason"] == f"1 kernel is recorded in {baseline}"
        before = json.loads(baseline.read_text())["files"]["f.cu"]["sm_90"]["kernels"]
        assert list(before) == ["f"]

        session.edit(uri, HEAVY)
        assert "save it first" in (await action(session, uri)).disabled.reason
        kernel.write_text(HEAVY)
        job = await session.command("check", uri)
        assert "registers" in (await session.ended(job["id"]))["reason"]
        await session.until(lambda: codes(session, uri) & {"KL040"})

        record = await action(session, uri)  # that it costs more is no reason not to record it
        while record.disabled is not None:
            assert "save it first" in record.disabled.reason
            record = await action(session, uri)
        job = await session.command("baseline", *record.command.arguments)
        await session.ended(job["id"])
        await session.until(lambda: not codes(session, uri) & {"KL040"})
        after = json.loads(baseline.read_text())["files"]["f.cu"]["sm_90"]["kernels"]
        assert after["f"]["registers"] > before["f"]["registers"]


@pytest.mark.thorough
async def test_what_does_not_compile_is_not_recorded(tmp_path):
    kernel = tmp_path / "f.cu"
    kernel.write_text(LIGHT.replace("2.f", "two"))
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        await session.until(lambda: session.client.diagnostics.get(uri))
        assert "it has errors" in (await action(session, uri)).disabled.reason
        job = await session.command("baseline", uri)
        assert "two" in (await session.ended(job["id"]))["reason"]
    assert not list(tmp_path.rglob("baseline.json"))


@pytest.mark.thorough
async def test_a_text_in_no_file_has_no_baseline(tmp_path):
    async with editor(tmp_path, environment=NO_GPU) as session:
        item = types.TextDocumentItem("untitled:f.cu", "cuda", 1, LIGHT)
        session.client.text_document_did_open(types.DidOpenTextDocumentParams(item))
        assert "save it first" in (await action(session, "untitled:f.cu")).disabled.reason


def codes(session, uri):
    return {d.code for d in session.client.diagnostics.get(uri, [])}
