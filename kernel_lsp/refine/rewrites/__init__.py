"""Rewrites that keep a kernel's meaning: each proposes candidates where its pattern applies, else none.

A rewrite is a function of a kernel file, the workload file that launches it, if any, one kernel of the file, and the
target device. Its result is only a candidate: the judge compiles, verifies and times it. Rewrites can be chained, each
on the text of another's candidate. `languages/LANGUAGE/refine.py` lists those of a language.

Each family of rewrites has a folder: `reductions`, `accesses`, `products` and `copies` for CUDA, and `triton`. Those
for CUDA stand on `writing`, and that on `reading`; imports run in this order, never back.
"""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Protocol

from kernel_lsp.device.device import Device
from kernel_lsp.refine.language import refine_part
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.files import find_kernels
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import indent_unit

log = logging.getLogger("kernel-lsp")


class Rewrite(Protocol):
    """The signature of every rewrite."""

    def __call__(
        self, kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device, /
    ) -> Iterator[Candidate]:
        """Yield candidates for one kernel on a device, best guesses first; none where the rewrite does not apply."""
        ...


FIXES: Mapping[str, tuple[str, ...]] = {
    "KL030": ("parallel_rows", "tile_product", "transpose_tile", "swap_axes"),
    "KL031": ("pad_shared",),
    "KL035": ("vectorize", "multi_element"),
    "KL037": ("register_tile", "cache_row", "online_softmax", "whole_row"),
}
"""Rewrites that may fix what a rule finds, by the rule's id; each by the name in its candidates' origin."""


def find_rewrites(base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
    """Yield all rewrites for `device` that apply to one kernel of a file, the most promising first."""
    return refine_part(base.language).find_rewrites(base, kernel, device)


def applied(rewrites: Sequence[Rewrite], base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
    """Return what each of these rewrites proposes, in their order; one that fails is logged, and the next one asked."""
    for rewrite in rewrites:
        try:
            for candidate in rewrite(base.kernel, base.launch, kernel, device):
                yield replace(candidate, kernel=_indented_alike(base.kernel, candidate.kernel))
        except RecursionError:  # a text that is nested too deep
            continue
        except Exception as error:  # a defect of the rewrite, such as edits that overlap
            name = rewrite.__module__.rpartition(".")[2]
            log.error("the rewrite `%s` failed on the kernel `%s`", name, kernel.name, exc_info=error)


def _indented_alike(base: SourceFile, made: SourceFile) -> SourceFile:
    """Return a rewritten file with its new lines indented by tabs if the file indents by tabs."""
    if indent_unit(base.text) != "\t" or made.text == base.text:
        return made
    kept = set(base.text.split("\n"))
    lines = (line if line in kept else _with_tabs(line) for line in made.text.split("\n"))
    return replace(made, text="\n".join(lines))


def _with_tabs(line: str) -> str:
    code = line.lstrip(" \t")
    blank = line[: len(line) - len(code)]
    blanks = blank.count(" ")
    return "\t" * (blank.count("\t") + blanks // 4) + " " * (blanks % 4) + code


def followed_by(
    candidate: Candidate, kernel: Kernel, device: Device, rewrite: Rewrite, most: int | None = None
) -> Iterator[Candidate]:
    """Yield what another rewrite makes of a candidate for `kernel`, `most` at most, labelled with both changes."""
    for one in find_kernels(candidate.kernel.text, candidate.kernel.path):
        if one.name == kernel.name:
            for more in islice(rewrite(candidate.kernel, candidate.launch, one, device), most):
                yield replace(more, label=f"{candidate.label}, {more.label}", origin=candidate.origin)
