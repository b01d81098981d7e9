"""Hover: a kernel's signature, facts and last verdict."""

from typing import TYPE_CHECKING

from lsprotocol import types

from kernel_lsp.lsp.features.code_lens import facts_of
from kernel_lsp.report.units import percent_text, size_text, speedup_text
from kernel_lsp.source.kernel import Kernel

if TYPE_CHECKING:
    from kernel_lsp.lsp.server import Server


def hover(ls: "Server", params: types.HoverParams) -> types.Hover | None:
    """On a kernel's name: its head, what it costs on each architecture, and what was measured last."""
    document = ls.documents.read(params.text_document.uri)
    at = document.offset(params.position)
    kernel = next((k for k in document.kernels if k.name_span.start <= at <= k.name_span.end), None)
    if kernel is None:
        return None
    parts = [f"```{'cpp' if kernel.language == 'cuda' else 'python'}\n{signature(kernel)}\n```"]
    rows = [
        f"| {arch} | {fact.registers} | {size_text(fact.shared_bytes)} | "
        f"{'?' if fact.spill_bytes is None else size_text(fact.spill_bytes)} | "
        f"{'?' if fact.occupancy is None else percent_text(fact.occupancy)} | {fact.limiter or ''} |"
        for arch, fact in facts_of(ls.analysis.of(document), kernel)
    ]
    if rows:
        head = (
            "| arch | registers | shared memory | spills | occupancy | limit |\n| --- | --: | --: | --: | --: | --- |"
        )
        parts.append("\n".join([head, *rows]))
    if (standing := ls.results.latest(document)) is not None:
        if standing.measured is not None:
            parts.append(f"As it stands: {standing.measured}.")
        if (last := standing.last) is not None:
            on = f" on {last.device}" if last.device else ""
            speedup = f", {speedup_text(last.speedup)}" if last.speedup is not None else ""
            parts.append(f"Last verdict: {last.verdict}{speedup}{on}, on {last.label}.")
    content = types.MarkupContent(types.MarkupKind.Markdown, "\n\n".join(parts))
    return types.Hover(content, document.range(kernel.name_span))


def signature(kernel: Kernel) -> str:
    """A kernel's head as its author would write it, without attributes."""
    parameters = ", ".join(f"{p.type} {p.name}" for p in kernel.parameters)
    if kernel.language == "triton":
        parameters = ", ".join(f"{p.name}: {p.type}" if p.type else p.name for p in kernel.parameters)
        return f"@triton.jit\ndef {kernel.name}({parameters})"
    template = f"template <{', '.join(kernel.template_parameters)}>\n" if kernel.template_parameters else ""
    return f"{template}__global__ void {kernel.name}({parameters})"
