"""An adapter learns by reinforcement through the real command: only what answers is a script."""

import asyncio
import itertools
import json
import os
import re
import subprocess
import sys
import time

import pytest
import pytest_asyncio

from kernel_lsp.store.store import open_store
from tests.served_model.scale import write_scale
from tests.served_model.talking import fake_server
from tests.training.policy_run import TRAJECTORIES, TURNS, PolicyRun, kill
from tests.training.test_fine_tuning import PYTHON
from tests.training.test_fine_tuning import pytestmark as needs_training
from tests.unit.learn.test_cheats_earn_nothing import CHEATS, RANDOM, RIGHT, WRONG, edit
from tests.unit.pool.ray_cluster import RAY_SITE

pytestmark = [*needs_training, pytest.mark.asyncio(loop_scope="module"), pytest.mark.timeout(600)]

CHEAT = next(iter(CHEATS.values()))
LIKELIER = """
import sys, torch
from pathlib import Path
from kernel_lsp.learn.trainer.grpo import token_logprobs
from kernel_lsp.learn.training import TrainingBatch
from peft import PeftModel
from transformers import AutoModelForCausalLM
base, adapter, batch = sys.argv[1:]
samples = TrainingBatch.model_validate_json(Path(batch).read_text()).samples
model = AutoModelForCausalLM.from_pretrained(base)
with torch.no_grad():
    before = [token_logprobs(model, [one], 1.0)[0].sum().item() for one in samples]
    model = PeftModel.from_pretrained(model, adapter)
    after = [token_logprobs(model, [one], 1.0)[0].sum().item() for one in samples]
for one, old, new in zip(samples, before, after):
    print(one.advantage, new - old)
"""


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def place(tmp_path_factory, model):
    """A kernel, a tiny model, and a server that is told what to answer."""
    folder = tmp_path_factory.mktemp("policy")
    kernel = write_scale(folder)
    kernel.with_name("scale_workload.py").write_text(RANDOM)
    async with fake_server() as server:
        yield PolicyRun(folder, kernel, model, server)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def trained(place):
    """Two steps on answers of which one is right, two are not, and one cheats."""
    place.answers(edit(RIGHT), edit(WRONG), "no code", edit(CHEAT))
    said = await place.run()
    return place, said, [body["model"] for body in place.server.bodies]


async def test_every_turn_is_a_sample_with_its_own_return(trained):
    place, *_ = trained
    found = {(one["trajectory"], one["turn"]): one for one in place.batch(1)}
    assert set(found) == {(0, 0), (0, 1), (1, 0), (1, 1), (2, 0), (2, 1), (3, 0)}, "a cheat ends its trajectory"
    assert found[0, 0]["reward"] == pytest.approx(0.3 + 0.4 * 0.3)
    assert found[0, 1]["reward"] == pytest.approx(0.3)
    assert found[3, 0]["reward"] == -1.0
    assert found[0, 0]["advantage"] > 0 > found[3, 0]["advantage"]
    assert sum(one["advantage"] for (_, turn), one in found.items() if turn == 0) == pytest.approx(0, abs=1e-9)
    assert all(one["evidence"] for one in found.values() if one["score"] > 0)


async def test_the_curve_has_the_evidence_of_each_paid_answer(trained):
    place, *_ = trained
    curve = place.curve()
    assert [line["step"] for line in curve] == [1, 2]
    with open_store(place.folder / "data") as store:
        for line in curve:
            assert len(line["paid"]) == TURNS
            for one in line["paid"]:
                assert store.find_verdict(one["evidence"])["verdict"] == "UNTIMED"
                assert one["score"] == pytest.approx(0.3)
            assert line["results"] == {"ILLEGITIMATE": 1, "REJECTED": 2, "UNTIMED": 2, "WRONG": 2}
        kept = [session for session in store.list_sessions(-1) if session.startswith("grpo-mine-")]
    assert len(kept) == 2 * TRAJECTORIES, "every trajectory of both steps is in the store"


async def test_canaries_are_asked_in_the_first_step_and_nothing_is_learned_from_them(trained):
    place, *_ = trained
    first, second = place.curve()
    assert first["canaries"] == {"REJECTED": 4}, "these edits are of another kernel"
    assert second["canaries"] == {}
    assert {one["kernel"] for one in place.batch(1)} == {place.batch(1)[0]["kernel"]}


async def test_the_server_answers_as_the_step_before_left_the_adapter(trained):
    place, _, asked = trained
    first, second = (name for name, _ in itertools.groupby(asked))
    assert first == "tiny"
    assert second.startswith("mine-00001@")
    assert not place.server.adapters, "what no step needs any more is unloaded"


