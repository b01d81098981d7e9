"""Conversations with a model that answers as it is told, each answer built and run by the judge on the emulator."""

import asyncio
import json
import time

import pytest
import pytest_asyncio

from kernel_lsp.model.errors import ModelError
from kernel_lsp.refine.strategies.turns import Trajectory, survivors
from tests.served_model.fake_server import said
from tests.served_model.scale import BROKEN, CHEAT, RIGHT, WRONG, model_new
from tests.served_model.talking import answered, asked, fake_server, in_turn, run, scale_session

pytestmark = pytest.mark.asyncio(loop_scope="module")

SLOW = model_new("for (int k = 0; k < 3; ++k) if (i < n) y[i] = 3.0f * x[i];", "Three times is safer.")
SHARED = model_new(
    "__shared__ volatile float s[64]; if (i < n) { s[threadIdx.x] = x[i]; y[i] = 3.0f * s[threadIdx.x]; }", "Staged."
)
OPINION = "Bottleneck: launches\nMethod: larger blocks\nPlan: use 64 threads"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    async with scale_session(tmp_path_factory.mktemp("scale")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def server():
    async with fake_server() as made:
        yield made


async def test_serial_tells_each_outcome_before_the_next_turn(session, server, monkeypatch):
    in_turn(server, BROKEN, "No code today.", WRONG, CHEAT, RIGHT)
    found, turns = await run(session, server, monkeypatch, turns=5)
    assert [t.verdict.verdict if t.verdict else None for t in turns] == [
        "BUILD_FAILED",
        None,
        "WRONG",
        "WRONG",
        "UNTIMED",
    ]
    assert [t.candidate is None for t in turns] == [False, True, False, False, False]
    assert turns[4].turn.answer.whole == f"<think>\nLet me see.\n</think>\n{RIGHT}"
    assert json.loads(turns[4].turn.prompt) == server.bodies[4]["messages"]
    told = asked(server, 4)
    assert [told[at] for at in (1, 3, 5, 7)] == [BROKEN, "No code today.", WRONG, CHEAT]
    assert 'scale.cu:3: error: identifier "z" is undefined' in told[2]
    assert "failed to be parsed. The answer holds no fenced code block" in told[4]
    assert "element [0] of output 0 is 1 and should be 0; 40 of 40 are wrong." in told[6]
    assert "was incorrect" in told[8]
    assert not any("Let me see" in message for message in told)
    assert found.reason.endswith("of 4 candidates 3 build and 1 are right")


async def test_requests_draw_as_the_profile_says(session, server, monkeypatch):
    in_turn(server, RIGHT, WRONG, WRONG, RIGHT)
    await run(session, server, monkeypatch, turns=2, trajectories=2)
    bodies = [{k: v for k, v in body.items() if k not in ("messages", "stream_options")} for body in server.bodies]
    fixed = {"model": "tiny", "stream": True, "temperature": 0.9, "top_p": 0.95, "max_tokens": 16384}
    assert all(fixed.items() <= body.items() for body in bodies)
    assert sorted(body["seed"] for body in bodies) == [1, 2, 1001, 1002]


async def test_beam_copies_the_best(session, server, monkeypatch):
    in_turn(server, BROKEN, RIGHT, WRONG, SLOW, SLOW, SLOW)
    _, turns = await run(session, server, monkeypatch, strategy="beam", trajectories=3, keep=1, turns=2)
    assert sorted(t.turn.trajectory for t in turns) == [0, 0, 1, 1, 2, 2]
    for number in (3, 4, 5):
        assert asked(server, number)[1] == RIGHT, "each goes on from the answer that was right"


async def test_an_archive_goes_on_from_each_approach(session, server, monkeypatch):
    in_turn(server, RIGHT, SHARED, WRONG, BROKEN, SLOW, SLOW)
    found, turns = await run(session, server, monkeypatch, strategy="archive", trajectories=2, turns=3)
    assert sorted((t.turn.trajectory, t.turn.number) for t in turns) == [(n, k) for n in (0, 1) for k in (1, 2, 3)]
    assert "model" not in {one.candidate.origin.partition(":")[0] for one in found.tried[:-5]}, "rewrites come first"
    later = [asked(server, number) for number in range(2, 6)]
    for messages in later:
        assert messages[1] in (RIGHT, SHARED), "what was wrong is not gone on from"
        # The workload makes the same inputs each time, so that it cannot tell whether an answer is right.
        for way in ("single accesses", "shared memory"):
            assert f"{way}, threads by themselves, scalar arithmetic: it builds; nothing else" in messages[-1]
    wishes = [messages[-1].splitlines()[-1] for messages in later]
    assert wishes.count("Take an approach that is not in this list.") == 1, "of the second, every other turn"
    assert wishes.count("Make the last version faster by its own approach.") == 3
    assert len({body["seed"] for body in server.bodies}) == 6


async def test_a_tree_plans_before_it_takes_a_step(session, server, monkeypatch):
    plans = (
        "0.4 | 0 | Read twice. | No.\n0.9 | 0 | Use 64 threads a block. | Fewer blocks.",
        "0.8 | 0 | Use 64 threads a block. | The index was wrong.\n0.9 | 1 | Build on what failed. | No.",
        "0.5 | 2 | Loop in the kernel. | More work.",
    )
    in_turn(server, plans[0], WRONG, plans[1], RIGHT, plans[2], SLOW)
    _, turns = await run(session, server, monkeypatch, strategy="tree", trajectories=1, turns=3)
    assert [t.turn.number for t in turns] == [1, 2, 3]
    planning, answers = [asked(server, n) for n in (0, 2, 4)], [asked(server, n) for n in (1, 3, 5)]
    assert all("CHANCE | ON | STEP | WHY" in said[0] and len(said) == 1 for said in planning)
    assert "1. on 0: Use 64 threads a block. Result: not right" in planning[1][0]
    assert "0.4 | 0 | Read twice." in planning[1][0], "which is planned and was not taken"
    assert "2. on 0: Use 64 threads a block. Result: right" in planning[2][0]
    assert "Read twice" not in planning[2][0], "the second plan dropped it"
    assert "Take this step in the next version, and no other: Use 64 threads a block." in answers[0][-1]
    assert "The reason for it: Fewer blocks." in answers[0][-1]
    assert [len(said) for said in answers] == [1, 3, 5]
    assert (answers[1][1], answers[2][1], answers[2][3]) == (WRONG, WRONG, RIGHT)
    assert answers[2][-1].splitlines()[-2:] == [
        "Take this step in the next version, and no other: Loop in the kernel.",
        "The reason for it: More work.",
    ]


async def test_without_a_plan_a_tree_asks_all_the_same_and_says_so(session, server, monkeypatch):
    in_turn(server, "I would make it faster.", RIGHT, "So would I.", SLOW)
    found, turns = await run(session, server, monkeypatch, strategy="tree", trajectories=2, turns=2)
    assert len(turns) == 2
    assert [note for note in found.notes if "planned no step" in note] == list(found.notes)


async def test_survivors_are_the_best_by_their_latest_answer():
    ranked = [Trajectory(0, ratio=float("inf")), Trajectory(1, ratio=0.8), Trajectory(2, ratio=0.5), Trajectory(3)]
    kept = survivors(ranked, 2)
    assert [(t.number, t.ratio) for t in kept] == [(0, 0.5), (1, 0.8), (2, 0.5), (3, 0.8)]
    kept[0].attempts.append(None)
    assert not kept[2].attempts, "copies go their own ways"


async def test_without_a_server_it_does_what_it_does_without_a_model(session, server, monkeypatch):
    alone, _ = await run(session, server, monkeypatch, strategy="tuner-only")
    await server.close()
    found, turns = await run(session, server, monkeypatch, strategy="tuner-then-model")
    assert alone.tried
    assert [t.candidate.digest for t in found.tried] == [t.candidate.digest for t in alone.tried]
    assert not turns
    [note] = found.notes
    assert note.startswith("No model was asked: No model server listens at")
    with pytest.raises(ModelError, match="No model server listens"):
        await run(session, server, monkeypatch, strategy="serial")


async def test_the_model_follows_the_tuner(session, server, monkeypatch):
    in_turn(server, RIGHT)
    found, turns = await run(session, server, monkeypatch, strategy="tuner-then-model", turns=1)
    origins = [tried.candidate.origin.partition(":")[0] for tried in found.tried]
    assert origins[-1] == "model"
    assert "model" not in origins[:-1]
    assert len(origins) > 1
    assert len(turns) == 1
    assert not found.notes


@pytest.mark.thorough
async def test_tokens_and_candidates_are_budgets(session, server, monkeypatch):
    server.reply = lambda _: answered(RIGHT, tokens=100)
    _, turns = await run(session, server, monkeypatch, turns=8, tokens=250)
    assert len(turns) == 3
    in_turn(server, RIGHT, SLOW, *[model_new(f"if (i < n) y[i] = {n}.0f;", "No.") for n in range(6)])
    found, turns = await run(session, server, monkeypatch, turns=8, candidates=4)
    assert len(turns) == 4
    assert len(found.tried) == 4


async def test_time_is_a_budget(session, server, monkeypatch):
    in_turn(server, RIGHT, ["hang"])
    begun = time.monotonic()
    _, turns = await run(session, server, monkeypatch, turns=8, budget=10.0)
    assert time.monotonic() - begun < 20
    assert len(turns) == 1
    assert server.left.is_set(), "the request is given up"


async def test_what_says_the_same_is_judged_once(session, server, monkeypatch):
    clone = RIGHT.replace("x[i] * 3.0f;", "x[i]  *  3.0f;  // three times")
    in_turn(server, RIGHT, clone, BROKEN)
    found, turns = await run(session, server, monkeypatch, turns=3)
    assert turns[1].verdict is turns[0].verdict is not None
    assert turns[2].verdict.verdict == "BUILD_FAILED"
    assert len(found.tried) == 2
    assert "says the same as what was tried before" in asked(server, 2)[4]


async def test_two_that_say_the_same_at_the_same_time_are_judged_once(session, server, monkeypatch):
    server.reply = lambda _: answered(RIGHT)
    found, turns = await run(session, server, monkeypatch, turns=1, trajectories=4)
    assert len(turns) == 4
    assert len(found.tried) == 1


async def test_the_kernel_as_it_stands_is_no_answer(session, server, monkeypatch):
    same = RIGHT.replace("x[i] * 3.0f", "3.0f * x[i]").replace("(n + 63) / 64, 64", "(n + 31) / 32, 32")
    in_turn(server, same, RIGHT)
    await run(session, server, monkeypatch, turns=2)
    assert len(server.bodies) == 2


async def test_a_crash_in_the_middle_of_an_answer_ends_one_trajectory(session, server, monkeypatch):
    in_turn(server, RIGHT, [said(reasoning="Let me"), "die"], WRONG)
    found, turns = await run(session, server, monkeypatch, turns=2, trajectories=2)
    assert len(turns) == 2
    assert turns[0].turn.trajectory == turns[1].turn.trajectory
    [note] = found.notes
    assert "went away in the middle of an answer" in note


async def test_an_answer_that_is_cut_off_is_told_so(session, server, monkeypatch):
    in_turn(server, [said(BROKEN[:200], tokens=9), said(finish="length", tokens=9)], RIGHT)
    _, turns = await run(session, server, monkeypatch, turns=2)
    assert turns[0].candidate is None
    assert "ends before its code block does" in asked(server, 1)[2]
    assert turns[1].verdict.verdict == "UNTIMED"


async def test_a_second_opinion_ends_the_next_prompt(session, server, monkeypatch):
    in_turn(server, RIGHT, OPINION, WRONG, "I would rather not say.", SLOW)
    _, turns = await run(session, server, monkeypatch, turns=3, second_opinion=True)
    assert [len(asked(server, n)) for n in range(5)] == [1, 1, 3, 1, 5]
    assert "Name the one bottleneck" in asked(server, 1)[0]
    advice = "A reader of the profile says:\nBottleneck: launches\nMethod: larger blocks\nPlan: use 64 threads"
    assert asked(server, 2)[-1].endswith(advice)
    assert "reader of the profile" not in asked(server, 4)[-1], "what keeps to no form is left out"
    assert len(turns) == 3


async def test_stopping_keeps_what_was_found(session, server, monkeypatch):
    stop = asyncio.Event()
    in_turn(server, RIGHT, ["hang"])
    running = asyncio.create_task(run(session, server, monkeypatch, turns=8, stop=stop))
    while len(server.bodies) < 2:
        await asyncio.sleep(0.02)
    stop.set()
    found, turns = await asyncio.wait_for(running, 20)
    assert found.cancelled
    assert len(turns) == 1
    assert found.reason == "it was stopped before anything faster was found"
    await asyncio.wait_for(server.left.wait(), 10)
