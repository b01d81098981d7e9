"""A search that ends leaves nothing running: its caller closes the session that the strategy uses."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.refine import search
from kernel_lsp.refine.strategies import Strategy


@pytest.fixture
def strategy(monkeypatch):
    """A strategy that goes on until it is cancelled and then has something to tidy up; what it did, in order."""
    did: list[str] = []

    async def tidy(*_: object) -> None:
        did.append("begun")
        try:
            await asyncio.Event().wait()
        finally:
            await asyncio.sleep(0.05)
            did.append("tidied up")

    bench = SimpleNamespace(settled=lambda: None, finish=lambda _: None, result=SimpleNamespace(cancelled=False))
    monkeypatch.setattr(search, "Workbench", lambda *_, **__: bench)
    monkeypatch.setitem(search.STRATEGIES, "tuner-only", Strategy(tidy))
    return did


SESSION = cast(Any, SimpleNamespace(settings=SimpleNamespace(refine=SimpleNamespace(strategy="tuner-only"))))


@pytest.mark.parametrize("how", ["stopped", "cancelled"])
def test_the_strategy_has_ended_when_the_search_has(strategy, how):
    async def main() -> None:
        stop = asyncio.Event()
        searching = asyncio.create_task(search.refine(SESSION, budget=60.0, stop=stop))
        while not strategy:
            await asyncio.sleep(0)
        if how == "stopped":
            stop.set()
            assert (await searching).cancelled
        else:
            searching.cancel()
            with pytest.raises(asyncio.CancelledError):
                await searching
        assert strategy == ["begun", "tidied up"]

    asyncio.run(main())


def test_what_a_strategy_raises_is_raised(strategy, monkeypatch):
    async def fail(*_: object) -> None:
        raise LookupError("nothing to try")

    monkeypatch.setitem(search.STRATEGIES, "tuner-only", Strategy(fail))
    with pytest.raises(LookupError, match="nothing to try"):
        asyncio.run(search.refine(SESSION, budget=60.0))
