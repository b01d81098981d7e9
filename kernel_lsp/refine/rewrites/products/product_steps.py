"""How the steps of a block's product fill its tiles, and wait: whether other threads may read the tiles instead."""

import re
from collections.abc import Iterator
from dataclasses import replace

from tree_sitter import Node

from kernel_lsp.refine.rewrites.copies.staged_loops import is_barrier
from kernel_lsp.refine.rewrites.products.block_products import BlockProduct
from kernel_lsp.refine.rewrites.products.tile_uses import TileUse, check_fills, tile_uses
from kernel_lsp.refine.rewrites.reading.ast_cuda import declared_names, names
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.source.text import Span
from kernel_lsp.source.trees import field, span_of, text_of, walk

_OTHER_WAITS = re.compile(
    r"\bmbarrier|\bbar(?:rier)?\.|\batomic|__threadfence|\bvolatile\s+[a-z]|cooperative_groups|\bcg::"
)


def barrier_ahead(product: BlockProduct) -> Node:
    """Return the last `__syncthreads()` of a step ahead of its products."""
    body = field(product.loop, "body")
    return [one for one in body.named_children if is_barrier(one) and one.end_byte <= product.region[0].start_byte][-1]


def filled_elements(product: BlockProduct) -> list[TileUse]:
    """Return the elements of the tiles that the kernel's statements fill.

    Raises:
        NotApplicableError: they do more with the tiles, or what other threads read of them would not be awaited.
    """
    _check_waits(product)
    _check_macros(product)
    tiles = {one.tile.name: one for one in (product.a, product.b)}
    loop, body = product.loop, field(product.loop, "body")
    region = Span(product.region[0].start_byte, product.region[-1].end_byte)
    found: list[TileUse] = []
    before: list[Node] = []
    for statement in (*_ahead(product), *body.named_children):
        if region.holds(span_of(statement)):
            continue
        if statement.start_byte >= body.start_byte and statement.type == "declaration":
            before.append(statement)
        if not names(statement) & tiles.keys():
            continue
        inside = body if statement.start_byte >= body.start_byte else statement
        own = product.block.own if inside is body else frozenset[str]()
        block = replace(product.block, own=own, start=inside.start_byte, end=inside.end_byte)
        check_fills(block, statement, before if inside is body else (), tiles)
        found += tile_uses(statement, product.block, tiles)
    if any(names(one) & tiles.keys() for one in product.tree.body.named_children if one.start_byte >= loop.end_byte):
        raise NotApplicableError("the tiles are used behind the loop")
    return found


def _ahead(product: BlockProduct) -> Iterator[Node]:
    """Yield the statements ahead of the loop that are no declarations of the tiles."""
    tiles = {product.a.tile.name, product.b.tile.name}
    for one in product.tree.body.named_children:
        if one.start_byte >= product.loop.start_byte:
            return
        if not declared_names(one) & tiles:
            yield one


def _check_macros(product: BlockProduct) -> None:
    """Refuse a file with a macro that names a tile or the sums."""
    hidden = {product.a.tile.name, product.b.tile.name, *product.sums}
    for node in walk(product.tree.root):
        parameters = node.child_by_field_name("parameters")
        own = names(parameters) if parameters is not None else set[str]()
        value = node.child_by_field_name("value") if node.type.startswith("preproc_") else None
        if value is not None and (hidden - own) & set(re.findall(r"\w+", text_of(value))):
            raise NotApplicableError("a macro names a tile or the sums")


def _check_waits(product: BlockProduct) -> None:
    """Refuse steps in which what a warp reads may have been awaited in another way than by a barrier of the block.

    Products between two barriers, with nothing of the tiles beside them, may be computed by any thread. Else, where two
    warps read an element, whoever fills it is no thread of one of them: unless there are other means to wait, a barrier
    of the block has to stand between.
    """
    if product.a.shared and product.b.shared and not _OTHER_WAITS.search(product.tree.file.text):
        return
    tiles = {product.a.tile.name, product.b.tile.name}
    statements = field(product.loop, "body").named_children
    start, end = barrier_ahead(product).end_byte, product.region[-1].end_byte
    after = next((one.start_byte for one in statements if one.start_byte >= end and is_barrier(one)), None)
    between = [one for one in statements if start <= one.start_byte < (after or start) and one not in product.region]
    if after is None or any(names(one) & tiles for one in between):
        raise NotApplicableError("the products do not stand between two barriers, and other waits may be for the tiles")


def check_sums(product: BlockProduct) -> tuple[Node, ...]:
    """Return the statements that declare the sums and set them to 0.

    Raises:
        NotApplicableError: the sums are used otherwise ahead of the loop or in it.
    """
    ahead = (one for one in product.tree.body.named_children if one.start_byte < product.loop.start_byte)
    found = tuple(one for one in ahead if names(one) & product.sums)
    for node in walk(product.loop):
        used = node.type == "identifier" and text_of(node) in product.sums
        if used and not any(span_of(one).holds(span_of(node)) for one in product.region):
            raise NotApplicableError("the sums are used in a step besides the products")
    for one in found:
        if one.type == "declaration" and declared_names(one) - product.sums:
            raise NotApplicableError("the sums are declared together with others")
    return found
