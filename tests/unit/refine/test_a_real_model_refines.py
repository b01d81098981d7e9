"""A real vLLM on the CPU drives the whole loop: its model knows four answers by heart, and one of them is right."""

import asyncio
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from kernel_model_server import launch
from kernel_model_server.vllm import environment, find_vllm

from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.target import make_target
from kernel_lsp.model.profile import PROFILES
from kernel_lsp.refine.run import refine_target
from kernel_lsp.store.store import open_store
from tests.lsp.job_session import data_of, editor
from tests.served_model.fake_server import FakeServer, said
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model, needs_vllm
from tests.served_model.scale import BROKEN, CHEAT, RIGHT, WRONG, write_scale

pytestmark = needs_vllm

ANSWERS = (BROKEN, WRONG, CHEAT, RIGHT)
THOUGHT = "Let me see."
TALK = {"untimed": True, "strategy": "serial", "trajectories": 1, "turns": len(ANSWERS), "budget": 200}
FEEDBACK = (
    ("failed to compile", 'identifier "z" is undefined', "y[i] = 3.0f * z[i];"),
    ("was incorrect", "element [0] of output 0 is 1 and should be 0"),
    ("was incorrect", "nan"),
)


@pytest.fixture(scope="module")
def without_gpu():
    """A machine with a GPU must tell the same story."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("CUDA_VISIBLE_DEVICES", "")
        yield


@pytest.fixture(scope="module")
def prompts(without_gpu, tmp_path_factory):
    """What the loop asks when these answers are given: what the model has to learn them for."""
    folder = tmp_path_factory.mktemp("rehearsal")
    socket = Path(tempfile.mkdtemp(prefix="kl-")) / "socket"

    async def rehearse():
        server = FakeServer(socket, key=None)
        server.reply = lambda _: [
            said(reasoning=THOUGHT),
            said(ANSWERS[len(server.bodies) - 1], tokens=9),
            said(finish="stop", tokens=9),
        ]
        await server.open()
        model = {"endpoint": f"unix:{socket}", "name": "tiny", "profile": "kevin-32b"}
        overrides = {f"refine.{k}": v for k, v in TALK.items()} | {f"model.{k}": v for k, v in model.items()}
        settings, _ = load_settings(overrides=overrides | {"paths.data": folder / "data"})
        with open_store(folder / "data") as store:
            await refine_target(make_target(write_scale(folder)), settings, store, asyncio.Event())
        await server.close()
        return [[(m["role"], m["content"]) for m in body["messages"]] for body in server.bodies]

    yield asyncio.run(rehearse())
    shutil.rmtree(socket.parent)


@pytest.fixture(scope="module")
def folder(prompts):
    assert len(prompts) == len(ANSWERS)
    learned = [Learned(tuple(prompt), THOUGHT, answer) for prompt, answer in zip(prompts, ANSWERS, strict=True)]
    return learned_model(learned)


@pytest.fixture(scope="module")
def served(folder):
    """The model at a real server, found through the user's runtime folder."""
    runtime = Path(tempfile.mkdtemp(prefix="kl-"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_RUNTIME_DIR", str(runtime))
        settings, _ = load_settings(overrides={"model.python": VLLM_PYTHON})
        kept = launch.start(launch.plan(str(folder), settings, profile="kevin-32b"), attached=True)
        try:
            yield launch.wait_until_ready(kept, lambda _: None, seconds=240)
        finally:
            launch.stop(kept)
            shutil.rmtree(runtime)


def transcript(data: Path) -> list:
    """The turns of the one conversation with the model, each with its verdict."""
    with open_store(data) as store:
        [talk] = [s for s in store.list_sessions() if store.list_turns(s)[0].prompt]
        return [(turn, store.find_verdict(turn.verdict)) for turn in store.list_turns(talk)]


def check_transcript(data: Path, prompts: list) -> None:
    turns = transcript(data)
    assert [turn.number for turn, _ in turns] == [1, 2, 3, 4]
    assert [verdict["verdict"] for _, verdict in turns] == ["BUILD_FAILED", "WRONG", "WRONG", "UNTIMED"]
    assert [turn.answer for turn, _ in turns] == [f"<think>\n{THOUGHT}\n</think>\n{answer}" for answer in ANSWERS]
    assert turns[-1][1]["stage"] == "correct"
    for (turn, _), prompt in zip(turns, prompts, strict=True):
        asked = json.loads(turn.prompt)
        assert [(m["role"], m["content"]) for m in asked] == prompt
        assert THOUGHT not in turn.prompt, "reasoning is never sent back"
    for (turn, _), words in zip(turns[1:], FEEDBACK, strict=True):
        told = json.loads(turn.prompt)[-1]["content"]
        assert all(word in told for word in words), told


@pytest.mark.thorough
@pytest.mark.timeout(600)  # the model is built and loaded, on any machine
def test_from_the_command_line(served, prompts, tmp_path):
    kernel = write_scale(tmp_path)
    own = {f"KERNEL_LSP_REFINE_{name.upper()}": str(value) for name, value in TALK.items()}
    own |= {
        "COLUMNS": "200",
        "KERNEL_LSP_PATHS_DATA": str(tmp_path / "data"),
        "KERNEL_LSP_PATHS_CACHE": str(tmp_path / "cache"),
    }
    call = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", "refine", str(kernel)]
    done = subprocess.run(call, env=os.environ | own, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "of 4 candidates 3 build and 1 are right" in done.stdout
    assert "Blocks are twice as large" in done.stdout
    check_transcript(tmp_path / "data", prompts)


@pytest.mark.thorough
@pytest.mark.timeout(600)
@pytest.mark.asyncio(loop_scope="function")
async def test_from_a_code_action(served, prompts, tmp_path):
    kernel = write_scale(tmp_path)
    async with editor(tmp_path, refine=TALK) as session:
        uri = session.open(kernel, language="cuda-cpp")
        found = await session.actions(uri, line=0)
        refine = next(a for a in found if a.command and a.command.command == "kernel-lsp.refine")
        job = await session.command("refine", *refine.command.arguments)
        ended = await session.ended(job["id"], 240)
        texts = [j["text"] for j in session.jobs]
    assert ended["state"] == "done", ended
    assert ended["reason"].endswith("of 4 candidates 3 build and 1 are right")
    assert any("turn 4 of 4 · " in text and " tokens/s" in text for text in texts), texts
    check_transcript(data_of(tmp_path), prompts)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_vllm_answers_the_batch_of_a_sweep(folder, prompts, tmp_path):
    """`vllm run-batch` takes what a sweep asks, and the sweep what that writes."""
    write_scale(tmp_path)
    short = (PROFILES / "kevin-32b.toml").read_text().replace("max_tokens = 16384", "max_tokens = 2000")
    (tmp_path / "short.toml").write_text(short)  # longer answers have no room in the tiny model
    wanted = {"MODEL_PROFILE": "short.toml", "MODEL_NAME": folder, "REFINE_TURNS": 2, "REFINE_TRAJECTORIES": 1}
    wanted |= {"PATHS_DATA": tmp_path / "data", "PATHS_CACHE": tmp_path / "cache"}
    own = os.environ | {f"KERNEL_LSP_{name}": str(value) for name, value in wanted.items()} | {"COLUMNS": "200"}

    def turn(*kernels: str) -> str:
        call = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", "refine", "--turn-batch", "sweep"]
        return subprocess.run(
            [*call, *kernels], env=own, cwd=tmp_path, capture_output=True, text=True, check=True
        ).stdout

    assert "Turn 1 of 2: 1 answers are missing." in turn("scale.cu")
    asked = tmp_path / "sweep/turn-01/requests.jsonl"
    body = json.loads(asked.read_text())["body"]
    assert [(m["role"], m["content"]) for m in body["messages"]] == prompts[0]
    call = [VLLM_PYTHON, "-m", "vllm.entrypoints.openai.run_batch", "--model", folder, "--enforce-eager"]
    call += ["-i", asked, "-o", asked.with_name("answers.jsonl"), "--dtype", "bfloat16", "--max-model-len", "16384"]
    alone = environment(find_vllm(load_settings(overrides={"model.python": VLLM_PYTHON})[0]), None, "")
    done = subprocess.run(
        [str(part) for part in call], env=alone, cwd=tmp_path, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]
    assert "Turn 2 of 2: 1 answers are missing." in turn()
    second = json.loads((tmp_path / "sweep/turn-02/requests.jsonl").read_text())["body"]
    assert [(m["role"], m["content"]) for m in second["messages"]] == prompts[1]
