"""A verdict and its evidence as one view. A new kind of evidence is a function, listed in `_SECTIONS`."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kernel_lsp.judge.spans import unpack
from kernel_lsp.judge.verdict import DeviceState, Evidence, Outcome, Verdict
from kernel_lsp.report.diff import unified_diff
from kernel_lsp.report.extensions import extension_text
from kernel_lsp.report.sources import repeat_commands
from kernel_lsp.report.units import count_text, interval_text, seconds_text, speedup_text
from kernel_lsp.report.view.checked import checks_section, errors_section, mismatch_section
from kernel_lsp.report.view.kernels import kernels_section, recorded_instructions, traces_section
from kernel_lsp.report.view.parts import Code, CodeKind, Column, FactList, Head, More, Part, ReportSection, Table, View
from kernel_lsp.report.view.plots import Axis, Ink, Mark, Plot, Point, Shape
from kernel_lsp.report.view.program import program_section
from kernel_lsp.report.view.split import split_section
from kernel_lsp.report.view.timing import sustained_section, time_section
from kernel_lsp.report.view.words import tone_of

_MILLISECOND = 1e-3  # shorter stages are not worth a word


@dataclass(frozen=True, slots=True)
class Step:
    """One step of a search: the candidate, a model's prompt and answer if there was one, and the result.

    `verdict` is the result in words, of a race or of a full judgement; `judged` says which.
    """

    number: int
    label: str
    verdict: str
    speedup: float | None
    prompt: str | None = None
    answer: str | None = None
    judged: bool = True


def verdict_view(verdict: Verdict, name: str, steps: Sequence[Step] = ()) -> View:
    """Return the whole report, most important first.

    Args:
        verdict: what to show.
        name: the id by which `kernel-lsp report` finds it again.
        steps: of the search that made the candidate, in order.
    """
    sections = [make(verdict) for make in _SECTIONS]
    repeat = Code("\n".join(repeat_commands(verdict.evidence, name)), CodeKind.COMMANDS)
    sections += [_search(steps), _circumstances(verdict), ReportSection("repeat", "To repeat it", (repeat,))]
    return View(verdict_head(verdict, name), tuple(section for section in sections if section is not None))


def verdict_head(verdict: Verdict, name: str, title: str | None = None) -> Head:
    """Return the answer; `title` names the judged text if it is not the kernel's file."""
    evidence = verdict.evidence
    device = evidence.device.name if evidence.device else "not timed"
    return Head(
        title or evidence.kernel_path,
        verdict.verdict.value,
        tone_of(verdict.verdict),
        "" if verdict.speedup is None else speedup_text(verdict.speedup),
        "" if verdict.interval is None else f"95 % CI {interval_text(verdict.interval)}",
        verdict.reason,
        (evidence.candidate_label, evidence.candidate_origin, device, name),
    )


def change_of(evidence: Evidence) -> str:
    """Return the candidate's change as a unified diff; empty if its texts were not stored."""
    sources = evidence.sources
    pairs = [(evidence.kernel_path, sources.get("baseline", ""), sources.get("candidate", ""))]
    if "candidate_launch" in sources:
        before = sources.get("baseline_launch", sources.get("workload", ""))
        pairs.append((evidence.workload_path, before, sources["candidate_launch"]))
    return "".join(unified_diff(Path(Path(path).name), before, after) for path, before, after in pairs)


def _change(verdict: Verdict) -> ReportSection | None:
    diff = change_of(verdict.evidence)
    return ReportSection("change", "The change", (Code(diff, CodeKind.DIFF),), brief=False) if diff else None


def _build_log(verdict: Verdict) -> ReportSection | None:
    log = verdict.evidence.build_log.strip()
    if not log:
        return None
    more = More("What the compiler said", (Code(log, CodeKind.LOG),), shown=verdict.verdict is Outcome.BUILD_FAILED)
    return ReportSection("build", "Build", (more,))


_SECTIONS: tuple[Callable[[Verdict], ReportSection | None], ...] = (
    time_section,
    split_section,
    program_section,
    sustained_section,
    mismatch_section,
    _change,
    checks_section,
    errors_section,
    kernels_section,
    recorded_instructions,
    traces_section,
    _build_log,
)


def _search(steps: Sequence[Step]) -> ReportSection | None:
    if not steps:
        return None
    rows = tuple(
        (f"{one.number}. {one.label}", one.verdict, "" if one.speedup is None else speedup_text(one.speedup))
        for one in steps
    )
    table = Table((Column("Candidate", figure=False), Column("Verdict", figure=False), Column("Speedup")), rows)
    talks = [
        More(f"What was asked and answered in step {one.number}", said)
        for one in steps
        if (said := tuple(Code(text, CodeKind.TALK) for text in (_asked(one.prompt), one.answer) if text))
    ]
    judged = sum(one.judged for one in steps)
    title = f"The search: {len(steps)} candidates, {judged} of them judged in full"
    return ReportSection("search", title, (table, *talks), brief=False)


