"""Examines one file: builds it, runs it against its reference and on the emulator, and names its findings."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from kernel_lsp import policy
from kernel_lsp.check.element_types import unlike_elements
from kernel_lsp.check.emulated import of_emulator
from kernel_lsp.check.hints import STACK_BYTES, counter_hints, pipeline_hints, resource_hints
from kernel_lsp.check.places import kernel_place
from kernel_lsp.check.record import WORKLOAD, CheckStep, Examination, OnStep, movable
from kernel_lsp.compiler.builds.answers import cached_build
from kernel_lsp.compiler.builds.assumed import Assumed
from kernel_lsp.compiler.builds.build import Diagnostic, Severity
from kernel_lsp.compiler.builds.built import Built
from kernel_lsp.compiler.ptx.local_memory import entries_with_own_stack
from kernel_lsp.config.settings import Settings
from kernel_lsp.device.architectures import base_arch
from kernel_lsp.device.device import Device
from kernel_lsp.device.nvml import Gpu
from kernel_lsp.errors import CannotJudgeError, KernelLspError, RunnerError, WorkloadError
from kernel_lsp.judge.building import Builders
from kernel_lsp.judge.emulation import EmulatedRun, Emulation, NotEmulated
from kernel_lsp.judge.harness import Harness
from kernel_lsp.judge.inputs import drawing
from kernel_lsp.judge.inputs.baseline_profile import BaselineProfile, measure_baseline
from kernel_lsp.judge.inputs.draw import PLAIN
from kernel_lsp.judge.inputs.findings import RUN_ERRORS, Findings
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.sampling import blocks_run, sample_largest
from kernel_lsp.judge.subject import Subject
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.verdict import Check, CheckStatus, KernelResources, Outcome, is_uncompared
from kernel_lsp.rules import compiling
from kernel_lsp.rules import correctness as right
from kernel_lsp.rules.rule import Needs, Rule
from kernel_lsp.runner.pool import Pool
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels, language_of
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.python import is_python, python_ast_if_any
from kernel_lsp.workload.spec import REFERENCE, WorkloadFile


@dataclass
class _Notes:
    """The results collected while a file is examined."""

    source: SourceFile
    kernels: Sequence[Kernel]
    findings: list[Diagnostic] = field(default_factory=list[Diagnostic])
    checks: list[Check] = field(default_factory=list[Check])
    resources: tuple[KernelResources, ...] = ()
    assumed: tuple[Assumed, ...] = ()
    done: set[Needs] = field(default_factory=lambda: {Needs.NOTHING})
    emulation: Emulation | None = None
    lasting: bool = True
    built_for: str = ""
    unlike: tuple[str, ...] = ()

    def add(self, rule: Rule, message: str) -> None:
        """Add a finding about the whole file, at the name of the first kernel that was built, else of its first one."""
        built = self.resources[0].name if self.resources else ""
        line, column, end = kernel_place(self.source, self.kernels, built)
        self.findings.append(rule.at(str(self.source.path), line, message, column=column, end=end))


async def examine(
    source: SourceFile,
    workload: WorkloadFile | None,
    pool: Pool,
    builders: Builders,
    settings: Settings,
    gpu: Gpu | None,
    *,
    run: bool = True,
    on_step: OnStep = lambda _: None,
) -> tuple[Examination, Emulation | None]:
    """Return the result of examining a kernel file, and its runs on the emulator; `run` False stops after building.

    `on_step` is called with each step before it is done.

    With a GPU it runs there and, on small cases, on the emulator too, which sees each access; without one on the
    emulator alone.

    Raises:
        RunnerError: workers cannot be started.
    """
    language = language_of(source.path, source.text)
    assert language is not None, "only kernel files are checked"
    kernels = find_kernels(source.text, source.path)
    notes = _Notes(source, kernels)
    target = Target(language, source, kernels, None, workload) if workload else None
    candidate = target.baseline if target else Candidate(language, source, None, "baseline", "baseline")
    try:
        built = cached_build(settings, builders.device, workload, candidate)
        if built is None:
            on_step(CheckStep("compiling"))
            built = await builders.build(workload, candidate)
        _take_build(built, notes)
        if built.arch and base_arch(built.arch) != base_arch(builders.device.arch):
            notes.built_for = built.arch
        if target is not None and built.ok and run:
            runs_on = [None] if gpu is None else [gpu, None]
            for number, one in enumerate(runs_on):
                steps = _Steps(on_step, number, len(runs_on))
                harness = Harness(pool, target, settings, builders, one)
                await _run(harness, built, notes, steps, only_emulated=gpu is None)
    except WorkloadError as error:
        notes.findings.append(broken(source, kernels, error))
    except RUN_ERRORS as error:
        notes.lasting = not isinstance(error, RunnerError)
        notes.add(right.RUN_FAILED, _said(error))
    finally:
        builders.forget(candidate)
    folder = source.path.parent
    return (
        Examination(
            findings=tuple(dict.fromkeys(movable(found, folder) for found in notes.findings)),
            checks=tuple(notes.checks),
            resources=notes.resources,
            assumed=notes.assumed,
            done=tuple(sorted(notes.done)),
            lasting=notes.lasting,
            built_for=notes.built_for,
        ),
        notes.emulation,
    )


def unexamined(source: SourceFile, error: KernelLspError) -> Examination:
    """Return the result for a file that nothing could examine to its end."""
    notes = _Notes(source, find_kernels(source.text, source.path))
    notes.add(right.RUN_FAILED, _said(error))
    return Examination(tuple(movable(found, source.path.parent) for found in notes.findings), lasting=False)


def broken(source: SourceFile, kernels: Sequence[Kernel], error: WorkloadError) -> Diagnostic:
    """Return the finding about a broken workload, in its own file if that is known.

    A kernel file that Python cannot parse does not compile, whatever its workload is.
    """
    if error.path is None or error.path == source.path:
        line, column, end = kernel_place(source, kernels, "")
        if error.line:
            line, column, end = error.line, 1, (error.line, 1)
        unparsed = is_python(source.path) and python_ast_if_any(source.text) is None
        rule = compiling.ERROR if unparsed else right.BROKEN_WORKLOAD
        found = rule.at(str(source.path), line, _said(error), column=column, end=end)
    else:
        found = right.BROKEN_WORKLOAD.at(str(error.path), error.line or 1, _said(error))
    return found


def _take_build(built: Built, notes: _Notes) -> None:
    rules = {Severity.ERROR: compiling.ERROR, Severity.WARNING: compiling.WARNING}
    for said in built.build.diagnostics:
        rule = rules.get(said.severity)
        if rule is not None:
            end = (said.end_line, said.end_column)
            own = f" (#{said.code})" if said.code else ""
            notes.findings.append(rule.at(said.path, said.line, said.message + own, column=said.column, end=end))
    notes.lasting = built.lasting
    notes.resources, notes.assumed = resources_of(built), built.assumed
    notes.unlike = tuple(unlike_elements(notes.kernels, built.plans))
    if built.ok:
        notes.done.add(Needs.COMPILING)
        notes.findings += resource_hints(
            notes.source,
            notes.kernels,
            notes.resources,
            guessed={one.kernel for one in built.assumed if one.guessed},
            own_stack=_own_stack(built),
        )


def _own_stack(built: Built) -> frozenset[str]:
    """Return the symbols of the kernels whose stack is not that of a library function alone, as far as PTX tells."""
    told = [entries_with_own_stack(image.ptx, STACK_BYTES) for image in built.images if image.ptx]
    untold = [kernel.entry for image in built.images if not image.ptx for kernel in image.kernels]
    return frozenset(untold).union(*told)


@dataclass(frozen=True, slots=True)
class _Steps:
    """Tells the observer of the steps of one run, the `number`th from 0 of `runs`."""

    on_step: OnStep
    number: int
    runs: int

    def say(self, doing: str, share: float = 0.0) -> None:
        self.on_step(CheckStep(doing, (self.number + share) / self.runs))

    def inputs(self, cases: Sequence[str], case: int, tried: int, planned: int) -> None:
        self.say(f"case {case + 1} of {len(cases)} ({cases[case]}): {tried} of {planned} checks", tried / planned)


async def _run(harness: Harness, built: Built, notes: _Notes, steps: _Steps, *, only_emulated: bool) -> None:
    """Run on the harness's GPU, or on the emulator if it has none."""
    try:
        steps.say("compiled, starting to run it")
        await harness.open()
        _say_what_is_right(harness, notes)
        subject = await harness.enter(harness.target.baseline, built)
        if harness.gpu is None and (await drawing.smallest_case(harness))[1] > policy.EMULATED_CASE_BYTES:
            await _run_blocks(harness, subject, notes, only_emulated=only_emulated)
            return
        tell = partial(steps.inputs, harness.cases)
        profile = await measure_baseline(harness, subject, every_case=True, on_inputs=tell)
        if harness.gpu is None:
            _take_accesses(profile.findings, notes, harness.builders.device)
        if harness.gpu is not None or only_emulated:
            _take_answers(profile, harness.cases, notes)
    except CannotJudgeError as error:
        if harness.gpu is not None:
            raise
        notes.emulation = Emulation((), NotEmulated(error.message, str(error.path) if error.path else None, error.line))
        if only_emulated:
            await _rehearse(harness, notes, error.message)
    finally:
        await harness.close()


