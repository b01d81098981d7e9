"""Conversations about KernelBench files: a module is lowered and an answer refined, each try run on the emulator."""

import pytest
import pytest_asyncio

from kernel_lsp.config.load import load_settings
from kernel_lsp.errors import KernelLspError
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.model.errors import ModelError
from tests.host_header import with_host_header
from tests.served_model.module import BROKEN, CHEAT, PROBLEM, RIGHT, TRITON, WRONG, code_of, write_answer, write_module
from tests.served_model.talking import asked, fake_server, in_turn, run

pytestmark = pytest.mark.asyncio(loop_scope="module")

DR_KERNEL = {"model.profile": "drkernel-8b"}
TRITON_WRONG = TRITON.replace("* 3.0", "* 3.0 + 1.0").replace("One program", "One addition")
TRITON_BROKEN = TRITON.replace("mask=at < n) * 3.0", "mask=at < m) * 3.0")
TRITON_OTHER = TRITON.replace("BLOCK=64", "BLOCK=32").replace("x.numel(), 64", "x.numel(), 32")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def sessions(tmp_path_factory):
    """Opens a session on a file; one at a time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        cache = tmp_path_factory.mktemp("cache")
        with_host_header(cache / "builds")
        settings, _ = load_settings(overrides={"judge.families": ["normal"], "paths.cache": cache})
        yield lambda path: open_session(make_target(path), settings)


@pytest_asyncio.fixture(loop_scope="module")
async def server():
    async with fake_server() as made:
        yield made


@pytest.mark.thorough
async def test_a_module_is_lowered_to_triton(sessions, server, monkeypatch, tmp_path):
    in_turn(server, TRITON_BROKEN, "No code today.", TRITON_WRONG, TRITON)
    async with sessions(write_module(tmp_path)) as session:
        found, turns = await run(session, server, monkeypatch, turns=4, model=DR_KERNEL)
    assert [t.verdict.verdict if t.verdict else None for t in turns] == ["BUILD_FAILED", None, "WRONG", "UNTIMED"]
    assert asked(server, 0)[0].count(PROBLEM.strip()) == 1
    told = asked(server, 3)
    assert "NameError" in told[2] or "m is not defined" in told[2]
    assert "failed to be parsed" in told[4]
    assert "element [0] of output 0 is 1 and should be 0; 40 of 40 are wrong." in told[6]
    assert turns[3].candidate.kernel.path == tmp_path / "scale_triton.py"
    assert found.best is None
    assert found.reason.endswith("of 3 candidates 2 build and 1 are right")


async def test_a_module_is_lowered_to_cuda(sessions, server, monkeypatch, tmp_path):
    clone = RIGHT.replace("x[i] * 3.0f;", "x[i]  *  3.0f;  // three times")
    in_turn(server, BROKEN, WRONG, CHEAT, RIGHT, clone, WRONG)
    async with sessions(write_module(tmp_path)) as session:
        found, turns = await run(session, server, monkeypatch, turns=5)
    outcomes = [t.verdict.verdict if t.verdict else None for t in turns]
    assert outcomes == ["BUILD_FAILED", "WRONG", "ILLEGITIMATE", "UNTIMED", "UNTIMED"]
    told = asked(server, 4)
    assert 'scale_cuda.py:7: error: identifier "z" is undefined\n    if (i < n) y[i] = 3.0f * z[i];' in told[2]
    assert "element [0] of output 0 is 1 and should be 0; 40 of 40 are wrong." in told[4]
    assert turns[3].verdict.stage == "correct"
    assert [t.candidate.digest for t in found.tried] == [t.candidate.digest for t in turns[:4]], "the clone is not"


async def test_what_cannot_be_built_here_is_told_and_the_search_goes_on(sessions, server, monkeypatch, tmp_path):
    in_turn(server, RIGHT.replace("int n = x.numel();", "int n = x.nummel();"), RIGHT)
    async with sessions(write_module(tmp_path)) as session:
        _, turns = await run(session, server, monkeypatch, turns=2)
    told = asked(server, 1)[2]
    assert "failed to compile" in told
    assert "scale_cuda.py:12" in told
    assert "has no member named 'nummel'" in told
    assert turns[1].verdict.verdict == "UNTIMED"


async def test_without_a_model_a_module_is_an_error(sessions, server, monkeypatch, tmp_path):
    await server.close()
    async with sessions(write_module(tmp_path)) as session:
        with pytest.raises(ModelError, match="No model server listens"):
            await run(session, server, monkeypatch, strategy="tuner-then-model")
        with pytest.raises(KernelLspError):
            await run(session, server, monkeypatch, strategy="beam")


async def test_an_answer_in_triton_is_refined_from_where_it_stands(sessions, server, monkeypatch, tmp_path):
    path = write_answer(tmp_path, TRITON_OTHER)
    in_turn(server, TRITON_OTHER, TRITON_WRONG, TRITON)
    async with sessions(path) as session:
        _, turns = await run(session, server, monkeypatch, turns=3, model=DR_KERNEL)
    assert [t.verdict.verdict if t.verdict else None for t in turns] == [None, "WRONG", "UNTIMED"]
    first = asked(server, 0)
    assert code_of(TRITON_OTHER).strip() in first[1]
    assert "It runs at 1.00 times the speed" in first[2]
    assert "The answer is the kernel as it stands. Change something." in asked(server, 1)[4]
    assert {t.candidate.kernel.path for t in turns if t.candidate} == {path}


async def test_an_answer_in_cuda_is_tuned(sessions, server, monkeypatch, tmp_path):
    async with sessions(write_answer(tmp_path)) as session:
        found, _ = await run(session, server, monkeypatch, strategy="tuner-only", proposers=["tuner"], budget=15)
    assert found.tried
    assert {tried.candidate.origin for tried in found.tried} == {"tuner"}
    assert {tried.feedback.verdict for tried in found.tried} <= {"UNTIMED", "SAME"}
