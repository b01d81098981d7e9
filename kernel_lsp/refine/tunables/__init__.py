"""The numbers of a kernel that can be turned without changing what it computes."""

from dataclasses import replace

from kernel_lsp.device.device import Device
from kernel_lsp.refine.inline import as_cuda, stands
from kernel_lsp.refine.tunables import cuda, triton
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Language


def find_tunables(base: Candidate, kernel: str, device: Device) -> Space:
    """Return the settings of `kernel` in `base` that fit on `device`, most promising tunables first."""
    match base.language:
        case Language.CUDA:
            return cuda.find_tunables(base, kernel, device)
        case Language.TRITON:
            return triton.find_tunables(base, kernel)
        case Language.TORCH:
            seen = as_cuda(base)
            space = cuda.find_tunables(seen, kernel, device)
            fits = all(stands(base, seen, site.span) for site in space.sites)
            return replace(space, base=base) if fits else Space(base, (), ())
