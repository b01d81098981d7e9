"""Check whether a candidate is right: run it eagerly on all inputs, with guarded memory.

It runs in its own process, is given inputs by the oracle, and never meets an expected value. That what is timed is
right too is looked at by itself (`inputs.replay`).
"""

import random

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import plan, runs
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile
from kernel_lsp.judge.inputs.compare import difference, form_of, moved, ruling_on, where
from kernel_lsp.judge.inputs.draw import TOUCHED, Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of
from kernel_lsp.judge.ruling import Ruling, wrong
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import CheckStatus, ErrorFigures, Outcome, Stage
from kernel_lsp.runner.messages.oracle_answers import Compared
from kernel_lsp.runner.messages.subject import Forget, PublishEarlier, Rehearse, Spoil
from kernel_lsp.runner.messages.subject_answers import Ran

_NEW_CONTENTS = "new values at the same addresses"
_NEW_ADDRESSES = "the same values at other addresses"
_TIME_IS_SHORT = "the baseline is slow, and time is left for timing only"


async def check(harness: Harness, subject: Subject, profile: BaselineProfile, *, quick: bool = False) -> Findings:
    """Return the findings for a candidate on all inputs of the profile, or with `quick` on the plain ones only.

    The first failure ends the check: after a wrong answer or a fault later results prove nothing.
    """
    findings = Findings()
    _note_limits(harness, findings)
    draws = [draw for draw in profile.draws if draw.is_plain or not quick]
    always, further = profile.parted(draws, random.SystemRandom())
    for draw in always:
        if await _check_draw(harness, subject, draw, profile, findings) is not None:
            return findings
    clock = harness.turns.clock
    end = clock() + policy.FURTHER_CHECKS_SECONDS
    for number, draw in enumerate(further):
        if harness.gpu is not None and number >= policy.FURTHER_CHECKS_LEAST and clock() > end:
            detail = f"{len(further) - number} more sets of them: the time for others by chance was used up"
            findings.skipped("inputs: other families and values", detail)
            break
        if await _check_draw(harness, subject, draw, profile, findings) is not None:
            return findings
    if all(cannot_be_given(draw, subject) for draw in draws):
        reason = "with weights as constructed the problem's answer is rounding alone, and it makes its weights itself"
        findings.fail("weights", Ruling(Outcome.UNTIMED, Stage.RUN, reason))
        return findings
    if harness.gpu is None:
        findings.skipped("determinism", "the emulator gives the same bits each time; needs a GPU")
        findings.skipped(_NEW_CONTENTS, "needs a GPU")
        findings.skipped(_NEW_ADDRESSES, "needs a GPU")
    elif not quick:
        for name, further, launches in _FURTHER:
            if findings.ruling is None and _spares(harness, subject, launches):
                await further(harness, subject, profile, findings)
            elif findings.ruling is None:
                findings.skipped(name, _TIME_IS_SHORT)
    _note_weights(harness, subject, findings)
    findings.checks += [c for c in profile.findings.checks if c.status is CheckStatus.SKIPPED]
    return findings


def _spares(harness: Harness, subject: Subject, launches: int) -> bool:
    """Return True if the time budget allows this many launches of a candidate besides the timed ones."""
    return harness.launch_time.spare_launches(subject.run_s) >= launches


def cannot_be_given(draw: Draw, subject: Subject) -> str | None:
    """Return the name of a changed weight that the version creates itself and so cannot be given, or None."""
    return min(set(draw.changed_weights) & set(subject.own_weights), default=None)


def _note_limits(harness: Harness, findings: Findings) -> None:
    """Record how judging on this machine differs from judging the problem as written on a GPU."""
    if harness.workload.scaled:
        findings.skipped("the case as written", harness.workload.scaled, harness.cases[0])
    if harness.slack > 1:
        why = f"PyTorch runs on the CPU, where it is more exact; errors are allowed {harness.slack:.0f} times over"
        findings.skipped("the baseline's error on a GPU", why)


def _note_weights(harness: Harness, subject: Subject, findings: Findings) -> None:
    """Record how a version of a KernelBench problem got its weights."""
    if not harness.workload.weights:
        return
    if not subject.own_weights:
        findings.passed("weights", f"by state: all {len(harness.workload.weights)} are given to it")
        return
    own = subject.own_weights
    named = ", ".join(f"`{name}`" for name in own[:3]) + (f" and {len(own) - 3} more" if len(own) > 3 else "")
    findings.skipped("weights", f"by construction under the same seed: it has no {named}, so these are never varied")


