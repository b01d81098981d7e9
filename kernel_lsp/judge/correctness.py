"""Is a version right? Its outputs against the float64 oracle, on inputs made to show what is wrong.

The baseline goes first, alone: its own error on each set of inputs becomes the yardstick, and inputs on which the
baseline itself is wrong or fails are not held against a candidate. A candidate runs in its own process, is given
inputs by the oracle, and never meets an expected value. See ARCHITECTURE.md, "What a verdict rests on".
"""

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError, WorkloadError
from kernel_lsp.judge.bench import Bench, Draw, Subject, UnjudgedError
from kernel_lsp.judge.emulation import EmulatedFinding, EmulatedRun, read_run
from kernel_lsp.judge.verdict import Check, CheckStatus, ErrorFigures, Mismatch, Outcome, Stage
from kernel_lsp.runner.protocol import WorkerFailure
from kernel_lsp.runner.worker import WorkerDied, WorkerTimedOut

_VALUES = ("normal", "shifted", "large", "tiny", "ties", "sorted", "outliers")
_SIGNED, _WEIGHTS, _SORTED, _BELOW = "signed", "weights", "sorted", "below"
_LAST = ("alternating", "above", _BELOW)
_EMULATED_BYTES = 1 << 20  # larger inputs take the emulator too long
_EMULATED_SECONDS = 1.5  # for all emulated runs of one version together; the first one is made whatever it takes
_AMISS = ("uninitialised", "shared-race", "global-race")  # a GPU would run it, and may give any answer
_REPEATS = 3
_ROUNDING = 64  # times what is allowed: an error beyond that is no matter of precision
_HELD = 4  # outputs that must keep their values while later ones are made
_NO_ROOM = "CUDA_ERROR_OUT_OF_MEMORY"  # for memory that the judge makes
_VARIED = 16  # arguments that are tried one by one
_WEIGHTS_SECONDS = 5.0  # for those that are weights, where all together are tried too
FIRST_RUN_SECONDS = 60.0  # a first launch may compile
_REHEARSAL_SECONDS = 10.0  # what a candidate has for that at least; more if the baseline took long, too


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a candidate is out: the outcome, the stage that found it, and a sentence for a person."""

    outcome: Outcome
    stage: Stage
    reason: str
    mismatch: Mismatch | None = None


@dataclass(slots=True)
class Findings:
    """What the checks of one version found, in order.

    `runs` are those on the emulator, where there is no GPU; `prints` tell outputs apart, by inputs.
    """

    checks: list[Check] = field(default_factory=list[Check])
    errors: list[ErrorFigures] = field(default_factory=list[ErrorFigures])
    runs: list[EmulatedRun] = field(default_factory=list[EmulatedRun])
    prints: dict[str, tuple[int, ...]] = field(default_factory=dict[str, tuple[int, ...]])
    failure: Failure | None = None

    def passed(self, name: str, detail: str = "", case: str | None = None) -> None:
        """Note a check that found nothing."""
        self.checks.append(Check(name=name, status=CheckStatus.PASSED, detail=detail, case=case))

    def skipped(self, name: str, detail: str, case: str | None = None) -> None:
        """Note a check that did not run, and why."""
        self.checks.append(Check(name=name, status=CheckStatus.SKIPPED, detail=detail, case=case))

    def fail(self, name: str, failure: Failure, case: str | None = None) -> None:
        """Note the check that ends it."""
        self.checks.append(Check(name=name, status=CheckStatus.FAILED, detail=failure.reason, case=case))
        self.failure = failure


@dataclass(slots=True)
class Yardstick:
    """What the baseline did, and so what a candidate is measured by.

    Attributes:
        draws: inputs on which the baseline is right, the quickest case first.
        fresh: by case, other plain inputs, kept for memory that has held the first ones.
        outputs: by case, (type, shape, strides) of each output.
        output_bytes: by case, bytes of all outputs.
        places: by inputs, where outputs lie that have no memory of their own, empty for those that have.
        in_place: whether an output lies in an input.
        deterministic: whether the baseline gives the same bits each time.
        weak: trivial answers that the workload would accept, as sentences.
        run_seconds: by case, longest wall time of one run of the baseline.
        rehearsal_seconds: longest wall time of a launch before the first one, in which it may compile or tune itself.
        findings: what was found on the way, among it inputs that are not used and why.
    """

    draws: list[Draw]
    fresh: dict[int, Draw]
    outputs: dict[int, list[tuple[str, tuple[int, ...], tuple[int, ...]]]]
    output_bytes: dict[int, int]
    places: dict[str, list[str]]
    in_place: bool
    deterministic: bool
    weak: list[str]
    run_seconds: dict[int, float]
    rehearsal_seconds: float
    findings: Findings


async def measure_baseline(bench: Bench, baseline: Subject) -> Yardstick:
    """Run the baseline on every set of inputs and learn what may be asked of a candidate.

    `findings.failure` is set when the baseline itself is wrong, hangs or crashes on plain inputs.

    Raises:
        CannotJudgeError: there is no GPU, and the emulator cannot run it.
        RunnerError: the judge itself lacks memory.
    """
    yard = Yardstick([], {}, {}, {}, {}, False, True, [], {}, 0.0, Findings())
    order = await _case_order(bench, yard.findings)
    if bench.large:
        detail = "inputs so large take ten times their memory to be sorted, and longer than all else"
        yard.findings.skipped(f"inputs: {_SORTED}", detail, bench.cases[order[0]])
    scout = _Scout(bench, baseline)
    try:
        for case, family in _plan(bench, order):
            await _measure_family(bench, baseline, scout, case, family, yard, touched=case in order[:2])
            if yard.findings.failure is not None:
                return yard
        await _measure_arguments(bench, scout, yard)
        for family in _last_families(bench):
            await _measure_family(bench, baseline, scout, order[0], family, yard)
    finally:
        await scout.leave()
    if bench.contract.mutates and not yard.in_place:
        raise WorkloadError(
            f"CONTRACT mutates {', '.join(bench.contract.mutates)}, but `launch` returns none of it",
            bench.target.workload.source.path,
            cure="Return what is changed in place from `launch`, and its right value from `reference`.",
        )
    if bench.gpu is not None:
        await _measure_repeats(bench, baseline, yard)
    await _measure_strength(bench, yard)
    return yard


async def _measure_family(
    bench: Bench,
    baseline: Subject,
    scout: "_Scout",
    case: int,
    family: str,
    yard: Yardstick,
    *,
    touched: bool = False,
) -> None:
    """Add a family's inputs on a case if the baseline is right on them; plain ones end it where it is not.

    `touched` adds those of `_measure_touched` to plain ones.
    """
    draw = await bench.draw(case, family)
    plain = family == "normal"
    if not _affordable(bench, draw, yard.findings):
        yard.findings.skipped(f"inputs: {family}", _TOO_SLOW, bench.cases[case])
        return
    failure = await _measure_one(bench, baseline if plain else await scout.subject(), draw, yard)
    if failure is None and plain:
        bench.keep_launchers(baseline)
        yard.fresh[case] = await bench.draw(case, family, 1)
        if bench.gpu is not None:
            failure = await _measure_one(bench, baseline, yard.fresh[case], yard)
    if failure is None:
        yard.draws.append(draw)
        if plain and touched and case not in bench.advisory:
            await _measure_touched(bench, baseline, draw, yard)
    elif plain and case not in bench.advisory:
        if failure.outcome is Outcome.UNTIMED:
            raise RunnerError(failure.reason, cure="End what else takes memory, or leave out large cases.")
        yard.findings.fail("baseline", failure, bench.cases[case])
    else:
        await _leave_out(bench, scout, draw, failure, yard)


async def _measure_touched(bench: Bench, baseline: Subject, plain: Draw, yard: Yardstick) -> None:
    """Add inputs that a version which remembers its last answer by samples of the inputs takes for the same."""
    draw = await bench.touch(plain)
    if not _affordable(bench, draw, yard.findings):
        yard.findings.skipped(f"inputs: {draw.family}", _TOO_SLOW, bench.cases[draw.case])
    elif (failure := await _measure_one(bench, baseline, draw, yard)) is None:
        yard.draws.append(draw)
    else:
        detail = f"the baseline itself does not manage them: {failure.reason}"
        yard.findings.skipped(f"inputs: {draw.family}", detail, bench.cases[draw.case])


async def _measure_arguments(bench: Bench, scout: "_Scout", yard: Yardstick) -> None:
    """Add inputs that differ from the quickest plain ones in one argument each: none of them may be ignored."""
    plain, begun = yard.draws[0], time.perf_counter()
    together = any(draw.family == _WEIGHTS for draw in yard.draws)
    for number in range(min(len(bench.arguments), _VARIED)):
        long = time.perf_counter() - begun > _WEIGHTS_SECONDS
        if together and long and bench.arguments[number] in bench.weights:
            detail = "right answers take long here; all weights are tried together"
            yard.findings.skipped("inputs: each weight alone", detail, bench.cases[plain.case])
            break
        draw, matters = await bench.vary(plain, number)
        if draw is None:
            continue
        name, case = f"inputs: {draw.family}", bench.cases[draw.case]
        if not matters:
            yard.findings.skipped(name, "the right answer is the same whatever it holds", case)
        elif not _affordable(bench, draw, yard.findings):
            yard.findings.skipped(name, _TOO_SLOW, case)
        elif (failure := await _measure_one(bench, await scout.subject(), draw, yard)) is None:
            yard.draws.append(draw)
        else:
            await _leave_out(bench, scout, draw, failure, yard)


async def _leave_out(bench: Bench, scout: "_Scout", draw: Draw, failure: Failure, yard: Yardstick) -> None:
    """Hold inputs against nobody that the baseline itself does not manage."""
    await scout.recover(failure)
    if yard.findings.runs and yard.findings.runs[-1].findings:
        yard.findings.runs.pop()  # what nobody promised to manage is no finding
    detail = f"the baseline itself does not manage them: {failure.reason}"
    yard.findings.skipped(f"inputs: {draw.family}", detail, bench.cases[draw.case])


class _Scout:
    """The baseline in a process of its own, for inputs that may end in a fault: the timed one must not catch it."""

    def __init__(self, bench: Bench, baseline: Subject) -> None:
        self._bench, self._baseline = bench, baseline
        self._subject: Subject | None = None

    async def subject(self) -> Subject:
        if self._bench.gpu is None:
            return self._baseline  # no fault on the emulator outlives its run
        if self._subject is None:
            await self._bench.rest(self._baseline)
            self._subject = await self._bench.enter(self._baseline.candidate, self._baseline.built)
        return self._subject

    async def recover(self, failure: Failure) -> None:
        """After a fault another process is taken; one that gave a wrong answer can give others."""
        if failure.stage is Stage.RUN:
            await self.leave()

    async def leave(self) -> None:
        if self._subject is not None:
            await self._bench.leave(self._subject)
            self._subject = None


async def check(bench: Bench, subject: Subject, yard: Yardstick, *, quick: bool = False) -> Findings:
    """Check a candidate on all of the yardstick's inputs, or on the plain ones of each case only (`quick`).

    The first failure ends it: what comes after a wrong answer or a fault tells nothing more.
    """
    findings = Findings()
    draws = [draw for draw in yard.draws if draw.family == "normal" or not quick]
    if bench.scaled:
        findings.skipped("the case as written", bench.scaled, bench.cases[0])
    if bench.slack > 1:
        why = f"PyTorch runs on the CPU, where it is more exact; errors are allowed {bench.slack:.0f} times over"
        findings.skipped("the baseline's error on a GPU", why)
    if bench.weights:
        _note_weights(bench, subject, findings)
    for draw in draws:
        if own := set(draw.changed_weights) & set(subject.own_weights):
            detail = f"it makes `{min(own)}` itself, or what takes its place, and is not given another"
            findings.skipped(f"inputs: {draw.family}", detail, bench.cases[draw.case])
            continue
        if not _affordable(bench, draw, findings):
            findings.skipped(f"inputs: {draw.family}", _TOO_SLOW, bench.cases[draw.case])
            continue
        failure = await _check_one(bench, subject, draw, yard, findings)
        if failure is not None and draw.case in bench.advisory:
            if findings.runs and findings.runs[-1].findings:
                findings.runs.pop()
            detail = f"not held against it, as the problem asks for its own sizes only: {failure.reason}"
            findings.skipped("other sizes", detail, bench.cases[draw.case])
            continue
        if failure is not None:
            findings.fail(f"inputs: {draw.family}", failure, bench.cases[draw.case])
            return findings
        findings.passed(f"inputs: {draw.family}", case=bench.cases[draw.case])
    if all(set(draw.changed_weights) & set(subject.own_weights) for draw in draws):
        reason = "with weights as constructed the problem's answer is rounding alone, and it makes its weights itself"
        findings.fail("weights", Failure(Outcome.UNTIMED, Stage.RUN, reason))
        return findings
    if bench.gpu is None:
        findings.skipped("determinism", "the emulator gives the same bits each time; needs a GPU")
        findings.skipped("new values at the same addresses", "needs a GPU")
        findings.skipped("the same values at other addresses", "needs a GPU")
    elif not quick:
        await _check_repeats(bench, subject, yard, findings)
        for further in (_check_new_contents, _check_new_addresses):
            if findings.failure is None:
                await further(bench, subject, yard, findings)
    findings.checks += [c for c in yard.findings.checks if c.status is CheckStatus.SKIPPED]
    return findings


def _note_weights(bench: Bench, subject: Subject, findings: Findings) -> None:
    """Say how a version of a KernelBench problem came by its weights."""
    count = len(bench.weights)
    if not subject.own_weights:
        findings.passed("weights", f"by state: all {count} are given to it, under their names")
        return
    own = subject.own_weights
    named = ", ".join(f"`{name}`" for name in own[:3]) + (f" and {len(own) - 3} more" if len(own) > 3 else "")
    findings.skipped("weights", f"by construction under the same seed: it has no {named}, so these are never varied")


def deadline_for(bench: Bench, yard: Yardstick, draw: Draw) -> float:
    """Seconds that one run may take: so many times the baseline's own, and never less than the floor."""
    settings = bench.settings.runner
    if bench.gpu is None:
        return FIRST_RUN_SECONDS
    own = yard.run_seconds.get(draw.case)
    if own is None:
        return FIRST_RUN_SECONDS
    return max(settings.deadline_floor_s, settings.deadline_factor * own)


