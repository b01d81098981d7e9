"""One event loop and one pool for all tests of this folder: a zygote takes seconds to import torch."""

import asyncio
import contextlib

import pytest
from runner_support import SECONDS, bind_nothing

from kernel_lsp.runner.messages.subject import Load
from kernel_lsp.runner.pool import Flavour, Pool


@pytest.fixture(scope="session")
def run():
    """Runs a coroutine to its end, in a loop that lives as long as the pool."""
    pytest.importorskip("torch")
    pytest.importorskip("triton")
    with asyncio.Runner() as runner:
        yield runner.run


@pytest.fixture(scope="session")
def pool(run):
    """A pool whose emulating zygote has started."""
    made = Pool()

    async def start() -> None:
        made.preload(Flavour.EMULATE)

    run(start())
    yield made
    run(made.close())


@pytest.fixture
def subject(pool, run):
    """Starts workers under test that have loaded a Python text; they are killed when the test is over."""
    with contextlib.ExitStack() as stack:

        async def start(text: str, path: str = "/home/me/kernel.py", launch_text: str | None = None):
            worker = await pool.worker(Flavour.EMULATE, "subject", device="cpu")
            stack.callback(worker.kill)
            load = Load(path=path, text=text, launch_path=path, launch_text=launch_text)
            await worker.ask(load, deadline=SECONDS)
            await bind_nothing(worker)
            return worker

        yield start