async def _check_draw(
    harness: Harness, subject: Subject, draw: Draw, profile: BaselineProfile, findings: Findings
) -> Ruling | None:
    """Check one set of inputs and record the result; return the ruling if it ends the checks, else None."""
    name, case = f"inputs: {draw.family}", harness.cases[draw.case]
    if own := cannot_be_given(draw, subject):
        detail = f"it makes `{own}` itself, or what takes its place, and is not given another"
        findings.skipped(name, detail, case)
        return None
    if harness.gpu is None and not plan.affordable(harness, draw, findings):
        findings.skipped(name, plan.TOO_SLOW, case)
        return None
    if not draw.is_plain and not _spares(harness, subject, 1):
        findings.skipped(name, _TIME_IS_SHORT, case)
        return None
    ruling = await _run(harness, subject, draw, profile, findings)
    if ruling is None:
        findings.passed(name, case=case)
        await runs.free_memory_apart(harness, subject, draw, profile.plain(draw.case))
        return None
    if draw.case in harness.workload.advisory:
        if findings.runs and findings.runs[-1].findings:
            findings.runs.pop()
        detail = f"not held against it, as the problem asks for its own sizes only: {ruling.reason}"
        findings.skipped("other sizes", detail, case)
        return None
    return findings.fail(name, ruling, case)


async def _run(
    harness: Harness, subject: Subject, draw: Draw, profile: BaselineProfile, findings: Findings
) -> Ruling | None:
    deadline = profile.deadline(harness, draw)
    try:
        await _rehearse(harness, subject, draw, profile)
        await _remind(harness, subject, draw, profile)
        ran = await runs.run_again(harness, subject, draw, deadline)
        if draw.is_plain:
            subject.own_weights = ran.own_weights
        compared = await harness.compare(subject, draw, ran.published)
        ruling = runs.take_emulated(harness, draw, ran, findings) or _form(harness, draw, ran, compared, profile)
        if ruling is not None:
            return ruling
        findings.prints[draw.key] = compared.fingerprints
        findings.errors += _figures(harness, draw, compared)
        ruling = ruling_on(harness, draw, compared, ran.trampled)
        if ruling is None and ran.emulated is not None:
            ruling = runs.passed_off(findings, profile.findings)
        if ruling is None and compared.blank:
            ruling = await runs.check_unwritten(harness, subject, draw, deadline)
    except RUN_ERRORS as error:
        runs.raise_what_needs_a_gpu(harness, error)
        return ruling_of(error, "running", harness.cases[draw.case])
    return ruling


async def _rehearse(harness: Harness, subject: Subject, draw: Draw, profile: BaselineProfile) -> None:
    """Launch once without checking where a version may compile or tune itself at its first launch."""
    if not runs.must_rehearse(harness, subject, draw):
        return
    await harness.fill(subject, draw)
    seconds = max(policy.REHEARSAL_SECONDS, harness.settings.runner.deadline_factor * profile.rehearsal_seconds)
    await subject.ask(Rehearse(buffer=draw.buffer), deadline=min(seconds, policy.FIRST_RUN_SECONDS))


async def _remind(harness: Harness, subject: Subject, draw: Draw, profile: BaselineProfile) -> None:
    """Launch on plain inputs before those that are touched: a version may keep its last answer, and compare samples."""
    plain = profile.plain(draw.case) if draw.family == TOUCHED else None
    if plain is not None and harness.gpu is not None and not harness.launch_time.is_slow(draw.case):
        await runs.run_again(harness, subject, plain, profile.deadline(harness, draw))


def _form(harness: Harness, draw: Draw, ran: Ran, compared: Compared, profile: BaselineProfile) -> Ruling | None:
    """Return the ruling on outputs whose form or memory sharing differs from the baseline's, or None."""
    place = f"on case {harness.cases[draw.case]}"
    if not compared.changed_inputs and (why := moved(profile.places[draw.key], ran.places)):
        return wrong(f"{place} {why}")
    wanted = profile.outputs.get(draw.key)
    if draw.family in plan.RESTRIDED or not wanted:
        return None
    found = difference(wanted, form_of(ran.published), strides=not harness.target.workload.problem)
    return wrong(f"{place} {found}") if found else None


def _figures(harness: Harness, draw: Draw, compared: Compared) -> list[ErrorFigures]:
    return [
        ErrorFigures(
            case=harness.cases[draw.case],
            family=draw.family,
            baseline_max=theirs.max,
            baseline_rms=theirs.rms,
            candidate_max=ours.max,
            candidate_rms=ours.rms,
        )
        for ours, theirs in zip(compared.distances, compared.baseline, strict=True)
    ]


