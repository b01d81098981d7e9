"""KernelBench files in a real server process: CUDA in the strings of a Python file has what a .cu file has."""

import asyncio
import re

import pytest
from lsprotocol import types
from pygls.exceptions import JsonRpcException

from tests.lsp.job_session import editor

PROBLEM = """import torch
import torch.nn as nn


class Model(nn.Module):
    def forward(self, x):
        return x * 2


def get_inputs():
    return [torch.rand(1024)]


def get_init_inputs():
    return []
"""
ANSWER = '''import torch
import torch.nn as nn
from torch.utils.cpp_extension import load_inline

source = """
#include <torch/extension.h>

__global__ void twice(const float* x, float* y, int n) {
    int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < n) y[i] = 2.f * x[i];
}

torch::Tensor run(torch::Tensor x) {
    auto y = torch::empty_like(x);
    const int threads = 128;
    twice<<<(x.numel() + threads - 1) / threads, threads>>>(x.data_ptr<float>(), y.data_ptr<float>(), x.numel());
    return y;
}
"""
built = load_inline("built", "torch::Tensor run(torch::Tensor x);", source, functions=["run"])


class ModelNew(nn.Module):
    def forward(self, x):
        return built.run(x)
'''
HEAD = next(i for i, line in enumerate(ANSWER.splitlines()) if "__global__" in line)

pytestmark = pytest.mark.asyncio


async def lenses(session, uri):
    found = await session.client.text_document_code_lens_async(types.CodeLensParams(types.TextDocumentIdentifier(uri)))
    return [(lens.range.start.line, lens.command.title) for lens in found]


async def facts(session, uri):
    """Line and title of the first lens with facts, once there is one."""
    async with asyncio.timeout(60):
        while not (found := [lens for lens in await lenses(session, uri) if "regs" in lens[1]]):
            await asyncio.sleep(0.05)
    return found[0]


async def hover(session, uri, line, character):
    params = types.HoverParams(types.TextDocumentIdentifier(uri), types.Position(line, character))
    return await session.client.text_document_hover_async(params)


async def test_an_inline_kernel_has_facts_hovers_and_machine_code(tmp_path):
    (tmp_path / "twice.py").write_text(PROBLEM)
    async with editor(tmp_path, editor={"register_hints": True}) as session:
        uri = session.open(tmp_path / "twice_cuda.py", ANSWER, "python")
        line, title = await facts(session, uri)
        assert line == HEAD
        assert re.fullmatch(r"\d+ regs, occupancy 100 %", title), "the block size is read from the host code"
        name = await hover(session, uri, HEAD, ANSWER.splitlines()[HEAD].index("twice"))
        assert "| sm_" in name.contents.value
        async with asyncio.timeout(60):
            while (store := await hover(session, uri, HEAD + 2, 20)) is None:
                await asyncio.sleep(0.05)
        assert "2 of global memory" in store.contents.value, "it reads and writes"
        everywhere = types.Range(types.Position(0, 0), types.Position(40, 0))
        asked = types.InlayHintParams(types.TextDocumentIdentifier(uri), everywhere)
        hints = await session.client.text_document_inlay_hint_async(asked)
        assert {hint.position.line for hint in hints} <= set(range(HEAD, HEAD + 4))
        assert any(hint.position.line == HEAD + 2 for hint in hints)


@pytest.mark.thorough
async def test_a_compiler_s_message_stands_in_the_string_while_it_is_typed(tmp_path):
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "twice_cuda.py", ANSWER.replace("2.f *", "two *"), "python")
        await session.until(lambda: session.client.diagnostics.get(uri))
        (found,) = session.client.diagnostics[uri]
        assert found.message == 'identifier "two" is undefined'
        at = ANSWER.splitlines()[HEAD + 2].index("2.f")
        assert found.range == types.Range(types.Position(HEAD + 2, at), types.Position(HEAD + 2, at + 3))
        session.edit(uri, ANSWER)
        await session.until(lambda: not session.client.diagnostics.get(uri))


@pytest.mark.thorough
async def test_a_problem_alone_has_no_lenses_and_is_not_compiled(tmp_path):
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "twice.py", PROBLEM, "python")
        assert await lenses(session, uri) == []
        assert session.client.diagnostics.get(uri, []) == []


@pytest.mark.thorough
async def test_a_python_file_that_gains_a_kernel_gains_its_lens(tmp_path):
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "twice_cuda.py", PROBLEM, "python")
        assert await lenses(session, uri) == []
        session.edit(uri, ANSWER)
        assert (await facts(session, uri))[0] == HEAD


@pytest.mark.thorough
async def test_what_is_missing_is_a_problem_and_no_workload(tmp_path):
    (tmp_path / "twice_cuda.py").write_text(ANSWER)
    async with editor(tmp_path) as session:
        uri = session.open(tmp_path / "twice_cuda.py")
        actions = {action.title: action for action in await session.actions(uri, line=HEAD)}
        assert not any("Draft" in title for title in actions)
        assert "write twice_cuda_problem.py beside it" in actions["Refine twice"].disabled.reason
        with pytest.raises(JsonRpcException, match=r"twice_cuda_problem\.py"):
            await session.command("draft", uri, "twice")
