"""A confirmed gain is looked at while it is under a steady load: neither goes on behind the back of whoever waits."""

import asyncio
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_lsp.judge.correctness import Failure

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge.session import Judgement, Remeasured, Session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.shield import both

SAXPY = Path(__file__).parents[3] / "examples" / "cuda" / "saxpy.cu"
GAIN = Remeasured(Failure(Outcome.FASTER, Stage.TIMED, "1.5x"), (1.5, (1.4, 1.6)))


class Looks:
    """A session whose looks only note when they begin and end, and whose steady load may fail."""

    def __init__(self, *, large: bool = False, error: Exception | None = None) -> None:
        self.noted: list[str] = []
        self._error = error
        self._session = Session(cast(Any, None), make_target(SAXPY), Settings(), None)
        self._session.__dict__.update(_last_look=self._look, _load_steadily=self._load)
        self._measured = SimpleNamespace(bench=SimpleNamespace(large=large, leave=self._leave))

    async def closer(self) -> Failure:
        case = Judgement(self._session.target.baseline)
        return await self._session._look_closer(case, cast(Any, self._measured), cast(Any, "AB"), cast(Any, "B"), GAIN)

    async def _look(self, *_: object) -> None:
        self.noted.append("look")
        try:
            await asyncio.sleep(0.05)
        finally:
            await asyncio.sleep(0.01)  # its worker is let go of
            self.noted.append("looked")

    async def _load(self, *_: object) -> None:
        self.noted.append("load")
        await asyncio.sleep(0.01)
        if self._error is not None:
            raise self._error
        self.noted.append("loaded")

    async def _leave(self, version: str) -> None:
        self.noted.append(f"left {version}")


def test_the_look_has_ended_when_the_load_fails():
    looks = Looks(error=WorkerFailure("RuntimeError", "no", ""))

    async def failed() -> list[str]:
        with pytest.raises(WorkerFailure):
            await looks.closer()
        return list(looks.noted)

    assert asyncio.run(failed()) == ["look", "load", "looked"]


def test_side_by_side_where_there_is_memory_for_both():
    looks = Looks()
    assert asyncio.run(looks.closer()) == GAIN.found
    assert looks.noted == ["look", "load", "loaded", "looked"]


def test_memory_of_what_was_timed_is_free_before_a_look_that_needs_it():
    looks = Looks(large=True)
    assert asyncio.run(looks.closer()) == GAIN.found
    assert looks.noted == ["load", "loaded", "left A", "left B", "look", "looked"]


def test_a_cancelled_pair_is_cancelled_once_and_ends_first():
    ended: list[str] = []

    async def work(name: str, cleaning: float) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(cleaning)
            ended.append(name)

    async def cancelled() -> list[str]:
        pair = asyncio.create_task(both(work("quick", 0.0), work("slow", 0.02)))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        pair.cancel()
        with pytest.raises(asyncio.CancelledError):
            await pair
        return list(ended)

    assert asyncio.run(cancelled()) == ["quick", "slow"]
