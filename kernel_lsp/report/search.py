"""The outcome of a search for people: why there is no variant, and what came nearest."""

from collections import Counter

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from kernel_lsp.judge.verdict import Outcome
from kernel_lsp.refine.batch import Batch, Stand
from kernel_lsp.refine.outcome import Refinement, Tried
from kernel_lsp.report.units import interval_text, seconds_text, speedup_text

NEAREST = 5
"""How many attempts are shown one by one."""
PREDICTED = "Ordered by times predicted from the emulator's counts; none was measured."
"""Said above attempts that were ordered without a GPU."""


def attempts_view(found: Refinement) -> RenderableType:
    """How many candidates there were and how they fell, and the nearest of those that are not the best."""
    counts = Counter(map(_fell, _last(found.tried)))
    fell = " · ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
    candidates = "1 candidate" if counts.total() == 1 else f"{counts.total()} candidates"
    head = Text(f"{candidates} in {seconds_text(found.seconds)}")
    head.append(f"  {fell}" if fell else "", "dim")
    if not counts:
        return head
    predicted = any(one.feedback.predicted is not None for one in found.tried)
    return Group(head, Text(PREDICTED, "dim"), _nearest(found)) if predicted else Group(head, _nearest(found))


def turn_view(batch: Batch, stand: Stand) -> RenderableType:
    """Where a sweep stands: what was judged so far by its outcome, the best of each kernel, what is waited for."""
    fell: Counter[str] = Counter()
    best: dict[str, float] = {}
    for outcome in batch.outcomes():
        fell[outcome.outcome] += 1
        if outcome.speedup is not None:
            best[outcome.kernel] = max(best.get(outcome.kernel, 0.0), outcome.speedup)
    lines = [
        Text(f"{fell.total()} answers judged  "),
        Text(" · ".join(f"{n} {what}" for what, n in fell.most_common())),
    ]
    shown: list[RenderableType] = [Text.assemble(*lines)]
    shown += [Text(f"  {kernel}: {speedup_text(speedup)}") for kernel, speedup in sorted(best.items())]
    if stand.waits_for is not None:
        asked = stand.waits_for.with_name("requests.jsonl")
        shown.append(Text(f"Turn {stand.turn} of {batch.turns}: {stand.missing} answers are missing."))
        shown.append(Text(f"Answer {asked} into {stand.waits_for}, and call this again."))
    else:
        shown.append(Text(f"All {stand.turn} turns are done."))
    return Group(*shown)


def _nearest(found: Refinement) -> Table:
    table = Table.grid(padding=(0, 2, 0, 0))
    table.add_column(overflow="fold", ratio=2)
    for _ in range(3):
        table.add_column(no_wrap=True)
    table.add_column(overflow="fold", ratio=3, style="dim")
    best = found.variant.digest if found.variant else None
    others = [one for one in _last(found.tried) if one.candidate.digest != best]
    for one in sorted(others, key=lambda one: one.feedback.ratio or one.feedback.predicted or float("inf"))[:NEAREST]:
        feedback = one.feedback
        ratio = speedup_text(1 / feedback.ratio) if feedback.ratio else ""
        if feedback.predicted is not None:
            ratio = f"predicted {speedup_text(1 / feedback.predicted)}"
        interval = interval_text((1 / feedback.interval[1], 1 / feedback.interval[0])) if feedback.interval else ""
        table.add_row(Text(one.candidate.label), _fell(one), ratio, interval, Text(feedback.message))
    return table


def _fell(one: Tried) -> str:
    """Return how a candidate fell: its verdict; `raced` where it was good enough in a race, and another was better."""
    raced = one.verdict is None and one.feedback.ratio is not None and one.feedback.verdict is Outcome.AMBIGUOUS
    return "raced" if raced else one.feedback.verdict.value


def _last(tried: list[Tried]) -> list[Tried]:
    """Each candidate once, with what was said of it last: a full judgement follows a race."""
    return list({one.candidate.digest: one for one in tried}.values())
