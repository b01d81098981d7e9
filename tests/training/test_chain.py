"""From searches to an adapter that is served and compared: every step is the real command, and nothing needs a GPU.

A tiny model knows a wrong answer by heart. Searches told it the right one: what they left is made a dataset, and an
adapter is fine-tuned on it. A real vLLM serves the model; it loads the adapter while it runs, reinforcement learning
goes on from there, and what came of it is compared with the model on another kernel.
"""

import asyncio
import json
import re
import shutil
import tempfile
from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model, needs_vllm
from tests.served_model.scale import KERNEL, write_scale
from tests.served_model.talking import fake_server, in_turn
from tests.training.command import ROOT, call, environment
from tests.training.test_fine_tuning import PYTHON
from tests.training.test_fine_tuning import pytestmark as needs_training
from tests.unit.learn.test_cheats_earn_nothing import RANDOM, RIGHT, WRONG, edit

pytestmark = [*needs_training, *needs_vllm, pytest.mark.asyncio, pytest.mark.timeout(900)]

THOUGHT = "Let me see."
STEPS, TRAJECTORIES, SAMPLES = 2, 8, 2


@dataclass
class Chain:
    """A folder with the user's data, and the settings of all commands."""

    folder: Path

    async def run(self, *command: object, code: int = 0, **settings: object) -> str:
        """Run a command of `kernel-lsp`, and return what it printed, on one line."""
        wanted = {
            "PATHS_DATA": self.folder / "data",
            "PATHS_CACHE": self.folder / "cache",
            "MODEL_PYTHON": VLLM_PYTHON,
            "MODEL_PROFILE": "general",
            "JUDGE_FAMILIES": "normal",
            "REFINE_UNTIMED": "true",
            "LEARN_PYTHON": PYTHON,
            "LEARN_HELD_OUT": 0,
            "LEARN_STRENGTH": 0.5,
            "LEARN_TURNS": 1,
            "LEARN_TRAJECTORIES": TRAJECTORIES,
            "LEARN_RANK": 4,
            **settings,
        }
        known = environment(wanted) | {"XDG_RUNTIME_DIR": str(self.folder / "run")}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(*call(*command), env=known, cwd=ROOT, stdout=pipe, stderr=pipe)
        out, err = await process.communicate()
        told = (out + err).decode()
        assert process.returncode == code, told
        return " ".join(told.split())


async def searched(chain: Chain, kernel: Path) -> list[tuple[str, str]]:
    """Search with a model that says what is right, and return what it was asked."""
    async with fake_server() as server:
        in_turn(server, edit(RIGHT))
        model = {"MODEL_ENDPOINT": f"unix:{server.socket}", "MODEL_NAME": "tiny"}
        talk = {"REFINE_STRATEGY": "serial", "REFINE_TRAJECTORIES": 1, "REFINE_TURNS": 1, "REFINE_BUDGET": 200}
        found = await chain.run("refine", kernel, **model, **talk)
    assert "of 1 candidates 1 build and 1 are right" in found
    return [(message["role"], message["content"]) for message in server.bodies[0]["messages"]]


@pytest.fixture
def chain():
    folder = Path(tempfile.mkdtemp(prefix="kl-"))  # sockets want short paths
    (folder / "run").mkdir(mode=0o700)
    yield Chain(folder)
    shutil.rmtree(folder)


def doubling(folder: Path) -> Path:
    """Another kernel, which nothing is trained on, that is launched in the same way."""
    folder.mkdir()
    (folder / "double.cu").write_text(KERNEL.replace("3.0f", "2.0f"))
    (folder / "double_workload.py").write_text(RANDOM.replace("3 * x", "2 * x"))
    return folder / "double.cu"


async def test_from_searches_to_an_adapter_that_is_compared(chain: Chain) -> None:
    kernel, other = write_scale(chain.folder), doubling(chain.folder / "held")
    kernel.with_name("scale_workload.py").write_text(RANDOM)
    asked = await searched(chain, kernel)
    elsewhere = (("user", "How would you launch it?"),)  # it has said before what it is to learn
    model = learned_model([Learned(tuple(asked), THOUGHT, edit(WRONG)), Learned(elsewhere, THOUGHT, edit(RIGHT))])

    dataset = chain.folder / "dataset"
    await chain.run("model", "collect", dataset, "--keep", "right")
    taught = {"LEARN_RATE": 0.01, "LEARN_EPOCHS": 40, "LEARN_BATCH": 1, "LEARN_LENGTH": 4096}
    told = await chain.run("model", "train", "sft", dataset, "--adapter", "taught", "--weights", model, **taught)
    losses = [float(one) for one in re.findall(r"step \d+/\d+: loss ([\d.]+)", told)]
    assert losses[-1] < 0.5 * losses[0]

    try:
        await chain.run("model", "serve", model, "--adapters")
        rate = {"LEARN_POLICY_RATE": 1e-4, "LEARN_TEMPERATURE": 1.0}
        command = ("model", "train", "grpo", kernel, "--weights", model, "--start", "taught", "--adapter", "mine")
        await chain.run(*command, "--steps", STEPS, **rate)
        held = ("model", "eval", "mine", other, "--samples", SAMPLES, "--turns", 1, "--tokens", 2000, "--json")
        compared = json.loads(await chain.run(*held))
    finally:
        await chain.run("model", "stop")
    lines = (chain.folder / "data/adapters/mine/curve.jsonl").read_text().splitlines()
    curve = [json.loads(line) for line in lines]
    assert [line["step"] for line in curve] == list(range(1, STEPS + 1))
    assert all(line["answers"] == TRAJECTORIES for line in curve)
    assert all(0 < line["drawing_seconds"] < line["seconds"] for line in curve)
    assert 0 < curve[0]["judging_seconds"] < curve[0]["seconds"], "later answers may be those that were judged before"
    assert curve[0]["paid"], "it began from the adapter, which says what is right"
    assert any(line["samples"] and line["gradient"] > 0 for line in curve), "some were paid and others not"
    [result] = compared["kernels"]
    [right] = compared["measures"]
    for side in ("base", "adapter"):
        assert all(one["tokens"] for one in result[side])
        assert right[side] == sum(one["right"] for one in result[side]) / SAMPLES
    shown = await chain.run("model", "adapters")
    assert "taught" in shown
    assert "mine" in shown
