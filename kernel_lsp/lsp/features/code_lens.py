"""Code lenses above each kernel: its facts, its last verdict, its job and its verified variants.

Above a plain PyTorch module: offers to write a kernel for it, the job that does so, and what was verified. Each kind is
a source: a function from a kernel to the command of one lens, or to None. A source answers with a lens as long as it
may have one, so that lines do not jump while a text is compiled or a job runs.
"""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.documents import Document
from kernel_lsp.lsp.features import job_lenses
from kernel_lsp.report.units import percent_text, size_text
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.lsp.analysis import Compiled, Facts
    from kernel_lsp.lsp.server import Server

Lens = types.Command
Source = Callable[["Server", Document, Kernel], "Lens | None"]


def code_lenses(ls: "Server", params: types.CodeLensParams) -> list[types.CodeLens]:
    """The lenses of every kernel of a text, kernel by kernel."""
    document = ls.documents.read(params.text_document.uri)
    editor = ls.settings.at(document.path).editor
    found: list[types.CodeLens] = []
    for kernel in document.kernels:
        extent = document.range(kernel.name_span)
        for setting, source in SOURCES.items():
            if getattr(editor, setting) and (command := source(ls, document, kernel)) is not None:
                found.append(types.CodeLens(extent, command))
    if document.module is not None:
        extent = document.range(document.module)
        for setting, lenses in MODULE_SOURCES.items():
            if getattr(editor, setting):
                found += [types.CodeLens(extent, command) for command in lenses(ls, document)]
    return found


def facts_lens(ls: "Server", document: Document, kernel: Kernel) -> Lens | None:
    """`40 regs, 48 KiB smem, occupancy 50 % (registers)`, of the first architecture and the hungriest instance.

    Where there are no facts it says why; only an untrusted text, of which there are never any, has no such lens.
    """
    if not ls.is_trusted(document):
        return None
    found = ls.analysis.latest(document.uri)
    if found is None:
        return Lens("does not compile" if ls.analysis.is_compiled(document) else "compiling", "")
    facts = [fact for _, fact in facts_of(found[:1], kernel)]
    if not facts:
        return Lens("no launch says how to compile this", "")
    fact = max(facts, key=lambda fact: fact.registers)
    parts = [f"{fact.registers} regs"]
    if fact.shared_bytes:
        parts.append(f"{size_text(fact.shared_bytes)} smem")
    if fact.spill_bytes:
        parts.append(f"{size_text(fact.spill_bytes)} spilled")
    if fact.occupancy is not None:
        parts.append(f"occupancy {percent_text(fact.occupancy)} ({fact.limiter})")
    is_older = ls.analysis.is_compiled(document) and ls.analysis.of(document) != found
    return Lens(", ".join(parts) + (" when it last compiled" if is_older else ""), "")


def facts_of(found: "Sequence[Compiled]", kernel: Kernel) -> "list[tuple[str, Facts]]":
    """A kernel's facts with their architecture; several where it is built in several instances."""
    return [(one.arch, fact) for one in found for fact in one.instances(kernel.name)]


SOURCES: dict[str, Source] = {
    "facts_lens": facts_lens,
    "verdict_lens": job_lenses.verdict_lens,
    "job_lens": job_lenses.job_lens,
    "variant_lens": job_lenses.variant_lens,
}
"""The setting of each kind of lens, and the function that makes it, in the order in which they are shown."""

MODULE_SOURCES: dict[str, Callable[["Server", Document], list[Lens]]] = {
    "job_lens": job_lenses.lowering_lenses,
    "variant_lens": job_lenses.written_lenses,
}
"""The same for a plain module."""
