"""What becomes of each turn of a search is in the store, on the emulator and after a race on a made-up GPU."""

import asyncio
import json
from pathlib import Path
from types import SimpleNamespace

import pytest
import pytest_asyncio

from kernel_lsp.config.load import load_settings
from kernel_lsp.judge.session import open_session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.refine.dialogue.answer import ModelAnswer
from kernel_lsp.refine.journal import Journal, kernel_key
from kernel_lsp.refine.outcome import Drawn, Exchange, ModelTurn
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.run import refine_target
from kernel_lsp.refine.turn_outcome import turn_outcome
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Language
from kernel_lsp.store.store import open_store
from tests.served_model.fake_server import said
from tests.served_model.scale import BROKEN, KERNEL, RIGHT, WRONG, write_scale
from tests.served_model.talking import MODEL, fake_server, in_turn

pytestmark = pytest.mark.asyncio(loop_scope="module")
RACED = Feedback(Stage.TIMED, Outcome.SLOWER, 1.25, (1.2, 1.3), "0.800x in a race")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def store(tmp_path_factory):
    with open_store(tmp_path_factory.mktemp("data")) as opened:
        yield opened


async def searched(folder, store, server, stop=None, **changes):
    wanted = {"refine.strategy": "serial", "refine.trajectories": 1, "refine.untimed": True, "judge.families": "normal"}
    overrides = MODEL | wanted | {"model.endpoint": f"unix:{server.socket}", "paths.cache": folder / "cache"} | changes
    settings = load_settings(overrides=overrides)[0]
    return await refine_target(make_target(write_scale(folder)), settings, store, stop or asyncio.Event())


async def test_turns_of_a_model(tmp_path, store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    again = RIGHT.replace("x[i] * 3.0f;", "x[i]  *  3.0f;  // three times")
    async with fake_server() as server:
        in_turn(server, BROKEN, "No code today.", WRONG, RIGHT, again)
        await searched(tmp_path, store, server, **{"refine.turns": 5})
    turns = store.list_turns(store.list_sessions()[0])
    outcomes = [turn.outcome for turn in turns]
    assert [one["result"] for one in outcomes] == ["BUILD_FAILED", "REJECTED", "WRONG", "UNTIMED", "UNTIMED"]
    assert [one["judged"] for one in outcomes] == [True, False, True, True, True]
    assert "holds no fenced code block" in outcomes[1]["reason"]
    assert "says the same as what was tried before" in outcomes[4]["told"]
    assert turns[4].verdict == turns[3].verdict is not None, "the same program has the same verdict"
    asked = json.loads(turns[3].prompt)
    assert asked[-1]["content"] == outcomes[2]["told"], "what was told is what the next turn was asked with"
    assert {turn.target for turn in turns} == {kernel_key(make_target(tmp_path / "scale.cu").baseline)}
    circumstances = turns[0].circumstances
    assert circumstances["kernel"] == str(tmp_path / "scale.cu")
    assert (circumstances["model"], circumstances["profile"], circumstances["seed"]) == ("tiny", "kevin-32b", 1)
    assert (circumstances["gpu"], circumstances["complete"], circumstances["collect"]) == (None, True, True)


async def test_an_answer_whose_judgement_never_ends_is_kept(tmp_path, store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    stop = asyncio.Event()

    async def hang(*_):
        stop.set()
        await asyncio.sleep(3600)

    monkeypatch.setattr("kernel_lsp.refine.answer_handler.AnswerHandler.receive", hang)
    async with fake_server() as server:
        in_turn(server, [said(RIGHT[:80], tokens=9), said(finish="length", tokens=9)])
        found = await searched(tmp_path, store, server, stop, **{"learn.collect": False})
    assert found.cancelled
    [turn] = store.list_turns(store.list_sessions()[0])
    assert (turn.candidate, turn.outcome["result"]) == ("", "NOT_JUDGED")
    assert turn.answer == RIGHT[:80].strip()
    assert (turn.circumstances["complete"], turn.circumstances["collect"]) == (False, False)


async def test_turns_of_the_proposers(tmp_path, store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    settings = load_settings(
        overrides={"refine.strategy": "tuner-only", "refine.untimed": True, "refine.candidates": 2}
    )[0]
    found = await refine_target(make_target(write_scale(tmp_path)), settings, store, asyncio.Event())
    turns = store.list_turns(store.list_sessions()[0])
    assert [turn.outcome["result"] for turn in turns] == [one.feedback.verdict for one in found.tried]
    assert turns
    assert {turn.circumstances["model"] for turn in turns} == {None}


async def test_what_lost_a_race_is_kept_as_that(tmp_path, store, monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    target = make_target(write_scale(tmp_path))
    async with open_session(target, load_settings()[0]) as session:
        monkeypatch.setattr(session, "gpu", SimpleNamespace(name="NVIDIA H200"))
        turn = ModelTurn(3, 2, "[]", ModelAnswer("so", "hm"), Drawn("tiny", "general"))
        Journal(store, target, session.settings, session.gpu).exchanged(
            "raced", Exchange(turn, target.baseline, RACED, None, "too slow")
        )
    [stored] = store.list_turns("raced")
    assert (stored.number, stored.answer, stored.verdict) == (2, "<think>\nhm\n</think>\nso", None)
    assert stored.outcome["speedup"] == 0.8
    assert stored.outcome["interval"] == [pytest.approx(1 / 1.3), pytest.approx(1 / 1.2)]
    assert (stored.outcome["judged"], stored.outcome["told"]) == (False, "too slow")
    assert stored.circumstances["gpu"] == "NVIDIA H200"


async def test_outcomes_without_a_decision():
    assert turn_outcome(None, judged=False).result == "NOT_JUDGED"
    assert turn_outcome("No code.", judged=False).reason == "No code."


async def test_a_kernels_key_rests_on_its_structure():
    def key(text: str, name: str = "a.cu") -> str:
        return kernel_key(Candidate(Language.CUDA, SourceFile(Path(name), text), None, "", ""))

    renamed = KERNEL.replace("scale", "triple").replace("int i =", "int   at = // where\n   ").replace("[i]", "[at]")
    renamed = renamed.replace("(i < n)", "(at < n)")
    assert key(renamed, "b.cu") == key(KERNEL)
    assert key(KERNEL.replace("3.0f", "2.0f")) != key(KERNEL)
    assert key(KERNEL.replace("y[i]", "x[i]")) != key(KERNEL)
