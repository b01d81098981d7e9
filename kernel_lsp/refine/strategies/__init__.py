"""The search strategies, by their names in the setting `refine.strategy`."""

from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any

from kernel_lsp.config.settings import Settings
from kernel_lsp.model.errors import ModelError
from kernel_lsp.refine.kernel_generation import is_plain_module
from kernel_lsp.refine.model_session import ModelSession
from kernel_lsp.refine.strategies.climbing import climb
from kernel_lsp.refine.strategies.turns import Turns
from kernel_lsp.refine.workbench import Workbench

_TUNER_SHARE = 0.4  # of the time, before a model is asked


@dataclass(frozen=True, slots=True)
class Strategy:
    """One strategy.

    Attributes:
        search: a function of the workbench and the settings that returns when nothing is left to try.
        asks_model: False if it never asks a model, so that it cannot write a kernel for a plain module.
    """

    search: Callable[[Workbench, Settings], Coroutine[Any, Any, None]]
    asks_model: bool = True


async def tuner_only(bench: Workbench, settings: Settings) -> None:
    """Try rewrites and settings, and the other proposers in `refine.proposers`; no model."""
    await climb(bench)


async def serial(bench: Workbench, settings: Settings) -> None:
    """Ask a model, with independent trajectories."""
    await _ask(bench, settings, beam=False)


async def beam(bench: Workbench, settings: Settings) -> None:
    """Ask a model, and copy the best trajectories after each turn."""
    await _ask(bench, settings, beam=True)


async def archive(bench: Workbench, settings: Settings) -> None:
    """Search without a model first, then ask one to go on from the best candidate of each approach, whoever made it.

    A plain module is asked of the model at once.
    """
    await _ask_after_climbing(bench, settings, Turns.archive)


async def tree(bench: Workbench, settings: Settings) -> None:
    """Search without a model first, then have one plan steps from the best, and take the likeliest.

    A plain module is asked of the model at once.
    """
    await _ask_after_climbing(bench, settings, Turns.tree)


async def tuner_then_model(bench: Workbench, settings: Settings) -> None:
    """Search without a model first, so that a model's gain is never a mere setting; then ask a model if one is served.

    A plain module has no settings: then it is `serial`.
    """
    if is_plain_module(bench.session.target.source):
        await serial(bench, settings)
        return
    try:
        speaker = ModelSession(bench.session, settings, bench.talking, bench.show_again, bench.wishes)
    except ModelError as error:
        bench.notes.append(f"No model was asked: {error}")
        await climb(bench)
        return
    async with speaker:
        try:
            await speaker.check()
        except ModelError as error:
            bench.notes.append(f"No model was asked: {error}")
            await climb(bench)
            return
        await climb(bench, _TUNER_SHARE)
        if bench.left() > 0 and bench.settled() is None:
            try:
                await _turns(bench, speaker, settings, beam=False)
            except ModelError as error:
                bench.notes.append(str(error))


STRATEGIES: dict[str, Strategy] = {
    "tuner-only": Strategy(tuner_only, asks_model=False),
    "serial": Strategy(serial),
    "beam": Strategy(beam),
    "archive": Strategy(archive),
    "tree": Strategy(tree),
    "tuner-then-model": Strategy(tuner_then_model),
}


async def _ask(bench: Workbench, settings: Settings, *, beam: bool) -> None:
    async with ModelSession(bench.session, settings, bench.talking, bench.show_again, bench.wishes) as speaker:
        await _turns(bench, speaker, settings, beam=beam)


async def _ask_after_climbing(
    bench: Workbench, settings: Settings, ask: Callable[[Turns], Coroutine[Any, Any, None]]
) -> None:
    async with ModelSession(bench.session, settings, bench.talking, bench.show_again, bench.wishes) as speaker:
        await speaker.check()
        if not is_plain_module(bench.session.target.source):
            await climb(bench, _TUNER_SHARE)
        if bench.left() > 0 and bench.settled() is None:
            await ask(Turns(bench, speaker, settings))


async def _turns(bench: Workbench, speaker: ModelSession, settings: Settings, *, beam: bool) -> None:
    turns = Turns(bench, speaker, settings)
    await (turns.beam() if beam else turns.serial())
