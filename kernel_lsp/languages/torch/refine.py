"""Variants of the CUDA text in a Python file: CUDA's, made of a view of the file and put back into its strings."""

from collections.abc import Iterator
from dataclasses import replace

from kernel_lsp.device.device import Device
from kernel_lsp.refine.guards.site import Guards
from kernel_lsp.refine.inline import as_cuda, edited, stands
from kernel_lsp.refine.language import RefinePart, refine_part
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.editing import minimal_edits
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.modules import device_view
from kernel_lsp.source.python import definitions
from kernel_lsp.source.text import Span

_CUDA = refine_part(Language.CUDA)


class _Torch:
    answers: str | None = None
    prompts = _CUDA.prompts
    wrapped = False
    guards: Guards | None = None

    def find_rewrites(self, base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
        seen = as_cuda(base)
        for found in _CUDA.find_rewrites(seen, kernel, device):
            text = edited(base, seen, minimal_edits(seen.kernel.text, found.kernel.text))
            if text is not None:
                yield replace(found, language=base.language, kernel=SourceFile(base.kernel.path, text))

    def find_tunables(self, base: Candidate, kernel: str, device: Device) -> Space:
        seen = as_cuda(base)
        space = _CUDA.find_tunables(seen, kernel, device)
        fits = all(stands(base, seen, site.span) for site in space.sites)
        return replace(space, base=base) if fits else Space(base, (), ())

    def functions(self, text: str) -> dict[str, Span]:
        """Return the functions and classes, and functions in CUDA strings; a text without Python counts as CUDA."""
        python = definitions(text, classes=True)
        return _CUDA.functions(device_view(text) if python else text) | python


PART: RefinePart = _Torch()
