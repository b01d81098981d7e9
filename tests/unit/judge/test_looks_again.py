"""Others slow single launches and put this process off: a candidate's times are doubted only if that is no reason."""

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_lsp.judge.bench import Draw
from kernel_lsp.judge.timing import TimedCase

from kernel_lsp.judge import timing

CASE = TimedCase(Draw("0/normal/0", 0, "normal", [], 0, 0), "cold", 4, 100.0, 1 << 20)
LAUNCHES = timing._UNSEEN  # of a side in one look
LOOK_S = 2 * (2 * 0.05 + (2 + 10) * CASE.launches * 0.1) / 1000  # from outside, by the clock below


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


class Clock:
    """Time of this process as a test makes it pass."""

    def __init__(self) -> None:
        self.s = 0.0

    def perf_counter(self) -> float:
        return self.s


class Timed:
    """A version whose launches take 100 us, of which it claims a share; each call may be put off by milliseconds."""

    def __init__(self, clock: Clock, shares: list[float], delays_ms: list[float]) -> None:
        self._clock, self._shares, self._delays_ms, self.calls = clock, shares, delays_ms, 0

    async def call(self, method: str, *, count: int, **_: object) -> Any:
        assert method == "segment"
        us = 100.0 * self._shares[min(self.calls // 2, len(self._shares) - 1)]
        self.calls += 1
        delay = self._delays_ms.pop(0) if self._delays_ms else 0.0
        self._clock.s += (0.05 + count * CASE.launches * 0.1 + delay) / 1000
        return [{"times_us": [us] * CASE.launches} for _ in range(count)]


@pytest.fixture
def looking(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[str | None, int]]:
    """What is seen from outside, and after how many looks."""
    clock = Clock()
    monkeypatch.setattr(timing, "time", clock)

    def look(shares: list[float], *, put_off: tuple[list[float], list[float]] = ([], [])) -> tuple[str | None, int]:
        baseline, candidate = Timed(clock, [1.0], put_off[0]), Timed(clock, shares, put_off[1])
        found = asyncio.run(timing.seen_from_outside(cast(Any, baseline), cast(Any, candidate), CASE))
        return found, candidate.calls // 2

    return look


def test_one_look_is_enough_where_clocks_agree(looking: Callable[..., tuple[str | None, int]]) -> None:
    assert looking([1.0]) == (None, 1)


def test_who_is_put_off_at_every_look_is_not_accused(looking: Callable[..., tuple[str | None, int]]) -> None:
    """First a baseline that seems to need less for more segments, then a candidate that seems to need more."""
    assert looking([1.0], put_off=([9.0, 0.0, 0.0, 0.0], [0.0, 0.0, 0.0, 9.0])) == (None, 2)


def test_nor_is_who_is_put_off_for_a_second_on_end(looking: Callable[..., tuple[str | None, int]]) -> None:
    """With more segments only, each time by 30 ms."""
    assert looking([1.0], put_off=([], [0.0, 30.0] * 25)) == (None, 26)


@pytest.mark.parametrize("shares", [[1 / 3], [1 / 3, 1 / 3, 1.0, 1 / 3]])
def test_who_claims_a_third_is_found(shares: list[float], looking: Callable[..., tuple[str | None, int]]) -> None:
    found, looks = looking(shares)
    assert (looks - 1) * LOOK_S < timing._DOUBTING_SECONDS <= looks * LOOK_S
    assert found is not None
    assert found.startswith("it says that its launches took ")


def test_where_a_look_takes_long_some_are_enough(looking: Callable[..., tuple[str | None, int]]) -> None:
    found, looks = looking([1 / 3], put_off=([500.0] * 100, [500.0] * 100))
    assert looks == timing._LOOKS_FROM_OUTSIDE
    assert found is not None
