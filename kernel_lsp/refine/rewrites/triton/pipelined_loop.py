"""Pipeline Triton loops that load: `range` becomes `tl.range` with a number of stages."""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.triton.ast_triton import TritonTree, arguments
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span, apply_edits
from kernel_lsp.source.trees import field, span_of, text_of, walk

_STAGES = (4, 3, 2)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 4, 3 and 2 stages in every innermost loop that loads and sets no stages yet.

    Not under an autotuner, which chooses the stages itself.
    """
    if kernel.autotuned:
        return
    try:
        tree = TritonTree(kernel_file, kernel)
        loads = [span_of(call) for call in tree.calls("load")]
        loops = [n for n in walk(tree.body) if n.type == "for_statement"]
        chosen = []
        for loop in loops:
            span, call = span_of(loop), field(loop, "right")
            inner = any(span.holds(span_of(other)) for other in loops if other != loop)
            if inner or call.type != "call" or not any(span.holds(load) for load in loads):
                continue
            if text_of(field(call, "function")) in ("range", "tl.range") and "num_stages" not in arguments(call)[1]:
                chosen.append(call)
    except LookupError:
        return
    for stages in _STAGES if chosen else ():
        edits: list[Edit] = []
        for call in chosen:
            end = field(call, "arguments").named_children[-1].end_byte
            edits.append(Edit(span_of(field(call, "function")), "tl.range"))
            edits.append(Edit(Span(end, end), f", num_stages={stages}"))
        file = SourceFile(kernel_file.path, apply_edits(kernel_file.text, edits))
        yield Candidate(kernel.language, file, workload_file, f"loops of {stages} stages", "rewrite:pipelined_loop")
