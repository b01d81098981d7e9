"""The gain of the program that a captured workload comes from."""

from kernel_lsp.judge.program_gain import ProgramGain
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.units import interval_text, speedup_text
from kernel_lsp.report.view.parts import Column, Paragraph, Part, ReportSection, Table


def program_section(verdict: Verdict) -> ReportSection | None:
    """Return the gain of the program, and the weight of each case in it; None without a captured workload or times."""
    gain = verdict.evidence.program
    if gain is None:
        return None
    parts: list[Part] = [Paragraph(program_text(gain))]
    if len(gain.weights) > 1:
        columns = (Column("Case", figure=False), Column("Weight"), Column("Speedup"))
        rows = tuple(
            (case.case, _share(weight), speedup_text(case.speedup))
            for case, weight in zip(verdict.cases, gain.weights, strict=True)
        )
        parts.append(Table(columns, rows, "A case's weight is its number of calls x the baseline's time of one."))
    return ReportSection("program", f"In {gain.program}", tuple(parts))


def program_text(gain: ProgramGain) -> str:
    """Return `In train.py: 1.07x ...`, with the share that it rests on, and of which time that is."""
    weighted = (
        f"Weighted by calls, `{gain.function}` is {speedup_text(gain.speedup)} as fast "
        f"(95 % CI {interval_text(gain.interval)})."
    )
    if gain.share is None or gain.whole is None or gain.whole_interval is None:
        return f"{weighted} The capture does not say what share of {gain.program} that is."
    whole = f"In {gain.program}: {speedup_text(gain.whole)} ({interval_text(gain.whole_interval)})"
    taken = f"the timed cases of `{gain.function}` take {_share(gain.share)} of"
    if gain.on_gpu:
        return f"{whole}, of its GPU time; {taken} that. {weighted}"
    return (
        f"{whole}, of the host time in functions that launch kernels; {taken} that, which is not GPU time. {weighted}"
    )


def _share(share: float) -> str:
    return f"{100 * share:.1f} %"