def failure_of(error: Exception, doing: str, case: str) -> Failure:
    """What an exception while running a version says about that version.

    Nothing, where the judge itself came to an end of memory.
    """
    if isinstance(error, UnjudgedError) or (isinstance(error, WorkerFailure) and _NO_ROOM in error.message):
        said = "this GPU has too little memory free" if _NO_ROOM in str(error) else str(error)
        return Failure(Outcome.UNTIMED, Stage.RUN, f"it could not be judged, {doing} on case {case}: {said}")
    if isinstance(error, WorkerTimedOut):
        return Failure(Outcome.TIMED_OUT, Stage.RUN, f"it did not finish {doing} on case {case}: {error.message}")
    if isinstance(error, WorkerDied):
        return Failure(Outcome.RUN_FAILED, Stage.RUN, f"its process died {doing} on case {case}: {error.message}")
    if isinstance(error, WorkerFailure):
        said = error.message.splitlines()[0] if error.message else error.kind
        return Failure(Outcome.RUN_FAILED, Stage.RUN, f"it failed {doing} on case {case}: {error.kind}: {said}")
    return Failure(Outcome.RUN_FAILED, Stage.RUN, f"it failed {doing} on case {case}: {error}")


RUN_ERRORS = (WorkerFailure, KernelLspError)


