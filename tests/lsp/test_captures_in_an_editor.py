"""Captures in an editor: a run is captured, its calls stand above the kernel, and one becomes a workload's draft."""

import asyncio
import sys
from pathlib import Path

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from kernel_lsp.report.captured_calls import calls_page, of_kernel, usage_text
from kernel_lsp.workload.capture import FOLDER, Capture, CapturedCase, capture_text
from tests.lsp.job_session import editor

NO_GPU = {"CUDA_VISIBLE_DEVICES": ""}
QUIET = {"facts_lens": False}
KERNEL = """import torch
import triton
import triton.language as tl


@triton.jit
def add_kernel(x, y, out, n, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = places < n
    tl.store(out + places, tl.load(x + places, mask=inside) + tl.load(y + places, mask=inside), mask=inside)


def add(x, y):
    out = torch.empty_like(x)
    add_kernel[(triton.cdiv(x.numel(), 32),)](x, y, out, x.numel(), BLOCK=32)
    return out
"""
PROGRAM = """import torch
from adding import add
for rows in (40, 40, 70):
    add(torch.randn(rows, device="cuda"), torch.randn(rows, device="cuda"))
print("not for the server")
"""


@pytest.fixture
def kernel(tmp_path: Path) -> Path:
    (tmp_path / "pyproject.toml").write_text("")
    (tmp_path / "train.py").write_text(PROGRAM)
    (tmp_path / "adding.py").write_text(KERNEL)
    return tmp_path / "adding.py"


async def named(session, uri, words: str):
    """The action with these words at the kernel, once it is offered."""
    while True:
        actions = await session.actions(uri, only=["refactor.kernel-lsp.capture"], line=6)
        if found := [action for action in actions if words in action.title]:
            return found[0]
        await asyncio.sleep(0.05)


async def lens_with(session, uri, words: str):
    params = types.CodeLensParams(types.TextDocumentIdentifier(uri))
    while True:
        lenses = await session.client.text_document_code_lens_async(params)
        if found := [lens.command for lens in lenses if words in lens.command.title]:
            return found[0]
        await asyncio.sleep(0.05)


@pytest.mark.asyncio
async def test_a_run_is_captured_shown_above_the_kernel_and_adopted(kernel: Path, tmp_path: Path):
    program = f"{sys.executable} train.py"
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET, capture={"command": program}) as session:
        uri = session.open(kernel)
        action = await named(session, uri, "Capture a run")
        assert (action.title, list(action.command.arguments)) == (f"Capture a run of {program}", [uri, program])
        job = await session.command("capture", *action.command.arguments)
        ended = await session.ended(job["id"])
        assert (ended["state"], ended["reason"], ended["title"]) == (
            "done",
            "1 workload: add",
            f"Capturing {program} for adding.py",
        )
        lens = await lens_with(session, uri, "host time")
        assert lens.title == "100 % of train.py's host time, 2 shapes, 3 calls"
        assert "not of GPU time" in lens.tooltip
        page = Path((await session.command("captures", *lens.arguments))["path"]).read_text()
        assert "| 2 | " in page
        assert "x=float32[40], y=float32[40] |" in page
        hover = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(6, 6))
        assert "x=float32[70]" in (await session.client.text_document_hover_async(hover)).contents.value
        adopting = await named(session, uri, "Adopt this capture")
        assert adopting.title == "Adopt this capture: adding_add_workload.py"
        draft = Path((await session.command("adopt", *adopting.command.arguments))["path"])
        assert draft.read_text().startswith("# kernel-lsp: draft")
        assert (await lens_with(session, uri, "finish")).title == "Draft: finish adding_add_workload.py"


@pytest.mark.asyncio
async def test_without_a_program_it_is_said_where_to_name_one(kernel: Path, tmp_path: Path):
    async with editor(tmp_path, environment=NO_GPU, editor=QUIET) as session:
        uri = session.open(kernel)
        action = await named(session, uri, "Capture a run")
        assert (action.title, list(action.command.arguments)) == ("Capture a run", [uri])
        with pytest.raises(JsonRpcException, match=r"No program is named(.|\n)*`capture\.command`"):
            await session.command("capture", uri)
        with pytest.raises(JsonRpcException, match="There is no capture of `add`"):
            await session.command("adopt", uri, "add")
        job = await session.command("capture", uri, f"{sys.executable} -c 'raise SystemExit(7)'")
        ended = await session.ended(job["id"])
        assert (ended["state"], ended["reason"]) == (
            "failed",
            "it ended with exit code 7, and nothing was captured; the log has what it said",
        )


def _capture(function: str, program: str, seconds: tuple[float, ...]) -> Capture:
    described = {"kind": "tensor", "dtype": "float16", "shape": [4, 8], "stride": [8, 1], "align": 16}
    cases = tuple(CapturedCase({"x": described}, (), 1, 1000, one) for one in seconds)
    return Capture(program, "/a/k.cu", function, ("softmax",), "text", cases, 1000 * len(cases), program_seconds=10.0)


def test_the_calls_of_a_kernel_are_told_for_each_program():
    captures = [
        _capture("a", "train.py", (2.0, 1.0)),
        _capture("b", "train.py", (0.8,)),
        _capture("a", "serve.py", (1,)),
    ]
    found = of_kernel(captures, "ops::softmax")
    assert [usage_text(*one) for one in found.items()] == [
        "38 % of train.py's host time, 3 shapes, 3,000 calls",
        "10 % of serve.py's host time, 1 shape, 1,000 calls",
    ]
    assert of_kernel(captures, "other") == {}
    page = calls_page("train.py", found["train.py"], "another text")
    assert "captured from an earlier version of this file" in page
    assert "| 1,000 | 20.0 % | 2.00 ms | x=float16[4, 8] |" in page
    assert "arguments of `b`" in page


def test_a_capture_that_cannot_be_read_is_left_out(kernel: Path):
    from kernel_lsp.config.settings import Settings
    from kernel_lsp.lsp.document_status import look
    from kernel_lsp.lsp.documents import Document
    from kernel_lsp.store.store import open_store

    folder = kernel.parent / FOLDER
    folder.mkdir(parents=True)
    capture = Capture("train.py", str(kernel), "add", ("add_kernel",), KERNEL, (), 1)
    (folder / capture.file_name).write_text(capture_text(capture))
    (folder / capture.file_name.replace(".add.", ".other.")).write_text('{"kernel_lsp_capture":1,')
    document = Document(kernel.as_uri(), kernel, KERNEL, 1, "utf-16")
    with open_store(kernel.parent / "store") as store:
        status = look(store, {}, [], document, {}, Settings())
    assert [one.function for one in status.captures] == ["add"]