async def _check_repeats(harness: Harness, subject: Subject, profile: BaselineProfile, findings: Findings) -> None:
    """Check that the same inputs give the same bits."""
    if not profile.same_bits(harness):
        declared = harness.workload.nondeterministic
        why = "the workload declares it nondeterministic" if declared else profile.unrepeated or "nor is the baseline"
        findings.skipped("determinism", why)
        return
    draw = profile.draws[0]
    case = harness.cases[draw.case]
    try:
        prints = await runs.fingerprints(harness, subject, draw, findings, profile.deadline(harness, draw))
    except RUN_ERRORS as error:
        findings.fail("determinism", ruling_of(error, "running again", case))
        return
    if len(set(prints)) == 1:
        findings.passed("determinism", f"{policy.DETERMINISM_RUNS} runs, same bits")
        return
    reason = (
        f"{policy.DETERMINISM_RUNS} runs on the same inputs of case {case} gave different bits: "
        "it adds up in random order, or it races; with `NONDETERMINISTIC = True` in the workload that is "
        "accepted, and compute-sanitizer still looks for races"
    )
    findings.fail("determinism", wrong(reason))


async def _check_new_contents(harness: Harness, subject: Subject, profile: BaselineProfile, findings: Findings) -> None:
    """Check that new values at the same addresses give a new answer and leave earlier outputs unchanged."""
    first = profile.draws[0]
    other = profile.fresh[first.case]
    case = harness.cases[first.case]
    try:
        await subject.ask(Forget())
        ruling, held = await _held(harness, subject, [first, *[other] * (policy.HELD_OUTPUTS - 1)], profile)
        kept = sorted(set(await subject.ask(Forget())) - set(profile.keeps_outputs))
        if ruling is None and kept and not profile.in_place:
            ruling = wrong(
                f"on case {case} it keeps the memory of output {kept[0]} for itself when its caller has let go of it, "
                "and a later call may overwrite it"
            )
    except RUN_ERRORS as error:
        ruling, held = ruling_of(error, "running on new values", case), 0
    if ruling is not None:
        findings.fail(_NEW_CONTENTS, ruling, case)
        return
    fewer = "" if held == policy.HELD_OUTPUTS else f" after {policy.HELD_OUTPUTS} runs: more take too much memory"
    findings.passed(_NEW_CONTENTS, f"{held} outputs held at once{fewer}", case)


async def _held(
    harness: Harness, subject: Subject, draws: list[Draw], profile: BaselineProfile
) -> tuple[Ruling | None, int]:
    """Run on these inputs in turn while earlier outputs are kept; return the ruling, and the number of outputs kept."""
    ran: Ran | None = None
    for number, draw in enumerate(draws):
        ran = await runs.run_again(harness, subject, draw, profile.deadline(harness, draw))
        if number == 1 and (ruling := await runs.ruling_of_run(harness, subject, draw, ran)) is not None:
            return ruling, len(ran.held)
    assert ran is not None, "there are inputs"
    if ran.in_place:
        return None, len(ran.held)
    for back in sorted(set(ran.held) - {0}):
        earlier = await subject.ask(PublishEarlier(back=back))
        compared = await harness.compare(subject, draws[-1 - back], earlier)
        if any(distance.index is not None for distance in compared.distances):
            reason = f"{where(harness, draws[0])} a later call overwrites the output of an earlier one"
            return wrong(reason), len(ran.held)
    return None, len(ran.held)


async def _check_new_addresses(
    harness: Harness, subject: Subject, profile: BaselineProfile, findings: Findings
) -> None:
    """Check that the same values at new addresses give the same answer; earlier outputs are overwritten first.

    The values are those of the previous run.
    """
    draw = profile.fresh[profile.draws[0].case]
    case = harness.cases[draw.case]
    try:
        ran = await runs.run_again(harness, subject, draw, profile.deadline(harness, draw))
        await subject.ask(Spoil())
        subject.bound.pop(draw.buffer, None)  # the old memory stays allocated until the new one exists
        ran = await runs.run_again(harness, subject, draw, profile.deadline(harness, draw))
        ruling = await runs.ruling_of_run(harness, subject, draw, ran)
    except RUN_ERRORS as error:
        ruling = ruling_of(error, "running at other addresses", case)
    if ruling is not None:
        findings.fail(_NEW_ADDRESSES, ruling, case)
    else:
        findings.passed(_NEW_ADDRESSES, case=case)


_FURTHER = (
    ("determinism", _check_repeats, policy.DETERMINISM_RUNS - 1),
    (_NEW_CONTENTS, _check_new_contents, policy.HELD_OUTPUTS),
    (_NEW_ADDRESSES, _check_new_addresses, 2),
)
"""Checks on a GPU beyond single launches, and how often each launches a candidate."""
