"""A candidate is accused of a claim only if it has one: what gains nothing when it is measured again is let be."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from kernel_lsp.judge.bench import Draw
from kernel_lsp.judge.correctness import Failure
from kernel_lsp.judge.timing import Series, TimedCase

from kernel_lsp.config.settings import Settings
from kernel_lsp.judge import pipeline, statistics, timing
from kernel_lsp.judge.session import Judgement, Remeasured, Session
from kernel_lsp.judge.target import make_target
from kernel_lsp.judge.verdict import Outcome, Stage

SAXPY = Path(__file__).parents[3] / "examples" / "cuda" / "saxpy.cu"
CASE = TimedCase(Draw("0/normal/0", 0, "normal", [], 0, 0), "cold", 4, 100.0, 1 << 20)


async def nothing(*_: object) -> None:
    pass


@pytest.mark.parametrize(
    ("again", "least", "accused"),
    [
        (Outcome.SAME, 0.99, False),
        (Outcome.NOT_WORTH_IT, 0.99, False),
        (Outcome.AMBIGUOUS, 0.99, False),
        (Outcome.FASTER, 1.05, True),
        (Outcome.ILLEGITIMATE, 1.05, True),  # faster than memory allows
        (Outcome.NOT_WORTH_IT, 1.05, True),  # slower on one case
    ],
)
def test_only_a_gain_that_is_measured_again_is_doubted(
    again: Outcome, least: float, accused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    @asynccontextmanager
    async def timer() -> AsyncGenerator[None]:
        yield

    async def block(_bench: object, _pair: object, fresh: Series) -> None:
        fresh.blocks[0].append(0.1)

    async def enter(*_: object) -> Any:
        return SimpleNamespace()

    async def doubted(*_: object) -> str:
        return "it says too little"

    measured_again = Failure(again, Stage.TIMED, "as it was found")
    pool = SimpleNamespace(pids=frozenset)
    session = Session(cast(Any, pool), make_target(SAXPY), Settings(), None)
    session.__dict__.update(
        timer=timer,
        _pair=lambda *_, **__: SimpleNamespace(placed=[CASE], make_ready=nothing),
        _remeasured=lambda *_, **__: Remeasured(measured_again, (1.1, (least, 1.2))),
        _claims_wrongly=doubted,
        _look_closer=lambda *_: pytest.fail("there is no gain to look at"),
        _verdict=lambda _case, found, *_: found,
    )
    monkeypatch.setattr(pipeline, "CONFIRM_AFTER_SECONDS", 0.0)
    for name, stand_in in (("warm_up", nothing), ("watched_block", block)):
        monkeypatch.setattr(timing, name, stand_in)
    monkeypatch.setattr(timing, "device_state", lambda *_: SimpleNamespace(shared=False))
    version = SimpleNamespace(candidate=None, built=None)
    bench = SimpleNamespace(rest=nothing, settle=nothing, leave=nothing, enter=enter)
    measured = SimpleNamespace(bench=bench, baseline=version, cases=(CASE,), yard=None)
    case = Judgement(session.target.baseline)
    series = Series.empty((CASE,))
    found = asyncio.run(session._confirm(case, cast(Any, measured), cast(Any, version), series))
    assert case.confirmation_blocks == statistics.CONFIRMATION_BLOCKS
    accusation = Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, "it says too little")
    assert found == (accusation if accused else measured_again)