def _asked(prompt: str | None) -> str | None:
    """Return a prompt as a conversation if it is a list of messages as JSON, else as it is."""
    if not prompt or not prompt.startswith("["):
        return prompt
    try:
        messages: list[Any] = json.loads(prompt)
        return "\n\n".join(f"{message['role']}:\n{message['content']}" for message in messages)
    except (ValueError, TypeError, KeyError):
        return prompt


def _circumstances(verdict: Verdict) -> ReportSection:
    evidence, device, where = verdict.evidence, verdict.evidence.device, verdict.evidence.where
    spent = {stage: s for stage, s in verdict.seconds.items() if stage != "total" and s > _MILLISECOND}
    total = verdict.seconds.get("total")
    measured = _measured(device) if device else []
    if evidence.discarded_blocks:
        measured.append(f"{count_text(evidence.discarded_blocks, 'block')} discarded")
    target = f" for {evidence.build_arch}" if evidence.build_arch else ""
    facts = {
        "GPU": [device.name, device.arch, f"driver {device.driver}", device.uuid] if device else [],
        "lane": [where.lane, f"process {where.pid} on {where.host}"] if where else [],
        "judged": [evidence.created.replace("T", " ").replace("+00:00", " UTC").replace("Z", " UTC")],
        "measured": measured,
        "built": [extension_text(extension) for extension in evidence.extensions] or [f"{evidence.build_way}{target}"],
        "versions": [f"{tool} {version}" for tool, version in evidence.versions.items()],
        "settings": [f"{key} {_setting(value)}" for key, value in evidence.settings.items()],
        "confined": list(evidence.protections),
        "faults": [f"Xid {number}" for number in evidence.xids],
        "seed": [] if evidence.seed is None else [str(evidence.seed)],
        "seconds": ([] if total is None else [seconds_text(total)])
        + [f"{stage} {seconds_text(s)}" for stage, s in spent.items()],
        "GPU busy": _busy(evidence),
        "shown": [evidence.final_checks.value] if evidence.final_checks else [],
    }
    digests = (("baseline", (evidence.baseline_digest,)), ("candidate", (evidence.candidate_digest,)))
    parts: list[Part] = [_stages(spent, total)] if spent else []
    parts += [FactList(tuple((name, tuple(items)) for name, items in facts.items()))]
    parts += [More("Digests of the texts", (FactList(digests),))]
    return ReportSection("circumstances", "How it was reached", tuple(parts))


def _busy(evidence: Evidence) -> list[str]:
    """Return how long the judge's processes waited for the GPU, of the time that the trace covers."""
    trace = unpack(evidence.trace)
    busy = sum(end - start for start, end in trace.gpu_busy()) if trace is not None else 0
    return [] if trace is None or not busy else [f"{seconds_text(busy / 1e6)} of {seconds_text(trace.us / 1e6)}"]


def _measured(device: DeviceState) -> list[str]:
    """Return the state of the GPU while timing."""
    measured: list[str] = []
    if device.sm_clock_mhz is not None:
        low, high = (f"{clock:,.0f}" for clock in device.sm_clock_mhz)
        measured.append(f"SM clock {low} MHz" if low == high else f"SM clock {low}-{high} MHz")
    if device.power_w is not None:
        measured.append(f"{device.power_w:.0f} W")
    if device.temperature_c is not None:
        measured.append(f"{device.temperature_c} °C")
    for what, rate in (("copies", device.copy_bandwidth_gbs), ("reads", device.read_bandwidth_gbs)):
        if rate is not None:
            measured.append(f"memory {what} {rate:,.0f} GB/s")
    if device.throttle:
        measured.append(f"slowed by {', '.join(device.throttle)}")
    if device.shared or device.others_busy_percent:
        shared = "shared: " if device.shared else ""
        measured.append(f"{shared}others keep it {device.others_busy_percent or 0} % busy")
    for server in device.model_servers:
        use = "" if server.busy_percent is None else f", {server.busy_percent} % busy"
        measured.append(f"model server {server.name} {server.how}{use}")
    return measured


def _stages(spent: dict[str, float], total: float | None) -> Plot:
    return Plot(
        "stages",
        f"Seconds by stage{f'; {seconds_text(total)} in all' if total is not None else ''}.",
        Axis("seconds →"),
        Axis(names=tuple(spent)),
        (
            Mark(Shape.BAR, tuple(Point(s, stage) for stage, s in spent.items()), Ink.CANDIDATE),
            Mark(Shape.LABEL, tuple(Point(y=stage, text=seconds_text(s)) for stage, s in spent.items())),
        ),
    )


def _setting(value: bool | float | str) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    return f"{value:g}" if isinstance(value, float) else str(value)
