"""Model servers and the judge taking turns on a GPU, whoever dies meanwhile."""

import asyncio
import json
import sys

import pytest

from kernel_lsp.model import gate
from kernel_lsp.model.client import Limits, ModelClient, Sampling
from kernel_lsp.model.endpoint import endpoint_of
from kernel_lsp.model.gate import Quiet
from kernel_lsp.model.servers import running
from tests.served_model.fake_server import said

pytestmark = pytest.mark.asyncio
PROMPT = [{"role": "user", "content": "Make it faster"}]
GIB = 2**30


async def other_process(code):
    """A process that runs `code` within `gate`, and says so when it is in."""
    program = f"import asyncio\nfrom kernel_lsp.model import gate\nasync def main():\n{code}\nasyncio.run(main())"
    process = await asyncio.create_subprocess_exec(sys.executable, "-c", program, stdout=asyncio.subprocess.PIPE)
    assert await process.stdout.readline() == b"in\n"
    return process


HOLD = "  async with gate.quiet('GPU-0'):\n    print('in', flush=True); await asyncio.sleep(60)"
BED = "  async with gate.asleep('GPU-0', wanted=2, free=1):\n    print('in', flush=True); await asyncio.sleep(60)"


async def test_server_is_paused_for_a_timed_block(fake, keep):
    server = keep(fake)
    async with gate.quiet("GPU-0") as quieted:
        assert [(q.server.name, q.how) for q in quieted] == [("tiny", Quiet.PAUSED)]
        assert fake.commands() == ["/pause"]
        assert "/pause?mode=keep&clear_cache=false" in fake.asked
        assert gate.is_held(server.folder)
    assert fake.commands() == ["/pause", "/resume"]
    assert not gate.is_held(server.folder)


async def test_it_is_resumed_when_the_judge_fails(fake, keep):
    keep(fake)
    with pytest.raises(ZeroDivisionError):
        async with gate.quiet("GPU-0"):
            raise ZeroDivisionError
    assert fake.commands() == ["/pause", "/resume"]


async def test_a_server_on_another_gpu_is_let_be(fake, keep):
    keep(fake, gpus=("GPU-1",))
    async with gate.quiet("GPU-0") as quieted:
        assert quieted == ()
    assert fake.commands() == []


async def test_two_judges_take_turns(fake, keep):
    server = keep(fake)
    other = await other_process(HOLD)

    async def second():
        async with gate.quiet("GPU-0"):
            return fake.commands()

    waiting = asyncio.create_task(second())
    await asyncio.sleep(0.3)
    assert not waiting.done()
    other.kill()  # and leaves it paused
    assert await asyncio.wait_for(waiting, 5) == ["/pause", "/pause"]
    assert fake.commands() == ["/pause", "/pause", "/resume"]
    assert not (server.folder / "paused").exists()
    await other.wait()


async def test_what_a_killed_judge_left_paused_is_resumed(fake, keep):
    server = keep(fake)
    judge = await other_process(HOLD)
    assert gate.is_held(server.folder)
    assert not await gate.revive(server.folder), "a live judge's pause is not undone"
    judge.kill()
    await judge.wait()
    assert not gate.is_held(server.folder)
    assert await gate.revive(server.folder)
    assert fake.commands() == ["/pause", "/resume"]
    assert not await gate.revive(server.folder)


async def test_a_client_wakes_what_a_killed_judge_left_asleep(fake, keep):
    server = keep(fake, sleeps=True)
    judge = await other_process(BED)
    judge.kill()
    await judge.wait()
    fake.routes["/is_sleeping"] = (200, '{"is_sleeping": true}')
    fake.answer = [said("x", finish="stop")]

    async def wake():
        while "/wake_up" not in fake.asked:
            await asyncio.sleep(0.01)
        fake.routes["/is_sleeping"] = (200, '{"is_sleeping": false}')

    waking = asyncio.create_task(wake())
    async with ModelClient(endpoint_of(server), Limits(asleep=5.0)) as client:
        assert [p.text async for p in client.stream(PROMPT, Sampling())] == ["x"]
    await waking