def _plan(bench: Bench, order: list[int]) -> Iterator[tuple[int, str]]:
    """Which family on which case: all of them on the quickest case, plain inputs and one other family on the rest."""
    chosen = bench.settings.judge.families
    values = [f for f in _VALUES if f == "normal" or not chosen or f in chosen]
    values = [f for f in values if f != _SORTED or not bench.large]
    for family in values:
        yield order[0], family
    others = [f for f in values if f != "normal"]
    if bench.target.workload.problem:
        yield order[0], _SIGNED
    if bench.weights:
        yield order[0], _WEIGHTS
    for place, case in enumerate(order[1:]):
        yield case, "normal"
        if others and case not in bench.advisory:
            yield case, others[place % len(others)]
    layouts = [
        ("nonfinite", not bench.contract.finite),
        ("unaligned", not bench.contract.aligned),
        ("strided", not bench.contract.contiguous),
    ]
    for family, applies in layouts:
        if applies and (not chosen or family in chosen):
            yield order[0], family


def _last_families(bench: Bench) -> list[str]:
    """Families for the quickest case that look for gross mistakes, after all others: they are rarer than theirs."""
    chosen = bench.settings.judge.families
    signed = bench.target.workload.problem  # whose inputs are negative in the family `signed`
    return [f for f in _LAST if (not chosen or f in chosen) and not (signed and f == _BELOW)]