def _say_what_is_right(harness: Harness, notes: _Notes) -> None:
    """Say of a captured workload what its outputs are held to: nobody has said what is right."""
    if right := harness.workload.right:
        capture = harness.target.workload.source.path.name
        said = f"{capture}: {right}"
        notes.findings.append(Diagnostic(str(notes.source.path), 1, 1, 1, 1, Severity.NOTE, said))


async def _rehearse(harness: Harness, notes: _Notes, why: str) -> None:
    """Run the reference on the smallest case, to check at least the workload; `why` says why nothing else is run."""
    draw = await drawing.rehearse_reference(harness)
    findings = Findings()
    run = "inputs and reference run" if harness.target.workload.has_reference else "inputs run"
    findings.passed(WORKLOAD, f"its {run}", harness.cases[draw.case])
    findings.skipped("run", why)
    notes.checks += findings.checks


async def _run_blocks(harness: Harness, subject: Subject, notes: _Notes, *, only_emulated: bool) -> None:
    """Run a few blocks of a case on the emulator, where even the smallest case is too large to be run whole."""
    findings, sample = Findings(), await sample_largest(harness, subject)
    if sample is not None:
        case, run = harness.cases[sample.case], sample.run
        findings.runs.append(EmulatedRun(case, PLAIN, sample.input_bytes, run.findings, seconds=run.seconds))
        findings.passed("a few blocks of the launch on the emulator", blocks_run(run), case)
    why = "a few blocks were run, and outputs are compared with nothing" if sample else "nothing was run"
    findings.skipped(REFERENCE, f"{why}: the inputs of the smallest case are too large for the emulator")
    notes.emulation = Emulation(tuple(findings.runs))
    notes.findings += _seen(findings, notes)
    if only_emulated:
        notes.checks += findings.checks


