"""A bench as a view: its summary, and a line for each candidate."""

from collections.abc import Callable, Sequence

from kernel_lsp.bench.records import CandidateResult, Comparison
from kernel_lsp.bench.run import BenchProgress
from kernel_lsp.bench.totals import Totals
from kernel_lsp.report.bench import published_words, speedup_of, totals_words, unanswered_words
from kernel_lsp.report.units import percent_text, seconds_text, speedup_text
from kernel_lsp.report.view.parts import Cell, Column, FactList, Head, ReportSection, Table, Tone, TonedText, View
from kernel_lsp.report.view.plots import Axis, Ink, Mark, Plot, Point, Shape
from kernel_lsp.report.view.words import tone_of

_COLUMNS: tuple[tuple[Column, Callable[[CandidateResult], Cell]], ...] = (
    (Column("Problem", figure=False), lambda result: f"{result.level} {result.problem}"),
    (Column("Sample", figure=False), lambda result: f"{result.run} {result.index}".strip()),
    (Column("Language", figure=False), lambda result: result.language),
    (
        Column("Verdict", figure=False),
        lambda result: (TonedText(result.eager.verdict.value, tone_of(result.eager.verdict)),),
    ),
    (Column("Reason", figure=False), lambda result: result.eager.reason),
    (Column("Cheat", figure=False), lambda result: result.cheat or ""),
    (Column("KernelBench", figure=False), published_words),
    (Column("Eager"), lambda result: speedup_of(result.eager)),
    (Column("Compiled"), lambda result: speedup_of(result.compiled)),
    (Column("Built"), lambda result: result.build_way),
    (Column("Seconds"), lambda result: seconds_text(result.seconds["total"])),
)
_EAGER, _COMPILED, _PUBLISHED = "eager", "torch.compile", "KernelBench"
_INKS = {_EAGER: Ink.CANDIDATE, _COMPILED: Ink.DOUBT, _PUBLISHED: Ink.BASELINE}


def results_view(progress: BenchProgress, totals: Totals, title: str) -> View:
    """Return the view; `title` names the judged kernel."""
    results = progress.in_order
    gpus = sorted({one.gpu for one in (*results, *progress.plan.searches) if one.gpu})
    head = Head(
        title,
        f"{totals.correct} of {totals.asked} correct",
        Tone.PLAIN,
        percent_text(totals.correct / totals.asked) if totals.asked else "none",
        ", ".join(gpus) or "on the emulator, untimed",
    )
    sections = [ReportSection("totals", "", (_facts(totals_words(totals)),))]
    if any(result.eager.ratio for result in results):
        sections += [
            ReportSection("speed", "Speed", (_speedups(results),)),
            ReportSection("share", "fast_p", (_fast(totals),)),
        ]
    if results:
        sections.append(ReportSection("candidates", "Candidates", (_candidates(results),)))
    if unanswered := unanswered_words(progress):
        sections.append(ReportSection("unanswered", "Without an answer", (_facts(unanswered),)))
    if progress.troubles:
        sections.append(ReportSection("troubles", "Not judged", (_facts(progress.troubles),)))
    return View(head, tuple(sections))


def _facts(words: dict[str, str]) -> FactList:
    return FactList(tuple((name, (said,)) for name, said in words.items()))


def _candidates(results: Sequence[CandidateResult]) -> Table:
    """Return the columns that have a value for any result."""
    columns = [(column, value) for column, value in _COLUMNS if any(value(result) for result in results)]
    rows = tuple(tuple(value(result) for _, value in columns) for result in results)
    return Table(tuple(column for column, _ in columns), rows)


def _speedups(results: Sequence[CandidateResult]) -> Plot:
    found: list[tuple[str, str, Comparison]] = []
    best: dict[str, float] = {}
    for result in results:
        name = f"{result.level} {result.problem} {result.run} {result.index}"
        for side, said in ((_EAGER, result.eager), (_COMPILED, result.compiled)):
            if said is not None and said.ratio is not None and said.interval is not None:
                found.append((name, side, said))
                best[name] = max(best.get(name, 0.0), said.ratio)
    dots: list[Point] = []
    ranges: list[Point] = []
    for name, side, said in found:
        assert said.ratio is not None, "only what was timed is drawn"
        assert said.interval is not None, "what was timed has an interval"
        text = f"{name}\n{side}: {speedup_text(said.ratio)}, {said.verdict}"
        dots.append(Point(said.ratio, name, series=side, text=text))
        ranges.append(Point(said.interval[0], name, said.interval[1], series=side))
    sides = tuple((side, _INKS[side]) for side in (_EAGER, _COMPILED))
    return Plot(
        "speedups",
        "The speedup of each correct candidate with its 95 % interval, against eager and against torch.compile.",
        Axis("speedup →", log=True, format="~g"),
        Axis(names=tuple(sorted(best, key=lambda name: -best[name]))),
        (Mark(Shape.RULE, (Point(x=1.0),)), Mark(Shape.RANGE, tuple(ranges)), Mark(Shape.DOT, tuple(dots))),
        sides,
    )


def _fast(totals: Totals) -> Plot:
    sides = ((_EAGER, totals.fast), (_COMPILED, totals.fast_compiled), (_PUBLISHED, totals.fast_published))
    points = tuple(
        Point(float(p), share, series=side, text=f"{side}: {percent_text(share)} are more than {p} times as fast")
        for side, shares in sides
        for p, share in shares.items()
        if share is not None
    )
    return Plot(
        "fast",
        "fast_p: the share of all candidates that are correct and more than p times as fast as the baseline.",
        Axis("p →", ticks=5),
        Axis("↑ fast_p", low=0.0, high=1.0, format="%"),
        (Mark(Shape.LINE, points), Mark(Shape.DOT, points)),
        tuple((side, _INKS[side]) for side, _ in sides),
    )
