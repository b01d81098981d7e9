"""The checks of a verdict, the first wrong element, and the errors of both sides against the float64 reference."""

import math
from collections.abc import Sequence

from kernel_lsp.judge.verdict import Check, CheckStatus, ErrorFigures, Evidence, Verdict
from kernel_lsp.report.view.parts import Cell, Column, FactList, More, ReportSection, Table, Tone, TonedText
from kernel_lsp.report.view.plots import Axis, Ink, Mark, Plot, Point, Shape
from kernel_lsp.report.view.words import change_text

_STATUS = {
    CheckStatus.FAILED: TonedText("✗ failed", Tone.BAD),
    CheckStatus.SKIPPED: TonedText("– skipped", Tone.DOUBT),
    CheckStatus.PASSED: TonedText("✓ passed", Tone.GOOD),
}
_FLOOR = 1e-3  # eps; smaller errors are drawn there, for the axes are logarithmic
_BOUND = 4.0  # eps that every candidate may be off


def mismatch_section(verdict: Verdict) -> ReportSection | None:
    """Return the first wrong element of an output; None without one."""
    wrong = verdict.evidence.mismatch
    if wrong is None:
        return None
    facts = {
        "where": f"output {wrong.output} at [{', '.join(map(str, wrong.index))}]",
        "case": f"{wrong.case}, {wrong.family} inputs",
        "expected": wrong.expected,
        "actual": wrong.actual,
        "wrong": f"{wrong.count:,} of {wrong.total:,} elements",
    }
    rows = tuple((name, (value,)) for name, value in facts.items())
    return ReportSection("mismatch", "First wrong element", (FactList(rows),))


def checks_section(verdict: Verdict) -> ReportSection | None:
    """Return the checks grouped by their result; None if none was reached."""
    checks = verdict.evidence.checks
    if not checks:
        return None
    columns = tuple(Column(title, figure=False) for title in ("Status", "Check", "Cases", "Detail"))
    each = Table(columns, tuple(row for status in _STATUS for row in _each(checks, status)))
    rows = tuple(row for status in _STATUS for row in _alike(checks, status))
    brief = Table((Column("Status", figure=False), Column("Check", figure=False)), rows)
    return ReportSection("checks", "Checks", (brief, More("Each check and its cases", (each,))))


def _alike(checks: Sequence[Check], status: CheckStatus) -> list[tuple[Cell, ...]]:
    """Return a row for the checks that passed, and one for each reason of the others."""
    found = [check for check in checks if check.status is status]
    if status is CheckStatus.PASSED:
        names = [check.name for check in found]
        passed = TonedText(f"✓ {len(found)} passed", Tone.GOOD)
        return [((passed,), (TonedText(_listed(names), Tone.QUIET),))] if found else []
    alike: dict[str, list[str]] = {}
    for check in found:
        case = check.case if check.case and check.case not in check.detail else None
        alike.setdefault(" · ".join(part for part in (case, check.detail) if part), []).append(check.name)
    return [
        ((_STATUS[status],), (TonedText(_listed(names)), TonedText(about, Tone.QUIET)))
        for about, names in alike.items()
    ]


def _each(checks: Sequence[Check], status: CheckStatus) -> list[tuple[Cell, ...]]:
    alike: dict[tuple[str, str], list[str]] = {}
    for check in checks:
        if check.status is status:
            alike.setdefault((check.name, check.detail), []).extend([check.case] if check.case else [])
    return [((_STATUS[status],), name, "; ".join(cases), detail) for (name, detail), cases in alike.items()]


def _listed(names: Sequence[str]) -> str:
    """Return the names of checks, each once; `inputs: normal, inputs: large` becomes `inputs: normal, large`."""
    kinds: dict[str, list[str]] = {}
    for name in dict.fromkeys(names):
        kind, colon, what = name.partition(": ")
        kinds.setdefault(kind + colon if colon else "", []).append(what or name)
    return "; ".join(kind + ", ".join(whats) for kind, whats in kinds.items())


def errors_section(verdict: Verdict) -> ReportSection | None:
    """Return the errors against float64, the worst inputs of each case first; None if none were measured."""
    evidence = verdict.evidence
    if not evidence.errors:
        return None
    worst: dict[str, ErrorFigures] = {}
    for one in evidence.errors:
        if one.case not in worst or _growth(one) > _growth(worst[one.case]):
            worst[one.case] = one
    brief = Table(
        (Column("Case", figure=False), Column("Worst inputs", figure=False), Column("Max, eps"), Column("RMS, eps")),
        tuple(
            (
                one.case,
                one.family,
                change_text(f"{one.baseline_max:.3g}", f"{one.candidate_max:.3g}"),
                change_text(f"{one.baseline_rms:.2g}", f"{one.candidate_rms:.2g}"),
            )
            for one in worst.values()
        ),
        "Baseline → candidate, in units of eps(type) * (|expected| + rms(expected)).",
    )
    titles = ("Case", "Inputs", "Baseline max", "Candidate max", "Baseline RMS", "Candidate RMS")
    every = Table(
        tuple(Column(title, figure=title not in ("Case", "Inputs")) for title in titles),
        tuple(
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
    )
    more = More(f"All {len(evidence.errors)} figures", (every,))
    plot = _errors_plot(evidence)
    return ReportSection("errors", "Errors against float64", ((plot,) if plot else ()) + (brief, more))


def _growth(figures: ErrorFigures) -> float:
    return figures.candidate_max / figures.baseline_max if figures.baseline_max > 0 else figures.candidate_max


def _errors_plot(evidence: Evidence) -> Plot | None:
    """Return the plot of the finite errors; None without one, as where all of the candidate's answers are NaN."""
    points = [
        Point(
            max(one.baseline_max, _FLOOR),
            max(one.candidate_max, _FLOOR),
            text=f"{one.case}, {one.family} inputs\n{one.baseline_max:.3g} → {one.candidate_max:.3g} eps",
        )
        for one in evidence.errors
        if math.isfinite(one.baseline_max) and math.isfinite(one.candidate_max)
    ]
    values = [float(value) for point in points for value in (point.x, point.y) if value is not None]
    if not values:
        return None
    low, high = min(values) / 2, max(*values, 2 * _BOUND) * 2
    factor = float(evidence.settings.get("factor", 2))
    bound = (Point(low, _BOUND), Point(_BOUND / factor, _BOUND), Point(high, high * factor))
    return Plot(
        "errors",
        "The largest error of each set of inputs, the candidate's over the baseline's. Dashed: as large as the "
        "baseline's. What lies above the line is wrong.",
        Axis("baseline's largest error, eps →", low=low, high=high, log=True, ticks=5, format="~g"),
        Axis("↑ candidate's largest error, eps", low=low, high=high, log=True, ticks=5, format="~g"),
        (
            Mark(Shape.LINE, bound, Ink.LIMIT),
            Mark(Shape.LINE, (Point(low, low), Point(high, high)), dashed=True),
            Mark(Shape.DOT, tuple(points), Ink.CANDIDATE),
        ),
    )
