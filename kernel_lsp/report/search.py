"""The outcome of a search for people: why there is no variant, and what came nearest."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.refine.outcome import Refinement, Tried
from kernel_lsp.report.units import interval_text, seconds_text, speedup_text

NEAREST = 5
"""How many attempts are shown one by one."""


def attempts_view(found: Refinement) -> RenderableType:
    """How many candidates there were and how they fell, and the nearest of those that are not the best."""
    counts = Counter(one.feedback.verdict.value for one in _last(found.tried))
    fell = " · ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    head = Text(f"{counts.total()} candidates in {seconds_text(found.seconds)}")
    head.append(f"  {fell}" if fell else "", "dim")
    return Group(head, _nearest(found)) if counts else head


def _nearest(found: Refinement) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", ratio=2)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=3, style="dim")
    best = found.variant.digest if found.variant else None
    others = [one for one in _last(found.tried) if one.candidate.digest != best]
    for one in sorted(others, key=lambda one: one.feedback.ratio or float("inf"))[:NEAREST]:
        feedback = one.feedback
        ratio = speedup_text(1 / feedback.ratio) if feedback.ratio else ""
        interval = interval_text((1 / feedback.interval[1], 1 / feedback.interval[0])) if feedback.interval else ""
        table.add_row(Text(one.candidate.label), feedback.verdict.value, ratio, interval, Text(feedback.message))
    return table


def _last(tried: list[Tried]) -> list[Tried]:
    """Each candidate once, with what was said of it last: a full judgement follows a race."""
    return list({one.candidate.digest: one for one in tried}.values())