async def _case_order(bench: Bench, findings: Findings) -> list[int]:
    """Cases by the size of their inputs, smallest first; without a GPU only those that can be emulated in time."""
    sizes: list[int] = await bench.oracle("sizes")
    order = sorted(bench.decisive, key=lambda case: sizes[case])
    if bench.gpu is not None:
        return order
    for case in order[1:]:
        if sizes[case] > _EMULATED_BYTES:
            findings.skipped("inputs: normal", "too large for the emulator; needs a GPU", bench.cases[case])
    return [*(case for case in order if case == order[0] or sizes[case] <= _EMULATED_BYTES), *bench.advisory]


_TOO_SLOW = "too slow on the emulator; needs a GPU"


def _affordable(bench: Bench, draw: Draw, findings: Findings) -> bool:
    """Whether one more run fits the time for emulated ones, going by the run before it and the bytes of the inputs."""
    if bench.gpu is not None or not findings.runs:
        return True
    last = findings.runs[-1]
    growth = max(1.0, draw.input_bytes / max(last.input_bytes, 1))
    return sum(run.seconds for run in findings.runs) + last.seconds * growth <= _EMULATED_SECONDS


async def _measure_one(bench: Bench, subject: Subject, draw: Draw, yard: Yardstick) -> Failure | None:
    case = bench.cases[draw.case]
    try:
        await bench.fill(subject, draw)
        if bench.gpu is not None:
            started = time.perf_counter()
            await subject.call("rehearse", deadline=FIRST_RUN_SECONDS, name=draw.slab)
            yard.rehearsal_seconds = max(time.perf_counter() - started, yard.rehearsal_seconds)
            await bench.fill(subject, draw)
        started = time.perf_counter()
        published = await subject.call("run", deadline=FIRST_RUN_SECONDS, name=draw.slab)
        yard.run_seconds[draw.case] = max(time.perf_counter() - started, yard.run_seconds.get(draw.case, 0.0))
        compared = await bench.compare(subject, draw, published, baseline=True)
        failure = _take_emulated(bench, draw, published, yard.findings) or _verdict_on(bench, draw, published, compared)
        if failure is None and compared["blank"]:
            failure = await _check_unwritten(bench, subject, draw, FIRST_RUN_SECONDS)
    except RUN_ERRORS as error:
        if isinstance(error, WorkloadError):
            if draw.family == "normal":
                raise
            return Failure(Outcome.UNTIMED, Stage.CORRECT, f"there is no right answer to them: {error.message}")
        _raise_what_needs_a_gpu(bench, error)
        return failure_of(error, "running", case)
    if failure is not None:
        return failure
    if bench.target.workload.problem and not compared["finite"] and draw.family != "normal":
        return Failure(Outcome.WRONG, Stage.CORRECT, "the right answer to them is not finite")
    yard.findings.prints[draw.key] = tuple(compared["fingerprints"])
    yard.in_place = yard.in_place or published["in_place"]
    yard.places[draw.key] = published["places"]
    yard.outputs.setdefault(draw.case, _metadata(published))
    yard.output_bytes[draw.case] = sum(spec["span"] for spec in published["outputs"])
    return None


