"""A real vLLM on the CPU: served, asked, paused, killed. Its model has learned its answers by heart."""

import asyncio
import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pytest
from kernel_model_server import launch

from kernel_lsp.config.load import load_settings
from kernel_lsp.learn.adapters import known_adapters, remove_adapter
from kernel_lsp.model import errors, gate
from kernel_lsp.model.adapters import (
    Adapter,
    AdapterCard,
    adapter_folder,
    base_identity,
    content_of,
    find_adapter,
    write_card,
)
from kernel_lsp.model.client import Limits, ModelClient, Sampling
from kernel_lsp.model.endpoint import endpoint_of, find_endpoint
from kernel_lsp.model.gate import Quiet
from kernel_lsp.model.servers import read_server, running
from tests.served_model.fixture import VLLM_PYTHON, Learned, learned_model, needs_vllm

pytestmark = [*needs_vllm, pytest.mark.asyncio(loop_scope="function"), pytest.mark.timeout(900)]

KERNEL = """```python
@triton.jit
def add_kernel(x_ptr, y_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out_ptr + offs, tl.load(x_ptr + offs, mask=mask) + tl.load(y_ptr + offs, mask=mask), mask=mask)
```
"""
ADD = [{"role": "user", "content": "Make add_kernel faster"}]
SCAN = [{"role": "user", "content": "Think about scan_kernel"}]
LEARNED = [
    Learned((("user", "Make add_kernel faster"),), "The block is small; use a larger one.", KERNEL),
    Learned((("user", "Think about scan_kernel"),), "Or maybe not. " * 60, None),
]
GREEDY = Sampling(temperature=0.0, max_tokens=400)


@pytest.fixture(scope="module")
def settings():
    return load_settings(overrides={"model.python": VLLM_PYTHON})[0]


@pytest.fixture(scope="module")
def folder():
    return learned_model(LEARNED)


@pytest.fixture(scope="module")
def server(settings, folder):
    """A server that all tests share; it counts as one on the GPU `GPU-0`."""
    runtime = Path(tempfile.mkdtemp(prefix="kl-"))
    before = os.environ.get("XDG_RUNTIME_DIR")
    os.environ["XDG_RUNTIME_DIR"] = str(runtime)
    planned = replace(launch.plan(str(folder), settings, adapters={"other": folder / "adapter"}), name="tiny")
    kept = launch.start(planned, attached=True)
    heard = []
    try:
        yield launch.wait_until_ready(kept, heard.append, seconds=600)
        assert [h.share for h in heard] == sorted(h.share for h in heard)
        assert heard[-1].share > 0.5
    finally:
        launch.stop(kept)
        shutil.rmtree(runtime)
        os.environ.pop("XDG_RUNTIME_DIR")
        if before is not None:
            os.environ["XDG_RUNTIME_DIR"] = before


async def answer(endpoint, messages=ADD, sampling=GREEDY, limits=Limits()):  # noqa: B008
    reasoning = text = ""
    async with ModelClient(endpoint, limits) as client:
        async for piece in client.stream(messages, sampling):
            reasoning, text = reasoning + piece.reasoning, text + piece.text
    return reasoning.strip(), text.strip()


async def test_it_says_what_it_has_learned(server, settings):
    learned = LEARNED[0]
    for sampling in (GREEDY, Sampling(temperature=0.9, top_p=0.95, max_tokens=400)):
        assert await answer(find_endpoint(settings), sampling=sampling) == (learned.reasoning, learned.answer.strip())


@pytest.mark.thorough
async def test_adapters_from_the_start(server):
    by_heart = await answer(endpoint_of(server))
    with contextlib.suppress(errors.CutOffError, errors.EndlessReasoningError):
        assert await answer(endpoint_of(server, "other")) != by_heart
    async with ModelClient(endpoint_of(server)) as client:
        assert await client.models() == ("tiny", "other")


