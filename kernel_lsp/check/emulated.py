"""Turns the emulator's findings into those of rules, at their place in the user's file."""

from collections.abc import Sequence
from pathlib import Path

from kernel_lsp.check.places import kernel_place, line_place
from kernel_lsp.compiler.builds.build import Diagnostic
from kernel_lsp.rules import asynchronous, memory
from kernel_lsp.rules import correctness as right
from kernel_lsp.runner.emulated import EmulatedFinding
from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.source.kernel import Kernel

_EMULATED = {
    "out-of-bounds": memory.OUT_OF_BOUNDS,
    "misaligned": memory.MISALIGNED,
    "shared-race": memory.SHARED_RACE,
    "global-race": memory.GLOBAL_RACE,
    "divergent-barrier": memory.DIVERGENT_BARRIER,
    "inactive-lane": memory.INACTIVE_LANE,
    "deadlock": memory.DEADLOCK,
    "runaway-loop": memory.RUNAWAY,
    "trap": right.RUN_FAILED,
    "unawaited-copy": asynchronous.UNAWAITED_COPY,
    "overwritten-stage": asynchronous.OVERWRITTEN_STAGE,
    "transaction-bytes": asynchronous.TRANSACTION_BYTES,
    "missing-proxy-fence": asynchronous.MISSING_PROXY_FENCE,
    "misused-mbarrier": asynchronous.MISUSED_MBARRIER,
    "mismatched-swizzle": asynchronous.MISMATCHED_SWIZZLE,
    "unawaited-product": asynchronous.UNAWAITED_PRODUCT,
}
"""Rule for each kind of emulator finding; uninitialised reads have one for each memory space."""


def of_emulator(found: EmulatedFinding, source: SourceFile, kernels: Sequence[Kernel]) -> Diagnostic:
    """Return a finding in a kernel of `source`, at its line, or at the kernel's name if the line is unknown."""
    if found.kind == "uninitialised":
        rule = memory.UNINITIALISED_SHARED if found.space == "shared" else memory.UNINITIALISED_GLOBAL
    else:
        rule = _EMULATED[found.kind]
    own = not found.path or Path(found.path).resolve() == source.path.resolve()
    path = str(source.path) if own else found.path
    if not found.line:
        line, column, end = kernel_place(source, kernels, found.kernel)
        return rule.at(path, line, found.message, column=column, end=end)
    column, end = line_place(source.text, found.line) if own else (1, 1)
    return rule.at(path, found.line, found.message, column=found.column or column, end=(found.line, end))
