"""Multiply by `wgmma` where the warps of a block multiply tiles in shared memory by `mma.sync` or `wmma` (sm_90a).

A warp's own instructions take both operands from registers, which it has to load first. On Hopper the tensor cores read
tiles from shared memory themselves, for four warps together. So the tiles get the layout that these read, by panels
with a swizzle instead of padding; each warpgroup takes 64 rows and all columns of the block's tile, or its share of the
columns; and the sums go from there to where they went, under the same conditions. Grid, block and parameters stay. The
sums are formed in the same steps of K, rounded as the tensor cores do.

It applies to a loop of the whole block with static tiles of half or bfloat16, `[stages][rows][columns]`,
`[rows][columns]` or `[rows * columns]`, that are read as fragments of `wmma` 16 x 16 x 16, or of `mma.sync.m16n8k16` by
`ldmatrix` or loads of 32 bits, and with float sums that begin at 0. It does not apply where

- a block's number of threads is not known, or no multiple of 128, or its tile has no multiple of 64 rows;
- the warps' products are not one tile, or sizes are no known numbers (a template's parameters, dynamic shared memory);
- the tiles are used other than by all their indices (pointers into them, a swizzle of the kernel's own), or are
  written by other statements than assignments, `cp.async` in a function, and `__pipeline_memcpy_async`;
- no `__syncthreads()` stands ahead of the products in each step, or threads may leave early. Where the products do not
  stand between two barriers of the step, two warps have to read each element, and the file must know no other way to
  wait: else the warp that reads some element may be the one that fills it, with no barrier between;
- the sums are used for other things than to be stored once each, in rows of one matrix, perhaps scaled or converted.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import gcd, prod

from tree_sitter import Node

from kernel_lsp.device.architectures import STATIC_SHARED_BYTES
from kernel_lsp.device.device import Device
from kernel_lsp.refine.rewrites.copies.bulk_copies import block_shape
from kernel_lsp.refine.rewrites.products.block_products import BlockProduct, TileOperand, find_block_product, zeroed_by
from kernel_lsp.refine.rewrites.products.product_steps import barrier_ahead, check_sums, filled_elements
from kernel_lsp.refine.rewrites.products.sum_stores import FRAGMENT, epilogue, stored_sums
from kernel_lsp.refine.rewrites.products.tile_uses import TileUse, spelled_shape
from kernel_lsp.refine.rewrites.products.warpgroup_text import WarpgroupText, shares_of
from kernel_lsp.refine.rewrites.products.wgmma_text import check_name, helpers
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_identifier, indent_at, names, whole_line
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.insertions import ahead_of
from kernel_lsp.refine.rewrites.writing.leftovers import without_unused, without_wmma
from kernel_lsp.refine.rewrites.writing.spelling import closed
from kernel_lsp.source.candidate import Candidate, SourceFile
from kernel_lsp.source.kernel import Kernel
from kernel_lsp.source.text import Edit, Span
from kernel_lsp.source.trees import span_of, text_of, walk

_PANELS = (64, 32, 16)
_ALIGNED = 1024  # bytes that the swizzle of 128 bytes repeats after


@dataclass(frozen=True)
class _Writer:
    """Writes the kernel."""

    text: WarpgroupText
    epilogue: tuple[Node, ...]
    zeroing: tuple[Node, ...]
    filled: list[TileUse]

    @property
    def product(self) -> BlockProduct:
        """Return what the block multiplies."""
        return self.text.product

    @property
    def tree(self) -> KernelTree:
        """Return the kernel as it was."""
        return self.product.tree

    def edits(self) -> Iterator[Edit]:
        """Yield all edits."""
        product = self.product
        yield from self._declared()
        yield from self._elements()
        yield ahead_of(self.tree, product.loop, self.text.ahead())
        yield self._published()
        yield self._replaced(product.region, self.text.multiplied())
        yield self._replaced(self.epilogue, self.text.stores())
        yield from (self._replaced((node,), ()) for node in self.zeroing)

    def helpers(self, tree: KernelTree) -> Edit:
        """Return the edit that defines the functions ahead of the kernel, as `tree` has it."""
        turned = self.product.a.turned, self.product.b.turned
        whole = self.text.stored.width == FRAGMENT
        return helpers(tree, self.text.shares.columns, self.product.kind, turned, store=whole)

    def _declared(self) -> Iterator[Edit]:
        """Yield the edits of the tiles' declarations."""
        done: set[int] = set()
        for operand in (self.product.a, self.product.b):
            declaration, _ = self.tree.declarations[operand.tile.name]
            if declaration.id not in done:
                shared = next(n for n in walk(declaration) if text_of(n) == "__shared__" and not n.children)
                yield Edit(span_of(shared), f"__shared__ alignas({_ALIGNED})")
                done.add(declaration.id)
            for declarator in declaration.children_by_field_name("declarator"):
                name = declared_identifier(declarator)
                if text_of(name) == operand.tile.name:
                    yield Edit(Span(name.end_byte, declarator.end_byte), self._extents(operand, declarator))

    def _extents(self, operand: TileOperand, declarator: Node) -> str:
        rows, columns = spelled_shape(self.tree, declarator, operand.shape)
        panel = self.panel(operand)
        stages = f"[{_first_extent(declarator)}]" if len(operand.tile.extents) == 3 else ""
        if panel == operand.shape[1]:
            return f"{stages}[1][{rows}][{columns}]"
        return f"{stages}[{closed(columns)} / {panel}][{rows}][{panel}]"

    def panel(self, operand: TileOperand) -> int:
        """Return the columns of a tile's panels, of which each warpgroup reads whole ones."""
        width = (
            gcd(operand.shape[1], self.text.shares.columns) if operand.turned and operand == self.product.b else None
        )
        return next(n for n in _PANELS if (width or operand.shape[1]) % n == 0)

    def _elements(self) -> Iterator[Edit]:
        """Yield the edits of all elements of tiles that are written."""
        for use in self.filled:
            pitch, (columns, name) = (
                use.operand.tile.extents[-1],
                self.text.spelled(use.operand, 1 ^ use.operand.turned),
            )
            place, row, column = use.spelled(name if columns == pitch else str(pitch))
            yield Edit(span_of(use.node), f"wgmma::at({place}, {row}, {column})")

    def _published(self) -> Edit:
        """Return the edit that lets the tensor cores see the tiles, ahead of the barrier that they are awaited by."""
        barrier = barrier_ahead(self.product)
        pad = indent_at(self.tree.file.text, barrier.start_byte)
        return Edit(Span(barrier.start_byte, barrier.start_byte), f"wgmma::publish_writes();\n{pad}")

    def _replaced(self, nodes: Sequence[Node], lines: Iterator[str] | tuple[()]) -> Edit:
        """Return the edit that puts lines in the place of statements with their pragmas and comments."""
        first = nodes[0]
        while (before := first.prev_sibling) is not None and before.type in ("preproc_call", "comment"):
            if before.end_point.row + 1 < first.start_point.row + (before.type == "preproc_call"):
                break
            first = before
        text = self.tree.file.text
        pad = indent_at(text, nodes[-1].start_byte)
        span = whole_line(text, Span(first.start_byte, nodes[-1].end_byte))
        if not lines and text.encode()[: span.start].endswith(b"\n\n"):
            span = Span(span.start - 1, span.end)
        made = "".join(f"{line}\n" if line.startswith("#") else f"{pad}{line}\n" for line in lines)
        return Edit(span, made)


