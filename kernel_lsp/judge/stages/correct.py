"""Stage: check that the candidate is right, launch by launch."""

from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.inputs.check import check
from kernel_lsp.judge.inputs.draw import PLAIN
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.stages.load import not_emulated
from kernel_lsp.judge.verdict import WEAK, CheckStatus, Outcome, Stage


async def correct(context: Context) -> Ruling | None:
    """Check the candidate's eager launches on all inputs."""
    profile = context.measured.profile
    context.harness.warm_workers.stop()  # each takes 0.4 s, and what is traced and timed next would wait for it
    with context.timeline.stage("correct"):
        try:
            context.findings = await check(context.harness, context.running, profile, quick=context.known)
        except CannotJudgeError as error:
            return not_emulated(context, error)
    if context.findings.ruling is not None:
        return context.findings.ruling
    if own := context.running.own_weights:
        return context.findings.fail("weights", rejected(derived_weights(own)))
    sizes = context.measured.other_sizes
    if sizes is not None and not context.known:
        with context.timeline.stage("correct"):
            if (ruling := await sizes.check(context.running, context.findings)) is not None:
                return ruling
    if profile.weak:
        reason = f"{WEAK}: {profile.weak[0]}; nothing was timed"
        return Ruling(Outcome.UNTIMED, Stage.CORRECT, reason)
    if context.session.gpu is None:
        reason = f"right on the emulator{_share(context)}; timing needs a GPU, and this machine has none"
        return Ruling(Outcome.UNTIMED, Stage.CORRECT, reason)
    if not context.measured.cases:
        reason = f"right, but not timed: {context.harness.launch_time.refusal(context.harness.cases)}"
        return Ruling(Outcome.AMBIGUOUS, Stage.TIMED, reason)
    return None


def _share(context: Context) -> str:
    """Return text such as `, on 1 of 3 cases` where some were too large or slow for the emulator, else an empty one."""
    harness, findings = context.harness, context.findings
    decisive = {harness.cases[case] for case in harness.workload.decisive}
    ran = {
        check.case
        for check in findings.checks
        if check.name == f"inputs: {PLAIN}" and check.status is CheckStatus.PASSED
    }
    return "" if decisive <= ran else f", on {len(decisive & ran)} of {len(decisive)} cases"


def derived_weights(own: tuple[str, ...]) -> str:
    """Return a sentence on why weights that a version makes itself are no answer to a problem."""
    names = ", ".join(f"`{name}`" for name in own[:3]) + (" and others" if len(own) > 3 else "")
    return (
        f"it cannot be given the problem's weights {names}: it leaves them out or computes with what it made of them "
        "when it was constructed, which is wrong once they are trained or loaded; keep each under its name, type and "
        "shape, or a parameter or buffer of the same values"
    )