def _seen(findings: Findings, notes: _Notes) -> list[Diagnostic]:
    return [of_emulator(finding, notes.source, notes.kernels) for run in findings.runs for finding in run.findings]


def _take_accesses(findings: Findings, notes: _Notes, device: Device) -> None:
    """Take over the emulator's findings about memory and threads, and hints from its counters."""
    notes.emulation = Emulation(tuple(findings.runs))
    seen = _seen(findings, notes)
    notes.findings += seen
    if findings.runs and not seen:
        notes.done.add(Needs.EMULATING)
        notes.findings += counter_hints(notes.source, findings.runs)
        notes.findings += pipeline_hints(notes.source, findings.runs, notes.resources, device)


def _take_answers(profile: BaselineProfile, cases: Sequence[str], notes: _Notes) -> None:
    """Take over the comparison of outputs with the reference."""
    findings, ruling = profile.findings, profile.findings.ruling
    for draw in profile.draws:
        findings.passed(f"inputs: {draw.family}", case=cases[draw.case])
    notes.checks += findings.checks
    if ruling is None:
        notes.done |= set() if is_uncompared(findings.checks) else {Needs.RUNNING}
    else:
        notes.lasting = ruling.outcome is not Outcome.TIMED_OUT
        case = next(check.case for check in findings.checks if check.status is CheckStatus.FAILED)
        at_its_line = any(run.findings for run in findings.runs if run.case == case)
        for why in notes.unlike:
            notes.add(right.WRONG, f"{why}: each element is read as what it is not")
        for one in (*([] if at_its_line else [ruling]), *profile.later_rulings):
            notes.add(right.WRONG if one.outcome is Outcome.WRONG else right.RUN_FAILED, one.reason)
    raised = len(profile.raised)
    if raised > len(profile.draws):
        said = f"`launch` fails on {raised} of {raised + len(profile.draws)} sets of inputs"
        notes.add(right.WEAK_WORKLOAD, f"{said}, so little was checked: {profile.raised[0]}")
    for weakness in profile.weak:
        notes.add(right.WEAK_WORKLOAD, f"the workload cannot tell right from wrong: {weakness}")


def _said(error: Exception) -> str:
    return error.said if isinstance(error, KernelLspError) else str(error)