@pytest.mark.ray
@pytest.mark.skipif(not (RAY_SITE / "ray").exists(), reason=f"no Ray in {RAY_SITE}; .ci/run installs it")
async def test_answers_that_lanes_judge_make_the_same_batches(trained, tmp_path_factory, monkeypatch):
    place, *_ = trained
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (*sys.path, str(RAY_SITE)))))
    lanes = PolicyRun(tmp_path_factory.mktemp("lanes"), place.kernel, place.model, place.server)
    place.answers(edit(RIGHT), edit(WRONG), "no code", edit(CHEAT))
    said = await lanes.run("--pool", "ray")
    assert "mine is in" in said

    def paid(run):
        names = ("trajectory", "turn", "result", "score", "advantage", "tokens")
        return [[tuple(map(repr, map(one.get, names))) for one in run.batch(step)] for step in (1, 2)]

    assert paid(lanes) == paid(place)
    assert [line["canaries"] for line in lanes.curve()] == [line["canaries"] for line in place.curve()]
    with open_store(lanes.folder / "data") as store:
        verdicts = [store.find_verdict(one["evidence"]) for one in lanes.batch(1) if one["evidence"]]
    assert {verdict["evidence"]["where"]["lane"][-2:] for verdict in verdicts} == {"/0"}


@pytest.mark.thorough
async def test_what_was_rewarded_gets_likelier_and_what_was_not_less(trained):
    place, said, _ = trained
    assert "mine is in" in said
    assert re.search(r"step 1/2: loss -?[\d.]+, \d+ tokens step 2/2: loss", said)
    call = [PYTHON, "-c", LIKELIER, place.model, place.adapter / "adapter", place.adapter / "batches/00001.json"]
    done = subprocess.run(call, capture_output=True, text=True, check=True)
    moved = [tuple(map(float, line.split())) for line in done.stdout.splitlines()]
    best, worst = max(moved), min(moved)
    assert best[1] > 0 > worst[1]


async def test_the_audit_shows_the_best_answers_and_the_cheats(trained):
    place, *_ = trained
    page = (place.adapter / "audit.html").read_text()
    assert "Best: UNTIMED, score 0.30" in page
    assert "Strangest: ILLEGITIMATE, score -1.00" in page
    assert "&lt;&lt;&lt;&lt;&lt;&lt;&lt; SEARCH" in page


@pytest.mark.thorough
async def test_a_run_killed_at_any_place_goes_on_to_the_same_adapter(trained, tmp_path_factory):
    place, *_ = trained
    folder = tmp_path_factory.mktemp("killed")
    again = PolicyRun(folder, place.kernel, place.model, place.server)
    first = place.batch(1)
    for mark in ("job.json", "batches/00001.json", "steps/00001/figures.json"):
        process = await again.start()
        until = time.monotonic() + 200
        while not (again.adapter / mark).exists():
            assert process.returncode is None, await process.communicate()
            assert time.monotonic() < until
            await asyncio.sleep(0.02)
        kill(process.pid)
        await process.communicate()
    (again.adapter / "steps/00002.draft/adapter").mkdir(parents=True, exist_ok=True)
    await again.run()
    told = ("trajectory", "turn", "tokens", "result", "reward", "advantage")
    assert [[one[name] for name in told] for one in again.batch(1)] == [[one[name] for name in told] for one in first]
    name = "adapter/adapter_model.safetensors"
    assert (again.adapter / name).read_bytes() == (place.adapter / name).read_bytes()
    with open_store(folder / "data") as store:
        kept = [session for session in store.list_sessions(-1) if session.startswith("grpo-mine-")]
        assert all(turn.outcome for session in kept for turn in store.list_turns(session))
    assert len(kept) == 2 * TRAJECTORIES


@pytest.mark.thorough
async def test_a_group_whose_answers_are_all_alike_teaches_nothing(place, tmp_path):
    alike = PolicyRun(tmp_path, place.kernel, place.model, place.server)
    alike.answers("no code")
    await alike.run(steps=1)
    [line] = alike.curve()
    assert (line["samples"], line["gradient"]) == (0, 0.0)
    assert {one["advantage"] for one in alike.batch(1)} == {0.0}


async def test_another_setting_under_the_same_name_is_refused(trained):
    place, *_ = trained
    assert "`mine` was trained otherwise: gamma was 0.4" in await place.run(code=2, LEARN_GAMMA=0.5)


@pytest.mark.thorough
async def test_a_weak_workload_is_refused(place, tmp_path):
    weak = PolicyRun(tmp_path, write_scale(tmp_path), place.model, place.server)
    said = await weak.run(code=2)
    assert "inputs would pass on case n=40" in said
    assert not weak.adapter.exists(), "nothing is begun"


async def test_kernels_of_a_folder_are_learned_on_with_variants_of_other_sizes(place, tmp_path):
    folder = tmp_path / "kernels"
    folder.mkdir()
    write_scale(folder).with_name("scale_workload.py").write_text(RANDOM)
    varied = PolicyRun(tmp_path, folder, place.model, place.server)
    varied.answers(edit(RIGHT), edit(WRONG), "no code", edit(WRONG))
    place.server.bodies.clear()
    said = await varied.run("--variants", "1", steps=1)
    assert "1 kernels with 1 variants" in said
    asked = [json.dumps(body["messages"]) for body in place.server.bodies]
    assert {size for text in asked for size in re.findall(r"dict\(n=(\d+)\)", text)} == {"40", "20"}
    [line] = varied.curve()
    assert len(line["kernels"]) == 2
    assert {one["solved"] for one in line["kernels"].values()} == {0.25}
    card = json.loads((varied.adapter / "card.json").read_text())
    assert len(card["kernels"]) == 1, "the variant is the same kernel"