async def _check_one(bench: Bench, subject: Subject, draw: Draw, yard: Yardstick, findings: Findings) -> Failure | None:
    case = bench.cases[draw.case]
    first = draw.slab not in subject.bound
    try:
        await bench.fill(subject, draw)
        compiled = bench.gpu is None or subject.built.build.way in ("nvrtc", "nvcc-slice", "nvcc")
        if first and not compiled:  # may compile or tune itself first
            seconds = max(_REHEARSAL_SECONDS, bench.settings.runner.deadline_factor * yard.rehearsal_seconds)
            await subject.call("rehearse", deadline=min(seconds, FIRST_RUN_SECONDS), name=draw.slab)
            await bench.fill(subject, draw)
        published = await subject.call("run", deadline=deadline_for(bench, yard, draw), name=draw.slab)
        compared = await bench.compare(subject, draw, published, baseline=False)
    except RUN_ERRORS as error:
        _raise_what_needs_a_gpu(bench, error)
        return failure_of(error, "running", case)
    if (failure := _take_emulated(bench, draw, published, findings)) is not None:
        return failure
    if not compared["changed_inputs"] and (moved := _moved(yard.places[draw.key], published["places"])):
        return Failure(Outcome.WRONG, Stage.CORRECT, f"on case {case} {moved}")
    if (
        draw.family != "strided"
        and (wanted := yard.outputs.get(draw.case))
        and (difference := _difference(wanted, _metadata(published), strides=not bench.target.workload.problem))
    ):
        return Failure(Outcome.WRONG, Stage.CORRECT, f"on case {case} {difference}")
    findings.prints[draw.key] = tuple(compared["fingerprints"])
    for number, distance in enumerate(compared["distances"]):
        findings.errors.append(
            ErrorFigures(
                case=case,
                family=draw.family,
                baseline_max=compared["baseline"][number]["max"],
                baseline_rms=compared["baseline"][number]["rms"],
                candidate_max=distance["max"],
                candidate_rms=distance["rms"],
            )
        )
    failure = _verdict_on(bench, draw, published, compared)
    if failure is not None or not compared["blank"]:
        return failure
    try:
        return await _check_unwritten(bench, subject, draw, deadline_for(bench, yard, draw))
    except RUN_ERRORS as error:
        return failure_of(error, "running once more", case)