@pytest.mark.thorough
async def test_an_adapter_comes_and_goes_while_it_runs(server, folder, tmp_path):
    by_heart = await answer(endpoint_of(server))
    said = []
    for weights in (folder / "adapter", _halved(folder / "adapter", tmp_path / "other")):  # retrained under its name
        adapter = _trained(weights, tmp_path / "data", base_identity(folder))
        wanted = {"model.adapter": "mine", "paths.data": tmp_path / "data"}
        endpoint = find_endpoint(load_settings(overrides=wanted)[0])
        async with ModelClient(endpoint) as client:
            said.append((await client.draw(ADD, replace(GREEDY, max_tokens=40))).tokens)
            assert adapter.served in await client.models()
    async with ModelClient(endpoint_of(server)) as client:
        said.append((await client.draw(ADD, replace(GREEDY, max_tokens=40))).tokens)
    assert len(set(said)) == 3, "no prefix of other weights is used again"
    [known] = await known_adapters(tmp_path / "data")
    assert known.loaded == ("tiny",)
    await remove_adapter(tmp_path / "data", "mine")
    async with ModelClient(endpoint_of(server)) as client:
        assert await client.models() == ("tiny", "other")
    with pytest.raises(errors.NotServedError):
        await answer(replace(endpoint, adapter=None))
    assert await answer(endpoint_of(server)) == by_heart


def _trained(weights: Path, data: Path, base: str) -> Adapter:
    shutil.copytree(weights, adapter_folder(data, "mine") / "adapter", dirs_exist_ok=True)
    card = AdapterCard(name="mine", method="sft", base=base, rank=8, kernels=(), content=content_of(weights))
    write_card(adapter_folder(data, "mine"), card)
    return find_adapter(data, "mine")


def _halved(adapter: Path, into: Path) -> Path:
    """The same adapter with half the effect."""
    shutil.copytree(adapter, into)
    config = json.loads((into / "adapter_config.json").read_text())
    (into / "adapter_config.json").write_text(json.dumps(config | {"lora_alpha": config["lora_alpha"] / 2}))
    return into


@pytest.mark.thorough
async def test_an_answer_is_drawn_with_its_tokens(server):
    async with ModelClient(endpoint_of(server)) as client:
        drawn = await client.draw(ADD, GREEDY)
        assert len(drawn.prompt) == await client.count_tokens(ADD)
        cut_off = await client.draw(ADD, replace(GREEDY, max_tokens=12))
    assert (drawn.reasoning.strip(), drawn.text.strip()) == await answer(endpoint_of(server))
    assert drawn.complete
    assert len(drawn.tokens) == len(drawn.logprobs)
    assert -1 < min(drawn.logprobs) <= max(drawn.logprobs) <= 0, "it knows the answer by heart"
    assert not cut_off.complete
    assert cut_off.tokens == drawn.tokens[:12]


async def test_tokens_are_the_models_own(server):
    async with ModelClient(endpoint_of(server)) as client:
        text, chat = await client.count_tokens(ADD[0]["content"]), await client.count_tokens(ADD)
    assert 1 < text < len(ADD[0]["content"])
    assert chat > text


async def test_wrong_key_for_a_real_server(server):
    with pytest.raises(errors.WrongKeyError):
        await answer(replace(endpoint_of(server), key="another"))


async def test_what_is_not_served(server):
    with pytest.raises(errors.NotServedError, match="nobody"):
        await answer(endpoint_of(server, "nobody"))


async def test_prompt_that_is_too_long(server):
    with pytest.raises(errors.PromptTooLongError):
        await answer(endpoint_of(server), [{"role": "user", "content": "x = 1\n" * 20000}])


async def test_answer_that_is_cut_off(server):
    with pytest.raises(errors.CutOffError, match="60 tokens"):
        await answer(endpoint_of(server), sampling=replace(GREEDY, max_tokens=60))


async def test_reasoning_that_never_ends(server):
    with pytest.raises(errors.EndlessReasoningError):
        await answer(endpoint_of(server), SCAN, replace(GREEDY, max_tokens=10000), Limits(reasoning_tokens=200))
    await drained(server)


async def test_an_answer_that_nobody_waits_for_is_not_written(server):
    async with ModelClient(endpoint_of(server)) as client:
        pieces = client.stream(SCAN, replace(GREEDY, max_tokens=10000))
        async for _ in pieces:
            break
        await pieces.aclose()
    await drained(server)


