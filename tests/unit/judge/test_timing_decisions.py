"""Blocks are measured until it is known what a difference is, not only that there is no gain in it."""

import asyncio
import itertools
from types import SimpleNamespace
from typing import Any

import pytest

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge import timing
from kernel_lsp.judge.bench import Draw
from kernel_lsp.judge.statistics import Decision, Outcome
from kernel_lsp.judge.timing import Series, TimedCase

CASE = TimedCase(Draw("0/normal/0", 0, "normal", [], nbytes=1 << 20, input_bytes=1 << 20), "cold", 4, 1e3, 1 << 20)
ALPHA = 0.05
SCATTER = (0.3, -0.3, -1.2, 1.2, 0.7, -0.7, -0.1, 0.1)


def decided(
    mean: float, scatter: float, monkeypatch: pytest.MonkeyPatch, block_ms: float = 1.0
) -> tuple[Decision, list[Decision]]:
    """What is decided of blocks that scatter about the mean, and what was known after each of them."""
    about = itertools.cycle(SCATTER)
    seen: list[Decision] = []

    async def block(_bench: object, _pair: object, series: Series) -> None:
        series.blocks[0].append(mean + next(about) * scatter)
        series.gpu_ms += block_ms

    monkeypatch.setattr(timing, "watched_block", block)
    nothing: Any = None
    bench: Any = SimpleNamespace(settings=Settings())
    series = Series.empty([CASE])
    found = asyncio.run(timing.decide(bench, nothing, series, alpha=ALPHA, shared=False, on_block=seen.append))
    return found, seen


@pytest.mark.parametrize(
    ("mean", "scatter", "outcome", "no_gain", "blocks"),
    [
        (0.10, 0.01, Outcome.SLOWER, 4, 4),
        (0.02, 0.01, Outcome.SLOWER, 5, 6),
        (0.015, 0.025, Outcome.NOT_WORTH_IT, 9, 16),  # a loss or none, which 16 blocks do not tell
        (0.03, 0.06, Outcome.NOT_WORTH_IT, 17, 17),
        (0.004, 0.005, Outcome.SAME, 5, 8),
    ],
)
def test_what_is_no_gain_is_followed_until_it_is_known_to_be_a_loss(
    mean: float, scatter: float, outcome: Outcome, no_gain: int, blocks: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    found, seen = decided(mean, scatter, monkeypatch)
    assert next(decision.blocks for decision in seen if decision.stop) == no_gain
    assert (found.outcome, found.blocks, len(seen)) == (outcome, blocks, blocks)


def test_a_gain_is_not_followed(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = decided(-0.05, 0.005, monkeypatch)
    assert (found.outcome, len(seen)) == (Outcome.PROVISIONAL_FASTER, 8)


def test_nothing_is_followed_beyond_the_gpu_time_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    found, seen = decided(0.015, 0.025, monkeypatch, block_ms=30.0)
    assert (found.outcome, len(seen)) == (Outcome.NOT_WORTH_IT, 10)