async def _check_unwritten(bench: Bench, subject: Subject, draw: Draw, deadline: float) -> Failure | None:
    """Run once more in memory that holds zeros.

    Where NaN, -1 or True is right, 0xFF bytes that nothing was written over pass for it.
    """
    await bench.fill(subject, draw)
    published = await subject.call("run", deadline=deadline, name=draw.slab, unset=0)
    failure = _verdict_on(bench, draw, published, await bench.compare(subject, draw, published, baseline=False))
    if failure is None:
        return None
    return replace(failure, reason=f"{failure.reason}; it is right only in memory that holds 0xFF bytes before")


def _raise_what_needs_a_gpu(bench: Bench, error: Exception) -> None:
    """Raise what says nothing of the version: the emulator cannot run it."""
    if isinstance(error, CannotJudgeError) and bench.gpu is None:
        raise error
    if bench.gpu is None and isinstance(error, WorkerTimedOut):
        why = f"the emulator did not finish a run in {FIRST_RUN_SECONDS:.0f} s"
        raise CannotJudgeError(why, bench.target.source.path, cure="Add a smaller case, or use a GPU.") from error


def _take_emulated(bench: Bench, draw: Draw, published: dict[str, Any], findings: Findings) -> Failure | None:
    """Keep the record of an emulated run; what it shows to be wrong, if anything."""
    if published["emulated"] is None:
        return None
    run = read_run(bench.cases[draw.case], draw.family, draw.input_bytes, published["emulated"])
    findings.runs.append(run)
    return failure_of_finding(run.findings[0], run) if run.findings else None


def failure_of_finding(finding: EmulatedFinding, run: EmulatedRun) -> Failure:
    """What a finding of the emulator's says of a version: it would fail on a GPU, or give another answer at times."""
    place = f"line {finding.line}: " if finding.line else ""
    inputs = "" if run.family == "normal" else f" with {run.family} inputs"
    outcome, stage = (Outcome.WRONG, Stage.CORRECT) if finding.kind in _AMISS else (Outcome.RUN_FAILED, Stage.RUN)
    return Failure(outcome, stage, f"on case {run.case}{inputs}, {place}{finding.message}")


def _verdict_on(bench: Bench, draw: Draw, published: dict[str, Any], compared: dict[str, Any]) -> Failure | None:
    case = bench.cases[draw.case]
    inputs = "" if draw.family == "normal" else f" with {draw.family} inputs"
    where = f"on case {case}{inputs}"

    def wrong(reason: str, mismatch: Mismatch | None = None) -> Failure:
        return Failure(Outcome.WRONG, Stage.CORRECT, reason, mismatch)

    if compared["shape_error"]:
        return wrong(f"{where} {compared['shape_error']}")
    for number, found in enumerate(compared["distances"]):
        if found["first_wrong"] is not None:
            mismatch = Mismatch(
                case=case,
                family=draw.family,
                output=number,
                index=tuple(found["index"]),
                expected=found["expected"],
                actual=found["actual"],
                count=found["wrong"],
                total=found["total"],
            )
            return wrong(f"{where} output {number} {_how_wrong(found)}", mismatch)
    for found in published["trampled"]:
        element = f"index {found['element']}, " if found["side"] == "past" else ""
        return wrong(
            f"{where} it writes {found['side']} the end of a tensor of shape {found['shape']} that `launch` made: "
            f"{found['count']:,} bytes, the first at {element}{found['bytes']} bytes {found['side']} it"
        )
    for found in compared["trampled"]:
        return wrong(
            f"{where} it writes {found['side']} the end of the input `{found['input']}`: {found['count']:,} bytes, the "
            f"first {found['bytes']} bytes {found['side']} it"
        )
    if compared["changed_inputs"]:
        return wrong(f"{where} it changes its input `{compared['changed_inputs'][0]}`")
    return None