async def test_a_server_that_went_away_does_not_stop_the_judge(fake, keep):
    keep(fake)
    await fake.close()
    async with gate.quiet("GPU-0") as (quieted,):
        assert quieted.how is Quiet.BUSY, "its keeper lives, so nobody knows what it does"


async def test_a_server_that_will_not_pause_counts_as_busy(fake, keep):
    keep(fake)
    fake.routes["/pause"] = (500, '{"error": "Failed to pause generation"}')
    async with gate.quiet("GPU-0") as (quieted,):
        assert quieted.how is Quiet.BUSY


async def test_where_nothing_can_be_paused_the_end_of_answers_is_waited_for(fake, keep):
    server = keep(fake, pauses=False)
    fake.answer = [said("x"), 0.4, said("y", finish="stop")]
    order = []

    async def generate(mark):
        async with ModelClient(endpoint_of(server)) as client:
            async for _ in client.stream(PROMPT, Sampling()):
                pass
        order.append(mark)

    first = asyncio.create_task(generate("first"))
    await asyncio.sleep(0.2)

    async def judge():
        async with gate.quiet("GPU-0") as (quieted,):
            assert quieted.how is Quiet.IDLE
            order.append("judge")

    judging = asyncio.create_task(judge())
    await asyncio.sleep(0.1)
    second = asyncio.create_task(generate("second"))
    await asyncio.gather(first, judging, second)
    assert order == ["first", "judge", "second"]
    assert fake.commands() == []


async def test_others_requests_are_waited_for_too(fake, keep):
    keep(fake, pauses=False)
    fake.routes["/metrics"] = (200, 'vllm:num_requests_running{engine="0"} 2.0\n')
    idle = {"/metrics": (200, 'vllm:num_requests_running{engine="0"} 0.0\n')}
    asyncio.get_running_loop().call_later(0.2, fake.routes.update, idle)
    async with gate.quiet("GPU-0") as (quieted,):
        assert quieted.how is Quiet.IDLE
    assert fake.asked.count("/metrics") > 1


async def test_it_sleeps_only_where_memory_lacks(fake, keep):
    keep(fake, sleeps=True)
    async with gate.asleep("GPU-0", wanted=3 * GIB, free=3 * GIB) as slept:
        assert slept == ()
    assert fake.commands() == []
    async with gate.asleep("GPU-0", wanted=3 * GIB, free=2 * GIB) as slept:
        assert [server.name for server in slept] == ["tiny"]
        assert "/sleep?level=1&mode=keep" in fake.asked
    assert fake.commands() == ["/sleep", "/wake_up"]


async def test_it_wakes_when_the_last_one_is_done(fake, keep):
    keep(fake, sleeps=True)
    other = await other_process(BED)
    async with gate.asleep("GPU-0", wanted=2, free=1):
        pass
    assert "/wake_up" not in fake.commands()
    async with gate.asleep("GPU-0", wanted=2, free=1):
        other.kill()
        await other.wait()
    assert fake.commands()[-1] == "/wake_up"


async def test_a_sleeping_server_is_not_resumed_by_a_timed_block(fake, keep):
    keep(fake, sleeps=True)
    async with gate.asleep("GPU-0", wanted=2, free=1), gate.quiet("GPU-0") as (quieted,):
        assert quieted.how is Quiet.ASLEEP
    assert fake.commands() == ["/sleep", "/wake_up"]


async def test_a_record_without_its_keeper_is_not_believed(fake, keep):
    server = keep(fake)
    assert running() == (server,)
    (server.folder / "kept").unlink()
    assert running() == ()


async def test_the_key_is_for_the_user_alone(fake, keep):
    server = keep(fake)
    record = server.folder / "server.json"
    assert record.stat().st_mode & 0o077 == 0
    assert json.loads(record.read_text())["key"] == fake.key
    assert fake.key not in repr(server)
