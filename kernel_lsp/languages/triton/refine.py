"""Variants of Triton files."""

from collections.abc import Iterator

from kernel_lsp.device.device import Device
from kernel_lsp.refine.guards.python_text import PythonGuards
from kernel_lsp.refine.guards.site import Guards
from kernel_lsp.refine.language import RefinePart
from kernel_lsp.refine.rewrites import Rewrite, applied
from kernel_lsp.refine.rewrites.triton import cache_hints, persistent, pipelined_loop, whole_row
from kernel_lsp.refine.tunables import triton
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.python import definitions
from kernel_lsp.source.text import Span

REWRITES: tuple[Rewrite, ...] = (whole_row.rewrite, persistent.rewrite, cache_hints.rewrite, pipelined_loop.rewrite)
"""All rewrites of Triton, those that tend to gain most first."""


class _Triton:
    answers: str | None = "triton"
    prompts = "triton"
    wrapped = True
    guards: Guards | None = PythonGuards()

    def find_rewrites(self, base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
        return applied(REWRITES, base, kernel, device)

    def find_tunables(self, base: Candidate, kernel: str, device: Device) -> Space:
        return triton.find_tunables(base, kernel, device)

    def functions(self, text: str) -> dict[str, Span]:
        return definitions(text)


PART: RefinePart = _Triton()
