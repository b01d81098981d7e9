"""A bench for people: as it runs, and what it came to; and as JSON."""

from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Group, RenderableType
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from kernel_lsp.bench.proposing import Searching
from kernel_lsp.bench.records import CandidateResult, Comparison, Search
from kernel_lsp.bench.run import BenchProgress
from kernel_lsp.bench.totals import Agreement, Totals
from kernel_lsp.report.machine import records_json
from kernel_lsp.report.units import interval_text, percent_text, seconds_text, speedup_text
from kernel_lsp.report.view.parts import Tone
from kernel_lsp.report.view.words import tone_of

_LATEST = 8
_MOST_LANES = 16
_TROUBLED = ("left alone", "lost")  # first words of a lane
_STYLES = {Tone.GOOD: "bold green", Tone.PLAIN: "", Tone.DOUBT: "yellow", Tone.BAD: "red", Tone.QUIET: "dim"}


def bench_view(progress: BenchProgress) -> RenderableType:
    """A bench as it runs: how far it is, what failed, what each lane does, the latest results."""
    total, done = len(progress.plan.jobs), len(progress.results)
    rate = f"{60 * progress.judged / progress.seconds:.1f} a minute" if progress.judged else ""
    latest = results_table(list(progress.results.values())[-_LATEST:])
    return Group(_far(done, total, rate), *_failures(progress), *_lanes(progress.doing), latest)


def searching_view(searching: Searching) -> RenderableType:
    """Searches as they run: how many problems are done, what each lane does, what the latest ones came to."""
    total, done = len(searching.tasks), len(searching.found)
    latest = [
        Text(f"{search.level} {search.problem}  {search_words(search)}", no_wrap=True, overflow="ellipsis")
        for search in list(searching.found.values())[-_LATEST:]
    ]
    return Group(_far(done, total, "searched"), *_lanes(searching.doing), *latest)


def _failures(progress: BenchProgress) -> list[Text]:
    """Return a line that counts what failed, by its verdict; none where nothing did."""
    verdicts = (result.eager.verdict for result in progress.results.values())
    counts = Counter(verdict for verdict in verdicts if verdict.is_failure)
    said = [f"{count} {verdict}" for verdict, count in counts.most_common()]
    said += [f"{len(progress.troubles)} could not be judged"] if progress.troubles else []
    return [Text(f"  {', '.join(said)}", "dim", no_wrap=True, overflow="ellipsis")] if said else []


def _lanes(doing: Mapping[str, str]) -> list[Text]:
    """Return a line for each lane; of very many, first those that are left alone or lost, and the number of others."""
    ranked = sorted(doing.items(), key=lambda one: not one[1].startswith(_TROUBLED)) if len(doing) > _MOST_LANES else []
    shown = (ranked or list(doing.items()))[:_MOST_LANES]
    lines = [Text(f"  {lane}  {what}", "cyan", no_wrap=True, overflow="ellipsis") for lane, what in shown]
    more = len(doing) - len(shown)
    return [*lines, Text(f"  and {more} more lanes", "dim")] if more else lines


def _far(done: int, total: int, said: str) -> Table:
    line = Table.grid(padding=(0, 1))
    line.add_row(Text(" "), ProgressBar(total=max(total, 1), completed=done, width=32), f"{done} of {total}", said)
    return line


def search_words(search: Search) -> str:
    """Return the result of a search: its reason, the outcomes of its candidates, and what was left out."""
    fell = ", ".join(f"{count} {verdict}" for verdict, count in search.outcomes.items())
    said = search.reason if search.answer is None else f"answered, {search.reason}"
    return "; ".join((said, *([fell] if fell and fell not in said else []), *search.notes))


def unanswered_words(progress: BenchProgress) -> dict[str, str]:
    """The problems that a search found no right answer to, each with what it came to."""
    return {
        f"level {search.level} problem {search.number}": search_words(search)
        for search in progress.plan.searches
        if search.answer is None
    }


