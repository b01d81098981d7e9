"""Searches where judging takes much of the GPU's memory: races hold one candidate for each GPU."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.refine.workbench import Workbench


class Numbers:
    """A proposer of ten candidates, which counts how many it is asked for at once."""

    def __init__(self) -> None:
        self.left, self.asked = 10, list[int]()

    async def next(self, budget: int) -> list[Any]:
        self.asked.append(budget)
        found = [SimpleNamespace(digest=str(self.left - n)) for n in range(min(budget, self.left))]
        self.left -= len(found)
        return found


class Bench(Workbench):
    """A workbench whose session is made up of whether its kernel is large."""

    def __init__(self, *, large: bool, others: int) -> None:
        harness = SimpleNamespace(large=large)
        self.session = cast(Any, SimpleNamespace(measured=SimpleNamespace(harness=harness)))
        self._others, self._seen, self._counts = cast(Any, (None,) * others), set(), {"proposed": 0}


@pytest.mark.parametrize(("large", "others", "sizes"), [(False, 0, [8, 2]), (True, 0, [1] * 10), (True, 1, [2] * 5)])
def test_large_kernels_race_one_by_one_on_each_gpu(large: bool, others: int, sizes: list[int]) -> None:
    bench, source = Bench(large=large, others=others), Numbers()

    async def rounds() -> list[int]:
        found: list[int] = []
        while proposed := await bench._propose([cast(Any, source)]):  # pyright: ignore[reportPrivateUsage]
            found.append(len(proposed))
        return found

    assert asyncio.run(rounds()) == sizes
    assert max(source.asked) == max(sizes)
