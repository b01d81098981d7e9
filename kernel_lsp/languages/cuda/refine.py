"""Variants of CUDA files."""

from collections.abc import Iterator
from dataclasses import replace

from kernel_lsp.device.device import Device
from kernel_lsp.refine.guards.cuda_text import CudaGuards
from kernel_lsp.refine.guards.site import Guards
from kernel_lsp.refine.language import RefinePart
from kernel_lsp.refine.rewrites import Rewrite, applied
from kernel_lsp.refine.rewrites.accesses import (
    cache_row,
    clipped_loops,
    float_arithmetic,
    grid_stride,
    halo_tile,
    launched_limits,
    loop_axis,
    multi_element,
    one_axis,
    pad_shared,
    restrict,
    row_window,
    several_outputs,
    strength_reduce,
    sums_at_once,
    swap_axes,
    transpose_loop,
    transpose_tile,
    two_axes,
    vectorize,
)
from kernel_lsp.refine.rewrites.copies import bulk_copies, two_stages
from kernel_lsp.refine.rewrites.products import register_tile, tensor_product, tile_product, warpgroup_products
from kernel_lsp.refine.rewrites.reductions import (
    block_atomics,
    block_rows,
    block_sums,
    grid_scan,
    one_thread,
    online_softmax,
    parallel_rows,
    register_sums,
    shared_bins,
    split_columns,
    warp_shuffle,
)
from kernel_lsp.refine.rewrites.writing.plain_forms import plain_form
from kernel_lsp.refine.tunables import cuda
from kernel_lsp.refine.tunables.space import Space
from kernel_lsp.source.candidate import Candidate
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.outline import outline
from kernel_lsp.source.text import Span

REWRITES: tuple[Rewrite, ...] = (
    parallel_rows.rewrite,
    grid_scan.rewrite,
    one_thread.rewrite,
    register_sums.rewrite,
    block_rows.rewrite,
    split_columns.rewrite,
    loop_axis.rewrite,
    block_atomics.rewrite,
    block_sums.rewrite,
    shared_bins.rewrite,
    tensor_product.rewrite,
    tile_product.rewrite,
    launched_limits.rewrite,
    several_outputs.rewrite,
    sums_at_once.rewrite,
    two_axes.rewrite,
    transpose_tile.rewrite,
    transpose_loop.rewrite,
    swap_axes.rewrite,
    row_window.rewrite,
    halo_tile.rewrite,
    clipped_loops.rewrite,
    register_tile.rewrite,
    two_stages.rewrite,
    warpgroup_products.rewrite,
    bulk_copies.rewrite,
    vectorize.rewrite,
    one_axis.rewrite,
    cache_row.rewrite,
    online_softmax.rewrite,
    warp_shuffle.rewrite,
    pad_shared.rewrite,
    float_arithmetic.rewrite,
    multi_element.rewrite,
    grid_stride.rewrite,
    restrict.rewrite,
    strength_reduce.rewrite,
)
"""All rewrites of CUDA, those that tend to gain most first."""


class _Cuda:
    answers: str | None = "cuda"
    prompts = "cuda"
    wrapped = False
    guards: Guards | None = CudaGuards()

    def find_rewrites(self, base: Candidate, kernel: Kernel, device: Device) -> Iterator[Candidate]:
        """Yield what the rewrites propose; those that do not apply are asked again, of the kernel in plain forms."""
        plain = plain_form(base.kernel, kernel)
        for one in REWRITES:
            made = applied([one], base, kernel, device)
            first = next(made, None)
            if first is not None:
                yield first
                yield from made
            elif plain is not None:
                yield from applied([one], replace(base, kernel=plain.file), plain.kernel, device)

    def find_tunables(self, base: Candidate, kernel: str, device: Device) -> Space:
        return cuda.find_tunables(base, kernel, device)

    def functions(self, text: str) -> dict[str, Span]:
        return {
            made.head[made.declarator[0]].text.decode(): made.span
            for made in outline(text.encode()).declarations
            if made.body is not None and made.declarator is not None
        }


PART: RefinePart = _Cuda()
