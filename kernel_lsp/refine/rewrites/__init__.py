"""Rewrites that keep a kernel's meaning: each proposes candidates where its pattern applies, else says nothing.

A rewrite is a function of a kernel file, the workload file that launches it, if any, one kernel of the file, and the
device that it is to be fast on. What it proposes is only ever a candidate: the judge compiles, verifies and times it.
They can be chained, each on the text of another's candidate.
"""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Protocol

from kernel_lsp.device.device import Device
from kernel_lsp.refine.inline import as_cuda, edited
from kernel_lsp.refine.rewrites import (
    cache_hints,
    cache_row,
    grid_stride,
    multi_element,
    online_softmax,
    pad_shared,
    persistent,
    pipelined_loop,
    register_tile,
    restrict,
    strength_reduce,
    vectorize,
    warp_shuffle,
    whole_row,
)
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.editing import minimal_edits
from kernel_lsp.source.kernel import Kernel, Language


class Rewrite(Protocol):
    """What every rewrite looks like."""

    def __call__(
        self, kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device, /
    ) -> Iterator[Candidate]:
        """Return candidates for one kernel on a device, best guesses first; none where the rewrite does not apply."""
        ...


REWRITES: Mapping[Language, tuple[Rewrite, ...]] = {
    Language.CUDA: (
        register_tile.rewrite,
        vectorize.rewrite,
        cache_row.rewrite,
        online_softmax.rewrite,
        warp_shuffle.rewrite,
        pad_shared.rewrite,
        multi_element.rewrite,
        grid_stride.rewrite,
        restrict.rewrite,
        strength_reduce.rewrite,
    ),
    Language.TRITON: (whole_row.rewrite, persistent.rewrite, cache_hints.rewrite, pipelined_loop.rewrite),
}
"""All rewrites of a language, those that tend to gain most first; none for CUDA text in a Python file."""

CURES: Mapping[str, tuple[str, ...]] = {
    "KL031": ("pad_shared",),
    "KL035": ("vectorize", "multi_element"),
    "KL037": ("register_tile", "cache_row", "online_softmax", "whole_row"),
}
"""Rewrites that may cure what a rule finds, by the rule's id; each by the name in its candidates' origin."""


def find_rewrites(base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
    """Return every rewrite for `device` that applies to one kernel of a file, those that tend to gain most first."""
    if base.language is Language.TORCH:
        yield from _in_strings(base, kernel, device)
        return
    for rewrite in REWRITES[base.language]:
        try:
            yield from rewrite(base.kernel, base.launch, kernel, device)
        except (ValueError, RecursionError):  # a text that is being typed in, or nested too deep
            continue


def _in_strings(base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
    seen = as_cuda(base)
    for found in find_rewrites(seen, kernel, device):
        text = edited(base, seen, minimal_edits(seen.kernel.text, found.kernel.text))
        if text is not None:
            yield replace(found, language=base.language, kernel=SourceFile(base.kernel.path, text))
