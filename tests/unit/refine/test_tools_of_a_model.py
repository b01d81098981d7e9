"""A model calls tools within its turn: each judges a trial on the emulator, and is part of the trajectory."""

import json

import pytest
import pytest_asyncio

from kernel_lsp.model.answers import CallPart, Piece, calls_of, piece_of
from tests.served_model.fake_server import called, said
from tests.served_model.scale import BROKEN, RIGHT, WRONG
from tests.served_model.talking import fake_server, in_turn, run, scale_session

pytestmark = pytest.mark.asyncio(loop_scope="module")


def part(number, **more):
    return {"choices": [{"index": 0, "delta": {"tool_calls": [{"index": number, **more}]}, "finish_reason": None}]}


def calls(*events):
    return [*events, said(finish="tool_calls", tokens=20)]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def session(tmp_path_factory):
    async with scale_session(tmp_path_factory.mktemp("scale")) as opened:
        yield opened


@pytest_asyncio.fixture(loop_scope="module")
async def server():
    async with fake_server() as made:
        yield made


def results(server, number):
    """What tools had told by a request, by the ids of their calls."""
    messages = server.bodies[number]["messages"]
    return {one["tool_call_id"]: one["content"] for one in messages if one["role"] == "tool"}


async def test_calls_come_in_parts_and_side_by_side():
    first = [part(0, id="a", function={"name": "check", "arguments": ""}), part(0, function={"arguments": '{"answer'})]
    rest = [part(1, id="b", function={"name": "facts"}), part(0, function={"arguments": '": "x"}'})]
    pieces = [piece_of(event) for event in (*first, *rest)]
    assert calls_of(call for piece in pieces for call in piece.calls) == [
        CallPart(0, "a", "check", '{"answer": "x"}'),
        CallPart(1, "b", "facts", ""),
    ]
    assert piece_of(said("text")) == Piece(text="text")


async def test_a_trial_is_compiled_and_checked_before_the_answer_which_is_judged_once(session, server, monkeypatch):
    in_turn(
        server,
        calls(called("compile", answer=BROKEN), called("check", number=1, answer=WRONG)),
        calls(called("check", answer=RIGHT)),
        RIGHT,
    )
    found, [turn] = await run(session, server, monkeypatch, turns=1, tools=8)
    told = results(server, 1)
    assert told["id-0"].startswith("It does not compile.\nscale.cu:3: error: identifier ")
    assert told["id-1"].startswith("WRONG: ")
    assert "element [0] of output 0 is 1 and should be 0" in told["id-1"]
    assert results(server, 2)["id-0"].startswith("UNTIMED: ")
    offered = {one["function"]["name"] for one in server.bodies[0]["tools"]}
    assert offered == {"compile", "check", "time", "profile", "facts", "sass"}
    assert turn.verdict.verdict == "UNTIMED"
    assert "says the same" not in turn.told, "it answers with what it tried itself"
    assert [one.feedback.verdict for one in found.tried] == ["WRONG", "UNTIMED"]
    prompt = json.loads(turn.turn.prompt)
    assert [message["role"] for message in prompt] == ["user", "assistant", "tool", "tool", "assistant", "tool"]
    assert prompt[1]["tool_calls"][1]["function"]["name"] == "check"


async def test_facts_machine_code_and_counts_of_the_kernel_as_it_stands(session, server, monkeypatch):
    in_turn(
        server,
        calls(
            called("facts"),
            called("sass", number=1),
            called("profile", number=2),
            called("time", number=3, answer=RIGHT),
        ),
        RIGHT,
    )
    await run(session, server, monkeypatch, turns=1, tools=8)
    told = results(server, 1)
    assert "registers a thread" in told["id-0"]
    assert told["id-0"].startswith("scale: ")
    assert "// line 3" in told["id-1"] or "nvdisasm" in told["id-1"]
    assert "line 3: " in told["id-2"]
    assert "sectors a request | if (i < n) y[i] = 3.0f * x[i];" in told["id-2"]
    assert told["id-3"] == "There is no GPU here, so nothing can be timed."


async def test_mistakes_in_calls_are_told_and_a_spent_budget_asks_for_the_answer(session, server, monkeypatch):
    unformed = part(1, id="id-1", function={"name": "check", "arguments": "[1"})
    in_turn(
        server,
        calls(called("run"), unformed, called("compile", number=2, answer="no code")),
        calls(called("facts"), called("facts", number=1)),
        RIGHT,
    )
    _, [turn] = await run(session, server, monkeypatch, turns=1, tools=4)
    told = results(server, 1)
    assert told["id-0"].startswith("There is no tool `run`. There are: compile, ")
    assert told["id-1"] == 'The arguments must be a JSON object such as {"answer": "..."}.'
    assert told["id-2"].startswith("The answer holds no fenced code block.")
    assert results(server, 2)["id-1"].startswith("No further call is answered in this turn.")
    assert [body["tool_choice"] for body in server.bodies] == ["auto", "auto", "none"]
    assert turn.verdict.verdict == "UNTIMED"


async def test_no_tools_are_offered_unless_they_are_allowed(session, server, monkeypatch):
    in_turn(server, RIGHT)
    await run(session, server, monkeypatch, turns=1)
    assert "tools" not in server.bodies[0]
