"""The part of a language that makes variants of its kernels."""

from collections.abc import Iterator
from functools import cache
from typing import Protocol

from kernel_lsp.device.device import Device
from kernel_lsp.refine.guards.site import Guards
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Kernel, Language
from kernel_lsp.source.language import part_of
from kernel_lsp.source.text import Span


class RefinePart(Protocol):
    """Makes variants of files in one language.

    Attributes:
        answers: what a whole `ModelNew` is written in that a model can answer with for such a file, `cuda` or `triton`;
            None where it is asked for edits only.
        prompts: name of the language in prompts.
        wrapped: True where a function of the file launches its kernels, and may be changed with them.
        guards: writes variants that win on some cases only behind a condition; None where that cannot be done.
    """

    answers: str | None
    prompts: str
    wrapped: bool
    guards: Guards | None

    def find_rewrites(self, base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
        """Yield candidates for one kernel on a device, the most promising first."""
        ...

    def find_tunables(self, base: Candidate, kernel: str, device: Device) -> Space:
        """Return the settings of a kernel that fit on a device, most promising tunables first."""
        ...

    def functions(self, text: str) -> dict[str, Span]:
        """Return the functions at the top of a text, with their decorators or template headers.

        Only complete ones count: a Python text that does not parse has none.
        """
        ...


@cache
def refine_part(language: Language) -> RefinePart:
    """Return the part that makes variants of files in a language."""
    return part_of(language, "refine")


def find_tunables(base: Candidate, kernel: str, device: Device) -> Space:
    """Return the settings of `kernel` in `base` that fit on `device`, most promising tunables first."""
    return refine_part(base.language).find_tunables(base, kernel, device)
