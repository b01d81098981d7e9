"""Stage: check that the text is a candidate, and that its host code does no more than a kernel needs."""

from kernel_lsp.judge.context import Context
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.modules import is_answer
from kernel_lsp.source.static_check import Violation, check_python


async def static_check(context: Context) -> Ruling | None:
    """Check the candidate's text."""
    target, candidate = context.session.target, context.candidate
    text, path = candidate.kernel.text, candidate.kernel.path
    with context.timeline.stage("parse"):
        problem = target.workload.problem
        if not (is_answer(text) if problem else bool(find_kernels(text, path))):
            reason = "the candidate's text holds no " + ("`ModelNew`" if problem else "kernel")
            return Ruling(Outcome.BUILD_FAILED, Stage.PARSE, reason)
        found = check_python(candidate, target.baseline, target.workload.source)
    context.notes += found.notes
    return ruling_on(found.violations[0]) if found.violations else None


def ruling_on(found: Violation) -> Ruling:
    """Return the ruling on host code that does more than a kernel needs."""
    return rejected(
        f"line {found.line} of its host code {found.what}, which the kernel as it stands does not: a candidate may "
        "make tensors, compute sizes and launch; nothing was run"
    )