def results_table(results: Sequence[CandidateResult]) -> Table:
    """A line for each candidate."""
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="dim", expand=True)
    published = any(result.published or result.published_trouble for result in results)
    heads = ("problem", "sample", "verdict", "eager", "compiled", *(["KernelBench"] if published else []), "reason")
    for head in heads:
        last = head == "reason"
        table.add_column(head, no_wrap=True, overflow="ellipsis" if last else "fold", ratio=1 if last else None)
    for result in results:
        run = f"{result.run} " if result.run else ""
        style = _STYLES[tone_of(result.eager.verdict)]
        table.add_row(
            Text(f"{result.level} {result.problem}"),
            Text(f"{run}{result.index}"),
            Text(str(result.eager.verdict), style),
            speedup_of(result.eager),
            speedup_of(result.compiled),
            *([published_words(result)] if published else []),
            Text(result.eager.reason, "dim"),
        )
    return table


def totals_view(progress: BenchProgress, totals: Totals) -> RenderableType:
    """Return the results of a bench: every candidate, the sums, and what could not be judged."""
    rows = Table.grid(padding=(0, 2, 0, 0))
    for name, said in totals_words(totals).items():
        rows.add_row(Text(name, "dim"), Text(said))
    troubles = [
        Text.assemble(("not judged ", "bold yellow"), f"{label}: {why}") for label, why in progress.troubles.items()
    ]
    unanswered = [
        Text.assemble(("no answer ", "bold yellow"), f"{label}: {why}")
        for label, why in unanswered_words(progress).items()
    ]
    strangers = len(progress.plan.strangers)
    if strangers:
        troubles.append(Text(f"{strangers} candidates are for problems that were not asked for.", "dim"))
    return Group(results_table(progress.in_order), Text(), rows, *unanswered, *troubles)


def bench_json(progress: BenchProgress, totals: Totals) -> str:
    """One object: the totals, every result, every search, and what could not be judged or searched with the reasons."""
    return records_json(
        {
            "totals": totals,
            "results": progress.in_order,
            "searches": progress.plan.searches,
            "troubles": progress.troubles,
        }
    )


def totals_words(totals: Totals) -> dict[str, str]:
    """The totals by name, as they are said; what is not known is left out."""
    fell = ", ".join(f"{count} {verdict}" for verdict, count in totals.outcomes.items())
    words = {"candidates": f"{totals.candidates}: {fell}" if fell else str(totals.candidates)}
    if totals.unanswered:
        words["without a candidate"] = f"{totals.unanswered} of {totals.asked} problems"
    if totals.asked:
        words["correct"] = f"{totals.correct} ({percent_text(totals.correct / totals.asked)})"
    for name, shares in (
        ("fast_p, eager", totals.fast),
        ("fast_p, torch.compile", totals.fast_compiled),
        ("fast_p, KernelBench", totals.fast_published),
    ):
        known = [f"{p}: {percent_text(share)}" for p, share in shares.items() if share is not None]
        if known:
            words[name] = ", ".join(known)
    if totals.cheats:
        words["cheats"] = ", ".join(f"{count} {kind}" for kind, count in totals.cheats.items())
    if totals.fast_builds is not None:
        words["built the fast way"] = percent_text(totals.fast_builds)
    if totals.agreement is not None:
        words["beside KernelBench"] = agreement_words(totals.agreement)
    if totals.per_minute is not None:
        words["verdicts a minute"] = f"{totals.per_minute:.1f}"
    spent = [f"{stage} {seconds_text(seconds)}" for stage, seconds in totals.seconds.items()]
    if spent:
        words["mean time"] = ", ".join(spent)
    return words


def agreement_words(agreement: Agreement) -> str:
    """`41 agree; 3 right only by KernelBench, 1 only here`."""
    agreed = agreement.both + agreement.neither
    return f"{agreed} agree; {agreement.only_published} right only by KernelBench, {agreement.only_ours} only here"


def speedup_of(comparison: Comparison | None) -> str:
    """`1.42x 1.40-1.44`, or nothing where nothing was timed."""
    if comparison is None or comparison.ratio is None:
        return ""
    interval = f" {interval_text(comparison.interval)}" if comparison.interval else ""
    return f"{speedup_text(comparison.ratio)}{interval}"


def published_words(result: CandidateResult) -> str:
    """Return the result by KernelBench's method: `right 1.42x`, `wrong`, `not compiled`, or `unknown`."""
    said = result.published
    if said is None:
        return "unknown" if result.published_trouble else ""
    if not said.compiled:
        return "not compiled"
    if not said.correct:
        return "wrong"
    return f"right {speedup_text(said.speedup)}" if said.speedup else "right"
