"""The parts of a verdict's page, as elements."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from kernel_lsp.judge.verdict import CheckStatus, Evidence, Outcome, SustainedRun, Verdict
from kernel_lsp.report.diff import unified_diff
from kernel_lsp.report.extensions import extension_text
from kernel_lsp.report.page.elements import Markup, data_table, facts_list, plot_place, tag
from kernel_lsp.report.sources import repeat_commands
from kernel_lsp.report.units import (
    bandwidth_text,
    energy_text,
    interval_text,
    seconds_text,
    speedup_text,
    time_text,
)
from kernel_lsp.report.view import KERNEL_COLUMNS, kernel_rows, known, mismatch_facts, opcode_rows, share_text, tone_of

_STATUS = {CheckStatus.PASSED: "✓ passed", CheckStatus.FAILED: "✗ failed", CheckStatus.SKIPPED: "– skipped"}


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a search: the candidate, what a model was asked and said where one was, and what came of it."""

    number: int
    label: str
    verdict: str
    speedup: float | None
    prompt: str | None = None
    answer: str | None = None


def sections(verdict: Verdict, name: str, steps: Sequence[Step]) -> Iterator[Markup]:
    """What there is to say, most important first."""
    evidence = verdict.evidence
    yield _head(verdict, name)
    yield from _timing(verdict)
    if evidence.sustained is not None:
        yield from _sustained(evidence.sustained)
    yield from _mismatch(evidence)
    yield from _change(evidence)
    yield from _checks(evidence)
    yield from _errors(evidence)
    yield from _resources(evidence)
    yield from _traces(evidence)
    yield from _steps(steps)
    yield from _circumstances(verdict)
    yield from _build_log(verdict)
    yield tag("h2", "To repeat it")
    yield tag("pre", "\n".join(repeat_commands(evidence, name)))


def _head(verdict: Verdict, name: str) -> Markup:
    evidence = verdict.evidence
    answer = [tag("span", verdict.verdict.value, class_=f"verdict {tone_of(verdict.verdict)}")]
    if verdict.speedup is not None:
        answer.append(tag("span", speedup_text(verdict.speedup), class_="speedup"))
    if verdict.interval is not None:
        answer.append(tag("span", f"95 % interval {interval_text(verdict.interval)}", class_="dim"))
    device = evidence.device.name if evidence.device else "not timed"
    about = " · ".join((evidence.candidate_label, evidence.candidate_origin, device, name, evidence.created))
    return tag(
        "header",
        tag("h1", evidence.kernel_path),
        tag("div", *answer, class_="answer"),
        tag("p", verdict.reason),
        tag("p", about, class_="dim"),
    )


def _timing(verdict: Verdict) -> Iterator[Markup]:
    if not verdict.cases:
        return
    yield tag("h2", "Time")
    said = "The speedup of each case with its 95 % interval. The grey band is too small to matter."
    yield plot_place("intervals", said)
    yield data_table(
        "Median time of a launch, and what share of the measured bandwidth that is.",
        ("Case", "Baseline", "Candidate", "Speedup", "95 % interval", "Roofline", "Bandwidth", "Blocks", "Timed"),
        (
            (
                case.case,
                time_text(case.baseline_us),
                time_text(case.candidate_us),
                speedup_text(case.speedup),
                interval_text(case.interval),
                f"{share_text(case.baseline_roofline_share)} → {share_text(case.roofline_share)}",
                bandwidth_text(case.bytes_moved, case.candidate_us),
                f"{len(case.blocks) - case.confirmation_blocks} + {case.confirmation_blocks}",
                case.mode,
            )
            for case in verdict.cases
        ),
    )
    said = "Each block is one paired measurement, in the order in which they were made"
    blocks = plot_place("blocks", f"{said}; filled ones are those of the confirmation.")
    device = verdict.evidence.device
    if device is None or device.copy_bandwidth_gbs is None:
        yield blocks
        return
    said = "Compulsory traffic over time, for baseline and candidate, under what memory was measured to give for it."
    yield tag("div", blocks, plot_place("roofline", said), class_="pair")


