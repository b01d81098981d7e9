"""Measure the baseline on every set of inputs; a candidate is compared with the result.

The baseline goes first, alone. Its error on each set of inputs becomes the measure, and inputs on which the baseline
itself is wrong or fails are held against no candidate. See "Correctness" in docs/verdicts.md.
"""

import random
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from kernel_lsp import policy
from kernel_lsp.errors import CannotJudgeError, RunnerError, WorkloadError
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing, plan, runs
from kernel_lsp.judge.inputs.compare import OutputForm, form_of, ruling_on
from kernel_lsp.judge.inputs.counting import InputCount, OnInputs, unobserved
from kernel_lsp.judge.inputs.draw import PLAIN, WEIGHTS, Draw
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings, ruling_of
from kernel_lsp.judge.inputs.strength import measure_strength
from kernel_lsp.judge.ruling import Ruling, wrong
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.verdict import Outcome, Stage
from kernel_lsp.runner.messages.subject import Forget, Rehearse
from kernel_lsp.runner.messages.subject_answers import Ran


@dataclass(slots=True)
class BaselineProfile:
    """The results of the baseline's runs.

    Attributes:
        draws: inputs on which the baseline is right, the quickest case first.
        fresh: by case, other plain inputs, for memory that has held the first ones.
        outputs: by key of the inputs, the form of each output, whose shape may depend on values.
        output_bytes: by case, bytes of all outputs.
        places: by key of the inputs, where outputs lie that have no memory of their own.
        in_place: True where an output lies in an input.
        keeps_outputs: numbers of outputs that the baseline still references after its caller has released them.
        deterministic: True where the baseline gives the same bits each time.
        unrepeated: why that is unknown, and not required; empty if it is known.
        weak: trivial answers that the workload would accept, as sentences.
        run_seconds: by case, longest wall time of one run.
        rehearsal_seconds: longest wall time of a launch before the first one, in which it may compile or tune itself.
        unvaried: by argument, why no other value is tried.
        further: keys of inputs tried on a candidate while time is left; those with non-finite numbers always are.
        raised: the message for each set of inputs on which it raises or faults.
        findings: checks on the way, among them inputs that are not used and why.
        later_rulings: failures of cases after the first that failed, but for what the emulator finds at a line.
    """

    draws: list[Draw] = field(default_factory=list[Draw])
    fresh: dict[int, Draw] = field(default_factory=dict[int, Draw])
    outputs: dict[str, list[OutputForm]] = field(default_factory=dict[str, list[OutputForm]])
    output_bytes: dict[int, int] = field(default_factory=dict[int, int])
    places: dict[str, tuple[str, ...]] = field(default_factory=dict[str, tuple[str, ...]])
    in_place: bool = False
    keeps_outputs: tuple[int, ...] = ()
    deterministic: bool = True
    unrepeated: str = ""
    weak: list[str] = field(default_factory=list[str])
    run_seconds: dict[int, float] = field(default_factory=dict[int, float])
    rehearsal_seconds: float = 0.0
    unvaried: dict[str, str] = field(default_factory=dict[str, str])
    further: set[str] = field(default_factory=set[str])
    raised: list[str] = field(default_factory=list[str])
    findings: Findings = field(default_factory=Findings)
    later_rulings: list[Ruling] = field(default_factory=list[Ruling])

    def plain(self, case: int) -> Draw | None:
        """Return the plain inputs of a case, if the baseline is right on them."""
        return next((draw for draw in self.draws if draw.is_plain and draw.case == case), None)

    def managed(self, case: int) -> set[str]:
        """Return the families on which the baseline is right in a case."""
        return {draw.family for draw in self.draws if draw.case == case}

    def parted(self, draws: Sequence[Draw], rng: random.Random) -> tuple[list[Draw], list[Draw]]:
        """Return the draws that are always tried, and by chance those that are while time is left."""
        further = [draw for draw in draws if draw.key in self.further]
        return [draw for draw in draws if draw.key not in self.further], rng.sample(further, len(further))

    def same_bits(self, harness: Harness) -> bool:
        """Return True where every launch on the same inputs must leave the same bits."""
        return self.deterministic and not harness.workload.nondeterministic

    def deadline(self, harness: Harness, draw: Draw) -> float:
        """Return seconds that one run may take: so many times the baseline's own, and never less than the floor."""
        own = self.run_seconds.get(draw.case)
        if harness.gpu is None or own is None:
            return policy.FIRST_RUN_SECONDS
        return max(harness.settings.runner.deadline_floor_s, harness.settings.runner.deadline_factor * own)


