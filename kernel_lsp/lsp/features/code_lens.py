"""Code lenses above each kernel: its best variant, the next step, its last verdict and its facts.

Above a plain PyTorch module: offers to generate a kernel for it, the running job, and verified kernels. Each setting
has a source of lenses. A source returns a lens for as long as it may have one, so that lines do not jump while a text
is compiled or a job runs.
"""

from collections.abc import Callable

from lsprotocol import types

from kernel_lsp.lsp.analysis import Analysis
from kernel_lsp.lsp.compiled import facts_of
from kernel_lsp.lsp.documents import Document, Documents
from kernel_lsp.lsp.features.job_lenses import JobLenses, Lens
from kernel_lsp.lsp.settings import ClientSettings
from kernel_lsp.lsp.workspace import Permission
from kernel_lsp.report.units import percent_text, size_text
from kernel_lsp.source.kernel import Kernel


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
        """Return `40 regs, 48 KiB smem, occupancy 50 %, limited by registers`, of the instance with most registers.

        It is for the first architecture. Without facts the lens says why; an untrusted text, which never has facts, has
        no such lens.
        """
        if not self._permission.covers(document):
            return []
        found = self._analysis.latest(document.uri)
        if found is None:
            failed = "does not compile" if self._analysis.of(document) else "not compiled: the log says why"
            return [Lens(failed if self._analysis.is_compiled(document) else "compiling", "")]
        facts = [fact for _, fact in facts_of(found[:1], kernel)]
        if not facts:
            return [Lens("no launch says how to compile this", "")]
        fact = max(facts, key=lambda fact: fact.registers)
        parts = [f"{fact.registers} regs"]
        if fact.shared_bytes:
            parts.append(f"{size_text(fact.shared_bytes)} smem")
        if fact.spill_bytes:
            parts.append(f"{size_text(fact.spill_bytes)} spilled")
        if fact.occupancy is not None:
            limited = f", limited by {fact.limiter}" if fact.limiter and fact.occupancy < 1 else ""
            parts.append(f"occupancy {percent_text(fact.occupancy)}{limited}")
        is_older = self._analysis.is_compiled(document) and self._analysis.of(document) != found
        return [Lens(", ".join(parts) + (" when it last compiled" if is_older else ""), "")]
