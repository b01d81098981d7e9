"""Is what computes the answer the version's own work? Seen from a trace of the GPU, beside the baseline's.

Each version's launches on the timed cases are traced, and before a FASTER what was timed once more. What the baseline
does (libraries it calls, state it changes) is no fault of a candidate.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_lsp.judge import trace
from kernel_lsp.judge.bench import Bench, Subject
from kernel_lsp.judge.correctness import FIRST_RUN_SECONDS, RUN_ERRORS, Failure, Findings, failure_of
from kernel_lsp.judge.timing import TimedCase
from kernel_lsp.judge.trace import Launched, Operation, OwnKernels
from kernel_lsp.judge.verdict import Outcome, Stage, Trace, TracedGroup
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Language

_SHOWN = 12
_OWN = "its own kernels do the work"
_ORDER = "no work on other streams is left behind"
_STATE = "torch's settings, functions and threads are left alone"
_SAME = "what was timed is what was launched"


@dataclass(frozen=True, slots=True)
class Seen:
    """What one version does round a launch, by case: what ran on the GPU, what it changed, threads it left running."""

    launches: dict[int, Launched] = field(default_factory=dict[int, Launched])
    operations: dict[int, tuple[Operation, ...]] = field(default_factory=dict[int, tuple[Operation, ...]])
    changes: frozenset[str] = frozenset()
    threads: int = 0
    untraced: str | None = None


def own_kernels(subject: Subject) -> OwnKernels:
    """By what names a version's kernels run."""
    built, kernel = subject.built, subject.candidate.kernel
    entries = frozenset(k.entry.partition("#")[0] for image in built.images for k in image.kernels)  # numbered if alike
    if entries and subject.candidate.language is Language.CUDA:
        return OwnKernels(entries)
    return OwnKernels(entries, frozenset(found.name for found in find_kernels(kernel.text, kernel.path)))


async def observe(bench: Bench, subject: Subject, cases: Sequence[TimedCase]) -> Seen:
    """Trace a launch on each of the cases.

    Raises:
        WorkerFailure, KernelLspError: the version did not survive being launched again.
    """
    own, launches, operations = own_kernels(subject), dict[int, Launched](), dict[int, tuple[Operation, ...]]()
    untraced, threads = None, 0
    for case in cases:
        await bench.fill(subject, case.draw)
        told = await subject.call("trace", deadline=FIRST_RUN_SECONDS, name=case.draw.slab)
        threads = max(threads, told["threads"])
        operations[case.draw.case] = trace.read_operations(told["operations"])
        try:
            launches[case.draw.case] = trace.read_launch(operations[case.draw.case], own)
        except ValueError as error:
            untraced = told["failed"] or str(error)
            break
    left = await subject.call("surroundings")
    return Seen(launches, operations, frozenset(left["changes"]), threads + len(left["threads"]), untraced)


async def check_launches(
    bench: Bench, subject: Subject, cases: Sequence[TimedCase], baseline: Seen, findings: Findings
) -> tuple[Seen, list[Trace]]:
    """Trace a candidate's launches and hold them against the baseline's; a failure is noted in `findings`."""
    try:
        seen = await observe(bench, subject, cases)
    except RUN_ERRORS as error:
        findings.fail("kernel trace", failure_of(error, "being traced", bench.cases[cases[0].draw.case]))
        return Seen(), []
    if why := _disturbs(seen, baseline):
        findings.fail(_STATE, _illegitimate(f"the version {why}"))
        return seen, []
    findings.passed(_STATE)
    if unknown := baseline.untraced or seen.untraced:
        findings.skipped(_ORDER, f"{unknown}; work on another stream would not be seen")
        findings.skipped(_OWN, f"{unknown}; so a library in place of its kernels would not be seen")
        return seen, []
    records: list[Trace] = []
    for number, launched in seen.launches.items():
        case = bench.cases[number]
        records.append(_record(case, launched, baseline.launches[number]))
        if (why := trace.out_of_order(launched)) and not trace.out_of_order(baseline.launches[number]):
            findings.fail(_ORDER, _illegitimate(f"on case {case} it {why}"), case)
            return seen, records
        if why := trace.passed_off(launched, baseline.launches[number]):
            findings.fail(_OWN, _illegitimate(f"on case {case} {why}"), case)
            return seen, records
    findings.passed(_ORDER, _streams(seen))
    findings.passed(_OWN, _shares(records))
    return seen, records


async def check_timed(
    bench: Bench,
    baseline: Subject,
    candidate: Subject,
    timed: Sequence[tuple[TimedCase, float]],
    seen: tuple[Seen, Seen],
) -> tuple[Failure | None, list[Trace], str]:
    """Trace what is timed, as it is run again, and hold it against the launches and the times that were measured.

    Args:
        bench: where both live.
        baseline: with its segments recorded.
        candidate: likewise.
        timed: each case, and how long a launch of the candidate is said to take, in microseconds.
        seen: what launches of the baseline and of the candidate do.

    Returns:
        What is wrong, if anything; what was traced; and why nothing was, if so.
    """
    of_baseline, of_candidate = seen
    if unknown := of_baseline.untraced or of_candidate.untraced:
        return None, [], unknown
    records: list[Trace] = []
    for case, claimed_us in timed:
        number, name = case.draw.case, bench.cases[case.draw.case]
        told = [await side.call("trace_segment", name=case.draw.slab) for side in (baseline, candidate)]
        theirs, ours = (trace.read_operations(answer["operations"]) for answer in told)
        harness = trace.harness_names(theirs, of_baseline.operations[number])
        ran = trace.read_timed(ours, own_kernels(candidate), harness)
        before = trace.read_timed(theirs, own_kernels(baseline), harness)
        # A difference of graphs stands for one and three times as many launches.
        launches = told[1]["times"] * (4 * case.launches if case.mode == "graph" else 1)
        records.append(_record(name, ran, before, launches, claimed_us))
        why = (
            trace.left_out(of_candidate.launches[number], ran, launches)
            or trace.passed_off(ran, before)
            or trace.claims_too_little(ran, launches, claimed_us)
        )
        if why:
            return _illegitimate(f"on case {name} {why}"), records, ""
    return None, records, ""


def note_timed(findings: Findings, failure: Failure | None, records: Sequence[Trace], unknown: str) -> None:
    """Note what `check_timed` came to."""
    if unknown:
        findings.skipped(_SAME, unknown)
    elif failure is not None:
        findings.fail(_SAME, failure)
    else:
        findings.passed(_SAME, _shares(records))


def _disturbs(seen: Seen, baseline: Seen) -> str | None:
    if changed := sorted(seen.changes - baseline.changes):
        return f"changes {', '.join(changed[:3])}, which others use"
    if seen.threads > baseline.threads:
        return "leaves a thread running when `launch` has returned"
    return None


def _illegitimate(reason: str) -> Failure:
    return Failure(Outcome.ILLEGITIMATE, Stage.LEGITIMATE, reason)


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


def _streams(seen: Seen) -> str:
    used = max(len({s for group in launched.groups for s in group.streams}) for launched in seen.launches.values())
    return "one stream" if used <= 1 else f"{used} streams, joined"


def _shares(records: Sequence[Trace]) -> str:
    shares = [record.own_share for record in records if record.own_share is not None]
    if not shares:
        return "nothing computes"
    low, high = min(shares), max(shares)
    return f"{low:.0%} of the time" if high - low < 0.01 else f"{low:.0%} to {high:.0%} of the time"
