"""The results by case of a variant that wins on some and loses on others, and the condition between them."""

from kernel_lsp.judge.split import FreshCase, Split
from kernel_lsp.judge.verdict import Verdict
from kernel_lsp.report.units import interval_text, speedup_text
from kernel_lsp.report.view.parts import Column, Paragraph, Part, ReportSection, Table
from kernel_lsp.report.view.words import known

_COLUMNS = (
    Column("Case", figure=False),
    Column("Variant alone"),
    Column("95 % CI"),
    Column("It", figure=False),
    Column("Takes", figure=False),
)
_FRESH = (
    Column("Case that is not listed", figure=False),
    Column("Speedup"),
    Column("95 % CI"),
    Column("Takes", figure=False),
)


def split_section(verdict: Verdict) -> ReportSection | None:
    """Return both tables, and what separates the cases; None where no variant was split."""
    split = verdict.evidence.split
    if split is None:
        return None
    rows = tuple(
        (c.case, speedup_text(c.speedup), interval_text(c.interval), c.side, _path(c.path)) for c in split.cases
    )
    parts: list[Part] = [Paragraph(_said(split)), Table(_COLUMNS, rows, f"`{split.variant}` without a condition.")]
    if split.fresh:
        parts.append(Table(_FRESH, tuple(map(_fresh, split.fresh)), "The file as a whole beside the old one."))
    return ReportSection("split", "Guarded dispatch", tuple(parts))


def _said(split: Split) -> str:
    note = f" {split.note[0].upper()}{split.note[1:]}." if split.note else ""
    if split.predicate:
        return f"Where {split.predicate}, the new path is taken, else the old text.{note}"
    return f"The variant wins on some cases and loses on others, and is not offered.{note}"


def _path(path: str) -> str:
    return f"{path} path" if path else ""


def _fresh(case: FreshCase) -> tuple[str, ...]:
    return case.case, known(case.speedup, speedup_text), known(case.interval, interval_text), _path(case.path)
