"""The rewriter: proposes every rewrite that applies to a file, once, each as a candidate."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import islice

from kernel_lsp.device.device import Device
from kernel_lsp.refine.proposer import Feedback
from kernel_lsp.refine.rewrites import find_rewrites
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.files import find_kernels


class Rewriter:
    """A proposer of rewrites of the named kernels in the file `base`, for a device.

    A candidate's label lists all changes to the user's file: the label of `base`, and the rewrite.
    """

    def __init__(self, base: Candidate, kernels: Sequence[str], device: Device) -> None:
        self._base, self._device = base, device
        self._candidates = self._all(kernels)

    async def next(self, budget: int) -> Sequence[Candidate]:
        """Return the next rewrites that apply."""
        return list(islice(self._candidates, budget))

    def tell(self, candidate: Candidate, feedback: Feedback) -> None:
        """Ignore the outcome: a rewrite is tried once in any case."""

    def _all(self, kernels: Sequence[str]) -> Iterator[Candidate]:
        base = self._base
        for kernel in find_kernels(base.kernel.text, base.kernel.path):
            if kernel.name not in kernels:
                continue
            for candidate in find_rewrites(base, kernel, self._device):
                if base.label == "baseline":
                    yield candidate
                else:
                    yield replace(candidate, label=f"{base.label}; {candidate.label}")