def _sustained(run: SustainedRun) -> Iterator[Markup]:
    yield tag("h2", "Under a steady load")
    interval = f"{speedup_text(run.speedup)} (95 % interval {interval_text(run.interval)})"
    yield tag("p", f"{run.case}: {seconds_text(run.seconds)} of each side without a pause: {interval}.")
    slowed = f" It was slowed down by: {', '.join(run.throttle)}." if run.throttle else ""
    yield data_table(
        f"The power limit is {run.limit_w:.0f} W.{slowed}",
        ("", "Time", "Energy", "Power", "SM clock"),
        (
            (side, time_text(us), known(joules, energy_text), known(watts, _watts), known(clock, _megahertz))
            for side, us, joules, watts, clock in (
                ("Baseline", run.baseline_us, run.baseline_mj, run.baseline_w, run.baseline_clock_mhz),
                ("Candidate", run.candidate_us, run.candidate_mj, run.candidate_w, run.candidate_clock_mhz),
            )
        ),
    )


def _mismatch(evidence: Evidence) -> Iterator[Markup]:
    wrong = evidence.mismatch
    if wrong is None:
        return
    yield tag("h2", "First wrong element")
    yield facts_list(mismatch_facts(wrong))


def _change(evidence: Evidence) -> Iterator[Markup]:
    sources = evidence.sources
    pairs = [(evidence.kernel_path, sources.get("baseline", ""), sources.get("candidate", ""))]
    if "candidate_launch" in sources:
        before = sources.get("baseline_launch", sources.get("workload", ""))
        pairs.append((evidence.workload_path, before, sources["candidate_launch"]))
    diff = "".join(unified_diff(Path(Path(path).name), before, after) for path, before, after in pairs)
    if not diff:
        return
    yield tag("h2", "The change")
    yield tag("pre", *(_diff_line(line) for line in diff.splitlines(keepends=True)))


def _diff_line(line: str) -> Markup | str:
    kind = "hunk" if line.startswith(("+++", "---", "@@")) else {"+": "add", "-": "del"}.get(line[:1])
    return tag("span", line, class_=kind) if kind else line


def _checks(evidence: Evidence) -> Iterator[Markup]:
    if not evidence.checks:
        return
    order = (CheckStatus.FAILED, CheckStatus.SKIPPED, CheckStatus.PASSED)
    counts = {status: sum(check.status is status for check in evidence.checks) for status in order}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    yield tag("h2", f"Checks: {said}")
    alike: dict[tuple[CheckStatus, str, str], list[str]] = {}
    for status in order:
        for check in evidence.checks:
            if check.status is status:
                alike.setdefault((status, check.name, check.detail), []).extend([check.case] if check.case else [])
    rows = [
        tag(
            "tr",
            tag("td", _STATUS[status], class_=f"{status} kept"),
            tag("th", name, scope="row", class_="kept"),
            tag("td", "; ".join(cases)),
            tag("td", detail),
        )
        for (status, name, detail), cases in alike.items()
    ]
    heads = tag("tr", *(tag("th", head, scope="col") for head in ("Status", "Check", "Cases", "Detail")))
    table = tag("table", tag("thead", heads), tag("tbody", *rows))
    yield tag("div", table, class_="scroll")


def _errors(evidence: Evidence) -> Iterator[Markup]:
    if not evidence.errors:
        return
    yield tag("h2", "Errors against float64")
    yield plot_place(
        "errors",
        "The largest error of each set of inputs, the candidate's over the baseline's. Dashed: as large as the "
        "baseline's. What lies above the line is wrong.",
    )
    table = data_table(
        "In units of eps(type) * (|expected| + rms(expected)).",
        ("Case", "Inputs", "Baseline max", "Candidate max", "Baseline RMS", "Candidate RMS"),
        (
            (
                one.case,
                one.family,
                f"{one.baseline_max:.3g}",
                f"{one.candidate_max:.3g}",
                f"{one.baseline_rms:.2g}",
                f"{one.candidate_rms:.2g}",
            )
            for one in evidence.errors
        ),
        text_columns=2,
    )
    yield tag("details", tag("summary", f"All {len(evidence.errors)} figures"), table)


def _resources(evidence: Evidence) -> Iterator[Markup]:
    if not evidence.candidate_resources:
        return
    yield tag("h2", "Kernels")
    yield data_table(
        "Before → after, where they differ.",
        ("Kernel", *KERNEL_COLUMNS),
        ((name, *cells) for name, cells in kernel_rows(evidence)),
    )
    rows = [(kind, str(old), str(new), f"{new - old:+}") for kind, old, new in opcode_rows(evidence)]
    if rows:
        table = data_table("Instructions in the machine code.", ("Opcode", "Baseline", "Candidate", "Difference"), rows)
        yield tag("details", tag("summary", f"{len(rows)} opcodes are used more or less often"), table)


