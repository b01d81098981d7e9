"""Fine-tuning in rounds through the real command: only what answers is a script."""

import asyncio
import json
import re
import time
from dataclasses import dataclass

import pytest
import pytest_asyncio

from kernel_lsp.store.store import open_store
from tests.served_model.fake_server import drawn
from tests.served_model.scale import write_scale
from tests.served_model.talking import fake_server
from tests.training.policy_run import TRAJECTORIES, TURNS, PolicyRun, kill
from tests.training.test_fine_tuning import pytestmark as needs_training
from tests.unit.learn.test_cheats_earn_nothing import RANDOM, RIGHT, WRONG, edit

pytestmark = [*needs_training, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

EPOCHS = 10
LONG = {"LEARN_RATE": 0.02, "LEARN_EPOCHS": EPOCHS, "LEARN_BATCH": 1, "LEARN_CHECKPOINT": 1, "LEARN_LENGTH": 16384}


@dataclass
class RoundsRun(PolicyRun):
    """Rounds on one kernel; the model that is told one right answer in four, an adapter of it three."""

    def method(self, steps: int) -> tuple[object, ...]:
        return ("sft", "--on", self.kernel, "--rounds", steps)

    def script(self) -> None:
        """Let the server answer so."""

        def reply(body: dict) -> dict:
            number = body["seed"] // 1000 % 100
            return drawn(edit(RIGHT if number < (1 if body["model"] == "tiny" else 3) else WRONG))

        self.server.reply = reply

    def dataset(self, number: int) -> list[dict]:
        """The lines that a round was trained on."""
        path = self.adapter / f"rounds/{number:02}/dataset/train.jsonl"
        return [json.loads(line) for line in path.read_text().splitlines()]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory, model):
    """A kernel, a tiny model, and a server that is told what to answer."""
    folder = tmp_path_factory.mktemp("rounds")
    kernel = write_scale(folder)
    kernel.with_name("scale_workload.py").write_text(RANDOM)
    async with fake_server() as server:
        made = RoundsRun(folder, kernel, longer(model, folder / "model"), server)
        made.script()
        yield made


def longer(model, folder):
    """The same model, which says that it reads longer conversations."""
    folder.mkdir()
    for path in model.iterdir():
        (folder / path.name).symlink_to(path)
    config = json.loads((model / "config.json").read_text())
    (folder / "config.json").unlink()
    (folder / "config.json").write_text(json.dumps(config | {"max_position_embeddings": 32768}))
    return folder


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trained(place):
    """Two rounds that nothing disturbed, and what was said."""
    place.server.bodies.clear()
    said = await place.run(**LONG)
    return place, said, [body["model"] for body in place.server.bodies]


async def test_each_round_is_answered_by_the_adapter_of_the_one_before(trained):
    place, said, asked = trained
    half = TRAJECTORIES * TURNS
    assert asked[:half] == ["tiny"] * half
    assert len(set(asked[half:])) == 1
    assert asked[half].startswith("mine-01@")
    assert not place.server.adapters, "what no round needs any more is unloaded"
    assert re.search(r"1 +tiny +8 +25% +0% +1 2 +mine-01@\w+ +8 +75% +0% +1 mine is in", said)
    assert len(re.findall(rf"step \d+/{EPOCHS}: loss [\d.]+, [\d,]+ tokens", said)) == 2 * EPOCHS
    assert "tokens/s" in said


async def test_a_round_learns_from_its_own_best_answer_on_each_kernel(trained):
    place, *_ = trained
    for number in (1, 2):
        [line] = place.dataset(number)
        assert line["verdict"] == "UNTIMED"
        assert line["trajectory"].startswith(f"sft-mine-{number:02}-")
        assert line["answer"] == edit(RIGHT)
        with open_store(place.folder / "data") as store:
            assert store.find_verdict(line["evidence"])
    job = json.loads((place.adapter / "rounds/02/job.json").read_text())
    assert job["weights"] == str(place.model), "from the base, not from the adapter of the round before"


async def test_the_last_round_is_the_adapter(trained):
    place, *_ = trained
    name = "adapter/adapter_model.safetensors"
    assert (place.adapter / name).read_bytes() == (place.adapter / "rounds/02" / name).read_bytes()
    card = json.loads((place.adapter / "card.json").read_text())
    assert (card["method"], len(card["kernels"])) == ("sft", 1)


@pytest.mark.thorough
async def test_killed_at_any_place_it_goes_on_to_the_same_adapter(trained, tmp_path_factory):
    place, *_ = trained
    again = RoundsRun(tmp_path_factory.mktemp("killed"), place.kernel, place.model, place.server)
    marks = ("job.json", "rounds/01/answers.json", "rounds/01/checkpoint-*", "rounds/01/card.json")
    for mark in (*marks, "rounds/02/answers.json", "rounds/02/dataset/README.md", "rounds/02/checkpoint-*"):
        process = await again.start(**LONG)
        until = time.monotonic() + 200
        while not any(again.adapter.glob(mark)):
            assert process.returncode is None, await process.communicate()
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        kill(process.pid)
        await process.communicate()
    (again.adapter / "adapter.draft").mkdir()
    assert "mine is in" in await again.run(**LONG)
    name = "adapter/adapter_model.safetensors"
    assert (again.adapter / name).read_bytes() == (place.adapter / name).read_bytes()
    for number in (1, 2):
        assert [line["id"] for line in again.dataset(number)] == [line["id"] for line in place.dataset(number)]
    with open_store(again.folder / "data") as store:
        kept = [session for session in store.list_sessions(-1) if session.startswith("sft-mine-")]
        assert all(turn.outcome for session in kept for turn in store.list_turns(session))
    assert len(kept) == 2 * TRAJECTORIES


@pytest.mark.thorough
async def test_more_rounds_go_on_from_those_that_are_done(trained):
    place, *_ = trained
    before = (place.adapter / "adapter/adapter_model.safetensors").read_bytes()
    place.server.bodies.clear()
    said = await place.run(steps=3, **LONG)
    assert {body["model"].partition("@")[0] for body in place.server.bodies} == {"mine-02"}
    assert re.search(r"3 +mine-02@\w+ +8 +75%", said)
    third = (place.adapter / "rounds/03/adapter/adapter_model.safetensors").read_bytes()
    assert (place.adapter / "adapter/adapter_model.safetensors").read_bytes() == third
    await place.run(**LONG)
    assert (place.adapter / "adapter/adapter_model.safetensors").read_bytes() == before


async def test_a_round_without_a_right_answer_says_so_and_what_the_answers_were(place, tmp_path):
    wrong = RoundsRun(tmp_path, place.kernel, place.model, place.server)
    wrong.answers(edit(WRONG), "no code")
    said = await wrong.run(code=2, **LONG)
    place.script()
    assert "nothing to learn from in round 1. None of 8 turns can be learned from: 8 rejected, not built" in said
    assert not (wrong.adapter / "card.json").exists()
