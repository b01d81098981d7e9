"""Variants of CuTe DSL: no rewrites and no tunables yet, so a model or the author writes them."""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.guards.site import Guards
from kernel_lsp.refine.language import RefinePart
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.python import definitions
from kernel_lsp.source.text import Span


class _Cute:
    answers: str | None = None
    prompts = "cute"
    wrapped = True
    guards: Guards | None = None

    def find_rewrites(self, base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
        return iter(())

    def find_tunables(self, base: Candidate, kernel: str, device: Device) -> Space:
        return Space(base, (), ())

    def functions(self, text: str) -> dict[str, Span]:
        return definitions(text)


PART: RefinePart = _Cute()
