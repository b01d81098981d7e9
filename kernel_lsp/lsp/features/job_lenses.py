"""Lenses above a kernel that speak of judging it: what it measured, the job on it, the variants that were verified."""

from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.features.code_actions import unwritten, why_not, why_not_lowered
from kernel_lsp.lsp.jobs import Work
from kernel_lsp.report.titles import short_title
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server


def verdict_lens(ls: "Server", document: Document, kernel: Kernel) -> types.Command | None:
    """`0.40 ms, 82 % of roofline`, of this text as it was last measured; picking it shows the evidence."""
    standing = ls.results.latest(document)
    if standing is None or standing.measured is None:
        return None
    return types.Command(standing.measured, "kernel-lsp.evidence", arguments=[standing.measured_by, document.uri])


def job_lens(ls: "Server", document: Document, kernel: Kernel) -> types.Command | None:
    """Where the search stands, else an offer to begin one: there is always one, so that no line jumps."""
    for job in ls.jobs.under_way(document.uri, kernel.name):
        if job.wanted.work is Work.REFINE:
            return types.Command(f"Stop: {job.text}", "kernel-lsp.cancel", arguments=[job.id])
    standing = ls.results.latest(document)
    if standing is None or why_not(ls, document, standing, timed=True) is not None:
        return None
    return types.Command("Refine", "kernel-lsp.refine", arguments=[document.uri, kernel.name])


def variant_lens(ls: "Server", document: Document, kernel: Kernel) -> types.Command | None:
    """The best verified variant; picking it applies it."""
    standing = ls.results.latest(document)
    offers = standing.offers_for(kernel.name) if standing is not None else []
    if not offers:
        return None
    best = offers[0].verdict
    return types.Command(f"Apply: {short_title(best)}", "kernel-lsp.apply", arguments=[document.uri, best.id])


def lowering_lenses(ls: "Server", document: Document) -> list[types.Command]:
    """Of a plain module: where the writing of a kernel stands, else offers to begin it."""
    running = [job for job in ls.jobs.under_way(document.uri) if job.wanted.work is Work.LOWER]
    if running:
        return [types.Command(f"Stop: {job.text}", "kernel-lsp.cancel", arguments=[job.id]) for job in running]
    standing = ls.results.latest(document)
    return [
        types.Command(f"Write a {name} kernel", "kernel-lsp.lower", arguments=[document.uri, language])
        for language, name in (("cuda", "CUDA"), ("triton", "Triton"))
        if standing is not None and why_not_lowered(ls, document, standing, language) is None
    ]


def written_lenses(ls: "Server", document: Document) -> list[types.Command]:
    """The best verified kernel for a plain module; picking it writes it into a new file."""
    standing = ls.results.latest(document)
    return [
        types.Command(
            f"Write {offer.new_path(document.path).name}: {short_title(offer.verdict)}",
            "kernel-lsp.apply",
            arguments=[document.uri, offer.verdict.id],
        )
        for offer in (unwritten(ls, document, standing)[:1] if standing is not None else ())
    ]