def _how_wrong(found: dict[str, Any]) -> str:
    """How an output is wrong, as the end of a sentence; with figures where rounding may be to blame."""
    place, values = found["index"], f"{found['actual']} where {found['expected']} is right"
    if found["diffuse"]:
        off = f"{found['rms']:.3g} units of rounding (root mean square) where {found['allowed']:.3g} are allowed"
        return f"is off by {off}; most of all at index {place}: {values}"
    said = f"is wrong from index {place} on: {values}; {found['wrong']:,} of {found['total']:,} elements are wrong"
    if found["max"] > _ROUNDING * found["allowed"]:
        return said
    return f"{said}, by up to {found['max']:.3g} units of rounding where {found['allowed']:.3g} are allowed"


async def _measure_repeats(bench: Bench, baseline: Subject, yard: Yardstick) -> None:
    draw = yard.draws[0]
    prints = await _fingerprints(bench, baseline, draw, yard, yard.findings)
    yard.deterministic = len(set(prints)) == 1


async def _check_repeats(bench: Bench, subject: Subject, yard: Yardstick, findings: Findings) -> None:
    """The same inputs give the same bits."""
    if bench.nondeterministic or not yard.deterministic:
        why = "the workload declares it nondeterministic" if bench.nondeterministic else "nor is the baseline"
        findings.skipped("determinism", why)
        return
    draw = yard.draws[0]
    try:
        prints = await _fingerprints(bench, subject, draw, yard, findings)
    except RUN_ERRORS as error:
        findings.fail("determinism", failure_of(error, "running again", bench.cases[draw.case]))
        return
    if len(set(prints)) == 1:
        findings.passed("determinism", f"{_REPEATS} runs, same bits")
        return
    reason = f"{_REPEATS} runs on the same inputs of case {bench.cases[draw.case]} gave different bits"
    findings.fail("determinism", Failure(Outcome.WRONG, Stage.CORRECT, reason))


async def _fingerprints(
    bench: Bench, subject: Subject, draw: Draw, yard: Yardstick, findings: Findings
) -> list[tuple[int, ...]]:
    """What tells the outputs of so many runs apart, the one that was checked among them."""
    prints = [findings.prints[draw.key]]
    while len(prints) < _REPEATS:
        published = await _run_again(bench, subject, draw, yard)
        compared = await bench.compare(subject, draw, published, baseline=False)
        prints.append(tuple(compared["fingerprints"]))
    return prints


async def _check_new_contents(bench: Bench, subject: Subject, yard: Yardstick, findings: Findings) -> None:
    """New values at the same addresses give the new answer, and leave the answers before untouched."""
    first, other = yard.draws[0], yard.fresh[yard.draws[0].case]
    case = bench.cases[first.case]
    failure: Failure | None = None
    published: dict[str, Any] = {}
    draws = [first, *[other] * (_HELD - 1)]  # so that any number of buffers used in turn overwrites the first output
    try:
        await subject.call("forget")
        for number, draw in enumerate(draws):
            published = await _run_again(bench, subject, draw, yard)
            if number == 1 and (failure := await _right(bench, subject, draw, published)) is not None:
                break
        if failure is None and not published["in_place"]:
            for back in sorted(set(published["held"]) - {0}):
                earlier = await subject.call("publish_earlier", back=back)
                compared = await bench.compare(subject, draws[-1 - back], earlier, baseline=False)
                if any(d["first_wrong"] is not None for d in compared["distances"]):
                    reason = f"on case {case} a later call overwrites the output of an earlier one"
                    failure = Failure(Outcome.WRONG, Stage.CORRECT, reason)
                    break
    except RUN_ERRORS as error:
        failure = failure_of(error, "running on new values", case)
    if failure is not None:
        findings.fail("new values at the same addresses", failure, case)
    else:
        held = len(published["held"])
        fewer = "" if held == _HELD else f" after {_HELD} runs: more of them take too much memory"
        findings.passed("new values at the same addresses", f"{held} outputs held at once{fewer}", case)