async def measure_baseline(
    harness: Harness, baseline: Subject, *, every_case: bool = False, on_inputs: OnInputs = unobserved
) -> BaselineProfile:
    """Run the baseline on every set of inputs and return what may be required of a candidate.

    `findings.ruling` is set where the baseline itself is wrong, hangs or crashes on plain inputs. That ends it, but
    with `every_case` plain inputs of the cases that follow are tried, too.

    Raises:
        CannotJudgeError: there is no GPU, and the emulator cannot run it.
        RunnerError: the judge itself lacks memory.
        WorkloadError: the workload's contract is not kept by its `launch`.
    """
    profile = BaselineProfile()
    if harness.workload.right:
        profile.findings.passed("what is right", harness.workload.right)
    order = await plan.case_order(harness, profile.findings)
    plan.note_limits(harness, order, profile.findings)
    measuring, rng = _Measuring(harness, baseline, profile, on_inputs), random.SystemRandom()
    leaders = plan.leaders_of(harness, order, baseline.built)
    first, last = [*plan.first_inputs(harness, order, leaders, rng)], plan.last_families(harness)
    decisive = [case for case in order if case not in harness.workload.advisory]
    measuring.count.plan(harness, first, decisive, last)
    try:
        for case, family in first:
            await measuring.family(case, family)
            if profile.findings.ruling is not None:
                if every_case:
                    await measuring.cases_left(order[order.index(case) + 1 :])
                return profile
        for case in decisive if harness.target.workload.has_reference else ():  # these change what is right
            await measuring.touched(case)
            await harness.turns.quieten()  # from here on a clock decides what is tried
            await measuring.arguments(case)
        for family in last:
            await measuring.family(order[0], family)
        for family in plan.later_layouts(harness, profile.managed(order[0])):
            await measuring.family(order[0], family)
        managed = profile.managed(order[0])
        for case, family in plan.layouts_elsewhere(harness, order, managed, rng):
            await measuring.family(case, family)
        await measuring.while_time_is_left(plan.further_inputs(harness, order, managed, measuring.seconds.keys(), rng))
    finally:
        await measuring.leave()
    if harness.contract.mutates and not profile.in_place:
        raise WorkloadError(
            f"CONTRACT mutates {', '.join(harness.contract.mutates)}, but `launch` returns none of it",
            harness.target.workload.source.path,
            fix="Return what is changed in place from `launch`, and its right value from `reference`.",
        )
    if harness.gpu is not None:
        await _measure_repeats(harness, baseline, profile)
    if harness.target.workload.has_reference:
        profile.weak += await measure_strength(harness, profile.draws, profile.fresh, profile.outputs)
    return profile


