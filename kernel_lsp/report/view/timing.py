"""The times of both sides: by case, in every block, against the roofline, and under a steady load."""

import math
from collections.abc import Callable

from kernel_lsp.judge.timing import CaseTiming, SustainedRun
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.units import (
    bandwidth_text,
    energy_text,
    interval_text,
    seconds_text,
    size_text,
    speedup_text,
    time_text,
)
from kernel_lsp.report.view.parts import Column, Paragraph, Part, ReportSection, Table
from kernel_lsp.report.view.plots import Axis, Ink, Mark, Plot, Point, Shape
from kernel_lsp.report.view.words import change_text, known, share_text

_ALL = "all cases"


def time_section(verdict: Verdict) -> ReportSection | None:
    """Return each case's times and speedup; None if nothing was timed."""
    if not verdict.cases:
        return None
    parts: list[Part] = [_intervals(verdict), _cases(verdict.cases), _blocks(verdict.cases)]
    device = verdict.evidence.device
    if device is not None and device.copy_bandwidth_gbs is not None:
        parts.append(_roofline(verdict.cases, device.copy_bandwidth_gbs))
    return ReportSection("time", "Time", tuple(parts))


def sustained_section(verdict: Verdict) -> ReportSection | None:
    """Return both sides under a steady load; None if that was not tried."""
    run = verdict.evidence.sustained
    if run is None:
        return None
    limit = "" if run.limit_w is None else f" The power limit is {run.limit_w:.0f} W."
    slowed = f" It was slowed down by: {', '.join(run.throttle)}." if run.throttle else ""
    said = (
        f"{run.case}, {seconds_text(run.seconds)} of each side without a pause: {speedup_text(run.speedup)} "
        f"(95 % CI {interval_text(run.interval)}).{limit}{slowed}"
    )
    columns = ("", "Time", "Energy of a launch", "Power", "SM clock")
    table = Table(
        tuple(Column(title, figure=bool(title)) for title in columns), (_side(run, "baseline"), _side(run, "candidate"))
    )
    return ReportSection("sustained", "Under a steady load", (Paragraph(said), table))


def _side(run: SustainedRun, side: str) -> tuple[str, ...]:
    before = side == "baseline"
    energy = run.baseline_mj if before else run.candidate_mj
    power = run.baseline_w if before else run.candidate_w
    clock = run.baseline_clock_mhz if before else run.candidate_clock_mhz
    return (
        side.capitalize(),
        time_text(run.baseline_us if before else run.candidate_us),
        known(energy, energy_text),
        known(power, lambda watts: f"{watts:.0f} W"),
        known(clock, lambda megahertz: f"{megahertz:,.0f} MHz"),
    )


def _cases(cases: tuple[CaseTiming, ...]) -> Table:
    columns: list[tuple[Column, Callable[[CaseTiming], str]]] = [
        (Column("Case", figure=False), lambda case: case.case),
        (Column("Baseline"), lambda case: time_text(case.baseline_us)),
        (Column("Candidate"), lambda case: time_text(case.candidate_us)),
        (Column("Speedup"), lambda case: speedup_text(case.speedup)),
        (Column("95 % CI"), lambda case: interval_text(case.interval)),
        (Column("Roofline"), _roofline_text),
        (Column("Bandwidth", wide=True), lambda case: bandwidth_text(case.bytes_moved, case.candidate_us)),
        (Column("Blocks", wide=True), _blocks_text),
        (Column("Mode", wide=True), lambda case: case.mode),
        (Column("Launches", wide=True), lambda case: str(case.launches)),
        (Column("Places", wide=True), lambda case: str(case.memories)),
    ]
    if all(case.roofline_share is None for case in cases):
        columns = [one for one in columns if one[0].title != "Roofline"]
    return Table(
        tuple(column for column, _ in columns),
        tuple(tuple(show(case) for _, show in columns) for case in cases),
        "Median time of a launch, and what share of the measured bandwidth that is.",
    )


def _roofline_text(case: CaseTiming) -> str:
    return change_text(share_text(case.baseline_roofline_share), share_text(case.roofline_share))


def _blocks_text(case: CaseTiming) -> str:
    return f"{len(case.blocks) - case.confirmation_blocks}+{case.confirmation_blocks}"