async def _check_new_addresses(bench: Bench, subject: Subject, yard: Yardstick, findings: Findings) -> None:
    """The same values at other addresses give the answer anew: earlier outputs are spoiled before.

    The values are those of the run before this check.
    """
    name, draw = "the same values at other addresses", yard.fresh[yard.draws[0].case]
    case = bench.cases[draw.case]
    try:
        await subject.call("spoil")
        subject.bound.discard(draw.slab)  # the memory it has stays taken until there is other
        failure = await _right(bench, subject, draw, await _run_again(bench, subject, draw, yard))
    except RUN_ERRORS as error:
        failure = failure_of(error, "running at other addresses", case)
    if failure is not None:
        findings.fail(name, failure, case)
    else:
        findings.passed(name, case=case)


async def _run_again(bench: Bench, subject: Subject, draw: Draw, yard: Yardstick) -> dict[str, Any]:
    await bench.fill(subject, draw)
    return await subject.call("run", deadline=deadline_for(bench, yard, draw), name=draw.slab)


async def _right(bench: Bench, subject: Subject, draw: Draw, published: dict[str, Any]) -> Failure | None:
    return _verdict_on(bench, draw, published, await bench.compare(subject, draw, published, baseline=False))


async def _measure_strength(bench: Bench, yard: Yardstick) -> None:
    """Would a trivial answer pass?

    The inputs that a KernelBench problem makes are often such that it would, as a copy of what is never negative does
    for a ReLU: there it has to pass on all that decides on a candidate.
    """
    plain = [draw for draw in yard.draws if draw.family == "normal" and draw.case in yard.fresh]
    groups = [[draw] for draw in plain]
    if bench.target.workload.problem:
        groups = [[draw for draw in yard.draws if draw.case in yard.fresh and draw.case not in bench.advisory]]
    for group in groups:
        passing: list[str] | None = None
        for draw in group:
            kinds = [kind for kind, _, _ in yard.outputs[draw.case]]
            other = yard.fresh[draw.case]
            found = await bench.oracle("discriminate", key=draw.key, other=other.key, outputs=kinds)
            passing = [answer for answer in found if passing is None or answer in passing]
            if not passing:
                break
        yard.weak += [f"{answer} would pass on case {bench.cases[group[0].case]}" for answer in passing or ()]


def _metadata(published: dict[str, Any]) -> list[tuple[str, tuple[int, ...], tuple[int, ...]]]:
    return [
        (spec["dtype"], tuple(spec["shape"]), tuple(stride))
        for spec, stride in zip(published["outputs"], published["strides"], strict=True)
    ]


def _difference(
    wanted: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
    got: list[tuple[str, tuple[int, ...], tuple[int, ...]]],
    *,
    strides: bool,
) -> str | None:
    """How outputs differ in kind from the baseline's, or None; a KernelBench problem asks for no strides."""
    if len(wanted) != len(got):
        return f"it returns {len(got)} outputs where the baseline returns {len(wanted)}"
    for number, (a, b) in enumerate(zip(wanted, got, strict=True)):
        for what, x, y in (("type", a[0], b[0]), ("shape", a[1], b[1]), ("strides", _steps(a), _steps(b))):
            if x != y and (strides or what != "strides"):
                shown = [list(v) if isinstance(v, tuple) else v for v in (x, y)]
                return f"output {number} has {what} {shown[1]} where the baseline's has {shown[0]}"
    return None


def _moved(wanted: Sequence[str], got: Sequence[str]) -> str | None:
    """How outputs share memory otherwise than the baseline's do, or None; memory of its own for each is no fault."""
    for number, (a, b) in enumerate(zip(wanted, got, strict=False)):
        if a == b or (not b and not a.endswith("inputs")):
            continue
        if a and b:
            return f"output {number} begins at {b}, where the baseline's begins at {a}"
        lies, place = ("does not lie", a) if a else ("lies", b)
        where = "an input" if place.endswith("inputs") else place
        return f"output {number} {lies} in {where}, where the baseline's {'does' if a else 'does not'}"
    return None


def _steps(output: tuple[str, tuple[int, ...], tuple[int, ...]]) -> tuple[int, ...]:
    """Strides that matter: those of dimensions with more than one element."""
    return tuple(step for extent, step in zip(output[1], output[2], strict=True) if extent > 1)