class _Measuring:
    """One pass over all inputs; those that may end in a fault run in another process than the timed one."""

    def __init__(self, harness: Harness, baseline: Subject, profile: BaselineProfile, on_inputs: OnInputs) -> None:
        self._harness, self._baseline, self._profile = harness, baseline, profile
        self.count = InputCount(on_inputs)
        self._clock = harness.turns.clock
        self._probe: Subject | None = None
        self._next: dict[tuple[int, int], int] = {}
        self.seconds: dict[tuple[int, str], float] = {}
        """By case and family, what it took to try it."""

    async def family(self, case: int, family: str) -> None:
        """Add a family's inputs on a case if the baseline is right on them; failing on plain ones ends all."""
        begun = self._clock()
        self.count.begin(case)
        await self._family(case, family)
        self.seconds[case, family] = self._clock() - begun

    async def while_time_is_left(self, inputs: Sequence[tuple[int, str | int]]) -> None:
        """Add families, and further values of arguments by number, until the time budget is used up."""
        profile, end = self._profile, self._clock() + policy.FURTHER_INPUTS_SECONDS
        before, left_out = {draw.key for draw in profile.draws}, Counter[int]()
        for case, what in inputs:
            if isinstance(what, int):
                left_out[case] += not await self._further_values(case, what, end)
            elif self._clock() + self._expected_s(case) <= end:
                await self.family(case, what)
            else:
                left_out[case] += 1
        for case, count in sorted((+left_out).items()):
            detail = f"{count} of them: right answers take long here, and others were tried by chance"
            profile.findings.skipped("inputs: other families and values", detail, self._harness.cases[case])
        profile.further |= {draw.key for draw in profile.draws if draw.family not in plan.NONFINITE} - before

    def _expected_s(self, case: int) -> float:
        """Estimate the seconds that one more set of inputs of a case takes, from those already run."""
        own = [s for (at, family), s in self.seconds.items() if at == case and family not in (*plan.LAYOUTS, PLAIN)]
        return max(own) if own else self.seconds.get((case, PLAIN), 0.0)

    async def _further_values(self, case: int, number: int, end: float) -> bool:
        """Add inputs with further values of an argument that is known to matter; return False when time runs out."""
        plain = self._profile.plain(case)
        while plain is not None and (first := self._next.pop((case, number), 0)):
            if self._clock() + self._expected_s(case) > end:
                return False
            draw, varied = await drawing.vary(self._harness, plain, number, first)
            if draw is None:
                break
            self._next[case, number] = varied.next
            await self._add(draw, await self._other_process())
        return True

    async def _family(self, case: int, family: str) -> None:
        harness, profile = self._harness, self._profile
        plain = profile.plain(case) if family in plan.LAYOUTS else None
        if plain is not None:
            draw = await drawing.lay_out(harness, plain, family)
            if draw.buffer == plain.buffer:
                return  # nothing lies otherwise: there are no rows, or fewer tensors
        else:
            draw = await drawing.draw(harness, case, family)
        if why := self._unaffordable(draw):
            profile.findings.skipped(f"inputs: {family}", why, harness.cases[case])
            return
        ruling = await self._run(self._baseline if draw.is_plain else await self._other_process(), draw)
        if ruling is None and draw.is_plain:
            harness.keep_launchers(self._baseline)
            profile.fresh[case] = await drawing.draw(harness, case, family, 1)
            if harness.gpu is not None:
                ruling = await self._run_again(profile.fresh[case])
        if ruling is None:
            await self._take(draw)
        elif draw.is_plain and case not in harness.workload.advisory:
            if ruling.outcome is Outcome.UNTIMED:
                memory = "End what else takes memory, or leave out large cases."
                raise RunnerError(ruling.reason, fix=memory if harness.whole else "Try again.")
            profile.findings.fail("baseline", ruling, harness.cases[case])
        else:
            await self._leave_out(draw, ruling)

    async def cases_left(self, cases: Sequence[int]) -> None:
        """Try plain inputs on the cases after a failed one, each in a fresh process; the first failure is kept."""
        harness, findings = self._harness, self._profile.findings
        first = findings.ruling
        for case in (case for case in cases if case not in harness.workload.advisory):
            name = harness.cases[case]
            draw = await drawing.draw(harness, case, plan.PLAIN)
            if why := self._unaffordable(draw):
                findings.skipped(f"inputs: {plan.PLAIN}", why, name)
                continue
            try:
                subject = await harness.enter(self._baseline.candidate, self._baseline.built)
                ruling = await self._run(subject, draw)
                await harness.leave(subject)
            except RUN_ERRORS as error:
                findings.skipped(f"inputs: {plan.PLAIN}", f"after the first failure: {error}", name)
                break
            if ruling is None:
                findings.passed(f"inputs: {plan.PLAIN}", case=name)
                continue
            findings.fail("baseline", ruling, name)
            if not (findings.runs and findings.runs[-1].findings):
                self._profile.later_rulings.append(ruling)
        findings.ruling = first

    async def touched(self, case: int) -> None:
        """Add inputs that expose a version which repeats its last answer after comparing a few samples of them."""
        self.count.begin(case)
        if (plain := self._profile.plain(case)) is not None:
            await self._add(await drawing.touch(self._harness, plain), self._baseline)

    async def arguments(self, case: int) -> None:
        """Add inputs that change one argument each, to find versions that ignore an argument."""
        harness, profile, begun = self._harness, self._profile, self._clock()
        if (plain := profile.plain(case)) is None:
            return
        together = any(draw.family == WEIGHTS for draw in profile.draws)
        for number, name in enumerate(harness.workload.arguments[: policy.VARIED_ARGUMENTS]):
            if name in profile.unvaried:  # decided on an earlier case
                continue
            long = self._clock() - begun > policy.VARIED_WEIGHTS_SECONDS
            if together and long and name in harness.workload.weights:
                detail = "right answers take long here; all weights are tried together"
                profile.findings.skipped("inputs: each weight alone", detail, harness.cases[case])
                break
            self.count.begin(case)
            draw, varied = await drawing.vary(harness, plain, number)
            if draw is None:
                profile.unvaried[name] = varied.why
                profile.findings.skipped(f"inputs: other `{name}`", varied.why, harness.cases[case])
            elif varied.next:  # the second one differs in a few places, where there are many
                await self._add(draw, await self._other_process())
                draw, varied = await drawing.vary(harness, plain, number, varied.next)
            if draw is not None:
                self._next[case, number] = varied.next
                await self._add(draw, await self._other_process())

    async def leave(self) -> None:
        """End the separate process for inputs that may cause a fault."""
        if self._probe is not None:
            await self._harness.leave(self._probe)
            self._probe = None

    async def _add(self, draw: Draw, subject: Subject) -> None:
        if why := self._unaffordable(draw):
            self._profile.findings.skipped(f"inputs: {draw.family}", why, self._harness.cases[draw.case])
        elif (ruling := await self._run(subject, draw)) is None:
            await self._take(draw)
        else:
            await self._leave_out(draw, ruling)

    async def _take(self, draw: Draw) -> None:
        """Keep a set of inputs on which the baseline is right."""
        self._profile.draws.append(draw)
        if self._probe is not None:
            await runs.free_memory_apart(self._harness, self._probe, draw, self._profile.plain(draw.case))

    async def _other_process(self) -> Subject:
        if self._harness.gpu is None:
            return self._baseline  # no fault on the emulator outlives its run
        if self._probe is None:
            await self._harness.rest(self._baseline)
            self._probe = await self._harness.enter(self._baseline.candidate, self._baseline.built)
        return self._probe

    async def _leave_out(self, draw: Draw, ruling: Ruling) -> None:
        """Leave out a set of inputs on which the baseline itself fails, and record why."""
        findings = self._profile.findings
        if ruling.stage is Stage.RUN:  # the fault may have broken the process: use another one
            await self.leave()
        if ruling.outcome is Outcome.RUN_FAILED:
            self._profile.raised.append(ruling.reason)
        if findings.runs and findings.runs[-1].findings:
            findings.runs.pop()  # no candidate has to handle inputs that the baseline does not
        why = f"the kernel as it stands does not manage them: {ruling.reason}"
        findings.skipped(f"inputs: {draw.family}", why, self._harness.cases[draw.case])

    def _unaffordable(self, draw: Draw) -> str:
        return plan.unaffordable(self._harness, draw, self._profile.draws, self._profile.findings)

    async def _run_again(self, draw: Draw) -> Ruling | None:
        """Run the baseline on other plain inputs of a case; announce the cost of judging if the baseline is slow."""
        harness, launch_time = self._harness, self._harness.launch_time
        spares = launch_time.left_s > launch_time.launch_s[draw.case]
        ruling = await self._run(self._baseline, draw) if spares else None
        if launch_time.is_slow(draw.case) and not launch_time.announced:
            launch_time.announced = True
            harness.say(launch_time.announcement(harness.cases))
        return ruling

    async def _run(self, subject: Subject, draw: Draw) -> Ruling | None:
        try:
            return await self._measure(subject, draw)
        except RUN_ERRORS as error:
            if isinstance(error, WorkloadError) and draw.is_plain:
                raise
            if isinstance(error, WorkloadError):
                return Ruling(Outcome.UNTIMED, Stage.CORRECT, f"there is no right answer to them: {error.message}")
            if isinstance(error, CannotJudgeError) and not draw.is_plain:
                return Ruling(Outcome.UNTIMED, Stage.RUN, error.message)
            runs.raise_what_needs_a_gpu(self._harness, error)
            return ruling_of(error, "running", self._harness.cases[draw.case])

    async def _measure(self, subject: Subject, draw: Draw) -> Ruling | None:
        """Run the baseline once and store its results if they are right."""
        harness, profile = self._harness, self._profile
        if runs.must_rehearse(harness, subject, draw):
            await harness.fill(subject, draw)
            await subject.ask(Rehearse(buffer=draw.buffer), deadline=policy.FIRST_RUN_SECONDS)
            profile.rehearsal_seconds = max(subject.took_s, profile.rehearsal_seconds)
        ran = await runs.run_undisturbed(harness, subject, draw, policy.FIRST_RUN_SECONDS)
        seconds = subject.took_s
        profile.run_seconds[draw.case] = max(seconds, profile.run_seconds.get(draw.case, 0.0))
        if harness.gpu is not None and draw.case not in harness.workload.advisory:
            harness.launch_time.baseline_ran(draw.case, seconds)
        compared = await harness.compare(subject, draw, ran.published, baseline=True)
        ruling = runs.take_emulated(harness, draw, ran, profile.findings)
        ruling = ruling or ruling_on(harness, draw, compared, ran.trampled)
        if ruling is None and compared.blank and harness.target.workload.has_reference:
            ruling = await runs.check_unwritten(harness, subject, draw, policy.FIRST_RUN_SECONDS)
        finite = compared.finite or draw.is_plain
        if ruling is None and not finite and (harness.target.workload.problem or draw.family == plan.SIGNED):
            ruling = wrong("the right answer to them is not finite")
        if ruling is None:
            profile.findings.prints[draw.key] = compared.fingerprints
            self._keep(draw, ran)
        return ruling

    def _keep(self, draw: Draw, ran: Ran) -> None:
        profile = self._profile
        profile.in_place = profile.in_place or ran.in_place
        profile.places[draw.key] = ran.places
        profile.outputs[draw.key] = form_of(ran.published)
        profile.output_bytes[draw.case] = sum(spec.span for spec in ran.published.outputs)


async def _measure_repeats(harness: Harness, baseline: Subject, profile: BaselineProfile) -> None:
    draw, launch_time = profile.draws[0], harness.launch_time
    seconds = (policy.DETERMINISM_RUNS - 1) * launch_time.launch_s[draw.case]
    if launch_time.is_slow(draw.case) and not launch_time.affords_inputs(seconds):
        profile.unrepeated = "the baseline's own bits are not known: a launch takes too long"
        profile.deterministic = False
    else:
        deadline = profile.deadline(harness, draw)
        prints = await runs.fingerprints(harness, baseline, draw, profile.findings, deadline)
        profile.deterministic = len(set(prints)) == 1
    profile.keeps_outputs = await baseline.ask(Forget())
