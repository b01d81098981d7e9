"""The numbers of a kernel that can be turned without changing what it computes."""

from kernel_lsp.refine.tunables import cuda, triton
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Language


def find_tunables(base: Candidate, kernel: str) -> Space:
    """The settings of `kernel` in `base`, most promising tunables first; none for CUDA text in a Python file."""
    if base.language is Language.TORCH:
        return Space(base, (), ())
    return (cuda if base.language is Language.CUDA else triton).find_tunables(base, kernel)