def _first_extent(declarator: Node) -> str:
    """Return the first extent of an array, as text."""
    size = None
    while (inner := declarator.child_by_field_name("declarator")) is not None:
        size = declarator.child_by_field_name("size") or size
        declarator = inner
    return text_of(size) if size is not None else ""


def with_warpgroups(tree: KernelTree, shape: tuple[int, int, int]) -> KernelTree:
    """Return a kernel that multiplies its tiles by `wgmma`, for blocks of a shape.

    Raises:
        NotApplicableError: the kernel is of another form; the text says in what.
    """
    check_name(tree)
    product = find_block_product(tree, shape)
    shares, zeroing, behind = shares_of(product), check_sums(product), epilogue(product)
    zeroed = zeroed_by(product, zeroing)
    if any(not {one, (one[0], ())} & zeroed for _, registers in product.places for one in registers):
        raise NotApplicableError("the sums do not begin with 0")
    elements = filled_elements(product)
    _check_room(product)
    text = WarpgroupText(product, stored_sums(product, behind), shares)
    writer = _Writer(text, behind, zeroing, elements)
    padded = (tree.declarations[one.tile.name][0] for one in (product.a, product.b))
    removed = (*product.region, *behind, *zeroing, *padded)
    made = without_wmma(without_unused(tree.edited(*writer.edits()), set[str]().union(*map(names, removed))))
    return made.edited(writer.helpers(made))


def _check_room(product: BlockProduct) -> None:
    """Refuse tiles that do not fit in static shared memory once they are aligned."""
    operands = {one.tile.name: one for one in (product.a, product.b)}
    total = sum(
        prod(tile.extents) * tile.element_bytes + (_ALIGNED if name in operands else 0)
        for name, tile in product.block.tiles.items()
    )
    if total - _ALIGNED > STATIC_SHARED_BYTES:
        raise NotApplicableError("the tiles do not fit in shared memory")


def rewrite(
    kernel_file: SourceFile, workload_file: SourceFile | None, kernel: Kernel, device: Device
) -> Iterator[Candidate]:
    """Yield the kernel with products by warpgroups; for Hopper alone, as no other GPU has these instructions."""
    if device.capability != (9, 0) or "mma" not in kernel_file.text:
        return
    tree = KernelTree(kernel_file, kernel)
    try:
        made = with_warpgroups(tree, block_shape(tree, workload_file))
    except LookupError:
        return
    label = "products of tiles by warpgroups (wgmma)"
    yield Candidate(kernel.language, made.file, workload_file, label, "rewrite:warpgroup_products")
