"""Quick fixes for what a check of a real kernel found: rewrites to be judged, and no edits before they are."""

import shutil

import pytest
from lsprotocol import types

from tests.lsp.job_session import ROOT, editor
from tests.scale_kernel import KERNEL, WORKLOAD

pytestmark = pytest.mark.asyncio

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
SPILLING = """__global__ void two(float* x, int i) {
    float local[256];
    for (int k = 0; k < 256; ++k) local[k] = x[k];  // all of it
    x[0] = local[i];
}
"""
EXAMPLES = ROOT / "examples/cuda"


def halves(folder):
    """Two bytes a thread where 16 would do."""
    for name in ("halves.cu", "halves_workload.py"):
        shutil.copy(ROOT / "tests/fixtures/curable" / name, folder)
    return folder / "halves.cu"


def transpose(folder):
    """A shared tile whose rows begin in one bank."""
    for name in ("transpose.cu", "transpose_workload.py"):
        shutil.copy(EXAMPLES / name, folder)
    return folder / "transpose.cu"


def product(folder):
    """A matrix product with tiles so small that each element is read twelve times."""
    for name in ("sgemm.cu", "sgemm_workload.py"):
        text = (EXAMPLES / name).read_text().replace("TILE = 16", "TILE = 8")
        (folder / name).write_text(text.replace("dict(m=65, n=47, k=83)", "dict(m=96, n=96, k=96)"))
    return folder / "sgemm.cu"


@pytest.mark.thorough
@pytest.mark.parametrize(
    ("make", "rule", "fix"),
    [
        (transpose, "KL031", "padded shared tile"),
        (halves, "KL035", "128-bit loads and stores"),
        (product, "KL037", "4 x 4 outputs per thread"),
    ],
)
async def test_a_finding_of_a_check_offers_a_fix_to_be_judged(tmp_path, make, rule, fix):
    kernel = make(tmp_path)
    async with editor(tmp_path, environment=NO_GPU, refine={"untimed": True}) as session:
        uri = session.open(kernel, language="cuda")
        checked = await session.command("check", uri)
        await session.ended(checked["id"])
        found = await session.until(lambda: [d for d in session.client.diagnostics.get(uri, []) if d.code == rule])
        line = found[0].range.start.line
        other = types.Diagnostic(found[0].range, "divergence", code="KL036")
        fixes = await session.actions(uri, only=["quickfix"], line=line, findings=[*found, other])
        [fix] = [one for one in fixes if one.title == f"Judge a fix: {fix}"]
        assert list(fix.diagnostics) == found
        assert all(one.edit is None for one in fixes if not one.title.startswith("Ignore"))  # unproved
        job = await session.command("rewrite", *fix.command.arguments)
        ended = await session.ended(job["id"], 120)
        assert "right on the emulator" in ended["reason"]
        assert ended["verdict"]
        again = await session.actions(uri, line=line)
        assert not any(one.title.startswith("Apply") for one in again)  # nor was it timed


@pytest.mark.thorough
async def test_without_a_workload_there_is_nothing_to_judge_a_fix_by(tmp_path):
    kernel = halves(tmp_path)
    (tmp_path / "halves_workload.py").unlink()
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        here = types.Range(types.Position(5, 8), types.Position(5, 12))
        finding = types.Diagnostic(here, "narrow", code="KL035")
        found = await session.actions(uri, only=["quickfix"], line=5, findings=[finding])
        assert [one.title for one in found] == ["Explain KL035: narrow-access", "Ignore KL035 on this line"]


async def test_a_finding_is_silenced_at_a_click(tmp_path):
    kernel = tmp_path / "spill.cu"
    kernel.write_text(SPILLING)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        [found] = await session.until(lambda: [d for d in session.client.diagnostics.get(uri, []) if d.code == "KL034"])
        unknown = types.Diagnostic(found.range, "not ours", code="E501")
        explain, fix = await session.actions(uri, ["quickfix"], found.range.start.line, [found, unknown])
        assert explain.title.startswith("Explain KL034: ")
        assert (fix.title, list(fix.diagnostics)) == ("Ignore KL034 on this line", [found])
        assert session.apply(fix.edit)
        assert "// kernel-lsp: ignore[KL034]\n" in session.texts[uri].text
        await session.ended((await session.command("check", uri))["id"])
        assert [d.code for d in session.client.diagnostics.get(uri, [])] == []


@pytest.mark.thorough
async def test_a_guard_that_is_missing_is_a_quick_fix_once_a_check_has_passed_it(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(KERNEL.replace("if (i < n) ", ""))
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        found = session.client.diagnostics[uri]
        line = found[0].range.start.line
        done = await session.until(lambda: [j for j in session.jobs if j["work"] == "fix" and j["state"] == "done"])
        assert done[0]["reason"] == "1 fix found"
        assert done[0]["unasked"]
        fix = (await session.actions(uri, ["quickfix"], line, found))[0]
        assert (fix.title, fix.is_preferred) == ("Guard with `if (i < n)` (checked)", True)
        assert fix.command is not None, "what was found is told of the mended text"
        assert (fix.command.command, *fix.command.arguments) == ("kernel-lsp.check", uri)
        assert list(fix.diagnostics) == list(found)
        assert session.apply(fix.edit)
        assert session.texts[uri].text == KERNEL
        after = await session.actions(uri, ["quickfix"], line, found)
        assert not any("Guard" in one.title for one in after), "it was checked with the text before"


@pytest.mark.thorough
async def test_looking_for_fixes_can_be_switched_off(tmp_path):
    kernel = tmp_path / "scale.cu"
    kernel.write_text(KERNEL.replace("if (i < n) ", ""))
    (tmp_path / "scale_workload.py").write_text(WORKLOAD)
    async with editor(tmp_path, environment=NO_GPU, editor={"judge_fixes": False}) as session:
        uri = session.open(kernel, language="cuda")
        await session.ended((await session.command("check", uri))["id"])
        assert [job["work"] for job in (await session.request("jobs", {}))["jobs"]] == ["check"]