def _intervals(verdict: Verdict) -> Plot:
    rows = [(case.case, case.speedup, case.interval) for case in verdict.cases]
    if verdict.speedup is not None and verdict.interval is not None:
        rows.append((_ALL, verdict.speedup, verdict.interval))
    delta = float(verdict.evidence.settings.get("delta", 0))
    points = [Point(x=speedup, y=name) for name, speedup, _ in rows]
    return Plot(
        "intervals",
        "The speedup of each case with its 95 % interval. The grey band is too small to matter.",
        Axis("speedup →"),
        Axis(names=tuple(name for name, _, _ in rows)),
        (
            Mark(Shape.BAND, (Point(x=1 - delta, x2=1 + delta),)),
            Mark(Shape.RULE, (Point(x=1),)),
            Mark(Shape.RANGE, tuple(Point(low, name, high) for name, _, (low, high) in rows), Ink.CANDIDATE),
            Mark(Shape.DOT, tuple(point for point in points if point.y != _ALL), Ink.CANDIDATE),
            Mark(Shape.DOT, tuple(point for point in points if point.y == _ALL), Ink.CANDIDATE, emphasis=True),
            Mark(Shape.LABEL, tuple(Point(y=name, text=speedup_text(speedup)) for name, speedup, _ in rows)),
        ),
    )


def _blocks(cases: tuple[CaseTiming, ...]) -> Plot:
    points = [
        Point(
            number,
            math.exp(-log),
            series=case.case,
            text=f"{case.case}\nblock {number}: {math.exp(-log):.3f}x",
            filled=number > len(case.blocks) - case.confirmation_blocks,
        )
        for case in cases
        for number, log in enumerate(case.blocks, 1)
        if math.isfinite(log)
    ]
    fresh = len(cases[0].blocks) - cases[0].confirmation_blocks + 0.5
    confirmed = cases[0].confirmation_blocks > 0
    return Plot(
        "blocks",
        "Each block is one paired measurement, in the order in which they were made; filled ones are those of the "
        "confirmation, and the figures above are of those alone.",
        Axis("block, in the order of measurement →", ticks=8, format="d"),
        Axis("↑ speedup"),
        (
            Mark(Shape.RULE, (Point(y=1.0),)),
            Mark(Shape.RULE, (Point(x=fresh),) if confirmed else (), dashed=True),
            Mark(Shape.LABEL, (Point(x=fresh, text="fresh processes"),) if confirmed else ()),
            Mark(Shape.LINE, tuple(points)),
            Mark(Shape.DOT, tuple(points)),
        ),
        tuple((case.case, None) for case in cases),
    )


def _roofline(cases: tuple[CaseTiming, ...], copy_gbs: float) -> Plot:
    """Return the plot of rates in GB/s over bytes, each case under its own roof, or under the rate of copies."""
    before = [case.bytes_moved / case.baseline_us / 1e3 for case in cases]
    after = [case.bytes_moved / case.candidate_us / 1e3 for case in cases]
    roofs = [
        rate / case.roofline_share if case.roofline_share else copy_gbs for case, rate in zip(cases, after, strict=True)
    ]
    sizes = [case.bytes_moved for case in cases]
    every = list(zip(cases, before, after, roofs, strict=True))
    sides = [
        Point(
            case.bytes_moved,
            rate,
            series=side,
            text=f"{case.case}\n{side}: {rate:,.0f} GB/s of {size_text(case.bytes_moved)}",
            filled=side == "Candidate",
        )
        for case, old, new, _ in every
        for side, rate in (("Baseline", old), ("Candidate", new))
    ]
    return Plot(
        "roofline",
        "Compulsory traffic over time, for baseline and candidate, under what memory was measured to give for it.",
        Axis("bytes that have to be moved →", (), min(sizes) / 2, max(sizes) * 2, log=True, ticks=3, format="~s"),
        Axis(
            "↑ GB/s reached",
            low=min(*before, *after, min(roofs) / 10) / 1.5,
            high=max(*roofs, *before, *after) * 1.6,
            log=True,
            ticks=5,
            format="~s",
        ),
        (
            Mark(
                Shape.RULE,
                tuple(Point(c.bytes_moved / 1.6, roof, c.bytes_moved * 1.6) for c, _, _, roof in every),
                Ink.LIMIT,
            ),
            Mark(
                Shape.LABEL,
                tuple(Point(c.bytes_moved, roof, text=f"{roof:,.0f} GB/s") for c, _, _, roof in every),
                Ink.LIMIT,
            ),
            Mark(Shape.ARROW, tuple(Point(c.bytes_moved, old, c.bytes_moved, new) for c, old, new, _ in every)),
            Mark(Shape.DOT, tuple(sides)),
        ),
        (("Baseline", Ink.BASELINE), ("Candidate", Ink.CANDIDATE)),
    )
