"""The resources and instructions of both sides' kernels, and the candidate's trace on the GPU."""

from collections.abc import Callable, Mapping

from kernel_lsp.judge.timing import Trace
from kernel_lsp.judge.verdict import Evidence, KernelResources, Verdict
from kernel_lsp.report.units import percent_text, size_text, time_text
from kernel_lsp.report.view.parts import Cell, Column, More, Paragraph, Part, ReportSection, Table, Tone, TonedText
from kernel_lsp.report.view.words import change_text, known, share_text

INSTRUCTIONS = "instructions"
"""Name of the section of instructions, which an editor fills when both sides are compiled."""

OPCODES = 10
"""Number of kinds of instructions named in one line."""

_RAN = 4  # operations named of each case
_NAME = 60  # characters of a C++ name that are shown of it there

Counts = Mapping[str, int]


def kernels_section(verdict: Verdict) -> ReportSection | None:
    """Return the resources of each kernel of the candidate as a section; None if nothing was built."""
    if not verdict.evidence.candidate_resources:
        return None
    titles = ("Kernel", "Registers", "Spills", "Shared memory", "Threads", "Occupancy", "Limited by")
    columns = tuple(Column(title, title != "Kernel", title == "Limited by") for title in titles)
    rows = tuple((name, *cells) for name, cells in kernel_rows(verdict.evidence))
    table = Table(columns, rows, "Before → after, where they differ.", long_names=True)
    return ReportSection("kernels", "Kernels", (table,))


def kernel_rows(evidence: Evidence) -> list[tuple[str, list[str]]]:
    """Return the name and figures of each kernel of the candidate, `before → after` where they differ."""
    show: tuple[Callable[[KernelResources], str], ...] = (
        lambda kernel: str(kernel.registers),
        lambda kernel: known(kernel.spill_bytes, size_text),
        lambda kernel: size_text(kernel.shared_bytes),
        lambda kernel: known(kernel.threads, str),
        lambda kernel: share_text(kernel.occupancy),
        lambda kernel: kernel.limiter or "?",
    )
    return [
        (new.name, [change_text(cell(old) if old else None, cell(new)) for cell in show])
        for old, new in _pairs(evidence.baseline_resources, evidence.candidate_resources)
    ]


def _pairs(
    before: tuple[KernelResources, ...], after: tuple[KernelResources, ...]
) -> list[tuple[KernelResources | None, KernelResources]]:
    """Return each kernel with its baseline: by position, as template arguments change names, else by name."""
    if len(before) == len(after):
        return list(zip(before, after, strict=True))
    by_name = {kernel.name: kernel for kernel in before}
    return [(by_name.get(kernel.name), kernel) for kernel in after]


def recorded_instructions(verdict: Verdict) -> ReportSection | None:
    """Return the recorded instruction counts over all kernels; None if both sides have equal counts."""
    evidence = verdict.evidence
    counts = {"": (evidence.baseline_opcodes, evidence.candidate_opcodes)}
    return instructions_section(counts) if opcode_rows(*counts[""]) else None


def instructions_section(kernels: Mapping[str, tuple[Counts, Counts]], arch: str | None = None) -> ReportSection:
    """Return the kinds of instructions whose number differs, by kernel name; `arch` is the compiled architecture."""
    parts: list[Part] = []
    for name, (before, after) in kernels.items():
        changed = opcode_rows(before, after)
        shown = [f"{kind} {new - old:+}" for kind, old, new in changed[:OPCODES]]
        shown += [f"and {len(changed) - OPCODES} more"] if len(changed) > OPCODES else []
        where = f"{name}{f' on {arch}' if arch else ''}: " if name else ""
        parts.append(Paragraph(where + (", ".join(shown) or "the same instructions as often")))
        totals = ("all", sum(before.values()), sum(after.values()))
        table = Table(
            (Column("Opcode", figure=False), Column("Baseline"), Column("Candidate"), Column("Difference")),
            tuple((kind, str(old), str(new), f"{new - old:+}") for kind, old, new in (totals, *changed)),
            f"{where}Instructions in the machine code, of the kinds whose number changes.",
        )
        parts += [More(f"{len(changed)} opcodes are used more or less often", (table,))] if changed else []
    return ReportSection(INSTRUCTIONS, "Instructions", tuple(parts))


def opcode_rows(before: Counts, after: Counts) -> list[tuple[str, int, int]]:
    """Return the kinds of instructions whose number has changed, with both numbers, largest change first."""
    rows = [(kind, before.get(kind, 0), after.get(kind, 0)) for kind in {**before, **after}]
    changed = [row for row in rows if row[1] != row[2]]
    return sorted(changed, key=lambda row: (-abs(row[2] - row[1]), row[0]))


def traces_section(verdict: Verdict) -> ReportSection | None:
    """Return the GPU activities of a launch of each case, longest first; None if nothing was traced."""
    traces = verdict.evidence.traces
    if not traces:
        return None
    latest = {trace.case: trace for trace in sorted(traces, key=lambda trace: trace.timed)}  # the timed one, if any
    titles = ("Case", "Share of time", "Longest operations of a launch")
    brief = Table(tuple(Column(title, figure=False) for title in titles), tuple(map(_ran, latest.values())))
    titles = ("Case", "Launches", "TonedText", "Own kernels", "Baseline's", "By the stopwatch")
    spans = Table(
        tuple(Column(title, title != "Case") for title in titles),
        tuple(
            (
                _traced(one),
                str(one.launches),
                time_text(one.span_us),
                share_text(one.own_share),
                share_text(one.baseline_own_share),
                known(one.claimed_us, time_text),
            )
            for one in traces
        ),
        "As CUPTI saw it; the share is that of its own kernels in all that computes.",
    )
    operations = Table(
        (Column("Operation", figure=False), Column("Times"), Column("In all")),
        tuple(
            (f"{_traced(one)}: {group.name}", str(group.calls), time_text(group.us))
            for one in traces
            for group in one.groups
        ),
        "Operations of one name together.",
    )
    return ReportSection("traces", "What ran", (brief, More("Each operation", (spans, operations))))


def _ran(trace: Trace) -> tuple[Cell, ...]:
    share = "nothing computes" if trace.own_share is None else f"own kernels {percent_text(trace.own_share)}"
    ran: list[TonedText] = []
    for group in trace.groups[:_RAN]:
        name, _, _ = group.name.removeprefix("void ").partition("(")
        ran.append(TonedText(name[:_NAME], Tone.PLAIN if group.own else Tone.DOUBT))
        ran.append(TonedText(time_text(group.us / trace.launches), Tone.QUIET))
    if trace.never_launched:
        ran.append(TonedText(f"never launched: {', '.join(trace.never_launched)}", Tone.DOUBT))
    return (trace.case, share, tuple(ran))


def _traced(trace: Trace) -> str:
    return f"{trace.case}{', timed' if trace.timed else ''}"
