"""Check from GPU traces that a version's own kernels compute the answer, compared with the baseline.

Each version's launches on the timed cases are traced, and before a FASTER what was timed once more. Work that the
baseline does too (libraries it calls, state it changes) is no fault of a candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import partial

from kernel_lsp import policy
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of
from kernel_lsp.judge.integrity import trace
from kernel_lsp.judge.integrity.trace import GpuOperation, Launched, OwnKernels
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.ruling import Ruling, rejected, unless_shared
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.timing import Trace, TracedGroup
from kernel_lsp.runner.messages.subject import LookForChanges, TraceLaunch, TraceSegment
from kernel_lsp.runner.messages.subject_answers import Recorded, Traced
from kernel_lsp.source.files import find_kernels

_SHOWN = 12
_OWN = "its own kernels do the work"
_ORDER = "no work on other streams is left behind"
_STATE = "torch's settings, functions and threads are left alone"
_SAME = "what was timed is what was launched"


@dataclass(frozen=True, slots=True)
class ObservedLaunches:
    """The side effects and GPU work of one version's launches.

    Attributes:
        launches: by case, its work on the GPU.
        operations: by case, the same one by one.
        changes: settings and functions that it changed.
        threads: threads that it left running.
        untraced: why nothing was traced; empty if something was.
    """

    launches: dict[int, Launched] = field(default_factory=dict[int, Launched])
    operations: dict[int, tuple[GpuOperation, ...]] = field(default_factory=dict[int, tuple[GpuOperation, ...]])
    changes: frozenset[str] = frozenset()
    threads: int = 0
    untraced: str = ""


async def observe(harness: Harness, subject: Subject, cases: Sequence[TimedCase]) -> ObservedLaunches:
    """Trace one launch on each of the cases.

    Raises:
        WorkerFailure, KernelLspError: the version did not survive being launched again.
    """
    launches: dict[int, Launched] = {}
    operations: dict[int, tuple[GpuOperation, ...]] = {}
    untraced, threads = "", 0
    for case in cases:
        await harness.fill(subject, case.draw)
        told = await subject.ask(TraceLaunch(buffer=case.draw.buffer), deadline=policy.FIRST_RUN_SECONDS)
        threads = max(threads, told.threads)
        operations[case.draw.case] = trace.read_operations(told.operations)
        try:
            launches[case.draw.case] = trace.read_launch(operations[case.draw.case], own_kernels(subject, told))
        except ValueError as error:
            untraced = told.failed or str(error)
            break
    left = await subject.ask(LookForChanges())
    return ObservedLaunches(launches, operations, frozenset(left.changed), threads + len(left.threads), untraced)


def own_kernels(subject: Subject, told: Traced) -> OwnKernels:
    """Return how to recognise a version's own kernels in this trace."""
    built = subject.built
    entries = frozenset(k.entry.partition("#")[0] for image in built.images for k in image.kernels)  # without `#2`
    unheard = any(extension.extension for extension in built.extensions)  # such a build launches by itself
    if not unheard:
        return OwnKernels(entries, told.heard, told.in_graphs)
    kernel = subject.candidate.kernel
    return OwnKernels(entries, names=frozenset(found.name for found in find_kernels(kernel.text, kernel.path)))


async def check_launches(
    harness: Harness, subject: Subject, cases: Sequence[TimedCase], baseline: ObservedLaunches, findings: Findings
) -> tuple[ObservedLaunches, list[Trace]]:
    """Trace a candidate's launches and compare them with the baseline's; `findings` gets the check and its ruling."""
    try:
        seen = await observe(harness, subject, cases)
        for _ in range(policy.TRACE_LOOKS - 1):  # a tracer may lose a trace, and nobody is accused for that
            if baseline.untraced or not seen.untraced:
                break
            seen = await observe(harness, subject, cases)
    except RUN_ERRORS as error:
        findings.fail("kernel trace", ruling_of(error, "being traced", harness.cases[cases[0].draw.case]))
        return ObservedLaunches(), []
    if why := _disturbs(seen, baseline):
        findings.fail(_STATE, rejected(f"the version {why}"))
        return seen, []
    findings.passed(_STATE)
    if baseline.untraced:
        findings.skipped(_ORDER, f"{baseline.untraced}; work on another stream would not be seen")
        findings.skipped(_OWN, f"{baseline.untraced}; so a library in place of its kernels would not be seen")
        return seen, []
    if seen.untraced:  # a process can make itself untraceable, and then nobody knows whose kernels run
        why = f"its launches cannot be traced, where those of the kernel as it stands are: {seen.untraced}"
        findings.fail(_OWN, rejected(why))
        return seen, []
    records: list[Trace] = []
    for number, launched in seen.launches.items():
        case, theirs = harness.cases[number], baseline.launches[number]
        records.append(_record(case, launched, theirs))
        if (why := trace.out_of_order(launched)) and not trace.out_of_order(theirs):
            findings.fail(_ORDER, rejected(f"on case {case} it {why}"), case)
            return seen, records
        if why := trace.passed_off(launched, theirs):
            findings.fail(_OWN, rejected(f"on case {case} {why}"), case)
            return seen, records
    findings.passed(_ORDER, _streams(seen))
    findings.passed(_OWN, _shares(records))
    return seen, records


