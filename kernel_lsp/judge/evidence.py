"""Turn a judgement into its verdict, with the evidence for it."""

import hashlib
import json
import shlex
from collections.abc import Sequence
from dataclasses import asdict
from datetime import UTC, datetime
from statistics import median

from kernel_lsp import __version__
from kernel_lsp.compiler.toolchain.tools import versions
from kernel_lsp.config.variables import named_variables
from kernel_lsp.device.choice import target_device
from kernel_lsp.device.nvml import Faults
from kernel_lsp.judge.building import Built
from kernel_lsp.judge.context import Context, SessionContext
from kernel_lsp.judge.facts import opcodes
from kernel_lsp.judge.final import FinalChecks
from kernel_lsp.judge.measure import intervals
from kernel_lsp.judge.measure.blocks import Series
from kernel_lsp.judge.measure.cases import TimedCase
from kernel_lsp.judge.measure.digest import policy_digest
from kernel_lsp.judge.program_gain import ProgramGain, amdahl, weighted_blocks
from kernel_lsp.judge.resources import resources_of
from kernel_lsp.judge.ruling import Ruling
from kernel_lsp.judge.spans import pack, trace_since
from kernel_lsp.judge.target import Target
from kernel_lsp.judge.timing import CaseTiming
from kernel_lsp.judge.verdict import Check, CheckStatus, Evidence, ExtensionRecord, Outcome, Verdict
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.workload.capture import read_capture

_SHOWN_NOTES = 8


def verdict_of(context: Context, ruling: Ruling, faults: Faults | None) -> Verdict:
    """Return the verdict for a judgement that ended with this ruling."""
    session, candidate = context.session, context.candidate
    known = {"kernel-lsp": __version__, "judge": policy_digest()} | versions()
    address = address_of(session, candidate, known)
    with context.timeline.stage("evidence"):
        evidence = _evidence(context, ruling, known, address, faults)
    trace = pack(trace_since(context.timeline.spans, context.timeline.traced_from, context.timeline.opening))
    return Verdict(
        id=address,
        verdict=ruling.outcome,
        stage=ruling.stage,
        reason=ruling.reason,
        cases=_case_timings(context),
        speedup=None if ruling.speedup is None else ruling.speedup.ratio,
        interval=None if ruling.speedup is None else ruling.speedup.interval,
        seconds=context.timeline.finished(),
        evidence=evidence.model_copy(update={"trace": trace}),
    )


def _evidence(context: Context, ruling: Ruling, known: dict[str, str], address: str, faults: Faults | None) -> Evidence:
    session, candidate, target = context.session, context.candidate, context.session.target
    return Evidence(
        created=datetime.now(UTC).isoformat(timespec="seconds"),
        baseline_digest=target.baseline.digest,
        candidate_digest=candidate.digest,
        candidate_label=candidate.label,
        candidate_origin=candidate.origin,
        kernel_path=str(target.source.path),
        workload_path=str(target.workload.source.path),
        sources=_sources(target, candidate),
        seed=session.measured.harness.seed if session.measured else None,
        checks=(*_what_is_right(session), *_notes(context), *context.findings.checks),
        traces=tuple(context.traces),
        xids=faults.drain() if faults else (),
        errors=tuple(context.findings.errors),
        mismatch=ruling.mismatch,
        baseline_resources=resources_of(session.baseline_built),
        candidate_resources=resources_of(context.built) if context.built else (),
        device=context.device,
        versions=known,
        build_way=_build_way(context.built),
        build_arch=context.built.arch if context.built else "",
        extensions=_extensions(context.built),
        build_log=context.built.build.log if context.built else "",
        settings=session.settings.judge.model_dump(mode="json", exclude={"families"}),
        discarded_blocks=context.series.discarded if context.series else 0,
        protections=context.protections,
        command=_command(target, address),
        sustained=context.sustained,
        baseline_opcodes=_opcodes(context, session.baseline_built, ruling),
        candidate_opcodes=_opcodes(context, context.built, ruling),
        final_checks=context.final_checks,
        program=program_gain(context),
    )


def _what_is_right(session: SessionContext) -> tuple[Check, ...]:
    """Return by what a captured workload says what is right, as a check that passed."""
    right = session.measured.harness.workload.right if session.measured else ""
    return (Check(name="what is right", status=CheckStatus.PASSED, detail=right),) if right else ()


def _notes(context: Context) -> tuple[Check, ...]:
    """Return notes on host code as a check that passed."""
    if not context.notes:
        return ()
    said = "; ".join(f"line {note.line} {note.what}" for note in context.notes[:_SHOWN_NOTES])
    return (Check(name="host code", status=CheckStatus.PASSED, detail=said),)


def address_of(session: SessionContext, candidate: Candidate, known: dict[str, str]) -> str:
    """Return the content address of a verdict: a hash of texts, settings, toolchain, device, and the judge itself."""
    made_of = {
        "baseline": session.target.baseline.digest,
        "candidate": candidate.digest,
        "workload": session.target.workload.source.text,
        "settings": session.settings.judge.model_dump(mode="json"),
        "environment": named_variables(session.settings.runner.environment),
        "versions": known,
        "device": session.gpu.uuid if session.gpu else repr(target_device(session.gpu, session.settings.arch)),
    }
    return hashlib.sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()[:20]


