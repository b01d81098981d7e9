"""The client of a model server, against a server that fails in every way."""

import asyncio
import fcntl

import pytest

from kernel_lsp.model import errors
from kernel_lsp.model.answers import Usage
from kernel_lsp.model.client import Limits, ModelClient, Sampling
from kernel_lsp.model.endpoint import Endpoint, endpoint_of
from tests.served_model.fake_server import said

pytestmark = pytest.mark.asyncio
PROMPT = [{"role": "user", "content": "Make it faster"}]
QUICK = Limits(first=0.3, silence=0.2, total=5.0, asleep=0.5, reasoning_tokens=20)


def endpoint(fake, **changes):
    return Endpoint(**{"model": "tiny", "uds": fake.socket, "key": fake.key} | changes)


async def answered(fake, sampling=Sampling(), limits=QUICK, **changes):  # noqa: B008
    """All pieces, and the error that came after them."""
    pieces = []
    async with ModelClient(endpoint(fake, **changes), limits) as client:
        try:
            async for piece in client.stream(PROMPT, sampling):
                pieces.append(piece)  # noqa: PERF401 - what came before an error counts
        except errors.ModelError as error:
            return pieces, error
    return pieces, None


async def test_an_answer_comes_in_pieces_of_reasoning_and_text(fake):
    fake.answer = [
        said(reasoning="hm", tokens=1),
        said("x = ", tokens=2),
        said("1", tokens=3),
        said(finish="stop"),
        "[DONE]",
    ]
    pieces, error = await answered(fake, Sampling(temperature=0.9, top_p=0.95, max_tokens=16, seed=4))
    assert error is None
    assert "".join(p.reasoning for p in pieces) == "hm"
    assert "".join(p.text for p in pieces) == "x = 1"
    assert pieces[2].usage == Usage(3, 3)
    assert pieces[-1].finish == "stop"
    wanted = {"model": "tiny", "temperature": 0.9, "top_p": 0.95, "max_tokens": 16, "seed": 4, "stream": True}
    assert wanted.items() <= fake.body.items()
    assert "stop" not in fake.body


async def test_what_is_not_asked_for_is_left_to_the_server(fake):
    fake.answer = [said("x", finish="stop")]
    await answered(fake)
    assert set(fake.body) == {"model", "messages", "stream", "stream_options"}


async def test_a_short_request_does_not_wait_for_a_hundred_answers(fake):
    fake.answer = [said("x"), "hang"]
    async with ModelClient(endpoint(fake)) as client:

        async def begun(number):
            async for _ in client.stream(PROMPT, Sampling(seed=number)):
                reached.release()

        reached = asyncio.Semaphore(0)
        answers = [asyncio.create_task(begun(number)) for number in range(128)]
        async with asyncio.timeout(20):
            for _ in answers:
                await reached.acquire()
            assert await client.count_tokens(PROMPT) == 7
        for answer in answers:
            answer.cancel()
        await asyncio.gather(*answers, return_exceptions=True)


async def test_server_crash_in_the_middle_of_an_answer(fake):
    fake.answer = [said("x"), "die"]
    pieces, error = await answered(fake)
    assert [p.text for p in pieces] == ["x"]
    assert isinstance(error, errors.ServerCrashedError)
    assert "went away in the middle of an answer" in str(error)


async def test_an_engine_that_dies_says_so_in_the_stream(fake):
    fake.answer = [said("x"), {"error": {"message": "EngineDeadError: EngineCore died", "code": 500}}, "[DONE]"]
    assert isinstance((await answered(fake))[1], errors.ServerCrashedError)


async def test_a_stream_that_ends_without_an_end_is_a_crash(fake):
    fake.answer = [said("x")]
    assert isinstance((await answered(fake))[1], errors.ServerCrashedError)


@pytest.mark.parametrize(("steps", "waited"), [(["hang"], "0.3"), ([said("x"), "hang"], "0.2")])
async def test_a_silent_server_is_not_waited_for_forever(fake, steps, waited):
    fake.answer = steps
    _, error = await answered(fake)
    assert isinstance(error, errors.AnswerTimedOutError)
    assert f"said nothing for {waited} s" in str(error)


async def test_a_slow_answer_ends_with_its_time(fake):
    fake.answer = [step for _ in range(30) for step in (said("x"), 0.05)]
    _, error = await answered(fake, limits=Limits(first=1.0, silence=1.0, total=0.3))
    assert isinstance(error, errors.AnswerTimedOutError)
    assert "was not done for 0.3 s" in str(error)


async def test_silence_while_the_judge_times_does_not_count(fake, keep):
    server = keep(fake)
    fake.answer = [said("x"), 0.6, said("y", finish="stop")]
    (server.folder / "paused").touch()
    with (server.folder / "gate").open("w") as gate:
        fcntl.flock(gate, fcntl.LOCK_EX)
        pieces, error = await answered(fake, folder=server.folder)
    assert error is None
    assert "".join(p.text for p in pieces) == "xy"


