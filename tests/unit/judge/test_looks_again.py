"""Others on the GPU slow single launches: a candidate's times are doubted only when every look finds the same."""

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest

from kernel_lsp.judge import timing
from kernel_lsp.judge.bench import Draw
from kernel_lsp.judge.timing import TimedCase

CASE = TimedCase(Draw("0/normal/0", 0, "normal", [], 0, 0), "cold", 4, 100.0, 1 << 20)
LAUNCHES = timing._UNSEEN  # of a side in one look


class Side:
    """A version whose first launches take these times, in microseconds, one after another."""

    def __init__(self, *times_us: float) -> None:
        self.times_us = list(times_us)

    async def call(self, method: str, **_: object) -> Any:
        return [{"times_us": [self.times_us.pop(0), 1.0]}] if method == "segment" else None


async def nothing(*_: object) -> None:
    pass


def said_of(candidate: Side, looks: int) -> str | None:
    bench = SimpleNamespace(cases=("n=1",), touch=nothing, fill=nothing)
    baseline = Side(*[100.0] * LAUNCHES * looks)
    given = (cast(Any, each) for each in (bench, baseline, candidate))
    found = asyncio.run(timing.remembers_inputs(*given, [(CASE, (100.0, 50.0))]))
    assert (baseline.times_us, candidate.times_us) == ([], []), "no look more and none less"
    return found


@pytest.mark.parametrize("slow", range(timing._LOOKS))
def test_one_look_in_which_it_is_as_quick_as_claimed_is_enough(slow):
    candidate = Side(*[170.0] * LAUNCHES * slow, *[50.0] * LAUNCHES)
    assert said_of(candidate, slow + 1) is None


def test_what_is_slow_at_first_every_time_remembers():
    found = said_of(Side(*[170.0] * LAUNCHES * timing._LOOKS), timing._LOOKS)
    assert found is not None
    assert found.startswith("on case n=1 it takes 170.0 us on inputs that it has not seen, where 50.0 us was timed")