def check_recordings(
    harness: Harness,
    cases: Sequence[TimedCase],
    candidate: Sequence[Recorded],
    baseline: Sequence[Recorded],
) -> Ruling | None:
    """Return the rejection of a candidate by its recordings, or None.

    It is rejected if its launches overlap or come out of order, or if more work lies between them, unless the
    baseline's recordings show the same.
    """
    disorderly = any(recorded.disorder for recorded in baseline)
    overlapping = any(recorded.overlap for recorded in baseline)
    between = max((recorded.between for recorded in baseline), default=0)
    for number, recorded in enumerate(candidate):
        name = harness.cases[cases[number % len(cases)].draw.case]
        if recorded.disorder and not disorderly:
            return rejected(f"on case {name}, as it is timed, it {recorded.disorder}")
        if recorded.overlap and not overlapping:
            return rejected(f"on case {name}, as it is timed, it {recorded.overlap}")
        if baseline and recorded.between > between:
            return rejected(f"on case {name} it does work between the launches that are timed")
    return None


async def check_timed(
    harness: Harness,
    baseline: Subject,
    candidate: Subject,
    timed: Sequence[tuple[TimedCase, float]],
    seen: tuple[ObservedLaunches, ObservedLaunches],
    shared: bool,
    findings: Findings,
) -> list[Trace]:
    """Trace timed segments, and compare them with single launches and with the measured times.

    Other processes on the GPU make kernels longer by turns, so that a claim is doubted only if several looks agree.

    Args:
        harness: where both live.
        baseline: with its segments recorded.
        candidate: likewise.
        timed: each case, and the microseconds that a launch of the candidate is said to take.
        seen: launches by themselves of the baseline and of the candidate.
        shared: True if other processes use the GPU.
        findings: where the check and its ruling are noted.

    Returns:
        The traces.
    """
    of_baseline, of_candidate = seen
    if of_baseline.untraced:  # else the candidate was traced too
        findings.skipped(_SAME, of_baseline.untraced)
        return []
    records: list[Trace] = []
    for case, claimed_us in timed:
        number, name = case.draw.case, harness.cases[case.draw.case]
        alone = of_candidate.launches[number]
        look = partial(_trace_both, (baseline, candidate), case, of_baseline, alone, claimed_us)
        ran, before, why, short = await look()
        for _ in range(policy.TRACE_LOOKS - 1):
            if why or not short:
                break
            ran, before, why, short = await look()
        records.append(_record(name, ran, before, case.launches, claimed_us))
        if why or short:
            ruling = rejected(f"on case {name} {why or short}")
            findings.fail(_SAME, ruling if why else unless_shared(ruling, shared), name)
            return records
    findings.passed(_SAME, _shares(records))
    return records


async def _trace_both(
    sides: tuple[Subject, Subject], case: TimedCase, of_baseline: ObservedLaunches, alone: Launched, claimed_us: float
) -> tuple[Launched, Launched, str | None, str | None]:
    """Trace a recording in both versions' processes.

    Returns:
        The candidate's work and the baseline's, why the candidate's is not what a launch `alone` does, and why it took
        longer than is claimed; None for either that does not hold.
    """
    told = [await side.ask(TraceSegment(recording=case.recording)) for side in sides]
    theirs, ours = (trace.read_operations(answer.operations) for answer in told)
    known = trace.harness_names(theirs, of_baseline.operations[case.draw.case])
    ran = trace.read_timed(ours, alone, known)
    before = trace.read_timed(theirs, of_baseline.launches[case.draw.case], known)
    why = trace.left_out(alone, ran, case.launches) or trace.passed_off(ran, before)
    if why is None and not case.captured:  # a graph shows by itself what runs when
        why = trace.out_of_time(ours, theirs, alone)
    return ran, before, why, trace.claims_too_little(ran, case.launches, claimed_us)


async def check_surroundings(
    baseline: Subject, candidate: Subject, seen: ObservedLaunches, findings: Findings
) -> Ruling | None:
    """Look again, after timing, for what a candidate has changed in its process; return the ruling on it, or None.

    It may have waited until it was recorded or timed. Changes that the baseline's process shows by now too, or showed
    when it was `seen`, are no fault of the candidate's.
    """
    theirs, ours = [await version.ask(LookForChanges()) for version in (baseline, candidate)]
    usual = replace(seen, changes=seen.changes | set(theirs.changed), threads=max(seen.threads, len(theirs.threads)))
    why = _disturbs(ObservedLaunches(changes=frozenset(ours.changed), threads=len(ours.threads)), usual)
    return findings.fail(_STATE, rejected(f"once it is timed, the version {why}")) if why else None


def _disturbs(seen: ObservedLaunches, baseline: ObservedLaunches) -> str | None:
    if changed := sorted(seen.changes - baseline.changes):
        return f"changes {', '.join(changed[:3])}, which others use"
    if seen.threads > baseline.threads:
        return "leaves a thread running when `launch` has returned"
    return None


def _record(
    case: str, launched: Launched, baseline: Launched, launches: int = 1, claimed_us: float | None = None
) -> Trace:
    return Trace(
        case=case,
        timed=claimed_us is not None,
        launches=launches,
        span_us=launched.span_us,
        own_share=launched.own_share,
        baseline_own_share=baseline.own_share,
        claimed_us=claimed_us,
        groups=tuple(
            TracedGroup(kind=g.kind, name=g.name, own=g.own, calls=g.calls, us=g.us, streams=g.streams)
            for g in launched.groups[:_SHOWN]
        ),
        never_launched=launched.never,
    )


def _streams(seen: ObservedLaunches) -> str:
    streams = [{s for group in launched.groups for s in group.streams} for launched in seen.launches.values()]
    used = max(map(len, streams), default=0)
    return "one stream" if used <= 1 else f"{used} streams, joined"


def _shares(records: Sequence[Trace]) -> str:
    shares = [record.own_share for record in records if record.own_share is not None]
    if not shares:
        return "nothing computes"
    low, high = min(shares), max(shares)
    return f"{low:.0%} of the time" if high - low < 0.01 else f"{low:.0%} to {high:.0%} of the time"
