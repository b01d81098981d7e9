"""A plain module on a GPU, with a model that answers as it is told: what is faster than PyTorch becomes a new file."""

import asyncio
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from judges import CommandLine

from tests.served_model.fake_server import FakeServer, called
from tests.served_model.fake_server import said as piece
from tests.served_model.module import PROBLEM, RIGHT, code_of
from tests.served_model.talking import answered, fake_server

pytestmark = pytest.mark.gpu

# PyTorch takes three passes over 64 MiB, the answer one.
MODULE = PROBLEM.replace("3 * x", "torch.relu(3 * x + 1)").replace("size = 40", "size = 1 << 24")
MODULE = MODULE.replace("torch.arange(size, dtype=torch.float32)", "torch.randn(size)")
FUSED = RIGHT.replace("x[i] * 3.0f", "fmaxf(x[i] * 3.0f + 1.0f, 0.0f)").replace("63) / 64, 64", "255) / 256, 256")
# Two passes, none of them by its kernel: only what a race finds faster is judged in full, which shows it.
CHEAT = FUSED.replace("return op.run(x)", "return x.new_ones(()).add(x, alpha=3).relu_()")
WORSE = FUSED.replace("<<<(n + 255) / 256, 256>>>", "<<<n, 1>>>").replace("blockDim.x + threadIdx.x", "1")


@contextmanager
def served(*answers: str | list[dict[str, Any]]) -> Iterator[FakeServer]:
    """A server that gives these answers in turn, texts or their events, in a thread with a loop of its own."""
    started, ended = threading.Event(), threading.Event()
    made: list[FakeServer] = []

    async def serve() -> None:
        async with fake_server() as server:
            given = iter(answers)
            server.reply = lambda _: a if isinstance(a := next(given), list) else answered(a)
            made.append(server)
            started.set()
            await asyncio.to_thread(ended.wait)

    thread = threading.Thread(target=lambda: asyncio.run(serve()))
    thread.start()
    try:
        assert started.wait(10)
        yield made[0]
    finally:
        ended.set()
        thread.join()


def asking(server: FakeServer, turns: int) -> dict[str, str]:
    """Settings under which the server alone is asked."""
    return {
        "KERNEL_LSP_MODEL_ENDPOINT": f"unix:{server.socket}",
        "KERNEL_LSP_MODEL_NAME": "tiny",
        "KERNEL_LSP_MODEL_PROFILE": "kevin-32b",
        "KERNEL_LSP_REFINE_STRATEGY": "serial",
        "KERNEL_LSP_REFINE_TRAJECTORIES": "1",
        "KERNEL_LSP_REFINE_TURNS": str(turns),
    }


def test_what_is_faster_than_pytorch_becomes_a_new_file(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    module, made = tmp_path / "chain.py", tmp_path / "chain_cuda.py"
    module.write_text(MODULE)
    with served(CHEAT, WORSE, FUSED) as server:
        call = ("refine", "chain.py", "--write", "cuda", "--budget", "90s", "--apply")
        out, said = kernel_lsp(*call, **asking(server, 3)).communicate(timeout=240)
        messages = [message["content"] for message in server.bodies[2]["messages"]]
    assert "FASTER" in out, said
    assert "chain_cuda.py" in said
    assert "fmaxf" in made.read_text()
    assert module.read_text() == MODULE
    assert "was incorrect" in messages[2], "a kernel that never runs is no kernel"
    assert "It runs at 0." in messages[4]


def test_an_answer_is_refined_in_its_own_file(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(MODULE)
    answer = tmp_path / "chain_cuda.py"
    answer.write_text(code_of(WORSE))
    with served(FUSED) as server:
        call = ("refine", "chain_cuda.py", "--budget", "70s", "--apply")
        out, said = kernel_lsp(*call, **asking(server, 1)).communicate(timeout=240)
        messages = [message["content"] for message in server.bodies[0]["messages"]]
    assert "FASTER" in out, said
    assert code_of(WORSE).strip() in messages[1]
    assert "blockIdx.x * blockDim.x + threadIdx.x" in answer.read_text()


def test_a_model_times_a_trial_with_its_tools_and_answers_with_it(kernel_lsp: CommandLine, tmp_path: Path) -> None:
    (tmp_path / "chain.py").write_text(MODULE)
    trials = [called("check", answer=FUSED), called("time", number=1, answer=FUSED)]
    looks = [called("profile", number=2, answer=FUSED), called("time", number=3)]
    with served([*trials, *looks, piece(finish="tool_calls")], FUSED) as server:
        call = ("refine", "chain.py", "--write", "cuda", "--budget", "120s", "--json")
        out, told = kernel_lsp(*call, **asking(server, 1), KERNEL_LSP_REFINE_TOOLS="8").communicate(timeout=240)
        messages = {one.get("tool_call_id"): one["content"] for one in server.bodies[1]["messages"]}
    assert messages["id-0"].startswith("UNTIMED: It is right. It was not timed."), told
    assert "times the speed of the baseline" in messages["id-1"]
    assert "sectors a request" in messages["id-2"] or "cannot run" in messages["id-2"]
    assert messages["id-3"].startswith("That is the kernel as it stands")
    assert json.loads(out)["found"], "the trial that was timed is the answer"
