"""Sessions on further GPUs of one kind, which take their share of a search's races.

Times of two GPUs are never compared: a candidate races against the baseline of its own GPU, and full judgements stay on
the first one.
"""

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import asynccontextmanager

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import as_ours
from kernel_lsp.judge.session import Session, open_session, pool_on
from kernel_lsp.model.servers import running


def used_by_models() -> frozenset[str]:
    """Return the UUIDs of the GPUs that model servers may use: a search would send them to sleep."""
    return frozenset(gpu for server in running() for gpu in server.gpus)


@asynccontextmanager
async def further_sessions(
    first: Session, settings: Settings, gpus: Sequence[Gpu | None], say: Callable[[str], None]
) -> AsyncGenerator[Sequence[Session]]:
    """Open a session on each of these GPUs beside the first; they end with the block.

    Yields a list that each joins as soon as its baseline is measured, so that nothing waits for the slowest. One that
    cannot be opened, or that times other cases than the first does, is left out, which is said.

    Args:
        first: the search's own session, open.
        settings: those in force, with each GPU's share of the cores.
        gpus: equal to the first's; None is one more emulator.
        say: takes a sentence for the user.
    """
    joined: list[Session] = []
    tasks = [asyncio.create_task(_serve(first, settings, gpu, joined, say)) for gpu in gpus]
    try:
        yield joined
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


async def _serve(
    first: Session, settings: Settings, gpu: Gpu | None, joined: list[Session], say: Callable[[str], None]
) -> None:
    try:
        async with pool_on(gpu, settings) as pool, open_session(first.target, settings, pool) as session:
            if (why := _unequal(first, session)) is None:
                joined.append(session)
                await asyncio.Event().wait()  # until it is cancelled
    except Exception as error:  # the search goes on without it
        why = str(as_ours(error))
    say(f"{_name(gpu)} takes no part in the search: {why}")


def _unequal(first: Session, other: Session) -> str | None:
    """Return why races of two sessions do not say the same, or None."""
    ours, theirs = first.measured, other.measured
    if ours is None or theirs is None:
        return "the kernel cannot be measured there"
    if (ruling := theirs.profile.findings.ruling) is not None:
        return f"the kernel itself fails there: {ruling.reason}"
    timed, there = ([case.draw.case for case in measured.cases] for measured in (ours, theirs))
    return None if timed == there else "other cases are timed there"


def _name(gpu: Gpu | None) -> str:
    return f"GPU {gpu.index}" if gpu else "Another emulator"
