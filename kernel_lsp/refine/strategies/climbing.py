"""Climb without a model: rewrites and settings, starting anew from the best of each round until nothing helps."""

from kernel_lsp.errors import RunnerError
from kernel_lsp.refine.workbench import Workbench
from kernel_lsp.runner.protocol import WorkerFailure


async def climb(bench: Workbench, share: float = 1.0) -> None:
    """Race the rewrites and first settings of the user's file, continue from the best of these, and so on.

    Args:
        bench: the search.
        share: of the budget that is left, what this may take.

    Raises:
        RunnerError, WorkerFailure: the baseline's own process failed, and nothing had been found.
    """
    base, ratio = bench.session.target.baseline, 1.0
    if not bench.timed:
        await bench.check_proposed(base, bench.left() * share)
        return
    spare = bench.left() * (1 - share)
    while (seconds := bench.left() - spare) > 0:
        try:
            reached = await bench.climb(base, ratio, seconds)
        except (RunnerError, WorkerFailure):
            if bench.result.best is None:
                raise
            return  # what was found is kept
        if reached is None or bench.settled():
            return
        base, ratio = reached
