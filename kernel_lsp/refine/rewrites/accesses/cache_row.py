"""Read a row that several loops of a kernel use from memory once, as vectors that stay in registers.

Elements beyond the registers are read again, as before: right for rows of any length, fast for short ones.
"""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.accesses.vectorize import vectorized
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel

_VECTORS = (2, 4, 8, 16)


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, _: Device
) -> Iterator[Candidate]:
    """Yield the kernel with 2, 4, 8 and 16 vectors of 16 bytes per thread kept in registers."""
    for vectors in _VECTORS:
        try:
            result = vectorized(KernelTree(kernel_file, kernel), keep=vectors)
        except LookupError:
            return
        if result:
            label = f"128-bit loads, {vectors} vectors of the row in registers"
            yield Candidate(kernel.language, result[0].file, workload_file, label, "rewrite:cache_row")