@pytest.mark.thorough
async def test_a_timed_block_freezes_an_answer_and_lets_it_go_on(server):
    """Nothing is written meanwhile, and what is said is the same."""
    sampling = Sampling(temperature=0.0, max_tokens=600)
    times = []

    async def generate():
        said = ""
        async with ModelClient(endpoint_of(server), Limits(silence=3.0)) as client:
            with contextlib.suppress(errors.EndlessReasoningError):
                async for piece in client.stream(SCAN, sampling):
                    times.append(time.monotonic())
                    said += piece.reasoning
        return said

    undisturbed = await generate()
    times.clear()
    generating = asyncio.create_task(generate())
    while len(times) < 5:
        await asyncio.sleep(0.001)
    async with gate.quieted(server) as quieted:
        assert quieted.how is Quiet.PAUSED
        paused = time.monotonic()
        await asyncio.sleep(4)
        assert not [t for t in times if t > paused + 1], "it generated while it was paused"
    assert await generating == undisturbed


async def test_the_keeper_resumes_what_a_killed_judge_left_paused(server):
    code = (
        "import asyncio, sys; from pathlib import Path\n"
        "from kernel_lsp.model import gate; from kernel_lsp.model.servers import read_server\n"
        "async def main():\n"
        "  async with gate.quieted(read_server(Path(sys.argv[1]))): print('in', flush=True); await asyncio.sleep(60)\n"
        "asyncio.run(main())"
    )
    judge = subprocess.Popen([sys.executable, "-c", code, server.folder], stdout=subprocess.PIPE)
    assert judge.stdout.readline() == b"in\n"
    generating = asyncio.create_task(answer(endpoint_of(server)))
    await asyncio.sleep(1.0)
    assert not generating.done()
    judge.kill()
    judge.wait()
    assert (await asyncio.wait_for(generating, 10))[1] == LEARNED[0].answer.strip()
    assert not (server.folder / "paused").exists()


@pytest.mark.thorough
async def test_starting_it_again_takes_the_one_that_runs(server, settings, folder):
    again = launch.start(replace(launch.plan(str(folder), settings), name="tiny"))
    assert launch.wait_until_ready(again) == server


@pytest.mark.thorough
async def test_crash_in_the_middle_of_an_answer_from_the_command_line_on(runtime, folder):
    """Served by the command, seen by another, killed: the client says so, the keeper tidies up, the command ends."""
    environment = os.environ | {"KERNEL_LSP_MODEL_PYTHON": str(VLLM_PYTHON)}
    program = [sys.executable, "-c", "from kernel_lsp.cli.main import main; main()", "model"]
    serving = subprocess.Popen(
        [*program, "serve", str(folder), "--attached"], env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    try:
        line = await asyncio.to_thread(serving.stdout.readline)
        assert b"ready at" in line, serving.stderr.read().decode()
        (server,) = running()
        seen = json.loads(subprocess.check_output([*program, "status", "--json"], env=environment))
        assert [(s["name"], s["key"]) for s in seen] == [(server.name, None)]
        generating = asyncio.create_task(answer(endpoint_of(server), SCAN, replace(GREEDY, max_tokens=12000)))
        await asyncio.sleep(1.0)
        os.kill(server.pid, signal.SIGKILL)
        with pytest.raises(errors.ServerCrashedError, match="went away in the middle of an answer") as caught:
            await generating
        assert str(server.folder / "log") in str(caught.value)
        with pytest.raises(errors.RefusedConnectionError):
            await answer(endpoint_of(server))
        assert await asyncio.to_thread(serving.wait, 30) == 2
        assert b"The model server ended" in serving.stderr.read()
        assert read_server(server.folder) is None
    finally:
        serving.kill()
        serving.communicate()


async def drained(server):
    """Wait until the server works on nothing."""
    for _ in range(100):
        if not await gate.requests_running(server):
            return
        await asyncio.sleep(0.05)
    raise AssertionError("the server is still working on a request that was given up")
