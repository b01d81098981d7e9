"""One refinement from a target to its outcome, as the command line and the editor both run it."""

import asyncio
import secrets
import time
from collections.abc import Callable

from kernel_lsp.config.settings import Settings
from kernel_lsp.device.nvml import find_gpus
from kernel_lsp.errors import CannotJudgeError, WorkloadError
from kernel_lsp.judge.pipeline import Session, open_session
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.refine.outcome import Exchange, Refinement, Tried
from kernel_lsp.refine.progress import Progress
from kernel_lsp.refine.search import refine
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.store.store import Store


def require_gpu(settings: Settings) -> None:
    """Something must be timed, unless the settings say that a search may do without.

    Raises:
        CannotJudgeError: there is no GPU.
    """
    if not settings.refine.untimed and not find_gpus():
        cure = "Run it on a machine with an NVIDIA GPU; `kernel-lsp check` and `kernel-lsp facts` work here too."
        raise CannotJudgeError("nothing can be timed here, for there is no GPU", cure=cure)


async def refine_target(
    target: Target,
    settings: Settings,
    store: Store,
    stop: asyncio.Event,
    *,
    on_open: Callable[[], None] = lambda: None,
    on_progress: Callable[[Progress], None] = lambda _: None,
    on_verdict: Callable[[Verdict], None] = lambda _: None,
) -> Refinement:
    """Search until the budget is spent, nothing helps or `stop` is set; what is found out is stored at once.

    Args:
        target: what to refine.
        settings: in force at the file.
        store: takes verdicts and the steps of the search.
        stop: set it to end the search and keep what it found.
        on_open: called when the baseline has been measured.
        on_progress: hears where the search stands.
        on_verdict: hears each verdict, after it was stored.

    Raises:
        KernelLspError: there is no GPU, or the kernel, its workload or a proposer cannot be used.
    """
    require_gpu(settings)
    trajectory = f"{time.strftime('%Y%m%d-%H%M%S')}-{secrets.token_hex(4)}"

    def record(tried: Tried) -> None:
        if tried.verdict is not None:
            store.save_verdict(tried.verdict.model_dump(mode="json"))
            on_verdict(tried.verdict)
        if not tried.candidate.origin.startswith("model:"):  # a model's are stored with what was said
            judged = tried.verdict.id if tried.verdict else None
            store.append_turn(trajectory, tried.candidate.digest, verdict=judged)

    def keep(said: Exchange) -> None:
        candidate = said.candidate.digest if said.candidate else ""
        judged = said.verdict.id if said.verdict else None
        talk = f"{trajectory}-{said.trajectory:02}"  # its turns follow one another, whatever happens beside them
        store.append_turn(talk, candidate, prompt=said.prompt, answer=said.answer, verdict=judged)

    async with open_session(target, settings) as session:
        _require_sound(session)
        on_open()
        budget = settings.refine.budget
        return await refine(
            session, stop=stop, budget=budget, on_progress=on_progress, on_tried=record, on_exchange=keep
        )


def variant_texts(target: Target, found: Refinement) -> list[tuple[SourceFile, str]]:
    """The files that the variant found changes, as they are, each with its new text."""
    if found.variant is None:
        return []
    texts = [(target.source, found.variant.kernel.text)]
    if (launch := found.variant.launch) is not None:
        texts.append((target.workload.source, launch.text))
    return [(file, text) for file, text in texts if file.text != text]


def _require_sound(session: Session) -> None:
    """A baseline that is wrong itself cannot be improved on."""
    if session.measured is not None and (failure := session.measured.yard.findings.failure) is not None:
        cure = "Mend the kernel or its workload first; `kernel-lsp check` shows more."
        message = f"the kernel itself fails as it stands: {failure.reason}"
        raise WorkloadError(message, session.target.source.path, cure=cure)
