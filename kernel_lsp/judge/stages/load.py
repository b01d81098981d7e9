"""Stage: load the candidate into a process of its own."""

from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, ruling_of
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.source.candidate import Candidate


async def load(context: Context) -> Ruling | None:
    """Load the candidate."""
    assert context.built is not None, "it was built before"
    with context.timeline.stage("load"):
        try:
            entered = await enter(context.harness, context.candidate, context.built)
        except CannotJudgeError as error:
            return not_emulated(context, error)
    if isinstance(entered, Ruling):
        return entered
    context.subject, context.protections = entered, entered.worker.protections
    return None


async def enter(harness: Harness, candidate: Candidate, built: Built) -> Subject | Ruling:
    """Load a version into a process; return the subject, or the ruling on why it cannot be loaded.

    Raises:
        CannotJudgeError: this machine cannot run it.
    """
    try:
        return await harness.enter(candidate, built)
    except RUN_ERRORS as error:
        if isinstance(error, CannotJudgeError):
            raise
        return ruling_of(error, "being loaded", "(none yet)")


def not_emulated(context: Context, error: CannotJudgeError) -> Ruling:
    """Return the ruling on a candidate that needs a GPU on a machine without one.

    Raises:
        CannotJudgeError: there is a GPU.
    """
    if context.session.gpu is not None:
        raise error
    line = f" (line {error.line})" if error.line else ""
    reason = f"it builds; running it needs a GPU, and this machine has none: {error.message}{line}"
    return Ruling(Outcome.UNTIMED, Stage.BUILD, reason)