def _traces(evidence: Evidence) -> Iterator[Markup]:
    if not evidence.traces:
        return
    yield tag("h2", "What the candidate ran on the GPU")
    yield data_table(
        "As CUPTI saw it; the share is that of its own kernels in all that computes.",
        ("Case", "Launches", "Span", "Own kernels", "Baseline's", "By the stopwatch"),
        (
            (
                f"{one.case}{', timed' if one.timed else ''}",
                str(one.launches),
                time_text(one.span_us),
                share_text(one.own_share),
                share_text(one.baseline_own_share),
                known(one.claimed_us, time_text),
            )
            for one in evidence.traces
        ),
    )
    groups = [
        (f"{one.case}{', timed' if one.timed else ''}: {group.name}", str(group.calls), time_text(group.us))
        for one in evidence.traces
        for group in one.groups
    ]
    table = data_table("Operations of one name together.", ("Operation", "Times", "In all"), groups)
    yield tag("details", tag("summary", "Each operation"), table)


def _steps(steps: Sequence[Step]) -> Iterator[Markup]:
    if not steps:
        return
    yield tag("h2", f"The search: {len(steps)} steps")
    yield data_table(
        None,
        ("Candidate", "Verdict", "Speedup"),
        (
            (f"{step.number}. {step.label}", step.verdict, "" if step.speedup is None else speedup_text(step.speedup))
            for step in steps
        ),
    )
    for step in steps:
        said = [tag("pre", text) for text in (step.prompt, step.answer) if text]
        if said:
            yield tag("details", tag("summary", f"What was asked and answered in step {step.number}"), *said)


def _circumstances(verdict: Verdict) -> Iterator[Markup]:
    evidence, device = verdict.evidence, verdict.evidence.device
    yield tag("h2", "How it was reached")
    total = verdict.seconds.get("total")
    yield plot_place("stages", f"Seconds by stage{f'; {seconds_text(total)} in all' if total is not None else ''}.")
    facts: dict[str, str] = {}
    if device is not None:
        facts["GPU"] = f"{device.name}, {device.arch}, driver {device.driver}, {device.uuid}"
        if device.sm_clock_mhz is not None:
            facts["SM clock"] = f"{device.sm_clock_mhz[0]:,.0f} to {device.sm_clock_mhz[1]:,.0f} MHz"
        facts["power"] = known(device.power_w, _watts)
        facts["temperature"] = known(device.temperature_c, lambda c: f"{c} °C")
        facts["bandwidth, copying"] = known(device.copy_bandwidth_gbs, lambda rate: f"{rate:,.0f} GB/s")
        facts["bandwidth, reading"] = known(device.read_bandwidth_gbs, lambda rate: f"{rate:,.0f} GB/s")
        facts["slowed by"] = ", ".join(device.throttle) or "nothing"
        busy = device.others_busy_percent
        facts["others on it"] = "not known" if busy is None else f"{busy} % busy{' (shared)' if device.shared else ''}"
    facts["blocks discarded"] = str(evidence.discarded_blocks)
    built = [extension_text(extension) for extension in evidence.extensions]
    target = f" for {evidence.build_arch}" if evidence.build_arch else ""
    facts["built by"] = "; ".join(built) or f"{evidence.build_way}{target}"
    facts["confined by"] = ", ".join(evidence.protections) or "nothing"
    facts["seed"] = "none" if evidence.seed is None else str(evidence.seed)
    facts["versions"] = ", ".join(f"{tool} {version}" for tool, version in evidence.versions.items())
    facts["settings"] = ", ".join(f"{key} {value}" for key, value in evidence.settings.items())
    facts["baseline"], facts["candidate"] = evidence.baseline_digest, evidence.candidate_digest
    yield facts_list(facts)


def _build_log(verdict: Verdict) -> Iterator[Markup]:
    log = verdict.evidence.build_log.strip()
    if log:
        shown = "open" if verdict.verdict is Outcome.BUILD_FAILED else None
        yield tag("details", tag("summary", "What the compiler said"), tag("pre", log), open=shown)


def _watts(watts: float) -> str:
    return f"{watts:.0f} W"


def _megahertz(clock: float) -> str:
    return f"{clock:,.0f} MHz"
