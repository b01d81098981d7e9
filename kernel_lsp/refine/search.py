"""Search for a faster variant: a strategy decides what is tried, the judge decides what is faster."""

import asyncio
from collections.abc import Callable, Sequence

from kernel_lsp.judge.session import Session
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.outcome import OnExchange, OnProgress, OnTried, Refinement
from kernel_lsp.refine.strategies import STRATEGIES
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.runner.shield import start

_END_SECONDS = 2.0


async def refine(
    session: Session,
    *,
    budget: float,
    on_progress: OnProgress = lambda _: None,
    on_tried: OnTried = lambda _: None,
    on_exchange: OnExchange = lambda _: None,
    on_confirmed: Callable[[Verdict], None] | None = None,
    stop: asyncio.Event | None = None,
    seed: int = 0,
    wishes: Sequence[str] = (),
    spent: float = 0.0,
    others: Sequence[Session] = (),
) -> Refinement:
    """Search for a faster variant of the session's target; no new work is started after `budget` seconds.

    The baseline must be right. Without a GPU candidates are only built and checked.

    Args:
        session: with its baseline measured.
        budget: seconds of wall time from when the user asked.
        on_progress: called with the progress of the search.
        on_tried: called with each candidate and its outcome.
        on_exchange: called with each turn of a model.
        on_confirmed: called with the verdict on a confirmed gain before its final checks (`Session.judge`).
        stop: when it is set, the search ends with what was found so far. Cancelling the task instead ends it at once.
        seed: of all that is random.
        wishes: sentences of the user's for a model's prompts; they may grow meanwhile.
        spent: seconds of the budget that are gone already.
        others: sessions on equal GPUs, which race candidates too; they may become more meanwhile.

    Raises:
        ConfigurationError: a proposer or a profile that the settings name cannot be used.
        ModelError: the strategy is nothing but a model, and that cannot be asked.
        RunnerError: the baseline's own process failed while it was timed.
    """
    bench = Workbench(
        session,
        budget,
        on_progress=on_progress,
        on_tried=on_tried,
        on_exchange=on_exchange,
        on_confirmed=on_confirmed,
        seed=seed,
        wishes=wishes,
        spent=spent,
        others=others,
        predicts=True,
    )
    if (why := bench.settled() or bench.out_of_time()) is not None:
        bench.finish(why)
        return bench.result
    running = start(STRATEGIES[session.settings.refine.strategy].search(bench, session.settings))
    stopping = asyncio.create_task((stop or asyncio.Event()).wait())
    try:
        await asyncio.wait((running, stopping), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
            bench.finish("")
        else:
            running.cancel()
            bench.result.cancelled = True
            await asyncio.wait((running,))
            bench.finish("it was stopped before anything faster was found")
    finally:
        stopping.cancel()
        running.cancel()
        await asyncio.wait((running,), timeout=_END_SECONDS)  # the caller closes the session that it uses
    return bench.result
