"""Run one refinement from a target to its result, for the command line and the editor alike."""

import asyncio
import secrets
import time
from collections.abc import Callable, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.choice import choose_gpu, equal_gpus
from kernel_lsp.errors import CannotJudgeError, ConfigurationError, WorkloadError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.session import Session, open_session
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.model.client import Limits, ModelClient
from kernel_lsp.model.endpoint import find_endpoint
from kernel_lsp.model.profile import find_profile
from kernel_lsp.pool.lane import shared
from kernel_lsp.refine.dialogue.task import format_for
from kernel_lsp.refine.further_gpus import further_sessions, used_by_models
from kernel_lsp.refine.journal import Journal
from kernel_lsp.refine.kernel_generation import is_plain_module
from kernel_lsp.refine.outcome import Exchange, Refinement, Tried
from kernel_lsp.refine.progress import SearchProgress
from kernel_lsp.refine.search import refine
from kernel_lsp.refine.strategies import STRATEGIES
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store


def require_gpu(settings: Settings) -> None:
    """Raise an error if there is no GPU to time on, unless the settings allow a search without timing.

    Raises:
        CannotJudgeError: there is no GPU.
        ConfigurationError: the setting `gpu` names none.
    """
    if not settings.refine.untimed and choose_gpu(settings.gpu) is None:
        fix = "Run it on a machine with an NVIDIA GPU; `kernel-lsp check` and `kernel-lsp facts` work here too."
        raise CannotJudgeError("nothing can be timed here, as this machine has no GPU", fix=fix)


def require_way(file: SourceFile, settings: Settings) -> None:
    """Raise an error early if a search cannot succeed: only a model can write a kernel for a plain module.

    Raises:
        ConfigurationError: the strategy asks no model.
        ModelError: none is served, it may not be asked, or it does not write the language that is asked for.
    """
    if not is_plain_module(file):
        return
    name = settings.refine.strategy
    if not STRATEGIES[name].asks_model:
        message = f"Only a model can write a kernel for a module, and the strategy `{name}` asks none."
        raise ConfigurationError(message, file.path, fix="Set `refine.strategy` to another one.")
    format_for(file, find_profile(find_endpoint(settings).profile), settings.refine.write)


async def require_answer(settings: Settings) -> None:
    """Check that the model in the settings is served and answers.

    Raises:
        ModelError: it is not, or does not.
    """
    async with ModelClient(find_endpoint(settings), Limits()) as client:
        await client.count_tokens("kernel")


async def refine_target(
    target: Target,
    settings: Settings,
    store: Store,
    stop: asyncio.Event,
    *,
    pool: Pool | None = None,
    builders: Builders | None = None,
    on_open: Callable[[], None] = lambda: None,
    on_progress: Callable[[SearchProgress], None] = lambda _: None,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
    on_confirmed: Callable[[Verdict], None] | None = None,
    say: Callable[[str], None] = lambda _: None,
    wishes: Sequence[str] = (),
    gpus: int = 1,
) -> Refinement:
    """Search until the budget is spent, nothing helps or `stop` is set; results are stored at once.

    The budget counts from this call on: a user who allows a minute does not wait for two.

    Args:
        target: what to refine.
        settings: in force at the file.
        store: takes verdicts and the steps of the search.
        stop: set it to end the search and keep what it found.
        pool, builders: for searches one after another, on that pool's GPU (`open_session`).
        on_open: called when the baseline has been measured.
        on_progress: called with the progress of the search.
        on_verdict: called with each verdict after it was stored.
        on_confirmed: called with the verdict on a confirmed gain before its final checks; it is not stored.
        say: called with early messages for the waiting user (`open_session`).
        wishes: sentences of the user's for a model's prompts; those added meanwhile go into the next prompt.
        gpus: of one kind, to race candidates on; those that model servers use are left alone.

    Raises:
        KernelLspError: there is no GPU, or no model where one is needed, or the kernel, its workload or a proposer
            cannot be used.
    """
    asked = time.perf_counter()
    require_gpu(settings)
    require_way(target.source, settings)
    search = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"
    async with AsyncExitStack() as stack:
        first = choose_gpu(pool.gpu if pool and pool.gpu else settings.gpu)
        further = equal_gpus(first, gpus - 1, used_by_models()) if gpus > 1 else ()
        settings = shared(settings, 1 + len(further))
        session = await stack.enter_async_context(open_session(target, settings, pool, builders, say))
        _require_sound(session)
        others = await stack.enter_async_context(further_sessions(session, settings, further, say))
        on_open()
        journal = Journal(store, target, settings, session.gpu)

        def record(tried: Tried) -> None:
            journal.tried(search, tried)
            if tried.verdict is not None:
                on_verdict(tried.verdict)

        def keep(said: Exchange) -> None:
            journal.exchanged(f"{search}-{said.turn.trajectory:02}", said)

        return await refine(
            session,
            stop=stop,
            budget=settings.refine.budget,
            on_progress=on_progress,
            on_tried=record,
            on_exchange=keep,
            on_confirmed=on_confirmed,
            wishes=wishes,
            spent=time.perf_counter() - asked,
            others=others,
        )


@dataclass(frozen=True, slots=True)
class FileChange:
    """A file's new text.

    Attributes:
        path: the file.
        before: the text that was judged against, which the file must still hold; None where there must be no file yet.
        after: the new text.
    """

    path: Path
    before: str | None
    after: str


def variant_changes(target: Target, found: Refinement) -> list[FileChange]:
    """Return the changes that apply the variant: to the user's files, or one new file."""
    variant = found.variant
    if variant is None:
        return []
    if is_plain_module(target.source):
        return [FileChange(variant.kernel.path, None, variant.kernel.text)]
    changes = [FileChange(target.source.path, target.source.text, variant.kernel.text)]
    if variant.launch is not None:
        changes.append(FileChange(variant.launch.path, target.workload.source.text, variant.launch.text))
    return [change for change in changes if change.before != change.after]


def _require_sound(session: Session) -> None:
    """Raise an error if the baseline itself is wrong."""
    if session.measured is not None and (ruling := session.measured.profile.findings.ruling) is not None:
        fix = "Fix the kernel or its workload first; `kernel-lsp check` shows more."
        message = f"the kernel itself fails as it stands: {ruling.reason}"
        raise WorkloadError(message, session.target.source.path, fix=fix)
