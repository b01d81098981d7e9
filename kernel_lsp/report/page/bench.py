"""A bench as one page: what it came to, and a line for each candidate."""

from collections.abc import Callable, Iterator, Sequence

from kernel_lsp.bench.records import Result
from kernel_lsp.bench.run import Progress
from kernel_lsp.bench.totals import Totals
from kernel_lsp.report.bench import bench_json, published_words, speedup_of, totals_words, unanswered_words
from kernel_lsp.report.page import page
from kernel_lsp.report.page.elements import Markup, data_table, facts_list, plot_place, tag
from kernel_lsp.report.units import percent_text, seconds_text

_Column = tuple[str, Callable[[Result], str]]
_WORDS: tuple[_Column, ...] = (
    ("Problem", lambda result: f"{result.level} {result.problem}"),
    ("Sample", lambda result: f"{result.run} {result.index}".strip()),
    ("Language", lambda result: result.language),
    ("Verdict", lambda result: str(result.eager.verdict)),
    ("Reason", lambda result: result.eager.reason),
    ("Cheat", lambda result: result.cheat or ""),
    ("KernelBench", published_words),
)
_FIGURES: tuple[_Column, ...] = (
    ("Eager", lambda result: speedup_of(result.eager)),
    ("Compiled", lambda result: speedup_of(result.compiled)),
    ("Built", lambda result: result.build_way),
    ("Seconds", lambda result: seconds_text(result.seconds["total"])),
)


def bench_page(progress: Progress, totals: Totals, title: str) -> str:
    """The page; `title` says what was judged."""
    return page(title, _sections(progress, totals, title), "bench", bench_json(progress, totals), "bench.js")


def _sections(progress: Progress, totals: Totals, title: str) -> Iterator[Markup]:
    results = progress.in_order
    gpus = sorted({one.gpu for one in (*results, *progress.plan.searches) if one.gpu})
    share = percent_text(totals.correct / totals.asked) if totals.asked else "none"
    answer = (
        tag("span", f"{totals.correct} of {totals.asked} correct", class_="verdict"),
        tag("span", share, class_="speedup"),
        tag("span", ", ".join(gpus) or "on the emulator, untimed", class_="dim"),
    )
    yield tag("header", tag("h1", title), tag("div", *answer, class_="answer"))
    yield facts_list(totals_words(totals))
    if any(result.eager.ratio for result in results):
        yield tag("h2", "Speed")
        said = "The speedup of each correct candidate with its 95 % interval, against eager and against torch.compile."
        yield plot_place("speedups", said)
        said = "fast_p: the share of all candidates that are correct and more than p times as fast as the baseline."
        yield plot_place("fast", said)
    if results:
        yield tag("h2", "Candidates")
        words, figures = _filled(_WORDS, results), _filled(_FIGURES, results)
        columns = (*words, *figures)
        yield data_table(
            None,
            [head for head, _ in columns],
            [[value(result) for _, value in columns] for result in results],
            text_columns=len(words),
        )
    if unanswered := unanswered_words(progress):
        yield tag("h2", "Without an answer")
        yield facts_list(unanswered)
    if progress.troubles:
        yield tag("h2", "Not judged")
        yield facts_list(progress.troubles)


def _filled(columns: Sequence[_Column], results: Sequence[Result]) -> list[_Column]:
    """Those columns that say something of any result."""
    return [column for column in columns if any(column[1](result) for result in results)]
