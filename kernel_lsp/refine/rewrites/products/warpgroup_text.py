"""Text of a kernel that multiplies by warpgroups: what stands ahead of its loop, in a step, and where sums are stored.

Names are the kernel's own where it has some for what is meant: the number of a thread, a warp or a lane, and sizes.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import gcd, prod

from kernel_lsp.refine.rewrites.copies.bulk_text import bound, numbered, thread_number
from kernel_lsp.refine.rewrites.copies.thread_run import CopyGuard
from kernel_lsp.refine.rewrites.products.block_products import BlockProduct, TileOperand
from kernel_lsp.refine.rewrites.products.sum_stores import FRAGMENT, StoredSums
from kernel_lsp.refine.rewrites.products.tile_uses import spelled_shape
from kernel_lsp.refine.rewrites.products.warp_fragments import WARP, lane_at
from kernel_lsp.refine.rewrites.reading.affine import Polynomial, number, symbol
from kernel_lsp.refine.rewrites.reading.ast_cuda import KernelTree, declared_identifier, declared_names
from kernel_lsp.refine.rewrites.reading.serial_loops import NotApplicableError
from kernel_lsp.refine.rewrites.writing.spelling import closed, summed
from kernel_lsp.source.trees import text_of

_ROWS = 64  # of a warpgroup's product
_GROUP = 128  # threads
_MOST_COLUMNS = 256
_MOST_SUMS = 128  # registers of a thread


@dataclass(frozen=True)
class Shares:
    """How the warpgroups share the block's tile.

    Attributes:
        down: warpgroups below each other.
        across: warpgroups beside each other.
        slabs: times 64 rows that each has.
        columns: columns that each has.
    """

    down: int
    across: int
    slabs: int
    columns: int


def shares_of(product: BlockProduct) -> Shares:
    """Return a division of the tile that gives each warpgroup 64 rows or a multiple.

    Raises:
        NotApplicableError: there is none.
    """
    groups = product.threads // _GROUP
    if product.rows % _ROWS:
        raise NotApplicableError(f"the block's tile has {product.rows} rows, no multiple of 64")
    down = gcd(product.rows // _ROWS, groups)
    across = groups // down
    slabs, columns = product.rows // _ROWS // down, product.columns // across
    if product.columns % (across * FRAGMENT) or columns > _MOST_COLUMNS or slabs * columns // 2 > _MOST_SUMS:
        raise NotApplicableError("the tile's columns cannot be divided among the warpgroups")
    return Shares(down, across, slabs, columns)


@dataclass(frozen=True)
class WarpgroupText:
    """Writes the lines.

    Attributes:
        product: what the block multiplies.
        stored: how its sums are stored.
        shares: what each warpgroup has.
    """

    product: BlockProduct
    stored: StoredSums
    shares: Shares

    @property
    def tree(self) -> KernelTree:
        """Return the kernel as it was."""
        return self.product.tree

    @cached_property
    def thread(self) -> str:
        """Return the number of a thread in its block."""
        return self._named(lambda thread: thread) or thread_number(self.tree, self.product.block.shape)

    @cached_property
    def warp(self) -> str:
        """Return the number of a warp in its block."""
        return self._named(lambda thread: thread // WARP) or f"{self.thread} / {WARP}"

    @cached_property
    def lane(self) -> str:
        """Return the number of a thread in its warp."""
        return self._named(lambda thread: thread % WARP) or f"{self.thread} % {WARP}"

    def _named(self, wanted: Callable[[int], int]) -> str | None:
        """Return the kernel's own name for what each thread has another value of; None if it has none."""
        product, tree = self.product, self.tree
        some = sorted({*range(0, product.threads, 17), product.threads - 1})
        runs = [(thread, lane_at(product.block, product.instructions, thread)) for thread in some]
        for name, value in tree.values.items():
            outer = tree.declarations[name][0].parent == tree.body and value.end_byte < product.loop.start_byte
            if outer and all(run.value_of(value) == wanted(thread) for thread, run in runs):
                return name
        return None

    @cached_property
    def sums(self) -> str:
        """Return the name of the sums, which have one of their own where the kernel has several."""
        return min(self.product.sums) if len(self.product.sums) == 1 else self.tree.fresh("sums")

    @cached_property
    def fresh(self) -> dict[str, str]:
        """Return names for what is new, by its use: those of sums where the kernel has the plain ones."""
        tree = self.tree
        taken = {p.name for p in tree.kernel.parameters} | self.stored.names()
        for node in (*tree.root.named_children, *tree.body.named_children):
            taken |= declared_names(node)
            taken |= {text_of(one) for one in node.children_by_field_name("name")}
        plain = ("group_row", "group_column", "slab", "inner", "at", "row", "column", "i")
        return {name: tree.fresh(f"sum_{name}") if name in taken else name for name in plain}

    def ahead(self) -> Iterator[str]:
        """Yield the lines ahead of the loop."""
        shares = self.shares
        if self.thread == thread_number(self.tree, self.product.block.shape):
            yield from numbered(self.product.block.shape, self.thread)
        group = f"{self.thread} / {_GROUP}"
        if shares.down > 1:
            which = group if shares.across == 1 else f"{group} % {shares.down}"
            yield f"const int {self.fresh['group_row']} = {which} * {_ROWS};"
        if shares.across > 1:
            which = group if shares.down == 1 else f"{self.thread} / {_GROUP * shares.down}"
            yield f"const int {self.fresh['group_column']} = {which} * {shares.columns};"
        extents = f"[{shares.slabs}]" if shares.slabs > 1 else ""
        whole = f"{_ROWS * shares.slabs} x {shares.columns}"
        yield f"float {self.sums}{extents}[{shares.columns // 2}] = {{}};  // {whole} for each warpgroup"

    def multiplied(self) -> Iterator[str]:
        """Yield the lines of one step."""
        shares, inner, slab = self.shares, self.fresh["inner"], self.fresh["slab"]
        row = self.fresh["group_row"] if shares.down > 1 else "0"
        sums, pad = self.sums, "    "
        yield "wgmma::begin();"
        yield "#pragma unroll"
        yield f"for (int {inner} = 0; {inner} < {self.spelled(self.product.a, 1)[1]}; {inner} += 16) {{"
        if shares.slabs > 1:
            yield "#pragma unroll"
            yield f"{pad}for (int {slab} = 0; {slab} < {shares.slabs}; ++{slab}) {{"
            further = f"{slab} * {_ROWS * shares.down}"
            row, sums, pad = further if row == "0" else f"{row} + {further}", f"{sums}[{slab}]", pad * 2
        column = self.fresh["group_column"] if shares.across > 1 else "0"
        a, b = self._descriptor(self.product.a, row), self._descriptor(self.product.b, column)
        call = f"{pad}wgmma::multiply({sums}, {a}, {b});"
        yield from [call] if len(call) < 100 else [f"{pad}wgmma::multiply({sums}, {a},", f"{pad}                {b});"]
        if shares.slabs > 1:
            yield "    }"
        yield "}"
        yield "wgmma::finish();"

    def spelled(self, operand: TileOperand, depth: int) -> tuple[int, str]:
        """Return the rows or columns of an operand, or its steps of K for 1, and how the kernel spells them."""
        at = depth ^ operand.turned
        declaration, _ = self.tree.declarations[operand.tile.name]
        for declarator in declaration.children_by_field_name("declarator"):
            if text_of(declared_identifier(declarator)) == operand.tile.name:
                return operand.shape[at], spelled_shape(self.tree, declarator, operand.shape)[at]
        return operand.shape[at], str(operand.shape[at])

    def _descriptor(self, operand: TileOperand, outer: str) -> str:
        place = operand.tile.name
        if len(operand.tile.extents) == 3:
            size = prod(operand.tile.extents[1:])
            stage = summed(Polynomial({key: n // size for key, n in operand.moved.terms.items()}))
            place += f"[{stage[1:-1] if stage.startswith('(') and stage.endswith(')') else stage}]"
        inner = self.fresh["inner"]
        at = f"{inner}, {outer}" if operand.turned else f"{outer}, {inner}"
        return f"wgmma::descriptor({place}, {at})"

    def stores(self) -> Iterator[str]:
        """Yield the lines that store the sums."""
        product, shares, stored, names_ = self.product, self.shares, self.stored, self.fresh
        row, column, at, i = names_["row"], names_["column"], names_["at"], names_["i"]
        first_row, first_column = _origin(stored, (self.spelled(product.a, 0), self.spelled(product.b, 0)))
        sums = f"{self.sums}[{names_['slab']}]" if shares.slabs > 1 else self.sums
        rows = [*first_row, *([f"{names_['slab']} * {_ROWS * shares.down}"] if shares.slabs > 1 else [])]
        if shares.across > 1:
            rows += [names_["group_row"]] if shares.down > 1 else []
            rows.append(f"{self.warp} % 4 * 16")
        else:
            rows.append(f"{self.warp} * 16")
        columns = [*first_column, *([names_["group_column"]] if shares.across > 1 else []), at]
        whole = stored.width == FRAGMENT
        pad = ""
        yield "// Each warp has 16 rows of the sums."
        if shares.slabs > 1:
            yield "#pragma unroll"
            yield f"for (int {names_['slab']} = 0; {names_['slab']} < {shares.slabs}; ++{names_['slab']}) {{"
            pad = "    "
        step = FRAGMENT if whole else 8
        if whole:
            yield f"{pad}const int {row} = {' + '.join(rows)};"
        yield "#pragma unroll"
        yield f"{pad}for (int {at} = 0; {at} < {shares.columns}; {at} += {step}) {{"
        if whole:
            yield f"{pad}    const int {column} = {' + '.join(columns)};"
            yield from _within(f"{pad}    ", self._whole(sums))
        else:
            step = f"++{i}" if stored.width == 1 else f"{i} += 2"
            yield f"{pad}    // Each thread has pairs of neighbours, in two rows."
            yield "#pragma unroll"
            yield f"{pad}    for (int {i} = 0; {i} < 4; {step}) {{"
            yield f"{pad}        const int {row} = {' + '.join(rows)} + {self.lane} / 4 + {i} / 2 * 8;"
            odd = f" + {i} % 2" if stored.width == 1 else ""
            yield f"{pad}        const int {column} = {' + '.join(columns)} + {self.lane} % 4 * 2{odd};"
            yield from _within(f"{pad}        ", self._single(sums))
            yield f"{pad}    }}"
        yield f"{pad}}}"
        if shares.slabs > 1:
            yield "}"

    def _whole(self, sums: str) -> Iterator[str]:
        """Yield the lines that store 16 x 16 sums."""
        at, i = self.fresh["at"], self.fresh["i"]
        if self.stored.value != "@0@":
            element = f"{sums}[{at} / 2 + {i}]"
            yield "#pragma unroll"
            yield f"for (int {i} = 0; {i} < 8; ++{i}) {element} = {self.stored.value.replace('@0@', element)};"
        call = f"wgmma::store(&{self._place()}, &{sums}[{at} / 2], {summed(self.stored.distance)});"
        yield from self._guarded(call)

    def _single(self, sums: str) -> Iterator[str]:
        """Yield the line that stores one sum, or two neighbours."""
        at, i, value = self.fresh["at"], self.fresh["i"], self.stored.value
        for one in range(self.stored.width):
            value = value.replace(f"@{one}@", f"{sums}[{at} / 2 + {i}{f' + {one}' if one else ''}]")
        place = self._place()
        if self.stored.width == 2:
            place = f"*reinterpret_cast<{_pair_of(self.stored.type)}*>(&{place})"
        yield from self._guarded(f"{place} = {value};")

    def _place(self) -> str:
        """Return the element of the matrix at row and column."""
        distance = summed(self.stored.distance)
        return f"{self.stored.pointer}[(size_t){self.fresh['row']} * {closed(distance)} + {self.fresh['column']}]"

    def _guarded(self, statement: str) -> Iterator[str]:
        """Yield a statement under what is asked."""
        asked: list[str] = []
        first_row, first_column = _origin_of(self.stored)
        for guard in self.stored.guards:
            row, column = symbol(self.fresh["row"]) - first_row, symbol(self.fresh["column"]) - first_column
            amount = guard.amount + number(guard.rows) * row + number(guard.columns) * column
            asked.append(bound(CopyGuard(amount)))
        condition, pad = " && ".join(dict.fromkeys(asked)), "    " if asked else ""
        if asked:
            yield f"if ({condition}) {{"
        yield from (f"{pad}{line}" for line in _in_two(statement))
        if asked:
            yield "}"


def _within(pad: str, lines: Iterable[str]) -> Iterator[str]:
    """Yield lines with an indent, which pragmas have not."""
    return (line if line.startswith("#") else pad + line for line in lines)


def _in_two(statement: str) -> list[str]:
    """Return a statement in two lines if it is long."""
    target, equals, value = statement.partition(" = ")
    return [f"{target} =", f"    {value}"] if equals and len(statement) > 90 else [statement]


def _pair_of(kind: str) -> str:
    return {"float": "float2", "half": "half2", "__half": "__half2"}.get(kind, "__nv_bfloat162")


def _origin_of(stored: StoredSums) -> tuple[Polynomial, Polynomial]:
    """Return row and column of the matrix at which the block's tile begins; all in the column if that is not known."""
    distance = stored.distance
    unknown = next((key[0] for key, n in distance.terms.items() if len(key) == 1 and n == 1), None)
    rows = stored.offset.factor(unknown) if unknown is not None and len(distance.terms) == 1 else None
    if distance.value:
        whole = {key: n // distance.value for key, n in stored.offset.terms.items() if n % distance.value == 0}
        rows = Polynomial(whole)
    if rows is None:
        return number(0), stored.offset
    return rows, stored.offset - rows * distance


def _with_name(text: str, count: int, name: str) -> str:
    """Return a sum with the kernel's name for the number that blocks are apart."""
    return re.sub(rf"\b{count} \* (blockIdx\.[xyz])", rf"\1 * {closed(name)}", text)


def _origin(stored: StoredSums, sizes: Sequence[tuple[int, str]]) -> tuple[list[str], list[str]]:
    """Return row and column at which the tile begins, as summands."""
    found = [
        [_with_name(summed(one), *size)] if one.terms else []
        for one, size in zip(_origin_of(stored), sizes, strict=True)
    ]
    if any(n < 0 or len(key) > 1 for one in _origin_of(stored) for key, n in one.terms.items()):
        raise NotApplicableError("where the block's tile begins in the result is not spelled as row and column")
    return found[0], found[1]
