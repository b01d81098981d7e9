"""Code lenses above each kernel: its best variant, the next step, its last verdict and its facts.

Above a plain PyTorch module: offers to generate a kernel for it, the running job, and verified kernels. Each setting
has a source of lenses. A source returns a lens for as long as it may have one, so that lines do not jump while a text
is compiled or a job runs.
"""

from collections.abc import Callable
from typing import TypeVar

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.catalog import PREFIX
from kernel_lsp.lsp.compiled import CompiledKernel, facts_of
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.features.job_lenses import JobLenses, Lens
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.report.units import percent_text, size_text
from kernel_lsp.source.kernel import Kernel

_Number = TypeVar("_Number", int, float)


class CodeLenses:
    """The lenses of a text."""

    def __init__(
        self,
        documents: Documents,
        settings: ClientSettings,
        permission: Permission,
        analysis: Analysis,
        jobs: JobLenses,
    ) -> None:
        self._documents, self._settings, self._permission = documents, settings, permission
        self._analysis = analysis
        self._of_kernel: dict[str, Callable[[Document, Kernel], list[Lens]]] = {  # by setting, in the order shown
            "variant_lens": jobs.of_variants,
            "job_lens": jobs.of_jobs,
            "verdict_lens": jobs.of_verdict,
            "capture_lens": jobs.of_captures,
            "facts_lens": self.of_facts,
        }
        self._of_module: dict[str, Callable[[Document], list[Lens]]] = {
            "job_lens": jobs.of_module_jobs,
            "variant_lens": jobs.of_written,
        }

    def lenses(self, params: types.CodeLensParams) -> list[types.CodeLens]:
        """Return the lenses of a text, kernel by kernel, then those of its module."""
        document = self._documents.read(params.text_document.uri)
        editor = self._settings.at(document.path).editor
        found: list[types.CodeLens] = []
        for kernel in document.kernels:
            extent = document.range(kernel.name_span)
            for setting, source in self._of_kernel.items():
                if getattr(editor, setting):
                    found += [types.CodeLens(extent, lens) for lens in source(document, kernel)]
        if document.module is not None:
            extent = document.range(document.module)
            for setting, source in self._of_module.items():
                if getattr(editor, setting):
                    found += [types.CodeLens(extent, lens) for lens in source(document)]
        return found

    def of_facts(self, document: Document, kernel: Kernel) -> list[Lens]:
        """Return `48 regs (+8), 48 KiB smem, occupancy 75 % -> 50 %, limited by registers`; picking it lists the code.

        It is of the instance with most registers, for the first architecture; changes are those since the text was
        saved. Without facts the lens says why; an untrusted text, which never has facts, has no such lens.
        """
        if not self._permission.covers(document):
            return []
        found = self._analysis.latest(document.uri)
        if found is None:
            failed = "does not compile" if self._analysis.of(document) else "not compiled: the log says why"
            return [Lens(failed if self._analysis.is_compiled(document) else "compiling", "")]
        facts, now = [fact for _, fact in facts_of(found[:1], kernel)], self._analysis.of(document)[:1]
        if not facts and any(one.has_errors for one in now):
            return [Lens("does not compile", "")]
        if not facts:
            return [Lens("not compiled: no launch says with which arguments", "")]
        saved = None
        if self._settings.at(document.path).editor.cost_lens:
            saved = _hungriest([fact for _, fact in facts_of(self._analysis.of_saved(document.uri)[:1], kernel)])
        text = _facts_text(max(facts, key=_registers), saved)
        is_older = self._analysis.is_compiled(document) and not facts_of(now, kernel)
        older = "when it last compiled: " if is_older else ""
        return [Lens(older + text, f"{PREFIX}machineCode", arguments=[document.uri, kernel.name])]


def _registers(fact: CompiledKernel) -> int:
    return fact.registers


def _hungriest(facts: list[CompiledKernel]) -> CompiledKernel | None:
    return max(facts, key=_registers, default=None)


def _facts_text(fact: CompiledKernel, saved: CompiledKernel | None) -> str:
    """Return a kernel's facts in one line, each with how it differs from that of the saved text, if it does."""
    parts = [f"{fact.registers} regs{_more(fact.registers, saved and saved.registers)}"]
    for name, now, before in (
        ("smem", fact.shared_bytes, saved and saved.shared_bytes),
        ("spilled", fact.spill_bytes or 0, saved and (saved.spill_bytes or 0)),
    ):
        if now or before:
            parts.append(f"{_from(before, now, size_text)}{size_text(now)} {name}")
    if fact.occupancy is None:
        return ", ".join([*parts, "occupancy: needs a launch"])
    before = _from(saved and saved.occupancy, fact.occupancy, percent_text)
    limited = f", limited by {fact.limiter}" if fact.limiter and fact.occupancy < 1 else ""
    return ", ".join([*parts, f"occupancy {before}{percent_text(fact.occupancy)}{limited}"])


def _more(now: int, before: int | None) -> str:
    return "" if before is None or before == now else f" ({now - before:+})"


def _from(before: _Number | None, now: _Number, shown: Callable[[_Number], str]) -> str:
    """Return `100 % -> ` where a figure has changed; else nothing."""
    return "" if before is None or shown(before) == shown(now) else f"{shown(before)} -> "