def _opcodes(context: Context, built: Built | None, ruling: Ruling) -> dict[str, int]:
    """Count the instructions of a faster version by kind; it takes 0.25 s a side.

    Empty for other outcomes, and for a gain that is shown before its final checks.
    """
    counts = ruling.outcome is Outcome.FASTER and context.final_checks is not FinalChecks.UNDER_WAY
    return opcodes(built, context.session.settings) if built is not None and counts else {}


def _sources(target: Target, candidate: Candidate) -> dict[str, str]:
    sources = {"baseline": target.source.text, "candidate": candidate.kernel.text}
    sources["workload"] = target.workload.source.text
    if candidate.launch is not None and candidate.launch.text != target.workload.source.text:
        sources["candidate_launch"] = candidate.launch.text
    if target.launch_text not in (None, target.workload.source.text):
        sources["baseline_launch"] = target.launch_text
    return sources


def _command(target: Target, address: str) -> str:
    """Return the command that repeats the judgement: write out the files that evidence keeps, and judge them."""
    name, folder = target.source.path.name, address[:8]
    files = shlex.join([f"{folder}/baseline/{name}", f"{folder}/candidate/{name}"])
    return f"kernel-lsp report {folder} --sources {folder} && kernel-lsp judge {files}"


def _build_way(built: Built | None) -> str:
    if built is None:
        return "none"
    ways = {extension.host.path for extension in built.extensions}
    return "full" if "full" in ways else "fast" if ways else built.build.way


def _extensions(built: Built | None) -> tuple[ExtensionRecord, ...]:
    return tuple(ExtensionRecord(name=e.name, **asdict(e.host)) for e in (built.extensions if built else ()))


def _case_timings(context: Context) -> tuple[CaseTiming, ...]:
    series = context.series
    if series is None or not series.combined:
        return ()
    return tuple(_case_timing(context, series, index) for index in range(len(series.cases)))


def _case_timing(context: Context, series: Series, index: int) -> CaseTiming:
    timed, bandwidth = series.cases[index], context.harness.bandwidth
    a, b = median(series.baseline_us[index]), median(series.candidate_us[index])
    speedup, interval = _speedup(context, series.blocks[index], (timed,))
    calls = next((call for call in context.calls if call.case.draw.case == timed.draw.case), None)
    return CaseTiming(
        case=context.harness.cases[timed.draw.case],
        mode=timed.mode,
        launches=timed.launches,
        baseline_us=a,
        candidate_us=b,
        speedup=speedup,
        interval=interval,
        bytes_moved=timed.bytes_moved,
        baseline_roofline_share=timed.roofline_share(bandwidth, a),
        roofline_share=timed.roofline_share(bandwidth, b),
        blocks=tuple(series.blocks[index]),
        confirmation_blocks=context.confirmation_blocks,
        memories=context.memories,
        baseline_call_us=calls.baseline_us if calls else None,
        candidate_call_us=calls.candidate_us if calls else None,
    )


def _speedup(
    context: Context, blocks: Sequence[float], cases: Sequence[TimedCase]
) -> tuple[float, tuple[float, float]]:
    """Return the speedup that a series of blocks of cases shows, and its interval: from the confirmation alone, if
    there was one.
    """
    summary = intervals.summarise(blocks[-context.confirmation_blocks :])
    once = context.confirmation_blocks > 0 or context.pairs is not None
    half = (intervals.half_width_once if once else intervals.half_width)(summary.deviation, summary.n)
    seen = intervals.Interval(summary.mean - half, summary.mean + half)
    interval = context.rule(cases, shared=False).widened(seen, summary.deviation, max(context.memories, 1)).speedup
    return intervals.speedup_of(summary.mean), (interval.lower, interval.upper)


def program_gain(context: Context) -> ProgramGain | None:
    """Return what the change gives the program of a captured workload; None for others, or if nothing was timed."""
    workload, series = context.session.target.workload, context.series
    if not workload.captured or series is None or not series.combined:
        return None
    capture = read_capture(workload.source.text, workload.source.path)
    cases = [capture.cases[timed.draw.case] for timed in series.cases]
    spent = [case.count * median(us) for case, us in zip(cases, series.baseline_us, strict=True)]
    weights = tuple(one / sum(spent) for one in spent)
    speedup, interval = _speedup(context, weighted_blocks(series.blocks, weights), series.cases)
    share = capture.share(cases)
    return ProgramGain(
        program=capture.program,
        function=capture.function,
        weights=weights,
        speedup=speedup,
        interval=interval,
        share=share,
        whole=None if share is None else amdahl(share, speedup),
        whole_interval=None if share is None else (amdahl(share, interval[0]), amdahl(share, interval[1])),
        on_gpu=capture.on_gpu,
    )
