"""Stage: build the candidate, and stop if it is the same program or has nothing to run."""

from pathlib import Path

from kernel_lsp.compiler.builds.extension import ExtensionBuild
from kernel_lsp.compiler.host.symbols import data_in_code, forbidden_symbols
from kernel_lsp.compiler.language import compiler_part
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.context import Context
from kernel_lsp.judge.program_equality import same_model, same_python
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.stages.static_check import ruling_on
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.source.static_check import check_cpp


async def build(context: Context) -> Ruling | None:
    """Build the candidate."""
    session, candidate = context.session, context.candidate
    with context.timeline.stage("build"):
        try:
            built = context.built = await session.builders.build(session.target.workload, candidate)
        except CannotJudgeError as error:
            return Ruling(Outcome.UNTIMED, Stage.BUILD, f"it cannot be built on this machine: {error.message}")
    if built.host_options:
        return rejected(
            f"an extension is to be built with `{built.host_options[0]}`, which the kernel as it stands does not ask "
            "for: options may tune compilers, define macros and name CUDA's and torch's libraries; nothing was built"
        )
    if built.extensions and (ruling := _check_host_code(context, built)) is not None:
        return ruling
    if not built.ok:
        return Ruling(Outcome.BUILD_FAILED, Stage.BUILD, built.first_error)
    if not context.always_run and _same_program(context, built):
        return Ruling(Outcome.SAME, Stage.BUILD, "both are the same program to the machine: nothing was run")
    if session.measured is None:
        reason = f"it builds; running it needs a GPU, and this machine has none: {session.unmeasured}"
        return Ruling(Outcome.UNTIMED, Stage.BUILD, reason)
    if (broken := session.measured.profile.findings.ruling) is not None:
        return Ruling(broken.outcome, broken.stage, f"the baseline itself fails: {broken.reason}", broken.mismatch)
    return None


def _check_host_code(context: Context, built: Built) -> Ruling | None:
    """Check the C++ of a candidate's extensions, and the symbols that their libraries import."""
    baseline = context.session.target.baseline.kernel
    texts = built.host_texts or (context.candidate.kernel.text,)
    found = check_cpp(texts, baseline)
    context.notes += found.notes
    if found.violations:
        return ruling_on(found.violations[0])
    known = next(filter(None, map(_library, context.session.baseline_built.extensions)), None)
    for extension in built.extensions:
        try:
            named = forbidden_symbols(library, known) if (library := _library(extension)) is not None else ()
            placed = data_in_code(library) if library is not None else ()
        except ValueError as error:
            return rejected(f"the host code of `{extension.name}` cannot be read: {error}")
        if placed:
            return rejected(
                f"the host code of `{extension.name}` has `{placed[0]}` among its instructions, where data could run "
                "as code: nothing was run"
            )
        if named:
            return rejected(
                f"the host code of `{extension.name}` calls {', '.join(f'`{name}`' for name in named[:3])}, which the "
                "kernel as it stands does not: a candidate may make tensors, compute sizes and launch; nothing was run"
            )
    return None


def _library(extension: ExtensionBuild) -> bytes | None:
    """Return the binary image of an extension's host code; None if it has none."""
    if extension.extension is not None:
        path = Path(extension.extension)
        return path.read_bytes() if path.is_file() else None
    return extension.library


def _same_program(context: Context, built: Built) -> bool:
    """Return True if both versions are the same program: by machine code and launches, or by syntax for Python."""
    baseline, candidate = context.session.target.baseline, context.candidate
    if context.session.target.workload.problem:
        return same_model(baseline.kernel.text, candidate.kernel.text)
    texts = [(baseline.launch, candidate.launch)]
    if compiler_part(candidate.language).compiles_at_launch:
        texts.append((baseline.kernel, candidate.kernel))
    elif built.code is None or built.code != context.session.baseline_built.code:
        return False
    return all(same_python(a.text if a else "", b.text if b else "") for a, b in texts)