async def test_cut_off_answer(fake):
    fake.answer = [said("x"), said("y", finish="length")]
    pieces, error = await answered(fake, Sampling(max_tokens=1000))
    assert "".join(p.text for p in pieces) == "xy"
    assert isinstance(error, errors.CutOffError)
    assert "cut off at 1,000 tokens" in str(error)


async def test_endless_reasoning_is_stopped(fake):
    fake.answer = [said(reasoning="hm ", tokens=n) for n in range(1, 100)]
    pieces, error = await answered(fake)
    assert isinstance(error, errors.EndlessReasoningError)
    assert "still reasoning after 21 tokens" in str(error)
    assert len(pieces) == 21


async def test_reasoning_that_spends_all_tokens_is_endless_too(fake):
    fake.answer = [said(reasoning="hm "), said(reasoning="hm ", finish="length")]
    assert isinstance((await answered(fake))[1], errors.EndlessReasoningError)


async def test_long_text_after_short_reasoning_is_no_endless_reasoning(fake):
    fake.answer = [said(reasoning="hm "), *[said("x", tokens=n) for n in range(2, 50)], said(finish="stop")]
    assert (await answered(fake))[1] is None


async def test_sleeping_server_is_not_asked(fake):
    fake.routes["/is_sleeping"] = (200, '{"is_sleeping": true}')
    _, error = await answered(fake)
    assert isinstance(error, errors.AsleepError)
    assert "model.reserve" in str(error)
    assert "/v1/chat/completions" not in fake.asked


async def test_server_that_wakes_in_time_answers(fake):
    fake.routes["/is_sleeping"] = (200, '{"is_sleeping": true}')
    fake.answer = [said("x", finish="stop")]
    asyncio.get_running_loop().call_later(0.2, fake.routes.update, {"/is_sleeping": (200, '{"is_sleeping": false}')})
    assert (await answered(fake))[1] is None


async def test_server_that_cannot_sleep_is_asked_once(fake):
    del fake.routes["/is_sleeping"]
    fake.answer = [said("x", finish="stop")]
    async with ModelClient(endpoint(fake)) as client:
        for _ in range(2):
            assert [p.text async for p in client.stream(PROMPT, Sampling())] == ["x"]
    assert fake.asked.count("/is_sleeping") == 1


async def test_wrong_key(fake):
    _, error = await answered(fake, key="another")
    assert isinstance(error, errors.WrongKeyError)
    assert "model.key_variable" in str(error)
    assert "another" not in str(error)
    assert "another" not in repr(endpoint(fake, key="another"))


async def test_refused_connection(fake, tmp_path):
    _, error = await answered(fake, uds=tmp_path / "nobody")
    assert isinstance(error, errors.RefusedConnectionError)
    assert "kernel-lsp model serve" in str(error)
    _, error = await answered(fake, uds=None, url="http://127.0.0.1:9")
    assert isinstance(error, errors.RefusedConnectionError)


@pytest.mark.parametrize(
    ("refusal", "kind"),
    [
        ((404, "The model `tiny` does not exist."), errors.NotServedError),
        ((400, "This model's maximum context length is 4096 tokens."), errors.PromptTooLongError),
        ((400, "temperature must be non-negative"), errors.ServerSaidError),
        ((503, "EngineCore encountered an issue"), errors.ServerCrashedError),
    ],
)
async def test_refusals_by_name(fake, refusal, kind):
    fake.refusal = refusal
    assert type((await answered(fake))[1]) is kind


async def test_leaving_an_answer_ends_the_request(fake):
    fake.answer = [said("x"), "hang"]
    async with ModelClient(endpoint(fake), QUICK) as client:
        async for _ in (pieces := client.stream(PROMPT, Sampling())):
            break
        await pieces.aclose()
    await asyncio.wait_for(fake.left.wait(), 2.0)


async def test_models_and_tokens(fake):
    async with ModelClient(endpoint(fake)) as client:
        assert await client.models() == ("tiny", "other")
        assert await client.count_tokens("abc") == 7
        assert await client.count_tokens(PROMPT) == 7


async def test_tokens_are_estimated_where_a_server_cannot_count(fake):
    del fake.routes["/tokenize"]
    async with ModelClient(endpoint(fake)) as client:
        assert await client.count_tokens("x" * 298) == 100


async def test_many_answers_at_once(fake, keep):
    server = keep(fake)
    fake.answer = [said("x"), 0.1, said("y", finish="stop")]
    async with ModelClient(endpoint_of(server)) as client:

        async def one():
            return "".join([p.text async for p in client.stream(PROMPT, Sampling())])

        assert await asyncio.gather(*(one() for _ in range(8))) == ["xy"] * 8
