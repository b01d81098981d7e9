"""Run a version once, eagerly; used for baseline and candidate alike."""

from dataclasses import replace

from kernel_lsp import policy
from kernel_lsp.errors import CannotJudgeError
from kernel_lsp.judge.emulation import read_run
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.compare import ruling_on
from kernel_lsp.judge.inputs.draw import Draw
from kernel_lsp.judge.inputs.findings import Findings, ruling_of_finding
from kernel_lsp.judge.ruling import Ruling, rejected
from kernel_lsp.judge.subject import Subject
from kernel_lsp.runner.messages.subject import Run
from kernel_lsp.runner.messages.subject_answers import Ran
from kernel_lsp.runner.worker import WorkerTimedOut

_COMPILED = ("nvrtc", "nvcc-slice", "nvcc")  # builds that leave nothing to compile at the first launch


def must_rehearse(harness: Harness, subject: Subject, draw: Draw) -> bool:
    """Return True if a version needs an unchecked first launch, because it may compile or tune itself in that."""
    return harness.gpu is not None and draw.buffer not in subject.bound and subject.built.build.way not in _COMPILED


async def run_again(harness: Harness, subject: Subject, draw: Draw, deadline: float) -> Ran:
    """Refill the inputs and run a version once."""
    await harness.fill(subject, draw)
    return await subject.ask(Run(buffer=draw.buffer), deadline=deadline)


async def run_undisturbed(harness: Harness, subject: Subject, draw: Draw, deadline: float) -> Ran:
    """Run the baseline once; anew in quiet if it took long beside others, for then time is short from there on."""
    disturbed = harness.turns.disturbed
    ran = await run_again(harness, subject, draw, deadline)
    if subject.took_s < policy.SLOW_LAUNCH_SECONDS:
        return ran
    disturbed = disturbed or harness.turns.disturbed
    await harness.turns.quieten()
    return await run_again(harness, subject, draw, deadline) if disturbed else ran


async def free_memory_apart(harness: Harness, subject: Subject, draw: Draw, plain: Draw | None) -> None:
    """Free a version's memory for inputs whose layout or scalar arguments differ from the plain ones of their case.

    Each of these has its own memory, which would add up on large cases. The emulator's cases are small.
    """
    if harness.gpu is not None and plain is not None and draw.buffer != plain.buffer:
        await harness.unbind(subject, draw.buffer)


async def fingerprints(
    harness: Harness, subject: Subject, draw: Draw, findings: Findings, deadline: float
) -> list[tuple[int, ...]]:
    """Return the checksums of the outputs of several runs; the first is that of the run that was checked."""
    prints = [findings.prints[draw.key]]
    while len(prints) < policy.DETERMINISM_RUNS:
        ran = await run_again(harness, subject, draw, deadline)
        prints.append((await harness.compare(subject, draw, ran.published)).fingerprints)
    return prints


async def check_unwritten(harness: Harness, subject: Subject, draw: Draw, deadline: float) -> Ruling | None:
    """Run once more in output memory filled with zeros; return a ruling if the answer is then wrong.

    Bytes of 0xFF that were never written look right where the answer is NaN, -1 or True.
    """
    await harness.fill(subject, draw)
    ran = await subject.ask(Run(buffer=draw.buffer, unset=0), deadline=deadline)
    ruling = await ruling_of_run(harness, subject, draw, ran)
    if ruling is None:
        return None
    return replace(ruling, reason=f"{ruling.reason}; it is right only in memory that holds 0xFF bytes before")


async def ruling_of_run(harness: Harness, subject: Subject, draw: Draw, ran: Ran) -> Ruling | None:
    """Return the ruling on the outputs of the run that has just ended, None if they are right."""
    return ruling_on(harness, draw, await harness.compare(subject, draw, ran.published), ran.trampled)


def take_emulated(harness: Harness, draw: Draw, ran: Ran, findings: Findings) -> Ruling | None:
    """Record an emulated run; return the ruling on what the emulator found, or None."""
    if ran.emulated is None:
        return None
    run = read_run(harness.cases[draw.case], draw.family, draw.input_bytes, ran.emulated)
    findings.runs.append(run)
    return ruling_of_finding(run.findings[0], run) if run.findings else None


def passed_off(findings: Findings, baseline: Findings) -> Ruling | None:
    """Return the ruling on the latest emulated run if others computed in it where the baseline's kernels did alone.

    On a GPU the trace tells (`integrity.trace.passed_off`).
    """
    run = findings.runs[-1] if findings.runs else None
    if run is None:
        return None
    known = [one for one in baseline.runs if (one.case, one.family) == (run.case, run.family)]
    if not any(one.totals for one in known) or any(one.computed for one in known):
        return None
    if run.computed:
        return rejected(
            f"on case {run.case} torch's `{run.computed[0]}` computes for it, which is not its own kernel, where the "
            "baseline computes with its own alone"
        )
    return None if run.totals else rejected(f"on case {run.case} none of its own kernels ran")


def raise_what_needs_a_gpu(harness: Harness, error: Exception) -> None:
    """Raise CannotJudgeError for an error that only means that the emulator cannot run the version.

    Raises:
        CannotJudgeError: there is no GPU, and the emulator cannot do it, or not in time.
    """
    if isinstance(error, CannotJudgeError) and harness.gpu is None:
        raise error
    if harness.gpu is None and isinstance(error, WorkerTimedOut):
        why = f"the emulator did not finish a run in {policy.FIRST_RUN_SECONDS:.0f} s"
        raise CannotJudgeError(why, harness.target.source.path, fix="Add a smaller case, or use a GPU.") from error
