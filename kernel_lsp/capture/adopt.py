"""A capture as an ordinary workload file, for an author to own."""

from collections.abc import Sequence

from kernel_lsp.source.candidate import SourceFile
from kernel_lsp.workload.capture import Capture


def adopt_capture(capture: Capture) -> Sequence[SourceFile]:
    """x"""
    return ()
