"""Renders a bench as one page."""

from kernel_lsp.bench.run import BenchProgress
from kernel_lsp.bench.totals import Totals
from kernel_lsp.report.page import page
from kernel_lsp.report.view.bench import results_view


def bench_page(progress: BenchProgress, totals: Totals, title: str) -> str:
    """The page; `title` says what was judged."""
    return page(title, results_view(progress, totals, title))
